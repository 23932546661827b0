//! Super-segments beyond 64 KiB: asked for, found as somebody has set them, and refused.

use super::*;
use crate::kernel::big_tcp::Jumbo;
use crate::{LinkError, limits};

const BIG: u32 = 262_144;

fn big() -> TapConfig {
    TapConfig { super_segment_bytes: Some(BIG), ..TapConfig::default() }
}

/// What the device says of itself; `None` before Linux 6.3, and before 6.6 it takes none.
fn gro_ipv4_max_size(bench: &Bench) -> Option<u32> {
    let name = bench.tap.name();
    bench.namespace.run(|| netdev::gro_max_sizes(name)).unwrap().unwrap().v4
}

/// Whether this kernel does.
fn takes_big() -> bool {
    Bench::open(big()).is_some_and(|bench| bench.tap.capabilities().tso_bytes == Some(BIG))
}

/// A TCP super-segment whose payload tells each byte's place.
fn super_segment(bench: &Bench, is_v6: bool, len: usize) -> Packet {
    let payload = (0..len).map(|at| (at / 7) as u8).collect();
    let (host, ours) = addresses(is_v6);
    let shape = Shape {
        macs: [bench.tap.capabilities().mac, bench.host_mac],
        src: ours,
        dst: host,
        segment: Some(1400),
        ..Shape::new(is_v6, true, payload)
    };
    shape.build(&bench.pool)
}

#[test]
fn a_device_is_asked_for_long_super_segments() {
    for kind in [TapKind::Tap, TapKind::Tun] {
        let Some(bench) = Bench::open(TapConfig { kind, ..big() }) else { return };
        let Capabilities { tso_bytes, uso_bytes, .. } = *bench.tap.capabilities();
        let notes = bench.tap.notes();
        match notes.iter().any(|note| note.contains("Linux 6.6")) {
            false => {
                let found = (gro_ipv4_max_size(&bench), tso_bytes);
                assert_eq!(found, (Some(BIG), Some(BIG)), "{notes:?}");
                assert!(notes.is_empty(), "{notes:?}");
            }
            true => {
                assert_eq!(tso_bytes, Some(limits::SUPER_SEGMENT_BYTES));
                assert!(gro_ipv4_max_size(&bench).is_none_or(|bytes| bytes == 65_536));
            }
        }
        assert_eq!(uso_bytes, Some(limits::SUPER_SEGMENT_BYTES), "a datagram tells its length");
    }
}

#[test]
fn a_device_that_nobody_asked_is_used_as_somebody_has_set_it() {
    let Some(bench) =
        Bench::open(TapConfig { name: Some("ms-big".into()), ..TapConfig::default() })
    else {
        return;
    };
    assert_eq!(bench.tap.capabilities().tso_bytes, Some(limits::SUPER_SEGMENT_BYTES));
    if !takes_big() {
        return println!("skipped: it takes Linux 6.6");
    }
    bench
        .namespace
        .run(|| netdev::set_gro_max_sizes("ms-big", netdev::MaxSizes::both(BIG)))
        .unwrap()
        .unwrap();
    // SAFETY: TUNSETPERSIST takes its argument by value.
    let kept = unsafe { libc::ioctl(bench.tap.fd.as_raw_fd(), libc::TUNSETPERSIST, 1) };
    assert_eq!(kept, 0);
    let Bench { tap, namespace, .. } = bench;
    drop(tap);
    let open = |super_segment_bytes| {
        let name = Some("ms-big".into());
        let netns = Some(namespace.path());
        let config = TapConfig { name, netns, super_segment_bytes, ..TapConfig::default() };
        Tap::open(&config).unwrap().capabilities().tso_bytes
    };
    assert_eq!(open(None), Some(BIG));
    assert_eq!(open(Some(limits::SUPER_SEGMENT_BYTES)), Some(limits::SUPER_SEGMENT_BYTES));
}

#[test]
fn a_size_that_no_device_takes_is_an_error() {
    for bytes in [0, limits::SUPER_SEGMENT_BYTES - 1, limits::BIG_SUPER_SEGMENT_BYTES + 1] {
        let config = TapConfig { super_segment_bytes: Some(bytes), ..TapConfig::default() };
        let error = Tap::open(&config).unwrap_err();
        assert!(matches!(error, LinkError::Invalid(_)), "{error}");
        assert!(error.to_string().contains("65535 to 524280 can be"), "{error}");
    }
}

