//! Memory that waits for the next read, and the list of it that the kernel is given.

#[cfg(test)]
mod tests;

use millstream_packet::{BLOCK_ROOM_BYTES, FRAME_SIZE_BYTES, Packet, Pool};

use crate::Placed;
use crate::iov::NOTHING;
use crate::limits::{BLOCK_WORTH_BYTES, RECEIVE_HEADROOM_BYTES, SPARE_FRAMES};
use crate::offload::vnet::{self, HEADER_BYTES};

/// Bytes a received packet finds in each spare frame.
pub(crate) const FRAME_ROOM_BYTES: usize = FRAME_SIZE_BYTES - RECEIVE_HEADROOM_BYTES;

/// Packets in a row that fitted one frame, before large ones are not expected any more.
const SMALL_RUN: u32 = 32;

/// Frames that make a list long: the kernel keeps up to eight slices on its stack.
const LONG_LIST: usize = 6;

/// Packets in a row that were no small ones and too small for a block, before none is offered any
/// more.
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
/// A small packet takes one frame out and puts one in, however many wait for a large one. The
/// kernel looks through the whole list in every call, and copies better to one place than to many.
/// So it is given
/// - while super-segments come: the first frame and, for all the rest, a block of the pool, which
///   goes with the packet. What fills too little of it ([`BLOCK_WORTH_BYTES`]) is copied into
///   frames, and the block stays;
/// - while all packets are small: one piece of memory that stays here, out of which each is copied.
///   That costs less than a second piece in the list does.
///
/// Otherwise, and when the pool has no block, it is given all frames. Where the pool has too few
/// for that, it is read into the piece of memory that stays here, too: what frees frames is mostly
/// small, and must not wait for as many as the largest packet takes. One that takes more than there
/// are is dropped then.
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
    /// Header, first frame, block.
    before_block: [libc::iovec; 3],
    /// Each packet comes behind a virtio-net header.
    has_header: bool,
    /// The header of the last one, where it was not read into `whole`.
    header: vnet::Header,
    /// Header and packet, when the brief list was used.
    whole: Box<[u8]>,
    brief: [libc::iovec; 1],
    /// The list that was given last.
    given: List,
    /// Packets in a row that fitted one frame.
    small: u32,
    /// The pool had too few frames for the list.
    is_short: bool,
}

// SAFETY: the pointers in the lists lead only into the frames owned by `frames` or the block, and
// into `whole`; a `Packet` is `Send` and its memory does not move, nor does that of `whole`. Those
// to `header`, and to memory of the caller, are set for each call, during which this is borrowed
// and stays where it is.
unsafe impl Send for SpareFrames {}

/// Which list the kernel is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Frames,
    Block,
    Brief,
}

