//! Fragments of datagrams in any order, cut and overlapping as they please, to an engine that also
//! forwards. Beyond not panicking: what it holds of them is bounded and given back in time, no
//! frame is lost, and no more datagrams are delivered than were begun.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millstream::link::{Link, Medium, PairConfig, pair};
use millstream::packet::{Packet, PacketBatch, Pool, PoolConfig};
use millstream_wire::ip::{Fragment, IpHeader, Protocol};
use millstream::{Engine, EngineConfig};
use millstream_fuzz::Input;

/// Memory that fragments may hold.
const LIMIT: usize = 64 << 10;

thread_local! {
    static POOL: Pool =
        Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(2048) }).expect("a pool");
}

fuzz_target!(|bytes: &[u8]| {
    POOL.with(|pool| {
        run(pool, &mut Input(bytes));
        assert_eq!(pool.stats().used_frames, 0, "frames were lost");
    });
});

fn run(pool: &Pool, input: &mut Input<'_>) {
    let link = PairConfig { medium: Medium::Ip, offload: false, ..PairConfig::default() };
    let (near, mut far) = pair(link).expect("a pair");
    let mut config = EngineConfig::new(pool.clone());
    config.seed = Some([1; 32]);
    config.limits.fragments_bytes = LIMIT;
    let mut engine = Engine::new(config).expect("an engine");
    engine.routes().set_forwarding(true);
    let link = engine.add_link(Box::new(near)).expect("a link");
    for prefix in ["192.0.2.1/24", "2001:db8::1/64"] {
        engine.add_address(link, prefix.parse().expect("a prefix")).expect("an address");
    }
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 7);
    let socket = engine.sockets().udp_bind(any).expect("a socket");
    let (mut now, mut given) = (engine.now(), 0);
    for _ in 0..300 {
        if input.is_empty() {
            break;
        }
        let choice = input.byte();
        let last = input.byte();
        let ends = |last: u8| -> [IpAddr; 2] {
            let to = 1 + u8::from(choice & 12 == 12);
            match choice & 1 {
                0 => [Ipv4Addr::new(192, 0, 2, last % 4 + 5), Ipv4Addr::new(192, 0, 2, to)]
                    .map(Into::into),
                _ => [u16::from(last % 4 + 5), to.into()]
                    .map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()),
            }
        };
        let [src, dst] = ends(last);
        let protocols = [Protocol::UDP, Protocol::UDP, Protocol(input.byte()), Protocol::TCP];
        let (place, len) = (input.short(), 1 + input.length(1400));
        let more = choice & 2 != 0;
        let fragment = Some(Fragment { offset: place & 0x7f8, more, id: u32::from(last >> 6) });
        let header = IpHeader {
            fragment: fragment.filter(|_| choice & 0x70 != 0x70),
            dont_fragment: false,
            traffic_class: choice >> 6,
            hop_limit: last.max(1),
            ..IpHeader::new(src, dst, protocols[usize::from(choice >> 2) % 4], len)
        };
        let mut bytes = vec![0; header.emit_len()];
        header.emit(&mut bytes);
        // A datagram without a sum, or with one that is wrong.
        bytes.extend(
            (0..len).map(|at| [0, 9, 0, 7, 0, 16, 0, 0].get(at).map_or(at as u8, |byte| *byte)),
        );
        let mut batch = PacketBatch::new();
        if let Ok(packet) = Packet::from_slice(pool, 0, &bytes)
            && batch.push(packet).is_ok()
        {
            far.transmit(now, pool, &mut batch).expect("the pair is whole");
            given += 1;
        }
        now += Duration::from_millis(u64::from(input.byte()) << 4);
        for _ in 0..8 {
            engine.turn(now);
        }
        assert!(engine.inspect().fragments_held_bytes() <= LIMIT);
        far.receive(now, pool, &mut batch).expect("the pair is whole");
    }
    let delivered = std::iter::from_fn(|| engine.udp(socket).recv(&mut [0; 2000]).ok()).count();
    assert!(delivered <= given, "{delivered} of {given}");
    now += Duration::from_secs(61);
    engine.turn(now);
    assert_eq!(engine.inspect().fragments_held_bytes(), 0, "their time is over");
}
