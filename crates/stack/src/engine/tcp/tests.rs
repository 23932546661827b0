//! TCP by itself, over an IP layer: no engine, and no UDP beside it.

use millstream_link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream_packet::PacketBatch;
use millstream_route::LinkId;

use super::*;
use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::Delivery;
use crate::engine::ip::tests::{join, layer};

struct Host {
    cx: Context,
    ip: IpLayer,
    tcp: TcpLayer,
    link: LinkId,
}

impl Host {
    fn new(end: PairEnd, address: &str) -> Self {
        let (mut cx, mut ip) = layer(address);
        let link = join(&mut cx, &mut ip, end, address);
        let tcp = TcpLayer::new(Config::default(), &cx.limits, &[7; 32], cx.now);
        Self { cx, ip, tcp, link }
    }

    /// Takes in what has come, and sends what that made ready; whether anything came.
    fn turn(&mut self) -> bool {
        let Self { cx, ip, tcp, link } = self;
        let mut batch = PacketBatch::new();
        let slot = &mut ip.reach.links[link.index()];
        slot.link.receive(cx.now, &cx.pool, &mut batch).unwrap();
        let any = !batch.is_empty();
        while let Some(packet) = batch.pop() {
            let Delivery::Tcp(arrival) = ip.input(cx, *link, packet) else { panic!("no segment") };
            let (segment, ..) = tcp.arrival(cx, arrival).unwrap();
            tcp.input(cx, &mut ip.reach, segment);
        }
        tcp.transmit(cx, &mut ip.reach);
        ip.reach.flush(cx);
        any
    }
}

/// Takes turns of both until neither has anything to take in.
fn settle(one: &mut Host, other: &mut Host) {
    one.turn();
    while other.turn() | one.turn() {}
}

#[test]
fn connects_and_carries_bytes_over_the_ip_layer_alone() {
    let (near, far) = pair(PairConfig { medium: Medium::Ip, ..PairConfig::default() }).unwrap();
    let (mut near, mut far) = (Host::new(near, "10.0.0.1/24"), Host::new(far, "10.0.0.2/24"));
    let address = "10.0.0.2:7".parse().unwrap();
    let listener = far
        .tcp
        .listen_with(&mut far.cx, &mut far.ip.reach, address, 1, &Config::default())
        .unwrap();
    let client = near
        .tcp
        .connect_with(&mut near.cx, &mut near.ip.reach, address, None, &Config::default())
        .unwrap();
    settle(&mut near, &mut far);
    let (server, _) = far.tcp.table.accept(&mut far.cx.events, listener).unwrap();
    assert_eq!(near.tcp.write(&mut near.cx, client, b"by itself"), Ok(9));
    settle(&mut near, &mut far);
    let mut buffer = [0; 16];
    assert_eq!(far.tcp.read(&mut far.cx, server, &mut buffer), Ok(9));
    assert_eq!(&buffer[..9], b"by itself");
}
