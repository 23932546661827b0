//! Link addresses that are made up, and stay when a program starts again.

use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use millstream_wire::ethernet::MacAddr;
use siphasher::sip::SipHasher24;

/// Which of the devices of a machine one is. What makes it the same after a restart, and another
/// than every other's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    /// `tap` or `macvtap`.
    pub kind: &'a str,
    /// The interface's name: its own, or that of the one below.
    pub name: &'a str,
    /// The link address of the one below, where there is one.
    pub below: Option<MacAddr>,
    /// Which of several that have the same name.
    pub number: u32,
}

/// A link address for a device of this thread's network namespace, the same at each call: locally
/// administered, unicast. It is a hash under the machine's identity (machine-id(5)), which cannot
/// be told from it; with the host's name, as containers may share that identity, and the network
/// namespace, where devices of one name may be in several.
pub(crate) fn stable_mac(device: Identity<'_>) -> MacAddr {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let namespace = namespace().map(|(device, inode)| format!("{device}:{inode}"));
    let place =
        [read("/etc/machine-id"), read("/proc/sys/kernel/hostname"), namespace.unwrap_or_default()];
    derive(&place, device)
}

fn derive(place: &[String; 3], device: Identity<'_>) -> MacAddr {
    let [machine, host, namespace] = place;
    let key = u128::from_str_radix(machine.trim(), 16).unwrap_or_default();
    let mut hasher = SipHasher24::new_with_key(&key.to_be_bytes());
    let Identity { kind, name, below, number } = device;
    for part in ["millstream link address", host.trim(), namespace, kind, name] {
        hasher.write(part.as_bytes());
        hasher.write_u8(0);
    }
    hasher.write(&below.map_or([0; 6], |MacAddr(bytes)| bytes));
    hasher.write(&number.to_le_bytes());
    let [first, rest @ ..] = hasher.finish().to_le_bytes();
    let [a, b, c, d, e, _, _] = rest;
    MacAddr([first & !1 | 2, a, b, c, d, e])
}

/// The network namespace of this thread; none for that of the machine's first process, whose number
/// may be another each time that the machine starts.
fn namespace() -> Option<(u64, u64)> {
    let of = |path: &str| Path::new(path).metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let own = of("/proc/thread-self/ns/net")?;
    (of("/proc/1/ns/net") != Some(own)).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::Namespace;

    const DEVICE: Identity<'static> = Identity { kind: "tap", name: "ms0", below: None, number: 0 };

    #[test]
    fn whatever_differs_the_address_is_another_and_always_one_of_a_station() {
        let place = |parts: [&str; 3]| parts.map(str::to_owned);
        let usual = ["0123456789abcdef0123456789abcdef\n", "host\n", ""];
        let mac = Some(MacAddr([2; 6]));
        let all = [
            (usual, DEVICE),
            (["1123456789abcdef0123456789abcdef\n", "host\n", ""], DEVICE),
            ([usual[0], "guest\n", ""], DEVICE),
            ([usual[0], "host\n", "4:1"], DEVICE),
            // A machine without an identity.
            (["", "host\n", ""], DEVICE),
            (usual, Identity { kind: "macvtap", ..DEVICE }),
            (usual, Identity { name: "ms1", ..DEVICE }),
            (usual, Identity { below: mac, ..DEVICE }),
            (usual, Identity { number: 1, ..DEVICE }),
        ];
        let macs: Vec<MacAddr> =
            all.iter().map(|(parts, device)| derive(&place(*parts), *device)).collect();
        for (at, mac) in macs.iter().enumerate() {
            assert!(mac.is_unicast() && mac.0[0] & 2 != 0, "{mac}");
            assert!(!macs[..at].contains(mac), "{at}: {mac}");
            assert_eq!(*mac, derive(&place(all[at].0), all[at].1));
        }
        // As it was in the version before: people's filters may name it.
        assert_eq!(macs[0], MacAddr([0xa6, 0xc7, 0x63, 0x06, 0x1d, 0x0a]));
    }

    #[test]
    fn a_namespace_has_addresses_of_its_own_and_keeps_them() {
        assert_eq!(stable_mac(DEVICE), stable_mac(DEVICE));
        let Ok(other) = Namespace::create() else { return };
        let there = || other.run(|| stable_mac(DEVICE)).unwrap();
        assert_eq!(there(), there());
        assert_ne!(there(), stable_mac(DEVICE));
    }
}
