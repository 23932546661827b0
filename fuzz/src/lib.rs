//! What the targets share: reading decisions out of the fuzzer's bytes, and data
//! whose every byte tells its place.

pub mod conversation;

/// Decisions, taken from the front of the fuzzer's bytes; zeros when they end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    /// The next 16 bits.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// The next 32 bits.
    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) << 16 | u32::from(self.short())
    }

    /// A length: mostly short, sometimes up to `limit`.
    pub fn length(&mut self, limit: usize) -> usize {
        let length = match self.byte() {
            short @ 0..=199 => usize::from(short),
            200..=229 => 1460,
            _ => usize::from(self.short()),
        };
        length.min(limit)
    }

    /// The next bytes, at most `n` of them.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// The byte at `offset` of a stream.
pub fn pattern(offset: u32) -> u8 {
    (offset as u8) ^ ((offset >> 8) as u8).wrapping_mul(167)
}

/// The bytes of a stream from `offset` on.
pub fn pattern_bytes(offset: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| pattern(offset.wrapping_add(i))).collect()
}
