//! Bytes that can be checked at any place of a stream.

/// An endless stream of bytes that follows from a seed: eight bytes are a mixed counter, so that a
/// byte lost, doubled, swapped or shifted does not go unseen.
#[derive(Clone, Copy)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    pub fn new(seed: u64) -> Self {
        Self { seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn word(self, index: u64) -> [u8; 8] {
        let mut x = self.seed ^ index.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 29)).to_le_bytes()
    }

    /// Calls `piece` with consecutive parts of `0..len` and their bytes from stream place `at` on.
    fn pieces(self, at: u64, len: usize, mut piece: impl FnMut(usize, &[u8]) -> bool) -> bool {
        let mut done = 0;
        while done < len {
            let place = at + done as u64;
            let word = self.word(place / 8);
            let skip = (place % 8) as usize;
            let n = (8 - skip).min(len - done);
            if !piece(done, &word[skip..skip + n]) {
                return false;
            }
            done += n;
        }
        true
    }

    /// Writes the bytes from place `at` of the stream on.
    pub fn fill(self, at: u64, bytes: &mut [u8]) {
        self.pieces(at, bytes.len(), |from, piece| {
            bytes[from..from + piece.len()].copy_from_slice(piece);
            true
        });
    }

    /// Panics unless `bytes` are those from place `at` of the stream on.
    pub fn check(self, at: u64, bytes: &[u8]) {
        let mut wrong = 0;
        let good = self.pieces(at, bytes.len(), |from, piece| {
            wrong = from;
            bytes[from..from + piece.len()] == *piece
        });
        assert!(good, "wrong bytes at {}", at + wrong as u64);
    }
}

#[test]
fn what_was_filled_is_what_is_checked() {
    let pattern = Pattern::new(7);
    let mut whole = [0; 100];
    pattern.fill(3, &mut whole);
    for (from, to) in [(0, 100), (1, 99), (5, 13), (13, 13), (8, 16)] {
        pattern.check(3 + from as u64, &whole[from..to]);
    }
    let caught = |bytes: &[u8], at| {
        let bytes = bytes.to_vec();
        std::panic::catch_unwind(move || pattern.check(at, &bytes)).is_err()
    };
    assert!(caught(&whole, 4));
    assert!(caught(&[&whole[..50], &whole[51..]].concat(), 3));
    whole[77] ^= 1;
    assert!(caught(&whole, 3));
}
