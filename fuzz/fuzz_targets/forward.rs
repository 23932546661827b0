//! Packets for others, with any bytes behind headers that may be right, through an engine between
//! two links, one of whose prefixes has two gateways. What comes out is well formed, has a hop less
//! than some packet that went in, goes by the routes, and no frame is lost; what is not handed on
//! is counted.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::route::{LinkId, Route};
use millstream_wire::ip::{Fragment, IpHeader, Protocol};
use millstream::{Engine, EngineConfig};
use millstream_fuzz::Input;

thread_local! {
    static POOL: Pool =
        Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(2048) }).expect("a pool");
}

/// Packets of one input.
const PACKETS: usize = 16;
/// MTUs of the way out.
const MTUS: [usize; 4] = [1500, 1280, 576, 68];

fuzz_target!(|bytes: &[u8]| {
    POOL.with(|pool| {
        pass(pool, Input(bytes));
        assert_eq!(pool.stats().used_frames, 0, "frames were lost");
    });
});

fn pass(pool: &Pool, mut input: Input<'_>) {
    let mut engine = Engine::new(EngineConfig::new(pool.clone()).seed([1; 32])).expect("an engine");
    engine.routes().set_forwarding(true);
    engine.routes().table().expect("its own").set_multipath(true);
    let mtu = MTUS[usize::from(input.byte() & 3)];
    let mut ends: Vec<PairEnd> = Vec::new();
    for (at, mtu) in [(0, 1500), (1, mtu), (2, mtu)] {
        let config =
            PairConfig { medium: Medium::Ip, mtu, offload: false, ..PairConfig::default() };
        let (near, far) = pair(config).expect("a pair");
        let link = engine.add_link(Box::new(near)).expect("a link");
        for own in [format!("10.{at}.0.1/24"), format!("fd0{at}::1/64")] {
            engine.add_address(link, own.parse().expect("a prefix")).expect("an address");
        }
        ends.push(far);
    }
    for (link, prefix, gateway) in [
        (1, "192.0.2.0/24", "10.1.0.2"),
        (2, "192.0.2.0/24", "10.2.0.2"),
        (1, "2001:db8::/32", "fd01::2"),
        (2, "2001:db8::/32", "fd02::2"),
    ] {
        let route = Route::via(LinkId(link), gateway.parse().expect("an address"));
        engine.routes().add(prefix.parse().expect("a prefix"), route).expect("a route");
    }
    let now = engine.refresh_time();
    for _ in 0..PACKETS {
        if input.is_empty() {
            break;
        }
        let bytes = packet(&mut input);
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(pool, 64, &bytes).expect("frames");
        assert!(batch.push(packet).is_ok());
        ends[0].transmit(now, pool, &mut batch).expect("a link");
        let before = counted(&engine);
        while engine.turn(now).progress {}
        assert!(counted(&engine) > before, "{bytes:?}");
        for (at, end) in ends.iter_mut().enumerate() {
            hear(end, pool, now, at, &bytes, mtu);
        }
    }
}

/// What became of packets.
fn counted(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.forwarded + stats.dropped_total() + stats.icmp_echo_answered + stats.fragments_received
}

/// A packet to somebody, mostly behind the engine.
fn packet(input: &mut Input<'_>) -> Vec<u8> {
    let choice = input.byte();
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let (src, dst) = match choice & 7 {
        0 | 1 => (address("10.0.0.9"), address("192.0.2.7")),
        2 | 3 => (address("fd00::9"), address("2001:db8::7")),
        4 => (address("10.0.0.9"), address("10.1.0.255")),
        5 => (address("fd00::9"), address("fe80::7")),
        6 => (address("10.0.0.9"), address("10.0.0.1")),
        _ => (address("fd00::9"), address("2001:db9::7")),
    };
    let len = usize::from(input.short() % 1400);
    let fragment = (choice & 8 != 0).then(|| Fragment {
        offset: (input.short() & 0x1ff) * 8,
        more: choice & 16 != 0,
        id: input.byte().into(),
    });
    let header = IpHeader {
        hop_limit: input.byte(),
        traffic_class: input.byte(),
        dont_fragment: choice & 32 != 0 && fragment.is_none(),
        fragment,
        ..IpHeader::new(src, dst, Protocol(input.byte()), len)
    };
    let mut bytes = vec![0; header.emit_len()];
    header.emit(&mut bytes);
    let data: Vec<u8> = (0..len.min(80)).map(|_| input.byte()).collect();
    bytes.extend(&data);
    bytes.resize(header.emit_len() + len, 0);
    if choice & 64 != 0 {
        let at = usize::from(input.byte()) % bytes.len();
        bytes[at] ^= input.byte();
    }
    bytes
}

/// What an IP header says, whatever stands behind it.
struct Fixed {
    src: IpAddr,
    dst: IpAddr,
    hop_limit: u8,
    len: usize,
}

impl Fixed {
    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let v4 = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).expect("four").into();
        let v6 = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).expect("sixteen").into();
        match bytes[0] >> 4 {
            4 => Self { src: v4(12), dst: v4(16), hop_limit: bytes[8], len: word(2) },
            6 => Self { src: v6(8), dst: v6(24), hop_limit: bytes[7], len: 40 + word(4) },
            version => panic!("version {version}"),
        }
    }
}

/// What came out by the link `at`, of what went in.
fn hear(end: &mut PairEnd, pool: &Pool, now: Instant, at: usize, went_in: &[u8], mtu: usize) {
    let mut batch = PacketBatch::new();
    while end.receive(now, pool, &mut batch).expect("a link") != 0 {
        for packet in batch.drain() {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(0, &mut bytes);
            let out = Fixed::of(&bytes);
            assert_eq!(out.len, bytes.len());
            // Errors and answers go back, to whomever they seem to come from.
            let is_own = (0..3).any(|at| {
                let own = [format!("10.{at}.0.1"), format!("fd0{at}::1")];
                own.iter().any(|own| own.parse() == Ok(out.src))
            });
            if at == 0 || is_own {
                continue;
            }
            assert!(bytes.len() <= mtu);
            let before = Fixed::of(went_in);
            assert_eq!((out.src, out.dst), (before.src, before.dst));
            assert_eq!(out.hop_limit, before.hop_limit - 1);
        }
    }
}
