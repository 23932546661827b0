//! Connections before their SYN-ACK.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use millstream::link::PairConfig;
use millstream::net::{TcpRequests, TcpStream};
use millstream::{LocalPrefix, Refusal};

use super::stacks;

#[test]
fn a_thread_decides_of_requests() {
    let (near, far) = stacks(PairConfig::default());
    let all = "192.0.2.0/24".parse().expect("a prefix");
    let deliver = move |engine: &mut millstream::Engine| {
        let link = engine.inspect().links().next().expect("a link").id;
        engine.intercept().add_prefix(link, LocalPrefix::new(all)).expect("a prefix");
    };
    far.with_engine(deliver).expect("an engine");
    let route = |engine: &mut millstream::Engine| {
        let link = engine.inspect().links().next().expect("a link").id;
        let far = super::far_addr(0).ip();
        engine.routes().add_gateway(link, far).expect("a route");
    };
    near.with_engine(route).expect("an engine");
    let requests = TcpRequests::open(&far, all, 0, Duration::from_secs(60)).expect("requests");
    requests.set_nonblocking(true).expect("a mode");
    assert_eq!(requests.next_request().unwrap_err().kind(), ErrorKind::WouldBlock);
    requests.set_nonblocking(false).expect("a mode");
    let to: SocketAddr = "192.0.2.7:443".parse().expect("an address");
    let client = thread::spawn({
        let near = near.clone();
        move || {
            let mut stream = TcpStream::connect(&near, to).expect("accepted");
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).expect("bytes");
            (bytes, TcpStream::connect(&near, to).unwrap_err().kind())
        }
    });
    let request = requests.next_request().expect("a request");
    assert_eq!(request.local_addr(), to);
    let mut stream = request.accept().expect("a stream");
    assert_eq!(stream.local_addr().expect("an address"), to);
    stream.write_all(b"here").expect("room");
    requests.next_request().expect("a request").refuse(Refusal::Reset);
    assert_eq!(client.join().expect("it ends"), (*b"here", ErrorKind::ConnectionRefused));
    drop(requests);
    let refused = TcpStream::connect(&near, to).unwrap_err().kind();
    assert_eq!(refused, ErrorKind::ConnectionRefused);
}