/// Memory for a list.
pub(crate) fn entry(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// All the room of an empty block.
pub(crate) fn room_of(block: &mut Packet) -> &mut [u8] {
    block.spare_slices().next().unwrap_or_default()
}

impl SpareFrames {
    /// No frames yet; wants enough for packets of `packet_bytes`, which is at most [`SPARE_FRAMES`]
    /// frames full, each behind a virtio-net header or not.
    pub fn new(packet_bytes: usize, has_header: bool) -> Self {
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
            before_block: [NOTHING; 3],
            has_header,
            header: [0; HEADER_BYTES],
            whole: vec![0; HEADER_BYTES + wanted * FRAME_ROOM_BYTES].into_boxed_slice(),
            brief: [NOTHING; 1],
            given: List::Frames,
            small: 0,
            is_short: false,
        }
    }

    /// Returns whether a block and the frame before it hold any packet, and may be worth it. What
    /// comes small for long is no bulk any more, and the first that is again brings the block back.
    fn wants_block(&self) -> bool {
        let holds_all = self.room() <= FRAME_ROOM_BYTES + BLOCK_ROOM_BYTES;
        self.bulk > 0 && self.small < SMALL_RUN && self.wanted > FRAMES_BESIDE_BLOCK && holds_all
    }

    fn list(&self) -> List {
        let is_small = self.small >= SMALL_RUN && self.wanted > LONG_LIST;
        match self.wants_block() && self.block.is_some() {
            _ if self.is_short => List::Brief,
            true => List::Block,
            false if is_small => List::Brief,
            false => List::Frames,
        }
    }

    /// Bytes of packet that fit when all frames are there.
    pub fn room(&self) -> usize {
        self.wanted * FRAME_ROOM_BYTES
    }

    /// Adds frames up to the wanted number, and a block where one is worth it. Where `pool` has too
    /// few it makes do with half of them, so that there are some to answer with; false when there
    /// is none.
    pub fn fill(&mut self, pool: &Pool) -> bool {
        self.is_short = false;
        if self.block.is_none() && self.wants_block() {
            self.block = pool.alloc_block(0);
        }
        let wanted = match self.list() {
            List::Block => FRAMES_BESIDE_BLOCK,
            _ => self.wanted,
        };
        while self.count < wanted {
            let Some(mut frame) = pool.alloc(RECEIVE_HEADROOM_BYTES) else {
                return self.make_do();
            };
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

    /// There are fewer frames than wanted.
    #[cold]
    fn make_do(&mut self) -> bool {
        self.is_short = true;
        self.block = None;
        let kept = self.count.div_ceil(2);
        for at in self.first + kept..self.first + self.count {
            self.frames[at] = None;
        }
        self.count = kept;
        kept != 0
    }

    /// Returns whether there were fewer frames than wanted when they were added last: then memory
    /// of the caller has no place in the list ([`slices_around`](Self::slices_around)).
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// The list to read into: room for the header, if there is one, and for the packet. Valid until
    /// the next call here.
    pub fn slices(&mut self) -> &[libc::iovec] {
        let no_header = usize::from(!self.has_header);
        self.given = self.list();
        match (self.given, &mut self.block) {
            (List::Block, Some(block)) => {
                let rest = entry(room_of(block));
                self.before_block = [entry(&mut self.header), self.iov[self.first + 1], rest];
                &self.before_block[no_header..]
            }
            (List::Brief, _) => {
                let room = HEADER_BYTES * no_header..;
                self.brief = [entry(&mut self.whole[room])];
                &self.brief
            }
            _ => {
                self.iov[self.first] = entry(&mut self.header);
                &self.iov[self.first + no_header..self.first + 1 + self.count]
            }
        }
    }

    /// The header in front of what was just read, before that is taken.
    pub fn header(&self) -> vnet::Header {
        match (self.given, self.whole.first_chunk()) {
            (List::Brief, Some(header)) => *header,
            _ => self.header,
        }
    }

    /// Takes the `len` bytes just read, which must fit, as a packet.
    pub fn take(&mut self, len: usize) -> Option<Packet> {
        let mut packet = self.take_frame(len.min(FRAME_ROOM_BYTES))?;
        if self.given == List::Brief {
            let first = &self.whole[HEADER_BYTES..][..packet.len()];
            packet.head_mut()?.copy_from_slice(first);
        }
        let beyond = len.saturating_sub(FRAME_ROOM_BYTES);
        if beyond == 0 {
            self.small = self.small.saturating_add(1);
        } else {
            packet.concat(self.take_beyond(beyond)?);
        }
        Some(packet)
    }

    /// Takes `len` bytes, not none, that were read behind the first frame.
    fn take_beyond(&mut self, len: usize) -> Option<Packet> {
        self.small = 0;
        if len >= BLOCK_WORTH_BYTES {
            self.bulk = BULK_RUN;
        } else {
            self.bulk = self.bulk.saturating_sub(1);
        }
        match self.given {
            List::Frames => self.take_frames(len, None),
            List::Brief => {
                let whole = std::mem::take(&mut self.whole);
                let beyond = HEADER_BYTES + FRAME_ROOM_BYTES;
                let taken = self.take_frames(len, whole.get(beyond..beyond + len));
                self.whole = whole;
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

    /// The list to read into, with `memory` in it: the header, the first `head_len` bytes of the
    /// first frame, `memory`, and as much of a block or of the other frames as the longest packet
    /// needs beyond. `None` without a header, when a frame has less room than `head_len`, or more
    /// than `memory`, or there are too few frames. Valid until the next call here and while
    /// `memory` is.
    pub fn slices_around(&mut self, head_len: usize, memory: &mut [u8]) -> Option<&[libc::iovec]> {
        let head = self.iov[self.first + 1];
        let too_small = head_len > head.iov_len || memory.len() < FRAME_ROOM_BYTES;
        if self.count == 0 || too_small || !self.has_header || self.is_short {
            return None;
        }
        let beyond = self.room().saturating_sub(head_len + memory.len());
        // The brief one has no place for memory in it.
        self.given = if self.list() == List::Block { List::Block } else { List::Frames };
        self.around[0] = entry(&mut self.header);
        self.around[1] = libc::iovec { iov_base: head.iov_base, iov_len: head_len };
        self.around[2] = entry(memory);
        let mut end = 3;
        match &mut self.block {
            _ if beyond == 0 => {}
            Some(block) if self.given == List::Block => {
                self.around[3] = entry(room_of(block));
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
        let in_head = len.min(head_len);
        let bytes = (len - in_head).min(memory);
        let beyond = len - in_head - bytes;
        self.small = 0;
        let head = self.take_frame(in_head)?;
        let rest = if beyond > 0 { Some(self.take_beyond(beyond)?) } else { None };
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
