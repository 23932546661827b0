//! Initial sequence numbers and timestamp offsets that a stranger cannot guess (RFC 6528, RFC 7323
//! 5.4).

use core::hash::Hasher;
use core::net::SocketAddr;
use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;
use siphasher::sip::SipHasher24;

use crate::FourTuple;

/// Makes sequence numbers by `M + F(tuple, key)`: a 4 µs clock plus a keyed hash (RFC 6528 section
/// 3).
///
/// Two calls with the same tuple, key and time answer the same; the number moves on by one every 4
/// µs, so that a new incarnation of a connection starts above the old one's range (RFC 9293 3.4.1).
#[derive(Clone)]
pub struct IsnGenerator {
    key: [u8; 16],
}

impl core::fmt::Debug for IsnGenerator {
    /// Without its secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IsnGenerator").finish_non_exhaustive()
    }
}

impl IsnGenerator {
    /// A generator from a secret `key`, drawn once per start of the stack.
    pub fn new(key: [u8; 16]) -> Self {
        IsnGenerator { key }
    }

    /// The initial sequence number for a connection opened `now`.
    pub fn isn(&self, tuple: &FourTuple, now: Instant) -> SeqNumber {
        let ticks_4us = (now.as_nanos() / 4_000) as u32;
        SeqNumber((self.hash(tuple, 0) as u32).wrapping_add(ticks_4us))
    }

    /// The offset added to the timestamp clock of this connection, constant per tuple (RFC 7323
    /// 5.4).
    pub fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.hash(tuple, 1) as u32
    }

    fn hash(&self, tuple: &FourTuple, purpose: u8) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u8(purpose);
        hash_tuple(&mut hasher, tuple);
        hasher.finish()
    }
}

pub(crate) fn hash_tuple(hasher: &mut SipHasher24, tuple: &FourTuple) {
    for end in [&tuple.local, &tuple.remote] {
        match end {
            SocketAddr::V4(v4) => hasher.write(&v4.ip().octets()),
            SocketAddr::V6(v6) => hasher.write(&v6.ip().octets()),
        }
        hasher.write_u16(end.port());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: SocketAddr::from(([10, 0, 0, 1], port)),
            remote: SocketAddr::from(([10, 0, 0, 2], 80)),
        }
    }

    #[test]
    fn the_clock_moves_it_and_key_and_tuple_change_it() {
        let generator = IsnGenerator::new([7; 16]);
        let first = generator.isn(&tuple(1000), Instant::ZERO);
        let later = generator.isn(&tuple(1000), Instant::ZERO + Duration::from_micros(40));
        assert_eq!(later.0.wrapping_sub(first.0), 10);
        assert_ne!(first, generator.isn(&tuple(1001), Instant::ZERO));
        assert_ne!(first, IsnGenerator::new([8; 16]).isn(&tuple(1000), Instant::ZERO));
        assert_ne!(generator.timestamp_offset(&tuple(1)), generator.timestamp_offset(&tuple(2)));
    }
}
