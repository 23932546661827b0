//! Devices whose descriptor is handed in.

use std::os::fd::{AsRawFd, OwnedFd};

use super::{Bench, super_segments};
use crate::sys::{EventFd, duplicate};
use crate::{Link, Tap, TapConfig, TapKind};

/// Takes the device over as somebody else's, by its descriptor.
fn hand_over(bench: Bench, config: &TapConfig) -> Bench {
    let fd = duplicate(bench.tap.fd.as_raw_fd()).unwrap();
    let Bench { tap, namespace, .. } = bench;
    drop(tap);
    Bench::of(namespace, Tap::from_fd(fd, config).unwrap())
}

#[test]
fn packets_pass_a_device_that_was_handed_in() {
    for kind in [TapKind::Tun, TapKind::Tap] {
        for (vnet_hdr, offload) in [(false, false), (true, false), (true, true)] {
            let made = TapConfig { kind, vnet_hdr, offload, mtu: 1400, ..TapConfig::default() };
            let Some(bench) = Bench::open(made) else { return };
            let mut bench =
                hand_over(bench, &TapConfig { io_uring: Some(false), ..TapConfig::default() });
            let capabilities = bench.tap.capabilities();
            assert_eq!((capabilities.medium, capabilities.mtu), (kind.medium(), 1400));
            assert_eq!(capabilities.rx_merge, vnet_hdr, "asked for offloads");
            for is_v6 in [false, true] {
                super_segments(&mut bench, is_v6);
            }
        }
    }
}

#[test]
fn what_is_no_device_is_refused() {
    let event = EventFd::new().unwrap();
    let refused = |fd: OwnedFd| Tap::from_fd(fd, &TapConfig::default()).is_err();
    assert!(refused(duplicate(event.as_raw_fd()).unwrap()));
    let Ok(unattached) = std::fs::File::open("/dev/net/tun") else { return };
    assert!(refused(unattached.into()));
}