/// The kernel's TCP has no connection of that packet, and answers it: it has taken it for one of
/// its own.
#[test]
fn the_longest_that_can_be_reaches_the_kernels_tcp() {
    for is_v6 in [false, true] {
        longest_is_answered(is_v6);
    }
}

fn longest_is_answered(is_v6: bool) {
    let config = TapConfig { super_segment_bytes: Some(limits::BIG_SUPER_SEGMENT_BYTES), ..big() };
    let Some(mut bench) = Bench::open(config) else { return };
    if bench.tap.capabilities().tso_bytes != Some(limits::BIG_SUPER_SEGMENT_BYTES) {
        return println!("skipped: {:?}", bench.tap.notes());
    }
    // Neighbours are known then.
    exchange(&mut bench, is_v6);
    let len = limits::BIG_SUPER_SEGMENT_BYTES as usize - 100;
    bench.send(super_segment(&bench, is_v6, len));
    let stats = bench.tap.stats();
    assert_eq!(stats.dropped_total(), 0, "{stats:?}");
    // Where the kernel had no memory in such pieces just then it was cut.
    assert_eq!(stats.tx_super_segments + stats.tx_software_segmented, 1, "{stats:?}");
    let reset = bench.hear(|packet| {
        let frame = bytes(packet);
        ip::parse(&frame[14..], frame.len() - 14).is_ok_and(|header| header.protocol.0 == 6)
    });
    let reset = parse(&reset, Medium::Ethernet).tcp.unwrap();
    assert!(reset.flags.rst(), "{reset:?}");
}

/// In the place of the device something that takes less at once.
#[test]
fn one_that_the_device_does_not_take_is_cut_and_the_next_are_shorter() {
    for is_v6 in [false, true] {
        what_is_refused_is_cut(is_v6);
    }
}

fn what_is_refused_is_cut(is_v6: bool) {
    let Some(mut bench) = Bench::open(big()) else { return };
    if bench.tap.capabilities().tso_bytes != Some(BIG) {
        return println!("skipped: {:?}", bench.tap.notes());
    }
    let (ours, far) = little_device(100_000);
    bench.tap.fd = ours;
    assert!(!bench.tap.refresh());
    let len = BIG as usize - 100;
    bench.send(super_segment(&bench, is_v6, len));
    let (mut got, mut buffer) = (Vec::new(), [0; 2000]);
    for _ in 0..1000 {
        while let Ok(len) = far.recv(&mut buffer) {
            let packet =
                Packet::from_slice(&bench.pool, 0, &buffer[vnet::HEADER_BYTES..len]).unwrap();
            let parsed = parse(&packet, Medium::Ethernet);
            assert!(parsed.is_valid);
            got.extend(parsed.payload);
        }
        let mut batch = PacketBatch::new();
        bench.tap.transmit(Instant::ZERO, &bench.pool, &mut batch).unwrap();
    }
    assert!(got == (0..len).map(|at| (at / 7) as u8).collect::<Vec<_>>(), "{}", got.len());
    assert_eq!(
        (bench.tap.stats().tx_software_segmented, bench.tap.stats().dropped_total()),
        (1, 0)
    );
    assert!(bench.tap.refresh());
    assert_eq!(bench.tap.capabilities().tso_bytes, Some(limits::SUPER_SEGMENT_BYTES));
    let notes = bench.tap.notes();
    assert!(notes.iter().any(|note| note.contains("65535 bytes from now on")), "{notes:?}");
    assert!(!bench.tap.refresh(), "told once");
}

/// The virtio-net header of a packet as it is.
fn told(packet: &Packet) -> vnet::Header {
    let mut header = vnet::encode(packet.meta());
    vnet::align(&mut header, packet);
    header
}

