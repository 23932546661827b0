//! Memory that waits for the next read, and the list of it that the kernel is given.

#[cfg(test)]
mod tests;

use millstream_packet::{BLOCK_ROOM_BYTES, FRAME_SIZE_BYTES, Packet, Pool};

use crate::Placed;
use crate::iov::NOTHING;
use crate::limits::{BLOCK_WORTH_BYTES, RECEIVE_HEADROOM_BYTES, SPARE_FRAMES};

/// Bytes a received packet finds in each spare frame.
pub(crate) const FRAME_ROOM_BYTES: usize = FRAME_SIZE_BYTES - RECEIVE_HEADROOM_BYTES;

/// Packets in a row that fitted one frame, before large ones are not expected any more.
const SMALL_RUN: u32 = 32;

/// Frames that make a list long: the kernel keeps up to eight slices on its stack.
const LONG_LIST: usize = 6;

/// Packets in a row that were no small ones and too small for a block, before none is offered any more.
const BULK_RUN: u8 = 4;

/// Frames that wait beside a block: for the first bytes, and for what is not worth a block.
const FRAMES_BESIDE_BLOCK: usize = 1 + BLOCK_WORTH_BYTES.div_ceil(FRAME_ROOM_BYTES);

/// Empty frames that wait for the next read, with the list of their memory.
///
/// ```text
///   iov     [ . . h 0 1 2 3 . . ]     h: the header's slot, in front of the first frame's
///   frames  [ . . . 0 1 2 3 . . ]     the window slides right as frames are used up and new ones added,
///                                     and goes back to the left when it reaches the end
/// ```
///
/// A small packet takes one frame out and puts one in, however many wait for a large one. The kernel looks
/// through the whole list in every call, and copies better to one place than to many. So it is given the
/// first frame and one piece of memory for all the rest
/// - while super-segments come: a block of the pool, which goes with the packet. What fills too little of it
///   ([`BLOCK_WORTH_BYTES`]) is copied into frames, and the block stays;
/// - while all packets are small: memory that stays here. A large packet among them is copied from there.
///
/// Otherwise, and when the pool has no block, it is given all frames.
pub(crate) struct SpareFrames {
    frames: [Option<Packet>; 2 * SPARE_FRAMES],
    iov: [libc::iovec; 2 * SPARE_FRAMES + 1],
    /// The list with memory of the caller's in it.
    around: [libc::iovec; SPARE_FRAMES + 2],
    first: usize,
    count: usize,
    wanted: usize,
    /// For what a large packet has beyond its first frame.
    block: Option<Packet>,
    /// Packets worth a block have come; what is not worth it takes one off.
    bulk: u8,
    /// Header, first frame, rest.
    brief: [libc::iovec; 3],
    /// What a packet has beyond its first frame, when the brief list was used.
    rest: Box<[u8]>,
    /// Packets in a row that fitted one frame.
    small: u32,
}

// SAFETY: the pointers in `iov`, `brief` and `around` lead only into the frames owned by `frames` or the
// block, into `rest` (and, during a call, to the caller's header and memory); a `Packet` is `Send` and its
// memory does not move, nor does that of `rest`.
unsafe impl Send for SpareFrames {}

/// Which list the kernel is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Frames,
    Block,
    Brief,
}

