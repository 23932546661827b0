//! The example `forward`, between two network namespaces: clients in one reach servers in the other
//! through a TUN device, an engine and the kernel's sockets.

#[path = "../../examples/forward.rs"]
mod example;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use millstream::link::TapConfig;
use millstream_link::netdev::{self, Namespace};
use millstream_link::testing::permitted;

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 8080);

/// Answers two connections with what they send, when they have sent it all.
fn serve(listener: TcpListener) {
    for stream in listener.incoming().take(2) {
        let (mut stream, mut bytes) = (stream.unwrap(), Vec::new());
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    }
}

/// Sends `length` bytes, ends its side, and gets them back.
fn ask(to: SocketAddr, length: usize) {
    let stream = TcpStream::connect(to).unwrap();
    let bytes: Vec<u8> = (0..length).map(|i| (i / 7) as u8).collect();
    let mut answer = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        (&stream).read_to_end(&mut answer).unwrap();
    });
    assert!(answer == bytes, "{} of {length} bytes", answer.len());
}

#[test]
fn connections_to_any_destination_go_on_by_the_kernels_sockets() {
    let Some(clients) = permitted(Namespace::create()) else { return };
    let Some(servers) = permitted(Namespace::create()) else { return };
    let listener = servers.run(|| {
        netdev::set_address("lo", [192, 0, 2, 1].into(), 32).unwrap();
        TcpListener::bind(SocketAddr::from(SERVER)).unwrap()
    });
    let listener = listener.unwrap();
    // Opened by the engine's thread, from any namespace.
    let config =
        TapConfig { netns: Some(clients.path()), name: Some("ms0".into()), ..TapConfig::default() };
    let Some(stack) = permitted_io(example::engine(config, "10.70.0.1/24".parse().unwrap())) else {
        return;
    };
    // The runtime's one thread is in the servers' namespace, and so are its sockets.
    let forwards = thread::spawn({
        let stack = stack.clone();
        move || {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(example::forward(&stack)).unwrap_err()
            };
            servers.run(run).unwrap()
        }
    });
    let served = thread::spawn(|| serve(listener));
    clients
        .run(|| {
            let gateway = "10.70.0.2".parse().unwrap();
            netdev::add_route("ms0", [192, 0, 2, 0].into(), 24, Some(gateway)).unwrap();
            // Until the engine takes connections, and the device is up.
            let refused = loop {
                let port = (SERVER.0, 9).into();
                match TcpStream::connect_timeout(&port, Duration::from_secs(1)) {
                    Err(error) if error.kind() == ErrorKind::TimedOut => {}
                    refused => break refused.unwrap_err().kind(),
                }
            };
            assert_eq!(refused, ErrorKind::ConnectionRefused, "nobody listens there");
            ask(SERVER.into(), 10);
            ask(SERVER.into(), 8 << 20);
        })
        .unwrap();
    served.join().unwrap();
    let left = stack.sockets().unwrap();
    let is_over = |state: &str| matches!(state, "LISTEN" | "TIME-WAIT" | "LAST-ACK" | "FIN-WAIT-2");
    assert!(left.iter().all(|socket| is_over(socket.state)), "{left:?}");
    stack.shutdown();
    assert_eq!(forwards.join().unwrap().kind(), ErrorKind::BrokenPipe);
}

/// `Some` unless the system does not permit it.
fn permitted_io<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => {
            println!("skipped: {error}");
            None
        }
        result => Some(result.unwrap()),
    }
}