/// The longest whose headers tell its length, and the next: that one has a length of 0, and an
/// option that tells it.
#[test]
fn over_ipv6_an_option_tells_the_length_that_the_header_cannot() {
    let Some(mut bench) = Bench::open(big()) else { return };
    if bench.tap.capabilities().tso_bytes != Some(BIG) {
        return println!("skipped: {:?}", bench.tap.notes());
    }
    let (ours, far) = little_device(BIG.cast_signed());
    bench.tap.fd = ours;
    let [fits, beyond] = [65_535, 65_536].map(|payload| payload - 32);
    bench.tap.sender.expect_jumbo(true);
    let written = |bench: &mut Bench, len, is_lent| {
        let packet = super_segment(bench, true, len);
        match is_lent {
            false => bench.send(packet),
            true => lend(bench, &packet),
        }
        let mut buffer = vec![0; BIG as usize];
        let got = far.recv(&mut buffer).expect("a packet");
        buffer.truncate(got);
        buffer
    };
    let packet = super_segment(&bench, true, fits);
    let plain = written(&mut bench, fits, false);
    assert!(written(&mut bench, fits, true)[vnet::HEADER_BYTES..] == plain[vnet::HEADER_BYTES..]);
    let (header, plain) = plain.split_at(vnet::HEADER_BYTES);
    assert_eq!(header, told(&packet));
    assert!(plain == bytes(&packet));
    let packet = super_segment(&bench, true, beyond);
    let lent = written(&mut bench, beyond, true);
    let long = written(&mut bench, beyond, false);
    let (header, long) = long.split_at(vnet::HEADER_BYTES);
    assert!(lent[4..vnet::HEADER_BYTES] == header[4..] && lent[vnet::HEADER_BYTES..] == *long);
    let mut expected = told(&packet);
    // The headers end later by as much as the segments are shorter.
    for (at, more) in [(2, 8), (4, -8), (6, 8)] {
        let offset = u16::from_ne_bytes([expected[at], expected[at + 1]]);
        let offset = offset.checked_add_signed(more).unwrap();
        expected[at..at + 2].copy_from_slice(&offset.to_ne_bytes());
    }
    assert_eq!(header, expected);
    let given = bytes(&packet);
    assert_eq!(given[18..21], [0, 0, 6], "as the stack gives it");
    assert_eq!(long[..18], given[..18]);
    // No payload length, and a hop-by-hop header (RFC 2675, 2 and 3).
    assert_eq!(long[18..21], [0, 0, 0]);
    assert_eq!(long[21..54], given[21..54]);
    assert_eq!(long[54..60], [6, 0, 0xc2, 4, 0, 1]);
    assert_eq!(long[60..62], [0, 8], "65,536 bytes, and its own");
    assert!(long[62..] == given[54..]);
    // A kernel of 7.0 and later has no use for it.
    bench.tap.sender.expect_jumbo(false);
    for is_lent in [false, true] {
        let without = written(&mut bench, beyond, is_lent);
        assert!(without[4..vnet::HEADER_BYTES] == told(&packet)[4..]);
        assert!(without[vnet::HEADER_BYTES..] == given);
    }
}

/// Sends a packet whose payload is not the link's.
fn lend(bench: &mut Bench, packet: &Packet) {
    let all = bytes(packet);
    let header_len = usize::from(packet.meta().segmentation.unwrap().header_len);
    let mut head = Packet::from_slice(&bench.pool, 64, &all[..header_len]).unwrap();
    *head.meta_mut() = *packet.meta();
    let Bench { tap, pool, .. } = bench;
    let left = tap.transmit_from(Instant::ZERO, pool, head, &all[header_len..]).unwrap();
    assert!(left.is_none());
}

/// Where the kernel's IP takes no options, what needs one is not sent.
#[test]
fn where_options_are_forbidden_ipv6_keeps_to_ordinary_ones() {
    if !takes_big() || !Jumbo::is_wanted() {
        return println!("skipped: it takes a kernel from 6.6 on and before 7.0");
    }
    for setting in ["max_hbh_opts_number", "max_hbh_length"] {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let path = format!("/proc/sys/net/ipv6/{setting}");
        namespace.run(|| std::fs::write(&path, "0")).unwrap().unwrap();
        let config = TapConfig { netns: Some(namespace.path()), ..big() };
        let Some(tap) = permitted(Tap::open(&config)) else { return };
        let Capabilities { tso_bytes, tso_v6_bytes, .. } = *tap.capabilities();
        let expected = (Some(BIG), Some(limits::SUPER_SEGMENT_BYTES));
        assert_eq!((tso_bytes, tso_v6_bytes), expected, "{:?}", tap.notes());
        assert!(tap.notes().iter().any(|note| note.contains(setting)), "{:?}", tap.notes());
    }
}
