//! From the addresses of a segment to the socket that owns it.
//!
//! A table of fixed capacity: nothing is ever moved to a larger one, so no packet pays for growth.
//! The memory is taken from the system as zero pages and becomes real only where entries are. A
//! stranger chooses remote addresses and ports, so the hash is keyed (SipHash-1-3).

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

pub use millstream_tcp::FourTuple as FlowKey;
use siphasher::sip::SipHasher13;

use crate::tuning;

/// The ends of a flow in as little room as they fit, for tables of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedKey {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
    v6: bool,
}

impl PackedKey {
    /// Packs addresses; both are of one family, without scope.
    pub fn new(key: &FlowKey) -> Self {
        Self {
            local: octets16(key.local.ip()),
            remote: octets16(key.remote.ip()),
            local_port: key.local.port(),
            remote_port: key.remote.port(),
            v6: key.local.is_ipv6(),
        }
    }

    /// The addresses again.
    pub fn unpack(&self) -> FlowKey {
        let ip = |octets: [u8; 16]| match self.v6 {
            true => IpAddr::V6(octets.into()),
            false => IpAddr::V6(octets.into()).to_canonical(),
        };
        FlowKey {
            local: SocketAddr::new(ip(self.local), self.local_port),
            remote: SocketAddr::new(ip(self.remote), self.remote_port),
        }
    }
}

/// An address as the tables keep it: without scope, flow label, or IPv4 in IPv6's clothes.
pub(crate) fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// How well a socket bound to `bound` fits a packet for `local` with the same port.
pub(crate) fn match_rank(bound: SocketAddr, local: SocketAddr) -> Option<u8> {
    match (bound.ip(), local.ip()) {
        (bound, local) if bound == local => Some(3),
        (bound, local) if bound.is_unspecified() && bound.is_ipv4() == local.is_ipv4() => Some(2),
        (bound, _) if bound.is_unspecified() && bound.is_ipv6() => Some(1),
        _ => None,
    }
}

/// Returns true if sockets at these addresses would get the same packets: same port and same
/// address.
pub(crate) fn overlaps(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.ip() == b.ip()
}

/// A secret for hashing flows.
#[derive(Clone, Copy)]
pub struct HashKey(pub u64, pub u64);

/// The key is a secret.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

impl HashKey {
    /// The flow's hash under this key.
    pub fn flow(&self, key: &FlowKey) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        match (key.local.ip(), key.remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut bytes = [0; 12];
                bytes[..4].copy_from_slice(&local.octets());
                bytes[4..8].copy_from_slice(&remote.octets());
                bytes[8..10].copy_from_slice(&key.local.port().to_be_bytes());
                bytes[10..].copy_from_slice(&key.remote.port().to_be_bytes());
                hasher.write(&bytes);
            }
            (local, remote) => {
                let mut bytes = [0; 36];
                bytes[..16].copy_from_slice(&octets16(local));
                bytes[16..32].copy_from_slice(&octets16(remote));
                bytes[32..34].copy_from_slice(&key.local.port().to_be_bytes());
                bytes[34..].copy_from_slice(&key.remote.port().to_be_bytes());
                hasher.write(&bytes);
            }
        }
        hasher.finish() as u32
    }
}

fn octets16(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Robin-Hood open addressing over (hash, slot number) pairs; the keys live in the slots themselves
/// and are compared through the `is` argument. An entry lies at most [`tuning::DEMUX_PROBES`]
/// places from home: a look-up, hit or miss, never reads more.
pub struct FlowTable {
    /// `hash << 32 | slot + 1`; 0 is a free place.
    entries: Vec<u64>,
    mask: usize,
    len: usize,
}

impl std::fmt::Debug for FlowTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowTable").field("len", &self.len).finish_non_exhaustive()
    }
}

/// The table has no place for one more flow within reach of its home.
#[derive(Debug, PartialEq, Eq)]
pub struct TableFull;

impl FlowTable {
    /// Memory for each flow of the limit, at most: two places and rounding up to a power of two.
    pub const ENTRY_BYTES: usize = 4 * size_of::<u64>();

    /// A table for `limit` flows at most half full.
    pub fn new(limit: usize) -> Self {
        let places = (limit.max(8) * 2).next_power_of_two();
        Self { entries: vec![0; places], mask: places - 1, len: 0 }
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn distance(&self, entry: u64, place: usize) -> usize {
        place.wrapping_sub((entry >> 32) as usize) & self.mask
    }

    /// The slot whose key has this hash and of which `is` says that it is the one.
    #[inline]
    pub fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut place = hash as usize & self.mask;
        for probe in 0..tuning::DEMUX_PROBES {
            let entry = self.entries[place];
            if entry == 0 || self.distance(entry, place) < probe {
                return None;
            }
            if (entry >> 32) as u32 == hash {
                let slot = entry as u32 - 1;
                if is(slot) {
                    return Some(slot);
                }
            }
            place = (place + 1) & self.mask;
        }
        None
    }

