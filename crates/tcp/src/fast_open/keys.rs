//! The server's cookies (RFC 7413 4.1.2): a keyed hash of the client's address, nothing kept for a
//! client.

use core::hash::Hasher;
use core::net::IpAddr;

use millstream_wire::tcp::FastOpenCookie;
use siphasher::sip::SipHasher24;

/// Worth of a cookie that a client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastOpenValidity {
    /// Made with the key in use.
    Current,
    /// Made with the key before: good, and to be replaced.
    Previous,
    /// Not one of ours for this client, or too old.
    Invalid,
}

/// Makes and checks cookies of 8 bytes. With a new key from time to time ([`rotate`](Self::rotate))
/// a cookie is good for one to two periods between rotations.
#[derive(Clone)]
pub struct FastOpenKeys {
    current: [u8; 16],
    previous: Option<[u8; 16]>,
}

impl core::fmt::Debug for FastOpenKeys {
    /// Without its secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FastOpenKeys").finish_non_exhaustive()
    }
}

impl FastOpenKeys {
    /// Cookies from a secret `key`, used for nothing else. Servers that share an address must share
    /// the key.
    pub fn new(key: [u8; 16]) -> Self {
        FastOpenKeys { current: key, previous: None }
    }

    /// Makes cookies with `key` from now on; those of the key before stay good until the next
    /// rotation.
    pub fn rotate(&mut self, key: [u8; 16]) {
        self.previous = Some(std::mem::replace(&mut self.current, key));
    }

    /// The cookie of `client`.
    pub fn cookie(&self, client: IpAddr) -> FastOpenCookie {
        make(&self.current, client)
    }

    /// Returns whether `cookie` was made for `client`.
    pub fn check(&self, client: IpAddr, cookie: &FastOpenCookie) -> FastOpenValidity {
        if same(&make(&self.current, client), cookie) {
            return FastOpenValidity::Current;
        }
        match self.previous {
            Some(key) if same(&make(&key, client), cookie) => FastOpenValidity::Previous,
            _ => FastOpenValidity::Invalid,
        }
    }
}

fn make(key: &[u8; 16], client: IpAddr) -> FastOpenCookie {
    let mut hasher = SipHasher24::new_with_key(key);
    match client.to_canonical() {
        IpAddr::V4(ip) => hasher.write(&ip.octets()),
        IpAddr::V6(ip) => hasher.write(&ip.octets()),
    }
    FastOpenCookie::new(&hasher.finish().to_be_bytes()).unwrap_or(FastOpenCookie::REQUEST)
}

/// Looks at every byte, so that the time tells nothing about where two cookies differ.
fn same(ours: &FastOpenCookie, theirs: &FastOpenCookie) -> bool {
    ours.len() == theirs.len()
        && ours.iter().zip(theirs.iter()).fold(0, |d, (a, b)| d | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_client_until_the_second_rotation() {
        let mut keys = FastOpenKeys::new([1; 16]);
        let (client, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let cookie = keys.cookie(client);
        assert_eq!(cookie.len(), 8);
        assert_eq!(keys.check(client, &cookie), FastOpenValidity::Current);
        assert_eq!(keys.check(other, &cookie), FastOpenValidity::Invalid);
        assert_eq!(keys.check(client, &FastOpenCookie::REQUEST), FastOpenValidity::Invalid);
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        assert_eq!(keys.check(mapped, &cookie), FastOpenValidity::Current);
        keys.rotate([2; 16]);
        assert_eq!(keys.check(client, &cookie), FastOpenValidity::Previous);
        assert_eq!(keys.check(client, &keys.cookie(client)), FastOpenValidity::Current);
        keys.rotate([3; 16]);
        assert_eq!(keys.check(client, &cookie), FastOpenValidity::Invalid);
    }

    #[test]
    fn the_beginning_of_a_cookie_is_no_cookie() {
        let keys = FastOpenKeys::new([1; 16]);
        let client = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        let cookie = keys.cookie(client);
        let part = FastOpenCookie::new(&cookie[..4]).expect("a cookie");
        assert_eq!(keys.check(client, &part), FastOpenValidity::Invalid);
    }
}
