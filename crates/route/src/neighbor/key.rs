//! Keys of neighbours.

use core::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::prefix::LinkId;

/// The key of an entry, in few words, so that hashing it is cheap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    bits: u128,
    v6: bool,
    pub link: LinkId,
}

impl Key {
    pub fn new(link: LinkId, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self { bits: ip.to_bits().into(), v6: false, link },
            IpAddr::V6(ip) => Self { bits: ip.to_bits(), v6: true, link },
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { bits, v6, link } = *self;
        hasher.write_u64(bits as u64);
        hasher.write_u64((bits >> 64) as u64);
        hasher.write_u64(u64::from(link.0) << 1 | u64::from(v6));
    }
}

/// Keyed hashing, so that who does not know the key cannot aim at a bucket.
#[derive(Clone, Copy)]
pub(super) struct Keyed([u64; 2]);

impl Keyed {
    /// Returns the hash with a key that is secret and random.
    pub fn new(key: [u64; 2]) -> Self {
        Self(key)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}