    /// Adds a flow that is not in the table. Refused when the table is half full, or when the flow
    /// (or one that it would move) finds no place near its home; nothing has moved then.
    pub fn insert(&mut self, hash: u32, slot: u32) -> Result<(), TableFull> {
        if self.len * 2 > self.mask || !self.fits(hash) {
            return Err(TableFull);
        }
        let mut carried = u64::from(hash) << 32 | u64::from(slot + 1);
        let mut place = hash as usize & self.mask;
        let mut probe = 0;
        loop {
            let entry = self.entries[place];
            if entry == 0 {
                self.entries[place] = carried;
                self.len += 1;
                return Ok(());
            }
            let distance = self.distance(entry, place);
            if distance < probe {
                self.entries[place] = carried;
                carried = entry;
                probe = distance;
            }
            place = (place + 1) & self.mask;
            probe += 1;
        }
    }

    /// Returns true if an insertion at `hash` leaves every entry within reach of its home.
    fn fits(&self, hash: u32) -> bool {
        let mut place = hash as usize & self.mask;
        let mut probe = 0;
        loop {
            let entry = self.entries[place];
            if probe >= tuning::DEMUX_PROBES {
                return false;
            }
            if entry == 0 {
                return true;
            }
            probe = probe.min(self.distance(entry, place)) + 1;
            place = (place + 1) & self.mask;
        }
    }

    /// Takes the flow of `slot` out; the entries after it move one place nearer to home.
    pub fn remove(&mut self, hash: u32, slot: u32) -> bool {
        let wanted = u64::from(hash) << 32 | u64::from(slot + 1);
        let mut place = hash as usize & self.mask;
        for _ in 0..tuning::DEMUX_PROBES {
            if self.entries[place] == wanted {
                self.close_gap(place);
                self.len -= 1;
                return true;
            }
            place = (place + 1) & self.mask;
        }
        false
    }

    fn close_gap(&mut self, mut place: usize) {
        loop {
            let next = (place + 1) & self.mask;
            let entry = self.entries[next];
            if entry == 0 || self.distance(entry, next) == 0 {
                self.entries[place] = 0;
                return;
            }
            self.entries[place] = entry;
            place = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(ops in prop::collection::vec((any::<bool>(), 0..40u32, 0..48u32), 1..400)) {
            let mut table = FlowTable::new(32);
            let mut model: HashMap<u32, u32> = HashMap::new(); // slot -> hash
            for (add, home, slot) in ops {
                let hash = home * 3 + (home % 5) * 64;
                if add && !model.contains_key(&slot) {
                    match table.insert(hash, slot) {
                        Ok(()) => drop(model.insert(slot, hash)),
                        Err(TableFull) => prop_assert!(model.len() >= 16),
                    }
                } else if let Some(hash) = model.remove(&slot) {
                    prop_assert!(table.remove(hash, slot));
                }
                prop_assert_eq!(table.len(), model.len());
                for (&slot, &hash) in &model {
                    prop_assert_eq!(table.find(hash, |found| found == slot), Some(slot));
                }
            }
        }
    }

    #[test]
    fn colliding_flows_are_refused_not_searched() {
        let mut table = FlowTable::new(1024);
        let held = (0..1000).take_while(|&slot| table.insert(7, slot).is_ok()).count();
        assert_eq!(held, tuning::DEMUX_PROBES);
        assert_eq!(table.find(7, |_| false), None);
        assert_eq!(table.insert(9_000, 5), Ok(()));
    }

    #[test]
    fn both_families_hash_by_key() {
        let v4 = FlowKey {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "10.0.0.2:9".parse().unwrap(),
        };
        let v6 = FlowKey {
            local: "[fd00::1]:80".parse().unwrap(),
            remote: "[fd00::2]:9".parse().unwrap(),
        };
        for key in [v4, v6] {
            assert_eq!(HashKey(1, 2).flow(&key), HashKey(1, 2).flow(&key));
            assert_ne!(HashKey(1, 2).flow(&key), HashKey(1, 3).flow(&key));
            assert_eq!(PackedKey::new(&key).unpack(), key);
        }
    }
}
