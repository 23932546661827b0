//! Options of sockets, with the kernel as the other side: what it is sent, and what it says of its
//! own end.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::time::Duration;

use millstream::{DropReason, Engine, TcpSocketOptions};
use millstream_netlink::{TcpSocket, tcp_sockets};
use millstream_tokio::TcpStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::closing::{Host, OURS};

impl Host {
    /// The kernel's end of a connection, as it tells of it.
    fn told(&self, kernel: &KernelStream) -> TcpSocket {
        let port = kernel.local_addr().unwrap().port();
        let all = self.kernel.run(|| tcp_sockets(false)).unwrap().unwrap();
        all.into_iter().find(|socket| socket.local_port == port).expect("the kernel's end")
    }

    /// Waits until the kernel's end has had all of its data acknowledged.
    async fn is_acknowledged(&self, kernel: &KernelStream) {
        while self.told(kernel).fields["unacked_segments"] != 0.0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn change(ours: &TcpStream, change: impl FnOnce(&mut TcpSocketOptions)) {
    let mut options = ours.options().await.unwrap();
    change(&mut options);
    ours.set_options(&options).await.unwrap();
}

/// A tail leaves after 200 ms in any case, which a busy machine may take between two calls: so one
/// connection of several will do. (Without the option each write is a segment.)
#[tokio::test]
async fn what_is_written_apart_while_corked_is_one_segment() {
    let Some(host) = Host::start().await else { return };
    let mut segments = Vec::new();
    while segments.len() < 20 && !segments.contains(&1.0) {
        let (mut ours, mut kernel) = host.connection(segments.len() % 2 == 0).await;
        change(&ours, |options| (options.cork, options.nodelay) = (true, true)).await;
        for part in [b"head, ", b"middle", b" tail."] {
            ours.write_all(part).await.unwrap();
            // Whatever was written is in the engine.
            ours.info().await.unwrap();
        }
        change(&ours, |options| options.cork = false).await;
        let mut bytes = [0; 18];
        kernel.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"head, middle tail.");
        segments.push(host.told(&kernel).fields["data_segments_received"]);
    }
    assert!(segments.contains(&1.0), "{segments:?}");
}

#[tokio::test]
async fn a_connection_of_the_kernel_is_accepted_with_its_first_data() {
    let Some(host) = Host::start().await else { return };
    let mut options = host.listener.options().await.unwrap();
    options.defer_accept = Some(Duration::from_secs(600));
    host.listener.set_options(&options).await.unwrap();
    let mut kernel = host.kernel.run(|| KernelStream::connect(OURS)).unwrap().unwrap();
    // The last step of its handshake has come.
    let deferred = |engine: &mut Engine| engine.stats().dropped(DropReason::AcceptDeferred);
    while host.stack.with_engine_async(deferred).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::select! {
        biased;
        accepted = host.listener.accept() => panic!("{accepted:?}"),
        () = tokio::task::yield_now() => {}
    }
    kernel.write_all(b"x").unwrap();
    let (mut ours, from) = host.listener.accept().await.unwrap();
    assert_eq!(from, kernel.local_addr().unwrap());
    assert_eq!(ours.read_u8().await.unwrap(), b'x');
}

/// Two are closed whose peer keeps its side open: one goes, and the other stays.
#[tokio::test]
async fn a_kernel_that_does_not_end_its_side_is_waited_for_as_long_as_was_said() {
    let Some(host) = Host::start().await else { return };
    let (long, _kept) = host.connection(true).await;
    let (short, mut kernel) = host.connection(false).await;
    change(&long, |options| options.fin_wait_2 = Duration::from_secs(6000)).await;
    change(&short, |options| options.fin_wait_2 = Duration::from_millis(50)).await;
    drop((long, short));
    assert_eq!(kernel.read(&mut [0; 8]).unwrap(), 0);
    let states = |engine: &mut Engine| {
        engine.inspect().sockets().filter(|socket| socket.state == "FIN-WAIT-2").count()
    };
    while host.stack.with_engine_async(states).await.unwrap() != 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Nobody is there for what it says now.
    while kernel.write(b"late").is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = kernel.take_error().unwrap();
    assert!(error.is_none_or(|error| error.kind() == ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn segments_are_no_larger_than_was_said_either_way() {
    const MOST: u16 = 500;
    let Some(host) = Host::start().await else { return };
    for by_kernel in [true, false] {
        let (mut ours, mut kernel) = host.connection(by_kernel).await;
        change(&ours, |options| options.max_segment = Some(MOST)).await;
        ours.write_all(&[7; 30_000]).await.unwrap();
        kernel.read_exact(&mut [0; 30_000]).unwrap();
        // It begins with 536 bytes, and learns of larger ones.
        let received = host.told(&kernel).fields["rcv_mss_bytes"];
        assert!(received <= 536.0, "{received}");
    }
    // What a listener says holds for what its peers send, too.
    let mut options = host.listener.options().await.unwrap();
    options.max_segment = Some(MOST);
    host.listener.set_options(&options).await.unwrap();
    let (_ours, kernel) = host.connection(true).await;
    let mss = host.told(&kernel).fields["mss_bytes"];
    assert!(mss <= f64::from(MOST), "{mss}");
}

/// Nobody reads the connection's data yet: a read acknowledges what it takes by itself.
#[tokio::test]
async fn a_quick_ack_waits_for_no_reader() {
    let Some(host) = Host::start().await else { return };
    let ours: SocketAddr = "10.70.0.2:81".parse().unwrap();
    let listen = move |engine: &mut Engine| engine.sockets().tcp_listen(ours, 4).unwrap();
    let listener = host.stack.with_engine_async(listen).await.unwrap();
    let mut kernel = host.kernel.run(move || KernelStream::connect(ours)).unwrap().unwrap();
    kernel.set_nodelay(true).unwrap();
    let accept = move |engine: &mut Engine| engine.listener(listener).accept().ok();
    let id = loop {
        match host.stack.with_engine_async(accept).await.unwrap() {
            Some((id, _)) => break id,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    // The first segments of a connection are acknowledged at once.
    let delayed = move |engine: &mut Engine| engine.tcp(id).info().unwrap().delayed_acks;
    let mut bytes = 0;
    while host.stack.with_engine_async(delayed).await.unwrap() == 0 {
        assert!(bytes < 100, "the ACK of a byte without a reader waits");
        kernel.write_all(b".").unwrap();
        host.is_acknowledged(&kernel).await;
        bytes += 1;
    }
    let quick = move |engine: &mut Engine| engine.tcp(id).quick_ack().unwrap();
    host.stack.with_engine_async(quick).await.unwrap();
    for _ in 0..5 {
        kernel.write_all(b".").unwrap();
        host.is_acknowledged(&kernel).await;
    }
    assert_eq!(host.stack.with_engine_async(delayed).await.unwrap(), 1);
}
