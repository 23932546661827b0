//! Devices that outlive their users.

use std::os::fd::AsRawFd;

use super::{Bench, PORT, addresses};
use crate::netdev::{self, Namespace, ScatterGather};
use crate::testing::{bytes, parse, permitted};
use crate::{Link, Tap, TapConfig};

/// Has a device outlive its user, who lets it go.
fn keep(tap: Tap) {
    outlives(&tap);
}

fn outlives(tap: &Tap) {
    // SAFETY: TUNSETPERSIST takes its argument by value.
    let kept = unsafe { libc::ioctl(tap.fd.as_raw_fd(), libc::TUNSETPERSIST, 1) };
    assert_eq!(kept, 0, "{}", std::io::Error::last_os_error());
}

/// A device of that name in the namespace.
fn named(namespace: &Namespace) -> TapConfig {
    TapConfig {
        name: Some("ms-kept".into()),
        netns: Some(namespace.path()),
        ..TapConfig::default()
    }
}

#[test]
fn a_device_that_had_a_user_with_offloads_gives_whole_packets_to_one_without_headers() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let whole = TapConfig {
        host_addresses: vec![(addresses(false).0, 24)],
        io_uring: Some(false),
        ..named(&namespace)
    };
    let Some(tap) = permitted(Tap::open(&whole)) else { return };
    keep(tap);
    let tap = Tap::open(&TapConfig { vnet_hdr: false, ..whole }).unwrap();
    let mut bench = Bench::of(namespace, tap);
    let socket = bench.socket(false);
    socket.send_to(b"from the kernel", (addresses(false).1, PORT)).unwrap();
    let medium = bench.medium;
    let heard = bench.hear(|packet| bytes(packet).ends_with(b"from the kernel"));
    assert!(parse(&heard, medium).is_valid, "the kernel has summed it");
}

#[test]
fn a_device_is_left_without_offloads_by_the_last_queue() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let opened = Tap::open_queues(&named(&namespace), 2);
    let Some(mut queues) = permitted(opened) else { return };
    if !queues[0].capabilities().rx_merge {
        return println!("skipped: {:?}", queues[0].notes());
    }
    let last = queues.pop().unwrap();
    outlives(&last);
    drop(queues);
    let unsummed =
        || namespace.run(|| netdev::takes_transmit_checksum("ms-kept")).unwrap().unwrap();
    assert!(unsummed(), "another queue is left");
    drop(last);
    assert!(!unsummed());
}

#[test]
fn a_device_whose_user_was_killed_has_its_offloads_again() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let plain = TapConfig { vnet_hdr: false, ..named(&namespace) };
    let whole = TapConfig { vnet_hdr: true, ..plain.clone() };
    let Some(tap) = permitted(Tap::open(&plain)) else { return };
    keep(tap);
    let whole_before = Tap::open(&whole).unwrap().capabilities().rx_merge;
    let left = || {
        let mut pieces = ScatterGather::of("ms-kept").unwrap();
        pieces.lay_whole(true).unwrap();
        std::mem::forget(pieces);
    };
    namespace.run(left).unwrap();
    let tap = Tap::open(&whole).unwrap();
    assert_eq!(tap.capabilities().rx_merge, whole_before, "{:?}", tap.notes());
    assert!(whole_before || !tap.notes().is_empty());
}
