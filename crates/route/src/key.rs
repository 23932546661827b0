//! Addresses as numbers: what lets one body serve both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address as a number whose first bit is its most significant one.
pub(crate) trait Key: Copy + Ord {
    /// Bits of an address.
    const BITS: u32;
    /// The address of which no bit is set.
    #[cfg(test)]
    const ZERO: Self;

    /// Returns `width` bits from bit `offset` on, counted from the front. `offset` is below
    /// [`Self::BITS`], `width` between 1 and 24; what lies beyond the end is zero.
    fn bits(self, offset: u32, width: u32) -> usize;

    /// Returns the first 32 bits.
    fn front(self) -> u32;

    /// Returns the byte behind the first `offset` bits, whole bytes of an address.
    fn byte(self, offset: u32) -> usize;

    /// Returns the first `len` bits, the others cleared.
    fn network(self, len: u8) -> Self;

    /// Returns the last address of the network of `len` bits that this address is in.
    fn last(self, len: u8) -> Self;

    /// Returns it as an address.
    fn addr(self) -> IpAddr;
}

macro_rules! key {
    ($number:ty, $addr:ty) => {
        impl Key for $number {
            const BITS: u32 = <$number>::BITS;
            #[cfg(test)]
            const ZERO: Self = 0;

            #[inline(always)]
            fn bits(self, offset: u32, width: u32) -> usize {
                ((self << offset) >> (Self::BITS - width)) as usize
            }

            #[inline(always)]
            fn front(self) -> u32 {
                (self >> (Self::BITS - u32::BITS)) as u32
            }

            #[inline(always)]
            fn byte(self, offset: u32) -> usize {
                let bytes = self.to_be_bytes();
                bytes[offset as usize / 8 % bytes.len()].into()
            }

            fn network(self, len: u8) -> Self {
                self & !<$number>::MAX.checked_shr(u32::from(len)).unwrap_or(0)
            }

            fn last(self, len: u8) -> Self {
                self | <$number>::MAX.checked_shr(u32::from(len)).unwrap_or(0)
            }

            fn addr(self) -> IpAddr {
                <$addr>::from_bits(self).into()
            }
        }
    };
}

key!(u32, Ipv4Addr);
key!(u128, Ipv6Addr);
