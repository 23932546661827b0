//! The options of neighbour discovery (RFC 4861, 4.6).

use core::net::Ipv6Addr;
use core::ops::Deref;

use crate::Malformed;
use crate::bytes::be32;
use crate::ethernet::MacAddr;
use crate::limits::{NDP_OPTIONS, NDP_PREFIXES};

const SOURCE_LL: u8 = 1;
const TARGET_LL: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const NONCE: u8 = 14;

/// A prefix of the link (4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; bits behind its length mean nothing.
    pub prefix: Ipv6Addr,
    /// Number of its leading bits that count, at most 128.
    pub prefix_len: u8,
    /// Addresses under it are on the link.
    pub on_link: bool,
    /// Addresses may be formed under it (RFC 4862).
    pub autonomous: bool,
    /// For how many seconds it holds; `u32::MAX` for ever.
    pub valid_s: u32,
    /// For how many seconds addresses formed under it are preferred.
    pub preferred_s: u32,
}

/// The prefixes of one router advertisement, up to [`NDP_PREFIXES`]. Reads as a
/// slice.
#[derive(Clone, Copy)]
pub struct Prefixes {
    prefixes: [PrefixInformation; NDP_PREFIXES],
    len: u8,
}

impl Prefixes {
    /// No prefix.
    pub const EMPTY: Self = {
        let none = PrefixInformation {
            prefix: Ipv6Addr::UNSPECIFIED,
            prefix_len: 0,
            on_link: false,
            autonomous: false,
            valid_s: 0,
            preferred_s: 0,
        };
        Self { prefixes: [none; NDP_PREFIXES], len: 0 }
    };

    /// Takes a prefix behind the others; gives it back when there is no room.
    pub fn push(&mut self, prefix: PrefixInformation) -> Result<(), PrefixInformation> {
        match self.prefixes.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = prefix;
                self.len += 1;
                Ok(())
            }
            None => Err(prefix),
        }
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Deref for Prefixes {
    type Target = [PrefixInformation];
    fn deref(&self) -> &Self::Target {
        self.prefixes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl PartialEq for Prefixes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Prefixes {}

impl core::fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The options of a message.
#[derive(Default)]
pub(super) struct Options {
    pub(super) source_ll: Option<MacAddr>,
    pub(super) target_ll: Option<MacAddr>,
    pub(super) mtu: Option<u32>,
    pub(super) nonce: Option<[u8; 6]>,
    pub(super) prefixes: Prefixes,
}

impl Options {
    /// Reads all options up to the end of the message. The last one counts of an option that comes
    /// twice, but every prefix does.
    pub(super) fn parse(mut rest: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        for _ in 0..=NDP_OPTIONS {
            let (kind, len) = match *rest {
                [] => return Ok(options),
                // RFC 4861, 4.6: units of 8 bytes; a length of 0 voids the message.
                [kind, units, ..] if units > 0 => (kind, usize::from(units) * 8),
                _ => return Err(Malformed::NdpOption),
            };
            let (option, after) = rest.split_at_checked(len).ok_or(Malformed::NdpOption)?;
            options.take(kind, option)?;
            rest = after;
        }
        Err(Malformed::NdpOptionLimit)
    }

    fn take(&mut self, kind: u8, option: &[u8]) -> Result<(), Malformed> {
        match kind {
            SOURCE_LL => self.source_ll = Some(link_layer(option)?),
            TARGET_LL => self.target_ll = Some(link_layer(option)?),
            // RFC 3971, 5.3.2: of any length.
            NONCE => {
                self.nonce = match *option {
                    [_, _, a, b, c, d, e, f] => Some([a, b, c, d, e, f]),
                    _ => None,
                };
            }
            MTU => self.mtu = Some(be32(fixed::<8>(option)?, 4)),
            PREFIX => {
                let option = fixed::<32>(option)?;
                let prefix = PrefixInformation {
                    prefix: Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| option[16 + i])),
                    prefix_len: option[2],
                    on_link: option[3] & 0x80 != 0,
                    autonomous: option[3] & 0x40 != 0,
                    valid_s: be32(option, 4),
                    preferred_s: be32(option, 8),
                };
                if prefix.prefix_len > 128 {
                    return Err(Malformed::NdpOption);
                }
                // More prefixes than the limit are no fault of the message.
                let _ = self.prefixes.push(prefix);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns an option as exactly `N` bytes.
fn fixed<const N: usize>(option: &[u8]) -> Result<&[u8; N], Malformed> {
    option.try_into().map_err(|_| Malformed::NdpOption)
}

/// Returns the Ethernet address in an option, which fills one unit (RFC 2464, 6).
fn link_layer(option: &[u8]) -> Result<MacAddr, Malformed> {
    let &[_, _, a, b, c, d, e, f] = fixed::<8>(option)?;
    let mac = MacAddr([a, b, c, d, e, f]);
    // A neighbour is one station: a group address would turn unicast into a flood.
    if mac.is_unicast() { Ok(mac) } else { Err(Malformed::NdpOption) }
}

/// Writes a message from front to back.
pub(super) struct OptionWriter<'a> {
    rest: &'a mut [u8],
}

impl<'a> OptionWriter<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        Self { rest: buffer }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        let (now, later) = core::mem::take(&mut self.rest).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.rest = later;
    }

    pub(super) fn source_ll(&mut self, mac: Option<MacAddr>) {
        self.link_layer(SOURCE_LL, mac);
    }

    pub(super) fn target_ll(&mut self, mac: Option<MacAddr>) {
        self.link_layer(TARGET_LL, mac);
    }

    fn link_layer(&mut self, kind: u8, mac: Option<MacAddr>) {
        if let Some(MacAddr(mac)) = mac {
            self.put(&[kind, 1]);
            self.put(&mac);
        }
    }

    pub(super) fn nonce(&mut self, nonce: Option<[u8; 6]>) {
        if let Some(nonce) = nonce {
            self.put(&[NONCE, 1]);
            self.put(&nonce);
        }
    }

    pub(super) fn mtu(&mut self, mtu: Option<u32>) {
        if let Some(mtu) = mtu {
            self.put(&[MTU, 1, 0, 0]);
            self.put(&mtu.to_be_bytes());
        }
    }

    pub(super) fn prefix(&mut self, prefix: &PrefixInformation) {
        let PrefixInformation { prefix, prefix_len, on_link, autonomous, valid_s, preferred_s } =
            prefix;
        let flags = u8::from(*on_link) << 7 | u8::from(*autonomous) << 6;
        self.put(&[PREFIX, 4, *prefix_len, flags]);
        self.put(&valid_s.to_be_bytes());
        self.put(&preferred_s.to_be_bytes());
        self.put(&[0; 4]);
        self.put(&prefix.octets());
    }
}
