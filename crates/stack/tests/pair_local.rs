//! Two engines over an in-memory pair, the application in each engine's thread.

mod common;

use std::io::{Read, Write};

use common::Lab;
use millstream::local::{TcpListener, TcpStream};

#[test]
fn echo_in_both_families() {
    for (server, port) in [("10.9.0.2", 7), ("fd09::2", 8)] {
        let lab = Lab::new(Default::default());
        let addr = std::net::SocketAddr::new(server.parse().expect("an address"), port);
        lab.run(
            |stack| {
                let mut stream = TcpStream::connect(stack, addr).expect("connect");
                stream.write_all(b"to and fro").expect("write");
                let mut answer = [0; 10];
                stream.read_exact(&mut answer).expect("read");
                assert_eq!(&answer, b"to and fro");
            },
            |stack| {
                let listener = TcpListener::bind(stack, addr, 16).expect("bind");
                common::ready();
                let (mut stream, _) = listener.accept().expect("accept");
                let mut bytes = [0; 10];
                stream.read_exact(&mut bytes).expect("read");
                stream.write_all(&bytes).expect("write");
                assert_eq!(stream.read(&mut bytes).expect("end"), 0);
            },
        );
    }
}
