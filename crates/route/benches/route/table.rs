//! Made-up tables like those of the Internet.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_route::{LinkId, Prefix, Route};

const HOPS: u32 = 64;
const ADDRS: usize = 1 << 20;

/// Prefixes with the number of their next hop, and addresses within them.
pub struct Table {
    pub prefixes: Vec<(Prefix, u32)>,
    pub addrs: Vec<IpAddr>,
}

/// Lengths of prefixes, each with how many of a thousand prefixes have it.
const LENGTHS_V4: [(u8, u32); 12] = [
    (24, 590),
    (23, 100),
    (22, 115),
    (21, 50),
    (20, 45),
    (19, 25),
    (18, 15),
    (17, 8),
    (16, 14),
    (15, 2),
    (28, 16),
    (32, 20),
];
const LENGTHS_V6: [(u8, u32); 10] = [
    (48, 480),
    (44, 110),
    (40, 110),
    (32, 120),
    (36, 60),
    (46, 40),
    (42, 20),
    (29, 30),
    (47, 15),
    (64, 15),
];

/// SplitMix64: the same table every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn length(&mut self, lengths: &[(u8, u32)]) -> u8 {
        let mut at = self.below(lengths.iter().map(|(_, share)| u64::from(*share)).sum()) as u32;
        for &(length, share) in lengths {
            match at.checked_sub(share) {
                Some(rest) => at = rest,
                None => return length,
            }
        }
        unreachable!("the shares add up")
    }
}

/// The route of a next hop's number. A gateway of IPv6 serves both families (RFC 8950).
pub fn route(hop: u32) -> Route {
    let gateway = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(hop));
    Route::via(LinkId((hop % 4) as u16), gateway.into())
}

pub fn v4(addr: &IpAddr) -> Option<&Ipv4Addr> {
    match addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    }
}

pub fn v6(addr: &IpAddr) -> Option<&Ipv6Addr> {
    match addr {
        IpAddr::V6(addr) => Some(addr),
        IpAddr::V4(_) => None,
    }
}

impl Table {
    /// `count` prefixes in 1.0.0.0 to 223.255.255.255.
    pub fn v4(count: usize) -> Self {
        Self::new(count, |random| {
            let addr = 0x0100_0000 + random.below(0xdf00_0000) as u32;
            (IpAddr::V4(Ipv4Addr::from_bits(addr)), random.length(&LENGTHS_V4))
        })
    }

    /// `count` prefixes in the blocks of some thousand operators.
    pub fn v6(count: usize) -> Self {
        const REGISTRIES: [u128; 6] = [0x2001, 0x2400, 0x2600, 0x2800, 0x2a00, 0x2c00];
        Self::new(count, |random| {
            let registry = REGISTRIES[random.below(6) as usize] + u128::from(random.below(12));
            let operator = u128::from(random.below(300)) * 211 % 65_536;
            let rest = u128::from(random.next()) << 32;
            let addr = registry << 112 | operator << 96 | rest;
            (IpAddr::V6(Ipv6Addr::from_bits(addr)), random.length(&LENGTHS_V6))
        })
    }

    fn new(count: usize, mut prefix: impl FnMut(&mut Random) -> (IpAddr, u8)) -> Self {
        let mut random = Random(1);
        let mut prefixes = BTreeSet::new();
        while prefixes.len() < count {
            let (addr, len) = prefix(&mut random);
            prefixes.insert(Prefix { addr, len }.network());
        }
        let prefixes: Vec<_> =
            prefixes.into_iter().map(|p| (p, 1 + random.below(HOPS.into()) as u32)).collect();
        let addrs = (0..ADDRS).map(|_| {
            let (prefix, _) = prefixes[random.below(prefixes.len() as u64) as usize];
            let host = u128::from(random.next()) << 64 | u128::from(random.next());
            match prefix.addr {
                IpAddr::V4(addr) => {
                    let mask = u32::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
                    IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() | host as u32 & mask))
                }
                IpAddr::V6(addr) => {
                    let mask = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
                    IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() | host & mask))
                }
            }
        });
        Self { addrs: addrs.collect(), prefixes }
    }

    pub fn is_v4(&self) -> bool {
        self.addrs[0].is_ipv4()
    }

    /// Writes the input of `dpdk.c`: the numbers of prefixes and of addresses, then both, in native
    /// byte order.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let bytes = |addr: &IpAddr| match addr {
            IpAddr::V4(addr) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&addr.octets());
                bytes
            }
            IpAddr::V6(addr) => addr.octets(),
        };
        out.write_all(&(self.prefixes.len() as u32).to_ne_bytes())?;
        out.write_all(&(self.addrs.len() as u32).to_ne_bytes())?;
        for (prefix, hop) in &self.prefixes {
            out.write_all(&bytes(&prefix.addr))?;
            out.write_all(&u32::from(prefix.len).to_ne_bytes())?;
            out.write_all(&hop.to_ne_bytes())?;
        }
        self.addrs.iter().try_for_each(|addr| out.write_all(&bytes(addr)))
    }
}
