//! Engines in tasks of the runtime that has their sockets, too.

use std::io::ErrorKind;
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, TcpStream, Undelivered, in_task, shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::support::{connection, has_sockets};

type Work = JoinHandle<std::io::Result<Undelivered>>;

fn engine(pool: &Pool, link: impl Link + 'static, own: &str) -> (Stack, Work) {
    let mut engine = Engine::new(EngineConfig::new(pool.clone())).unwrap();
    let link = engine.add_link(Box::new(link)).unwrap();
    engine.add_address(link, own.parse().unwrap()).unwrap();
    let (stack, work) = in_task(engine).unwrap();
    (stack, tokio::spawn(work))
}

fn two() -> [(Stack, Work); 2] {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let (near, far) = pair(PairConfig::default()).unwrap();
    [engine(&pool, near, "10.9.0.1/24"), engine(&pool, far, "10.9.0.2/24")]
}

/// One thread has the engines and their sockets.
#[tokio::test]
async fn engines_and_their_sockets_share_a_thread() {
    const BYTES: usize = 8 << 20;
    let [(near, _), (far, _)] = two();
    let (mut client, mut server) = connection(&near, &far).await;
    let echoes = tokio::spawn(async move {
        let (mut reader, mut writer) = server.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap()
    });
    let (mut reader, mut writer) = client.split();
    let writes = async {
        writer.write_all(&vec![7; BYTES]).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut read = Vec::new();
    let (_, length) = tokio::join!(writes, reader.read_to_end(&mut read));
    assert_eq!((length.unwrap(), echoes.await.unwrap()), (BYTES, BYTES as u64));
}

#[tokio::test]
async fn an_engine_in_a_task_sees_through_what_was_written() {
    let [(near, near_work), (far, far_work)] = two();
    let (mut client, mut server) = connection(&near, &far).await;
    let bytes = vec![5; 400_000];
    client.write_all(&bytes).await.unwrap();
    shutdown(near, Duration::from_secs(60)).await;
    let mut read = Vec::new();
    server.read_to_end(&mut read).await.unwrap();
    assert_eq!(read.len(), bytes.len());
    assert!(near_work.await.unwrap().unwrap().is_none());
    assert_eq!(client.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    // The last handles are gone.
    drop((server, far));
    far_work.await.unwrap().unwrap();
}

#[tokio::test]
async fn sockets_are_told_of_an_engine_whose_task_is_cancelled() {
    let [(near, work), (far, _far_work)] = two();
    let (mut client, server) = connection(&near, &far).await;
    let to = client.peer_addr().unwrap();
    let reads = tokio::spawn(async move { client.read(&mut [0; 8]).await });
    tokio::task::yield_now().await;
    work.abort();
    assert_eq!(reads.await.unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
    let error = TcpStream::connect(&near, to).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    server.abort();
    has_sockets(&far, 0).await;
}

/// With a tick this would not end.
#[tokio::test]
async fn an_idle_engine_wakes_nobody() {
    let [(near, _), (far, _)] = two();
    let (_client, _server) = connection(&near, &far).await;
    let turns = async || near.with_engine_async(|engine| engine.stats().turns).await.unwrap();
    let mut before = turns().await;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let after = turns().await;
        if after - before <= 2 {
            return;
        }
        before = after;
    }
}
