//! Whatever bytes arrive: they are counted by reason and nothing else happens.

use millstream::Engine;
use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use proptest::prelude::*;

use crate::common::{self, Mode, both_modes};

both_modes!(random_bytes_are_counted, damaged_packets_are_counted);

/// An engine with open sockets, and the other end of its link.
struct Target {
    pool: Pool,
    engine: Engine,
    wire: PairEnd,
}

fn link(medium: Medium) -> PairConfig {
    PairConfig { offload: false, medium, ..PairConfig::default() }
}

fn target(mode: Mode, medium: Medium) -> Target {
    let pool = common::pool();
    let (wire, end) = pair(link(medium)).expect("a pair");
    let mut engine = common::engine(mode.config(&pool, 2), end, &common::FAR);
    engine.sockets().tcp_listen("[::]:80".parse().expect("any"), 8).expect("listen");
    engine.sockets().udp_bind("[::]:53".parse().expect("any")).expect("bind");
    Target { pool, engine, wire }
}

impl Target {
    /// Puts a frame on the wire, lets the engine take it, and throws away what it answers.
    fn inject(&mut self, frame: &[u8]) {
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(&self.pool, 0, frame).expect("frames");
        assert!(batch.push(packet).is_ok());
        let now = self.engine.refresh_time();
        self.wire.transmit(now, &self.pool, &mut batch).expect("sent");
        self.engine.turn(now);
        while self.wire.receive(now, &self.pool, &mut batch).expect("received") != 0 {
            batch.drain().for_each(drop);
        }
    }
}

/// IP packets that are right in every respect, to be damaged: from the near host to the far one.
fn good_packets(mode: Mode) -> Vec<Vec<u8>> {
    let pool = common::pool();
    let (end, mut wire) = pair(link(Medium::Ip)).expect("a pair");
    let mut engine = common::engine(mode.config(&pool, 1), end, &common::NEAR);
    let now = engine.refresh_time();
    for ip in ["10.9.0.2", "fd09::2"] {
        let ip: std::net::IpAddr = ip.parse().expect("an address");
        engine.sockets().tcp_connect((ip, 80).into()).expect("connect");
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let udp = engine.sockets().udp_bind(any.parse().expect("any")).expect("bind");
        for port in [53, 54] {
            engine.udp(udp).send(b"a datagram", Some((ip, port).into())).expect("send");
        }
        let echo = engine.sockets().icmp_bind(0).expect("bind");
        engine.echo(echo).send(ip, 1, b"an echo").expect("send");
    }
    engine.turn(now);
    let mut batch = PacketBatch::new();
    wire.receive(Instant::from_nanos(1), &pool, &mut batch).expect("received");
    let bytes = |packet: Packet| packet.slices().flatten().copied().collect::<Vec<u8>>();
    let packets: Vec<Vec<u8>> = std::iter::from_fn(|| batch.pop()).map(bytes).collect();
    assert_eq!(packets.len(), 8);
    packets
}

/// Everything that arrived was dropped for a reason, or taken in.
fn accounted(engine: &Engine) -> u64 {
    let s = engine.stats();
    // A datagram or segment nobody wants counts once as that; a rate limit may count its answer.
    // A fragment that is kept waits for the others of its datagram.
    let dropped = s.drops_by_name().filter(|(name, _)| name.starts_with("fragment_"));
    let kept = s.fragments_received.saturating_sub(dropped.map(|(_, count)| count).sum());
    s.dropped_total()
        + s.tcp_rx_segments
        + s.tcp_passive_opens
        + s.udp_rx
        + s.icmp_echo_answered
        + kept
}

const CASES: u32 = 64;

fn random_bytes_are_counted(mode: Mode) {
    proptest!(ProptestConfig::with_cases(CASES), |(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 1..40),
        aimed in any::<bool>(),
    )| {
        let mut target = target(mode, Medium::Ethernet);
        let count = frames.len() as u64;
        for mut frame in frames {
            if aimed && frame.len() >= 14 {
                frame[..6].copy_from_slice(&link(Medium::Ethernet).macs[1].0);
                let kind = [[8, 0], [8, 6], [0x86, 0xdd]][usize::from(frame[12]) % 3];
                frame[12..14].copy_from_slice(&kind);
            }
            // The link itself refuses what has no room for its header.
            if frame.len() < 14 {
                frame.resize(14, 0);
            }
            target.inject(&frame);
        }
        prop_assert!(accounted(&target.engine) >= count);
        prop_assert_eq!(target.engine.inspect().connection_count(), 0);
        prop_assert_eq!(target.engine.stats().rx_packets, count);
    });
}

fn damaged_packets_are_counted(mode: Mode) {
    proptest!(ProptestConfig::with_cases(CASES), |(
        picks in prop::collection::vec(
            (0..8_usize, prop::collection::vec((0..120_usize, any::<u8>()), 0..4), 0..130_usize),
            1..40,
        ),
    )| {
        let good = good_packets(mode);
        let mut target = target(mode, Medium::Ip);
        for (which, damage, cut) in &picks {
            let mut packet = good[*which].clone();
            for (at, value) in damage {
                if let Some(byte) = packet.get_mut(*at) {
                    *byte ^= value;
                }
            }
            if *cut > 0 && *cut < packet.len() {
                packet.truncate(*cut);
            }
            target.inject(&packet);
        }
        prop_assert!(accounted(&target.engine) >= picks.len() as u64);
        prop_assert!(target.engine.inspect().connection_count() <= 8, "the listener's limit");
        // It still works.
        for packet in &good {
            target.inject(packet);
        }
        prop_assert!(target.engine.stats().icmp_echo_answered >= 2);
        prop_assert!(target.engine.stats().udp_rx >= 2);
    });
}
