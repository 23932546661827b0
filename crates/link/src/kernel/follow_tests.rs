//! Interfaces whose MTU or address is set while a link is open.

use millstream_packet::{Instant, PacketBatch, Pool, PoolConfig};
use millstream_wire::ethernet::MacAddr;

use crate::netdev::{self, Namespace};
use crate::testing::{MAC_A, Shape, permitted, pool};
use crate::{
    DropCause, Link, LinkError, MacvtapConfig, RawConfig, RawLink, Tap, TapConfig, TapKind, Xdp,
    XdpConfig,
};

/// Two ends of a virtual pair, both up.
fn veth() -> Option<Namespace> {
    let namespace = permitted(Namespace::create())?;
    let made = namespace.run(|| {
        netdev::add_veth("ms0", "ms1", None, 1)?;
        netdev::set_mtu("ms0", 1600)?;
        netdev::set_mtu("ms1", 3000)?;
        netdev::set_up("ms0")?;
        netdev::set_up("ms1")
    });
    permitted(made.and_then(|made| made))?;
    Some(namespace)
}

fn set(namespace: &Namespace, call: impl Fn() -> Result<(), LinkError> + Sync) {
    namespace.run(&call).unwrap().unwrap();
}

/// Whether a packet of so many bytes, link header included, is sent.
fn sends(link: &mut impl Link, pool: &Pool, len: usize) -> bool {
    let (before, mut batch) = (link.stats(), PacketBatch::new());
    let mut packet = Shape::new(false, false, vec![7; len - 42]).build(pool);
    crate::offload::complete_checksum(&mut packet, pool).unwrap();
    assert_eq!(packet.len(), len);
    batch.push(packet).unwrap();
    link.transmit(Instant::ZERO, pool, &mut batch).unwrap();
    let stats = link.stats();
    let dropped = stats.dropped_total() - before.dropped_total();
    assert_eq!(stats.tx_packets - before.tx_packets + dropped, 1, "{stats:?}");
    dropped == 0
}

fn noted(link: &impl Link, what: &str) -> usize {
    link.notes().iter().filter(|note| note.contains(what)).count()
}

/// On `ms0` of MTU 1600, made for one of `most` at most.
fn follows_the_mtu(link: &mut impl Link, namespace: &Namespace, most: usize) {
    assert!(!link.refresh(), "nothing has changed");
    for (mtu, carried) in [(1200, 1200), (1300, 1300), (3000, most.min(3000)), (1600, 1600)] {
        set(namespace, || netdev::set_mtu("ms0", mtu));
        let has_changed = link.capabilities().mtu != carried;
        assert_eq!((link.refresh(), link.refresh()), (has_changed, false), "{mtu}");
        assert_eq!(link.capabilities().mtu, carried);
        assert_eq!(noted(link, "its MTU is"), usize::from(mtu != 1600), "{:?}", link.notes());
        assert_eq!(noted(link, "opened anew"), usize::from(mtu > most), "{:?}", link.notes());
    }
    // The name is no part of it.
    set(namespace, || {
        netdev::set_mtu("ms0", 1400)?;
        netdev::set_down("ms0")?;
        netdev::rename("ms0", "ms9")?;
        netdev::set_up("ms9")
    });
    assert!(link.refresh());
    assert_eq!((link.capabilities().mtu, noted(link, "1400 since")), (1400, 1));
    set(namespace, || netdev::remove("ms9"));
    assert!(!link.refresh(), "one that is gone is as it was");
}

fn follows_the_address(link: &mut impl Link, namespace: &Namespace) {
    let before = link.capabilities().mac;
    set(namespace, || netdev::set_mac("ms0", MAC_A));
    assert!(link.refresh() && !link.refresh());
    assert_eq!((link.capabilities().mac, noted(link, "its address is")), (MAC_A, 1));
    set(namespace, || netdev::set_mac("ms0", before));
    assert!(link.refresh());
    assert_eq!((link.capabilities().mac, noted(link, "its address is")), (before, 0));
}

#[test]
fn a_packet_socket_follows_its_interface() {
    let Some(namespace) = veth() else { return };
    let netns = Some(namespace.path());
    let config = RawConfig { interface: "ms0".into(), netns, ..RawConfig::default() };
    let mut link = RawLink::open(&config).unwrap();
    follows_the_address(&mut link, &namespace);
    assert!(sends(&mut link, &pool(), 1614));
    set(&namespace, || netdev::set_mtu("ms0", 1200));
    assert!(!sends(&mut link, &pool(), 1614), "the kernel refuses it");
    assert_eq!(link.stats().dropped(DropCause::Refused), 1);
    link.refresh();
    assert!(!sends(&mut link, &pool(), 1614) && sends(&mut link, &pool(), 1214));
    set(&namespace, || netdev::set_mtu("ms0", 1600));
    link.refresh();
    assert!(sends(&mut link, &pool(), 1614));
    follows_the_mtu(&mut link, &namespace, usize::MAX);
}

