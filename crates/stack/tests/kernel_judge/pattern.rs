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

    /// Lengths of the part of `0..len` before the first word that begins in it.
    fn head_len(at: u64, len: usize) -> usize {
        ((8 - at % 8) % 8).min(len as u64) as usize
    }

    /// Writes the bytes from place `at` of the stream on.
    pub fn fill(self, at: u64, bytes: &mut [u8]) {
        let (head, body) = bytes.split_at_mut(Self::head_len(at, bytes.len()));
        if !head.is_empty() {
            let from = (at % 8) as usize;
            head.copy_from_slice(&self.word(at / 8)[from..from + head.len()]);
        }
        let first = at.div_ceil(8);
        let mut words = body.chunks_exact_mut(8);
        let mut index = first;
        for word in &mut words {
            word.copy_from_slice(&self.word(index));
            index += 1;
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&self.word(index)[..tail.len()]);
    }

    /// Panics unless `bytes` are those from place `at` of the stream on.
    pub fn check(self, at: u64, bytes: &[u8]) {
        let (head, body) = bytes.split_at(Self::head_len(at, bytes.len()));
        let from = (at % 8) as usize;
        let mut good = head.is_empty() || *head == self.word(at / 8)[from..from + head.len()];
        let mut index = at.div_ceil(8);
        let words = body.chunks_exact(8);
        let tail = words.remainder();
        let mut differing = 0;
        for word in words {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            differing |= word ^ u64::from_le_bytes(self.word(index));
            index += 1;
        }
        good &= differing == 0 && *tail == self.word(index)[..tail.len()];
        if !good {
            let mut expected = vec![0; bytes.len()];
            self.fill(at, &mut expected);
            let wrong = bytes.iter().zip(&expected).position(|(a, b)| a != b);
            panic!("wrong bytes at {:?}", wrong.map(|wrong| at + wrong as u64));
        }
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
