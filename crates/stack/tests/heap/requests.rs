//! Connections that wait for a verdict which nobody gives.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::LocalPrefix;
use millstream::link::{Link, Medium, PairConfig, pair};
use millstream::packet::{Instant, Packet, PacketBatch};
use millstream::route::{LinkId, Prefix};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use crate::common::frames::{Ends, segment};
use crate::common::{FAR, config, engine, pool};
use crate::{ALONE, HEAP};

const SYNS: u32 = 100_000;
/// Memory of a request, with its share of the tables.
const REQUEST_BYTES: usize = 300;

#[test]
fn unanswered_requests_hold_no_more_than_their_limit() {
    let _alone = ALONE.lock();
    let pool = pool();
    let link = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
    let (mut outside, inside) = pair(link).expect("a pair");
    let mut engine = engine(config(&pool, 1), inside, &FAR);
    let all = Prefix::DEFAULT_V4;
    engine.intercept().add_prefix(LinkId(0), LocalPrefix::new(all)).expect("a prefix");
    let gateway = "10.9.0.1".parse().expect("an address");
    engine.routes().add_gateway(LinkId(0), gateway).expect("the way back");
    let within = Duration::from_secs(30);
    engine.intercept().tcp(all, 0, within).expect("a listener");
    let before = HEAP.allocated();
    let now = Instant::from_millis(5);
    for number in 0..SYNS {
        let from = SocketAddr::from(((number + (198 << 24)).to_be_bytes(), 1234));
        let ends = Ends { from, to: ([203, 0, 113, 7], 443).into() };
        let (seq, flags) = (SeqNumber(number), TcpFlags::SYN);
        let syn = segment(ends, TcpHeader { seq, flags, ..TcpHeader::default() }, &[]);
        let mut batch = PacketBatch::new();
        batch.push(Packet::from_slice(&pool, 64, &syn).expect("a frame")).expect("room");
        outside.transmit(now, &pool, &mut batch).expect("sent");
        while engine.turn(now).progress {}
        while engine.next_event().is_some() {}
    }
    let limit = engine.inspect().limits().syn_queue;
    let waiting = engine.intercept().requests_waiting().count();
    let (held, displaced) = (HEAP.allocated() - before, engine.stats().tcp_requests_displaced);
    assert!(waiting <= limit && displaced > 90_000, "{waiting} of {limit}, {displaced}");
    assert!(held <= limit * REQUEST_BYTES, "{held} bytes for {waiting}");
    assert_eq!(engine.inspect().memory_use().held_bytes, 0, "no frame");
    // Their time is over: they are dropped, and nobody was answered.
    while engine.turn(now + 2 * within).progress {}
    assert_eq!(engine.intercept().requests_waiting().count(), 0);
    assert_eq!(engine.stats().tcp_requests_late, waiting as u64);
    let answers = outside.receive(now, &pool, &mut PacketBatch::new());
    assert_eq!(answers.expect("a link"), 0);
}
