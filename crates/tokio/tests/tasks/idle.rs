//! Idle sockets cost nothing.

use std::time::Duration;

use millstream_tokio::{Stack, TcpStream};
use tokio::io::AsyncReadExt;

use crate::support::{has_sockets, listener, two};

async fn turns(stack: &Stack) -> u64 {
    stack.with_engine_async(|engine| engine.stats().turns).await.unwrap()
}

/// With a tick this would not end.
#[tokio::test]
async fn idle_streams_wake_nobody() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let mut readers = Vec::new();
    for _ in 0..200 {
        let (client, server) = tokio::join!(TcpStream::connect(&near, addr), listener.accept());
        for mut stream in [client.unwrap(), server.unwrap().0] {
            readers.push(tokio::spawn(async move { stream.read(&mut [0; 8]).await.unwrap() }));
        }
    }
    // Once all that the handshakes left is done, however busy the machine is.
    for stack in [&near, &far] {
        let mut before = turns(stack).await;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let after = turns(stack).await;
            // The questions themselves take that many.
            if after - before <= 2 {
                break;
            }
            before = after;
        }
    }
    readers.iter().for_each(|reader| reader.abort());
    has_sockets(&near, 0).await;
}
