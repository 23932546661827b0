//! Sequence numbers.

use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A TCP sequence number: arithmetic modulo 2^32 (RFC 9293, 3.4).
///
/// Comparisons promise the right order for numbers less than 2^31 apart. There
/// is no `Ord`: the order is not transitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Returns true if `self` comes before `other`.
    #[inline]
    pub const fn lt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns true if `self` comes before `other` or is equal to it.
    #[inline]
    pub const fn le(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) <= 0
    }

    /// Returns true if `self` comes after `other`.
    #[inline]
    pub const fn gt(self, other: Self) -> bool {
        other.lt(self)
    }

    /// Returns true if `self` comes after `other` or is equal to it.
    #[inline]
    pub const fn ge(self, other: Self) -> bool {
        other.le(self)
    }

    /// Returns the later of two numbers.
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// Returns the earlier of two numbers.
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if other.lt(self) { other } else { self }
    }

    /// Returns the distance from `earlier` forward to `self`, round the end when `earlier` is
    /// later.
    #[inline]
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns true if `self` lies in the `length` numbers that start at `start`.
    #[inline]
    pub const fn in_window(self, start: Self, length: u32) -> bool {
        self.distance_from(start) < length
    }
}

impl Add<usize> for SeqNumber {
    type Output = Self;
    #[inline]
    fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u32))
    }
}

impl AddAssign<usize> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, bytes: usize) {
        *self = *self + bytes;
    }
}

impl Sub<usize> for SeqNumber {
    type Output = Self;
    #[inline]
    fn sub(self, bytes: usize) -> Self {
        Self(self.0.wrapping_sub(bytes as u32))
    }
}

impl SubAssign<usize> for SeqNumber {
    #[inline]
    fn sub_assign(&mut self, bytes: usize) {
        *self = *self - bytes;
    }
}

/// The signed distance: negative when `self` comes before `earlier`.
impl Sub<SeqNumber> for SeqNumber {
    type Output = i32;
    #[inline]
    fn sub(self, earlier: SeqNumber) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }
}

impl core::fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::SeqNumber;

    #[test]
    fn order_holds_across_the_wrap() {
        let before = SeqNumber(u32::MAX - 1);
        let after = before + 4;
        assert_eq!(after, SeqNumber(2));
        assert!(before.lt(after) && before.le(after) && after.gt(before) && after.ge(before));
        assert!(before.le(before) && before.ge(before) && !before.lt(before));
        assert_eq!(after - before, 4);
        assert_eq!(before - after, -4);
        assert_eq!(after.distance_from(before), 4);
        assert_eq!(before.max(after), after);
        assert_eq!(before.min(after), before);
        assert_eq!(after - 4, before);
    }

    #[test]
    fn window_is_half_open() {
        let start = SeqNumber(u32::MAX);
        assert!(start.in_window(start, 1));
        assert!(!start.in_window(start, 0));
        assert!(SeqNumber(3).in_window(start, 5));
        assert!(!SeqNumber(4).in_window(start, 5));
    }
}
