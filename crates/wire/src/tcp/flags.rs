//! The control bits.

use core::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// The control bits of a TCP header as a set (RFC 9293, 3.1; RFC 3168, 6.1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field holds.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer holds.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);
    /// `SYN` and `ACK`.
    pub const SYN_ACK: Self = Self(0x12);

    /// Returns true if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the bits of both.
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits that are not in `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Sets the bits of `other`.
    #[inline]
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    #[inline]
    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Returns true if `FIN` is set.
    #[inline]
    pub const fn fin(self) -> bool {
        self.intersects(Self::FIN)
    }

    /// Returns true if `SYN` is set.
    #[inline]
    pub const fn syn(self) -> bool {
        self.intersects(Self::SYN)
    }

    /// Returns true if `RST` is set.
    #[inline]
    pub const fn rst(self) -> bool {
        self.intersects(Self::RST)
    }

    /// Returns true if `PSH` is set.
    #[inline]
    pub const fn psh(self) -> bool {
        self.intersects(Self::PSH)
    }

    /// Returns true if `ACK` is set.
    #[inline]
    pub const fn ack(self) -> bool {
        self.intersects(Self::ACK)
    }

    /// Returns true if `URG` is set.
    #[inline]
    pub const fn urg(self) -> bool {
        self.intersects(Self::URG)
    }

    /// Returns true if `ECE` is set.
    #[inline]
    pub const fn ece(self) -> bool {
        self.intersects(Self::ECE)
    }

    /// Returns true if `CWR` is set.
    #[inline]
    pub const fn cwr(self) -> bool {
        self.intersects(Self::CWR)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.insert(other);
    }
}

impl BitAnd for TcpFlags {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for TcpFlags {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.without(other)
    }
}

impl Not for TcpFlags {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl core::fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        if self.is_empty() {
            return f.write_str("-");
        }
        let mut first = true;
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                if !first {
                    f.write_str("|")?;
                }
                first = false;
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::TcpFlags;

    #[test]
    fn sets() {
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        assert_eq!(flags, TcpFlags::SYN_ACK);
        assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::FIN));
        assert!(flags.intersects(TcpFlags::SYN | TcpFlags::FIN));
        assert_eq!(flags - TcpFlags::SYN, TcpFlags::ACK);
        assert_eq!(format!("{flags:?} {:?}", TcpFlags::NONE), "SYN|ACK -");
    }
}