fn entry(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// All the room of an empty block.
fn room_of(block: &mut Packet) -> &mut [u8] {
    block.spare_slices().next().unwrap_or_default()
}

impl SpareFrames {
    /// No frames yet; wants enough for packets of `packet_bytes`, which is at most [`SPARE_FRAMES`]
    /// frames full.
    pub fn new(packet_bytes: usize) -> Self {
        let wanted = packet_bytes.div_ceil(FRAME_ROOM_BYTES);
        assert!(
            (1..=SPARE_FRAMES).contains(&wanted),
            "packets of {packet_bytes} bytes are beyond this link"
        );
        Self {
            frames: [const { None }; 2 * SPARE_FRAMES],
            iov: [NOTHING; 2 * SPARE_FRAMES + 1],
            around: [NOTHING; SPARE_FRAMES + 2],
            first: 0,
            count: 0,
            wanted,
            block: None,
            bulk: 0,
            brief: [NOTHING; 3],
            rest: vec![0; (wanted - 1) * FRAME_ROOM_BYTES].into_boxed_slice(),
            small: 0,
        }
    }

    /// Whether a block and the frame before it hold any packet, and may be worth it.
    fn wants_block(&self) -> bool {
        let holds_all = self.room() <= FRAME_ROOM_BYTES + BLOCK_ROOM_BYTES;
        self.bulk > 0 && self.wanted > FRAMES_BESIDE_BLOCK && holds_all
    }

    fn list(&self) -> List {
        match self.wants_block() && self.block.is_some() {
            true => List::Block,
            false if self.small >= SMALL_RUN && self.wanted > LONG_LIST => List::Brief,
            false => List::Frames,
        }
    }

    /// Bytes of packet that fit when all frames are there.
    pub fn room(&self) -> usize {
        self.wanted * FRAME_ROOM_BYTES
    }

    /// Adds frames up to the wanted number, and a block where one is worth it; false when `pool` has too few
    /// frames.
    pub fn fill(&mut self, pool: &Pool) -> bool {
        if self.block.is_none() && self.wants_block() {
            self.block = pool.alloc_block(0);
        }
        let wanted = match self.list() {
            List::Block => FRAMES_BESIDE_BLOCK,
            _ => self.wanted,
        };
        while self.count < wanted {
            let Some(mut frame) = pool.alloc(RECEIVE_HEADROOM_BYTES) else { return false };
            if self.first + self.count == self.frames.len() {
                self.rewind();
            }
            let at = self.first + self.count;
            let Some(room) = frame.spare_slices().next() else { return false };
            self.iov[at + 1] = entry(room);
            self.frames[at] = Some(frame);
            self.count += 1;
        }
        true
    }

    /// The list to read into: `header` first unless it is empty, then the frames. Valid until the
    /// next call here and while `header` is.
    pub fn slices(&mut self, header: &mut [u8]) -> &[libc::iovec] {
        let rest = match (self.list(), &mut self.block) {
            (List::Block, Some(block)) => Some(entry(room_of(block))),
            (List::Brief, _) => Some(entry(&mut self.rest)),
            _ => None,
        };
        if let Some(rest) = rest {
            self.brief = [entry(header), self.iov[self.first + 1], rest];
            return &self.brief[usize::from(header.is_empty())..];
        }
        let end = self.first + 1 + self.count;
        if header.is_empty() {
            return &self.iov[self.first + 1..end];
        }
        self.iov[self.first] = entry(header);
        &self.iov[self.first..end]
    }

    /// Takes the `len` bytes just read, which must fit, as a packet.
    pub fn take(&mut self, len: usize) -> Option<Packet> {
        let list = self.list();
        let mut packet = self.take_frame(len.min(FRAME_ROOM_BYTES))?;
        let beyond = len.saturating_sub(FRAME_ROOM_BYTES);
        if beyond == 0 {
            self.small = self.small.saturating_add(1);
        } else {
            packet.concat(self.take_beyond(beyond, list)?);
        }
        Some(packet)
    }

    /// Takes `len` bytes, not none, that were read behind the first frame.
    fn take_beyond(&mut self, len: usize, list: List) -> Option<Packet> {
        self.small = 0;
        if len >= BLOCK_WORTH_BYTES {
            self.bulk = BULK_RUN;
        } else {
            self.bulk = self.bulk.saturating_sub(1);
        }
        match list {
            List::Frames => self.take_frames(len, None),
            List::Brief => {
                let rest = std::mem::take(&mut self.rest);
                let taken = self.take_frames(len, rest.get(..len));
                self.rest = rest;
                taken
            }
            List::Block => {
                let mut block = self.block.take()?;
                if len >= BLOCK_WORTH_BYTES {
                    block.append(len)?;
                    return Some(block);
                }
                let taken = self.take_frames(len, room_of(&mut block).get(..len));
                self.block = Some(block);
                taken
            }
        }
    }

    /// The next frames with `len` bytes: those that were read into them, or `bytes`.
    fn take_frames(&mut self, len: usize, bytes: Option<&[u8]>) -> Option<Packet> {
        let mut packet: Option<Packet> = None;
        for at in (0..len).step_by(FRAME_ROOM_BYTES) {
            let n = (len - at).min(FRAME_ROOM_BYTES);
            let mut frame = self.take_frame(n)?;
            if let Some(bytes) = bytes {
                frame.head_mut()?.copy_from_slice(&bytes[at..at + n]);
            }
            match &mut packet {
                Some(packet) => packet.concat(frame),
                None => packet = Some(frame),
            }
        }
        packet
    }

    /// The list to read into, with `memory` in it: `header`, which is not empty, the first `head_len`
    /// bytes of the first frame, `memory`, and as much of a block or of the other frames as the longest packet
    /// needs beyond. `None` when a frame has less room than `head_len`, or more than `memory`, or there is no
    /// frame. Valid until the next call here and while `header` and `memory` are.
    pub fn slices_around(
        &mut self,
        header: &mut [u8],
        head_len: usize,
        memory: &mut [u8],
    ) -> Option<&[libc::iovec]> {
        let head = self.iov[self.first + 1];
        let too_small = head_len > head.iov_len || memory.len() < FRAME_ROOM_BYTES;
        if self.count == 0 || too_small || header.is_empty() {
            return None;
        }
        let beyond = self.room().saturating_sub(head_len + memory.len());
        let block = self.list() == List::Block;
        self.around[0] = entry(header);
        self.around[1] = libc::iovec { iov_base: head.iov_base, iov_len: head_len };
        self.around[2] = entry(memory);
        let mut end = 3;
        match &mut self.block {
            _ if beyond == 0 => {}
            Some(block_packet) if block => {
                self.around[3] = entry(room_of(block_packet));
                end = 4;
            }
            _ => {
                let frames = beyond.div_ceil(FRAME_ROOM_BYTES).min(self.count - 1);
                let second = self.first + 2;
                end += frames;
                self.around[3..end].copy_from_slice(&self.iov[second..second + frames]);
            }
        }
        Some(&self.around[..end])
    }

    /// Takes the `len` bytes just read by [`slices_around`](Self::slices_around) with the same
    /// `head_len` and memory of `memory` bytes.
    pub fn take_around(&mut self, len: usize, head_len: usize, memory: usize) -> Option<Placed> {
        // Its list is never the brief one.
        let list = if self.list() == List::Block { List::Block } else { List::Frames };
        let in_head = len.min(head_len);
        let bytes = (len - in_head).min(memory);
        let beyond = len - in_head - bytes;
        self.small = 0;
        let head = self.take_frame(in_head)?;
        let rest = if beyond > 0 { Some(self.take_beyond(beyond, list)?) } else { None };
        Some(Placed { head, bytes, rest })
    }

    /// The next frame, with `len` bytes of its room.
    fn take_frame(&mut self, len: usize) -> Option<Packet> {
        if self.count == 0 {
            return None;
        }
        let mut frame = self.frames[self.first].take()?;
        self.first += 1;
        self.count -= 1;
        frame.append(len)?;
        Some(frame)
    }

    /// Moves the window back to the left end.
    fn rewind(&mut self) {
        for i in 0..self.count {
            self.frames[i] = self.frames[self.first + i].take();
        }
        self.iov.copy_within(self.first + 1..=self.first + self.count, 1);
        self.first = 0;
    }
}
