//! Reading into place what may have an option before its transport header: long packets over IPv6
//! come with it (`offload/jumbo.rs`), short ones of the same stream without, and the engine is to
//! see neither.

use crate::kernel::big_tcp::{JUMBO_OPTION_BYTES, take_jumbo_out};
use crate::limits::LINK_HEADER_BYTES;
use crate::medium::network_offset;
use crate::{Medium, Placed};

/// Where it ends at the latest, behind link header and IPv6 header.
const OPTION_END_BYTES: usize = LINK_HEADER_BYTES + 40 + JUMBO_OPTION_BYTES;

/// Packets in a row without it after which none is expected.
const PATIENCE: u8 = 8;

/// Guesses whether the next packet has it. A wrong guess costs a move of the bytes that were
/// placed.
#[derive(Debug, Default)]
pub(super) struct OptionGuess {
    patience: u8,
}

impl OptionGuess {
    /// Bytes of it that the next read is to put behind those of the headers, and to leave free in
    /// the memory.
    pub fn bytes(&self) -> usize {
        if self.patience > 0 { JUMBO_OPTION_BYTES } else { 0 }
    }

    /// Makes of what was read with [`bytes`](Self::bytes) more than `head_len` in front what was
    /// asked for: a head of `head_len` without the option, and what follows it in `memory`.
    pub fn settle(&mut self, placed: &mut Placed, head_len: usize, memory: &mut [u8]) {
        let expected = self.bytes();
        let short = OPTION_END_BYTES.saturating_sub(placed.head.len());
        if short > 0 && is_v6(placed.head.head()) {
            // The read asked for a head of IPv4: the whole IPv6 header is to be in it.
            pull(placed, short, memory);
        }
        let before = placed.head.len();
        take_jumbo_out(&mut placed.head, Medium::Ethernet);
        let found = before - placed.head.len();
        if found > 0 {
            self.patience = PATIENCE;
        } else {
            self.patience = self.patience.saturating_sub(1);
        }
        match placed.head.len() {
            len if len < head_len && found > expected => pull(placed, head_len - len, memory),
            len if len > head_len => push_back(placed, len - head_len, head_len, memory),
            _ => {}
        }
        refill(placed, memory);
    }
}

fn is_v6(head: &[u8]) -> bool {
    let l3 = network_offset(head, Medium::Ethernet);
    l3.and_then(|l3| head.get(l3)).is_some_and(|first| first >> 4 == 6)
}

/// Moves the first `count` placed bytes to the end of the head.
fn pull(placed: &mut Placed, count: usize, memory: &mut [u8]) {
    let count = count.min(placed.bytes);
    if let Some(room) = placed.head.append(count) {
        room.copy_from_slice(&memory[..count]);
        memory.copy_within(count..placed.bytes, 0);
        // Nothing of a packet stays there that is not told of.
        memory[placed.bytes - count..placed.bytes].fill(0);
        placed.bytes -= count;
    }
}

/// Moves the `count` bytes that the head has beyond `head_len` in front of those placed.
fn push_back(placed: &mut Placed, count: usize, head_len: usize, memory: &mut [u8]) {
    memory.copy_within(..placed.bytes, count);
    memory[..count].copy_from_slice(&placed.head.head()[head_len..]);
    placed.head.truncate(head_len);
    placed.bytes += count;
}

/// Has what follows the memory fill it first.
fn refill(placed: &mut Placed, memory: &mut [u8]) {
    let free = &mut memory[placed.bytes..];
    let Some(rest) = placed.rest.as_mut().filter(|_| !free.is_empty()) else { return };
    let count = rest.copy_to(0, free);
    placed.bytes += count;
    if rest.len() == count {
        placed.rest = None;
    } else {
        rest.trim_front(count);
    }
}

#[cfg(test)]
mod tests {
    use millstream_packet::Packet;

    use super::*;
    use crate::testing::pool;

    const HEAD: usize = 14 + 40 + 32;

    /// A packet's bytes, with the option or without it.
    fn wire(payload: usize, has_option: bool) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        (bytes[14], bytes[20]) = (0x60, 6);
        bytes.extend((0..payload).map(|at| (at * 7 / 3) as u8));
        if has_option {
            bytes[20] = 0;
            bytes.splice(54..54, [6, 0, 0xc2, 4, 0, 1, 2, 3]);
        }
        bytes
    }

    /// Read as a link does.
    fn read(guess: &mut OptionGuess, bytes: &[u8], memory: &mut [u8]) -> Placed {
        let (pool, option) = (pool(), guess.bytes());
        let packet = Packet::bulk_from_slice(&pool, bytes, 2048).unwrap();
        let most = memory.len() - option;
        let mut placed = Placed::lay_out(packet, &pool, HEAD + option, &mut memory[..most]);
        guess.settle(&mut placed, HEAD, memory);
        placed
    }

    #[test]
    fn whatever_was_guessed_the_same_comes_out() {
        let mut guess = OptionGuess::default();
        let turns = [false, true, true, true, false, true];
        for has_option in turns.into_iter().chain([false; 12]).chain([true]) {
            for payload in [9, 100, 3992, 4000, 4001, 4008, 5000, 9000] {
                let mut memory = vec![0xee; 4000];
                let Placed { head, bytes, rest } =
                    read(&mut guess, &wire(payload, has_option), &mut memory);
                let mut all = head.head().to_vec();
                assert_eq!(all.len(), HEAD, "{payload} {has_option}");
                assert!(rest.is_none() || bytes == memory.len(), "what did not fit there");
                all.extend_from_slice(&memory[..bytes]);
                all.extend(rest.iter().flat_map(crate::testing::bytes));
                assert_eq!(all, wire(payload, false), "{payload} {has_option}");
            }
        }
        for _ in 0..=PATIENCE {
            read(&mut guess, &wire(100, false), &mut [0; 4000]);
        }
        assert_eq!(guess.bytes(), 0, "none has come for long");
    }

    /// The waiting application has asked for IPv4 without timestamps.
    #[test]
    fn of_a_head_that_ends_before_it_the_option_is_taken_out_too() {
        const SHORT: usize = 54;
        let (pool, bytes) = (pool(), wire(9000, true));
        let (mut guess, mut memory) = (OptionGuess::default(), vec![0xee; 4000]);
        let packet = Packet::bulk_from_slice(&pool, &bytes, 2048).unwrap();
        let mut placed = Placed::lay_out(packet, &pool, SHORT, &mut memory);
        guess.settle(&mut placed, SHORT, &mut memory);
        assert_eq!(placed.head.len(), SHORT);
        let packet = placed.into_packet(&pool, &mut memory).unwrap();
        assert!(crate::testing::bytes(&packet) == wire(9000, false), "the option is left in it");
    }

    #[test]
    fn nothing_of_another_s_packet_stays_in_the_memory() {
        let (mut guess, mut memory) = (OptionGuess::default(), vec![0xee; 4000]);
        let placed = read(&mut guess, &wire(100, true), &mut memory);
        placed.into_packet(&pool(), &mut memory).unwrap();
        assert!(memory.iter().all(|byte| [0, 0xee].contains(byte)), "{:?}", &memory[90..110]);
    }
}