#[test]
fn an_address_of_ones_own_is_no_matter_of_the_interface() {
    let Some(namespace) = veth() else { return };
    let netns = Some(namespace.path());
    let mac = MacAddr([2, 0, 0, 0, 0, 77]);
    let config =
        RawConfig { interface: "ms0".into(), netns, mac: Some(mac), ..RawConfig::default() };
    let mut link = RawLink::open(&config).unwrap();
    set(&namespace, || netdev::set_mac("ms0", MAC_A));
    assert!(!link.refresh());
    assert_eq!((link.capabilities().mac, link.notes().len()), (mac, 0));
}

#[test]
fn an_af_xdp_link_follows_its_interface_as_far_as_its_frames_go() {
    let pool = Pool::new(PoolConfig::fixed(1024)).unwrap();
    for (mtu, most) in [(1600, 1774), (9000, usize::MAX)] {
        let Some(namespace) = veth() else { return };
        set(&namespace, || {
            netdev::set_mtu("ms1", 9000)?;
            netdev::set_mtu("ms0", mtu)
        });
        let netns = Some(namespace.path());
        let config = XdpConfig { interface: "ms0".into(), netns, ..XdpConfig::default() };
        let Some(mut link) = permitted(Xdp::open(&config, &pool)) else { return };
        if mtu != 1600 {
            assert!(!link.refresh());
            continue;
        }
        follows_the_address(&mut link, &namespace);
        follows_the_mtu(&mut link, &namespace, most);
    }
}

/// What the kernel sends through the device is received whole at an MTU larger than at first, and
/// so is what we send.
#[test]
fn a_tap_device_is_followed_as_far_as_it_has_memory() {
    for kind in [TapKind::Tap, TapKind::Tun] {
        for offload in [true, false] {
            let Some(namespace) = permitted(Namespace::create()) else { return };
            let config = TapConfig {
                name: Some("ms0".into()),
                netns: Some(namespace.path()),
                mtu: 1600,
                kind,
                offload,
                io_uring: Some(false),
                ..TapConfig::default()
            };
            let Some(mut tap) = permitted(Tap::open(&config)) else { return };
            let grows = tap.capabilities().rx_merge && tap.borrows();
            set(&namespace, || netdev::set_down("ms0"));
            assert!(!tap.refresh() && tap.is_down());
            set(&namespace, || netdev::set_up("ms0"));
            assert!(!tap.refresh() && !tap.is_down());
            let mac = tap.capabilities().mac;
            if kind == TapKind::Tap {
                set(&namespace, || netdev::set_mac("ms0", MAC_A));
                assert!(!tap.refresh() && tap.capabilities().mac == mac, "ours is another");
                assert!(sends(&mut tap, &pool(), 1614) && !sends(&mut tap, &pool(), 3014));
                set(&namespace, || netdev::set_mtu("ms0", 3000));
                tap.refresh();
                assert_eq!(sends(&mut tap, &pool(), 3014), grows);
                set(&namespace, || netdev::set_mtu("ms0", 1600));
                tap.refresh();
            }
            follows_the_mtu(&mut tap, &namespace, if grows { usize::MAX } else { 1600 });
        }
    }
}

#[test]
fn what_was_noted_otherwise_stays() {
    let Some(namespace) = veth() else { return };
    let config = RawConfig {
        interface: "ms0".into(),
        netns: Some(namespace.path()),
        receive_buffer_bytes: Some(usize::MAX),
        ..RawConfig::default()
    };
    let mut link = RawLink::open(&config).unwrap();
    for mtu in [1000, 1001, 1002] {
        set(&namespace, || netdev::set_mtu("ms0", mtu));
        assert!(link.refresh());
        assert_eq!((noted(&link, "the kernel queues"), link.notes().len()), (1, 2));
    }
}

/// The other end of the pair goes down, and comes up again.
fn follows_the_carrier(link: &mut impl Link, namespace: &Namespace) {
    // The kernel takes its time to tell (`linkwatch`).
    let mut becomes = |is_down: bool| {
        (0..1000).any(|_| {
            link.refresh();
            let is_so = link.is_down() == is_down;
            if !is_so {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            is_so
        })
    };
    assert!(becomes(false));
    set(namespace, || netdev::set_down("ms1"));
    assert!(becomes(true));
    set(namespace, || netdev::set_up("ms1"));
    assert!(becomes(false));
}

#[test]
fn a_lost_carrier_is_seen_and_so_is_its_return() {
    let Some(namespace) = veth() else { return };
    let netns = Some(namespace.path());
    for mac in [None, Some(MacAddr([2, 0, 0, 0, 0, 77]))] {
        let netns = netns.clone();
        let config = RawConfig { interface: "ms0".into(), netns, mac, ..RawConfig::default() };
        follows_the_carrier(&mut RawLink::open(&config).unwrap(), &namespace);
    }
    let over =
        MacvtapConfig { interface: "ms0".into(), netns: netns.clone(), ..MacvtapConfig::default() };
    if let Some(mut link) = permitted(Tap::open_over(&over)) {
        follows_the_carrier(&mut link, &namespace);
    }
    let pool = Pool::new(PoolConfig::fixed(1024)).unwrap();
    let config = XdpConfig { interface: "ms0".into(), netns, ..XdpConfig::default() };
    let Some(mut link) = permitted(Xdp::open(&config, &pool)) else { return };
    follows_the_carrier(&mut link, &namespace);
}
