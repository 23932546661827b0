//! Kernels that cannot what is asked of them, or say that they can: everything works without, and
//! the notes say what is missing.

use super::*;
use crate::kernel::tap::device::{TUN_F_CSUM, TUN_F_TSO6, TUN_F_USO4, TUN_F_USO6};
use crate::{FlowMatch, Steer, Xdp, XdpConfig};
use millstream_packet::PoolConfig;

/// Everything both ways over such a driver; what was counted, and what was said.
fn over(driver: Driver, config: TapConfig) -> Option<(Capabilities, LinkStats, String)> {
    let bench = Bench::open_on(config, driver)?;
    let capabilities = bench.tap.capabilities().clone();
    let notes = bench.tap.notes().join("\n");
    let stats = everything(bench)?;
    Some((capabilities, stats, notes))
}

#[test]
fn a_kernel_without_virtio_net_headers_gets_plain_frames() {
    let driver =
        Driver { without_features: libc::IFF_VNET_HDR.cast_unsigned(), ..Driver::default() };
    let Some((capabilities, stats, notes)) = over(driver, TapConfig::default()) else { return };
    assert!(notes.contains("no virtio-net headers: plain frames"), "{notes}");
    assert!(!capabilities.rx_merge && !capabilities.rx_checksum);
    assert_eq!((stats.tx_super_segments, stats.rx_super_segments), (0, 0));
    assert_eq!(stats.tx_software_segmented, 2);
    assert!(stats.tx_software_checksums > 0);
}

#[test]
fn a_kernel_without_receive_polling_receives_inside_our_calls() {
    let driver = Driver { without_features: libc::IFF_NAPI.cast_unsigned(), ..Driver::default() };
    let napi = NapiMode::On(Napi::default());
    let config = TapConfig { napi, vnet_hdr: false, ..TapConfig::default() };
    let Some((.., notes)) = over(driver, config) else { return };
    assert!(notes.contains("no NAPI"), "{notes}");
}

#[test]
fn a_kernel_without_udp_segmentation_has_datagrams_cut_here() {
    let driver = Driver { refuses: TUN_F_USO4 | TUN_F_USO6, ..Driver::default() };
    let Some((capabilities, stats, notes)) = over(driver, TapConfig::default()) else { return };
    assert!(notes.contains("no UDP segmentation offload: cut in software"), "{notes}");
    assert!(capabilities.rx_merge && capabilities.rx_checksum, "TCP is as it was");
    assert_eq!((stats.tx_super_segments, stats.tx_software_segmented), (0, 2));
}

#[test]
fn a_kernel_that_refuses_all_offloads_gives_and_gets_packets_of_the_wires_size() {
    let driver = Driver { refuses: TUN_F_CSUM, ..Driver::default() };
    let Some((capabilities, stats, notes)) = over(driver, TapConfig::default()) else { return };
    assert!(notes.contains("refused checksum and segmentation offload"), "{notes}");
    assert!(!capabilities.rx_merge && !capabilities.rx_checksum);
    assert_eq!((stats.tx_super_segments, stats.rx_super_segments), (0, 0));
}

#[test]
fn an_offload_agreed_to_and_not_done_is_found_and_given_up() {
    for kind in [TapKind::Tap, TapKind::Tun] {
        let driver = Driver { forgets: TUN_F_TSO6, ..Driver::default() };
        let config = TapConfig { kind, ..TapConfig::default() };
        let Some((capabilities, _, notes)) = over(driver, config) else { return };
        assert!(
            notes.contains("did not give an IPv6 super-segment whole: plain frames"),
            "{notes}"
        );
        assert!(!notes.contains("IPv4"), "{notes}");
        assert!(!capabilities.rx_merge && !capabilities.rx_checksum);
    }
}

/// What the self-check finds while somebody else takes what `steer` says before the kernel's stack
/// has it.
fn checked_beside(steer: Steer) -> Option<probe::Checked> {
    let config = TapConfig { kind: TapKind::Tap, self_check: false, ..TapConfig::default() };
    let bench = Bench::open(config)?;
    let pool = Pool::new(PoolConfig::fixed(1024)).unwrap();
    let taker = XdpConfig {
        interface: bench.tap.name().to_owned(),
        netns: Some(bench.namespace.path()),
        steer,
        ..XdpConfig::default()
    };
    let _taker = permitted(Xdp::open(&taker, &pool))?;
    let (fd, name) = (bench.tap.fd.as_raw_fd(), bench.tap.name());
    Some(bench.namespace.run(|| probe::run(fd, name, Medium::Ethernet, true)).unwrap())
}

#[test]
fn super_segments_that_do_not_arrive_are_cut_here() {
    let Some(checked) = checked_beside(Steer::All) else { return };
    assert!(!checked.sends_whole && checked.receives_whole);
    assert!(checked.notes[0].contains("did not take an IPv4 super-segment: cut in software"));
}

#[test]
fn those_of_datagrams_may_be_cut_alone() {
    let datagrams = FlowMatch { address: None, port: Some((ip::Protocol::UDP, 9)) };
    let Some(checked) = checked_beside(Steer::Flows(vec![datagrams])) else { return };
    assert!(checked.sends_whole && checked.receives_whole && !checked.sends_datagrams_whole);
    let notes = checked.notes.join("\n");
    for family in ["IPv4", "IPv6"] {
        let said = format!("did not take an {family} super-segment of UDP: cut in software");
        assert!(notes.contains(&said), "{notes}");
    }
}

#[test]
fn what_the_frames_cannot_hold_is_counted_as_truncated() {
    for (kind, vnet_hdr) in [(TapKind::Tap, false), (TapKind::Tap, true), (TapKind::Tun, false)] {
        let config = TapConfig { kind, vnet_hdr, offload: false, ..TapConfig::default() };
        let Some(mut bench) = Bench::open(config) else { return };
        let socket = bench.socket(false);
        let ours = (addresses(false).1, PORT);
        socket.send_to(b"before", ours).unwrap();
        let medium = bench.medium;
        let heard = bench.hear(|packet| is_datagram(packet, medium));
        assert_eq!(payload(&heard, medium), b"before");
        // Somebody lets the kernel send longer packets than those we were opened for.
        let name = bench.tap.name();
        bench.namespace.run(|| netdev::set_mtu(name, 9000)).unwrap().unwrap();
        socket.send_to(&[1; 5000], ours).unwrap();
        socket.send_to(b"after", ours).unwrap();
        let heard = bench.hear(|packet| is_datagram(packet, medium));
        assert_eq!(payload(&heard, medium), b"after");
        let stats = bench.tap.stats();
        assert_eq!((stats.dropped(DropCause::Truncated), stats.dropped_total()), (1, 1));
    }
}

#[test]
fn segments_come_summed_where_the_device_does_nothing_and_they_fit_a_frame() {
    for (offload, mtu, summed) in [(false, 1500, true), (false, 9000, false), (true, 1500, false)] {
        let config = TapConfig { vnet_hdr: offload, mtu, ..TapConfig::default() };
        let Some(bench) = Bench::open(config) else { return };
        if offload && !bench.tap.notes().is_empty() {
            return println!("skipped: {:?}", bench.tap.notes());
        }
        let capabilities = bench.tap.capabilities();
        assert_eq!(capabilities.tso_bytes.is_none(), summed);
        let sums = TransmitChecksum { v4: !summed, v6: !summed };
        assert_eq!(capabilities.tx_checksum, sums);
    }
}
