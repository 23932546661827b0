//! Any bytes as messages of IGMP and of MLD. As one message: what is read of another host's report
//! is read again the same from what is written; a query asks for what is a group, and for an answer
//! within two hours and a half. As messages that reach an engine whose sockets have joined groups,
//! while time passes: it comes to rest, what it says is well formed and goes to whom it should, and
//! no frame is lost.
#![no_main]

use std::net::IpAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::route::LinkId;
use millstream_wire::checksum::{self, Accumulator};
use millstream_wire::groups::{Generation, GroupMessage, emit_old, old_len};
use millstream_wire::icmp;
use millstream_wire::ip::{self, IpHeader, Protocol, Version};
use millstream::{Engine, EngineConfig, GroupFilter};
use millstream_fuzz::Input;

thread_local! {
    static POOL: Pool =
        Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(2048) }).expect("a pool");
}

/// Messages of one input.
const MESSAGES: usize = 40;
/// Turns after one event: more would be an engine that does not come to rest.
const TURNS: usize = 1000;

fuzz_target!(|bytes: &[u8]| {
    for version in [Version::V4, Version::V6] {
        read(version, bytes);
    }
    POOL.with(|pool| {
        converse(pool, Input(bytes));
        assert_eq!(pool.stats().used_frames, 0, "frames were lost");
    });
});

/// Reads one message.
fn read(version: Version, bytes: &[u8]) {
    match GroupMessage::parse(version, bytes) {
        Some(GroupMessage::Report(group)) => {
            assert!(group.is_multicast() && Version::of(&group) == version);
            let mut again = vec![0xaa; old_len(version)];
            let len = emit_old(Generation::Second, group, false, &mut again);
            assert_eq!(len, again.len());
            assert_eq!(GroupMessage::parse(version, &again), Some(GroupMessage::Report(group)));
        }
        Some(GroupMessage::Query(query)) => {
            assert!(query.group.is_none_or(|group| group.is_multicast()));
            assert!(query.within < Duration::from_secs(9000) && query.robustness < 8);
            assert_eq!(query.sources.iter().count(), query.sources.len());
            assert!(query.sources.iter().all(|source| Version::of(&source) == version));
        }
        None => {}
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Has an engine hear messages.
fn converse(pool: &Pool, mut input: Input<'_>) {
    let (near, mut far) =
        pair(PairConfig { medium: Medium::Ip, ..PairConfig::default() }).expect("a pair");
    let mut engine = Engine::new(EngineConfig::new(pool.clone()).seed([1; 32])).expect("an engine");
    let link = engine.add_link(Box::new(near)).expect("a link");
    for own in ["10.0.0.1/24", "fe80::1/64", "fd00::1/64"] {
        engine.add_address(link, own.parse().expect("a prefix")).expect("an address");
    }
    let socket = engine.sockets().udp_bind("[::]:9".parse().expect("an address")).expect("bind");
    let mut now = engine.refresh_time();
    for _ in 0..MESSAGES {
        let choice = input.byte();
        if input.is_empty() {
            break;
        }
        let group = match choice & 1 {
            0 => IpAddr::from([239, 0, 0, input.byte() % 4]),
            _ => IpAddr::from([0xff15, 0, 0, 0, 0, 0, 0, u16::from(input.byte() % 4)]),
        };
        let list = sources(group, input.byte());
        match choice >> 1 & 3 {
            0 => say(&mut far, pool, now, group.is_ipv4(), &mut input),
            1 => {
                let _ = engine.udp(socket).leave_group(group, Some(LinkId(0)));
            }
            2 => {
                let filter = GroupFilter::Include(list);
                let _ = engine.udp(socket).set_group_filter(group, None, filter);
            }
            _ => {
                let filter = GroupFilter::Exclude(list);
                let _ = engine.udp(socket).set_group_filter(group, None, filter);
            }
        }
        now += Duration::from_millis(u64::from(input.byte()) * 20);
        let mut turns = 0;
        while engine.turn(now).progress {
            turns += 1;
            assert!(turns < TURNS, "it does not come to rest");
        }
        hear(&mut far, pool, now);
    }
}

/// Up to seven sources of the group's version.
fn sources(group: IpAddr, choice: u8) -> Vec<IpAddr> {
    let source = |last: u8| match group.is_ipv4() {
        true => IpAddr::from([10, 0, 0, last]),
        false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)]),
    };
    (2..9).filter(|last| choice >> (last - 2) & 1 != 0).map(source).collect()
}

/// A message of a router, all but its headers and checksum any bytes.
fn say(far: &mut PairEnd, pool: &Pool, now: Instant, is_v4: bool, input: &mut Input<'_>) {
    let len = usize::from(input.byte() % 96);
    let mut body: Vec<u8> = (0..len.max(8)).map(|_| input.byte()).collect();
    body[2..4].fill(0);
    let (src, dst) = match is_v4 {
        true => (address("10.0.0.9"), address("224.0.0.1")),
        false => (address("fe80::9"), address("ff02::1")),
    };
    let pseudo = if is_v4 { 0 } else { icmp::pseudo_sum(src, dst, body.len()) };
    let mut sum = Accumulator::new(pseudo);
    sum.add(&body);
    body[2..4].copy_from_slice(&sum.finish());
    let alert = [58, 0, 5, 2, 0, 0, 1, 0];
    let (protocol, alert) =
        if is_v4 { (Protocol::IGMP, &[][..]) } else { (Protocol::HOP_BY_HOP, &alert[..]) };
    let header =
        IpHeader { hop_limit: 1, ..IpHeader::new(src, dst, protocol, alert.len() + body.len()) };
    let mut bytes = vec![0; header.emit_len()];
    header.emit(&mut bytes);
    bytes.extend(alert);
    bytes.extend(body);
    let mut batch = PacketBatch::new();
    let packet = Packet::from_slice(pool, 64, &bytes).expect("frames");
    assert!(batch.push(packet).is_ok());
    far.transmit(now, pool, &mut batch).expect("a link");
}

/// What the engine says.
fn hear(far: &mut PairEnd, pool: &Pool, now: Instant) {
    let mut batch = PacketBatch::new();
    while far.receive(now, pool, &mut batch).expect("a link") != 0 {
        for packet in batch.drain() {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(0, &mut bytes);
            let ip = ip::parse(&bytes, bytes.len()).expect("well formed");
            let body = &bytes[ip.header_len..];
            let pseudo = match ip.src.is_ipv4() {
                true => 0,
                false => icmp::pseudo_sum(ip.src, ip.dst, body.len()),
            };
            assert!(checksum::is_valid(pseudo + checksum::sum(body)));
            // Errors about what was not understood go back.
            if ip.dst.is_multicast() {
                assert_eq!(ip.hop_limit, 1);
                assert!(matches!(body[0], 0x12 | 0x16 | 0x17 | 0x22 | 131 | 132 | 143));
            }
        }
    }
}
