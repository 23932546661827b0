//! Lists of memory for scattered reads and gathered writes, kept between calls so that none is
//! built twice.

use millstream_packet::{BATCH_LIMIT, FRAME_SIZE_BYTES, Packet, Pool};

use crate::Placed;
use crate::limits::{RECEIVE_HEADROOM_BYTES, SPARE_FRAMES, WRITE_SLICES};

const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Bytes a received packet finds in each spare frame.
pub(crate) const FRAME_ROOM_BYTES: usize = FRAME_SIZE_BYTES - RECEIVE_HEADROOM_BYTES;

/// Packets in a row that fitted one frame, before large ones are not expected any more.
const SMALL_RUN: u32 = 32;

/// Frames that make a list long: the kernel keeps up to eight slices on its stack.
const LONG_LIST: usize = 6;

/// Empty frames that wait for the next read, with the list of their memory.
///
/// ```text
///   iov     [ . . h 0 1 2 3 . . ]     h: the header's slot, in front of the first frame's
///   frames  [ . . . 0 1 2 3 . . ]     the window slides right as frames are used up and new ones added,
///                                     and goes back to the left when it reaches the end
/// ```
///
/// A small packet takes one frame out and puts one in, however many wait for a large one. While all
/// packets are small, the kernel is given the first frame and one piece of memory for all the rest,
/// since it looks through the whole list in every call; a large packet among them is copied from there.
pub(crate) struct SpareFrames {
    frames: [Option<Packet>; 2 * SPARE_FRAMES],
    iov: [libc::iovec; 2 * SPARE_FRAMES + 1],
    /// The list with memory of the caller's in it.
    around: [libc::iovec; SPARE_FRAMES + 2],
    first: usize,
    count: usize,
    wanted: usize,
    /// Header, first frame, rest.
    brief: [libc::iovec; 3],
    /// What a packet has beyond its first frame, when the brief list was used.
    rest: Box<[u8]>,
    /// Packets in a row that fitted one frame.
    small: u32,
}

// SAFETY: the pointers in `iov`, `brief` and `around` lead only into the frames owned by `frames`, into
// `rest` (and, during a call, to the caller's header and memory); a `Packet` is `Send` and its memory does
// not move, nor does that of `rest`.
unsafe impl Send for SpareFrames {}

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
            brief: [NOTHING; 3],
            rest: vec![0; (wanted - 1) * FRAME_ROOM_BYTES].into_boxed_slice(),
            small: 0,
        }
    }

    fn is_brief(&self) -> bool {
        self.small >= SMALL_RUN && self.wanted > LONG_LIST
    }

    /// Bytes of packet that fit when all frames are there.
    pub fn room(&self) -> usize {
        self.wanted * FRAME_ROOM_BYTES
    }

    /// Adds frames up to the wanted number; false when `pool` has too few.
    pub fn fill(&mut self, pool: &Pool) -> bool {
        while self.count < self.wanted {
            let Some(mut frame) = pool.alloc(RECEIVE_HEADROOM_BYTES) else { return false };
            if self.first + self.count == self.frames.len() {
                self.rewind();
            }
            let at = self.first + self.count;
            let Some(room) = frame.spare_slices().next() else { return false };
            self.iov[at + 1] =
                libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            self.frames[at] = Some(frame);
            self.count += 1;
        }
        true
    }

    /// The list to read into: `header` first unless it is empty, then the frames. Valid until the
    /// next call here and while `header` is.
    pub fn slices(&mut self, header: &mut [u8]) -> &[libc::iovec] {
        if self.is_brief() {
            let rest = &mut self.rest;
            let rest = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            let head = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
            self.brief = [head, self.iov[self.first + 1], rest];
            return &self.brief[usize::from(header.is_empty())..];
        }
        let end = self.first + 1 + self.count;
        if header.is_empty() {
            return &self.iov[self.first + 1..end];
        }
        self.iov[self.first] =
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        &self.iov[self.first..end]
    }

    /// Takes the `len` bytes just read, which must fit the frames, as a packet.
    pub fn take(&mut self, len: usize) -> Option<Packet> {
        self.take_read(len, self.is_brief())
    }

    /// As [`take`](Self::take), after a read by the brief list or not.
    fn take_read(&mut self, len: usize, was_brief: bool) -> Option<Packet> {
        let mut packet = self.take_frame(len.min(FRAME_ROOM_BYTES), None)?;
        let left = len.saturating_sub(FRAME_ROOM_BYTES);
        if left == 0 {
            self.small = self.small.saturating_add(1);
            return Some(packet);
        }
        self.small = 0;
        for at in (0..left).step_by(FRAME_ROOM_BYTES) {
            let n = (left - at).min(FRAME_ROOM_BYTES);
            packet.concat(self.take_frame(n, was_brief.then_some(at))?);
        }
        Some(packet)
    }

    /// The list to read into, with `memory` in it: `header`, which is not empty, the first `head_len`
    /// bytes of the first frame, `memory`, and as many of the other frames as the longest packet needs
    /// beyond. `None` when a frame has less room than `head_len`, or more than `memory`, or there is no frame. Valid until the
    /// next call here and while `header` and `memory` are.
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
        let entry = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let beyond = self.room().saturating_sub(head_len + memory.len());
        let frames = beyond.div_ceil(FRAME_ROOM_BYTES).min(self.count - 1);
        self.around[0] = entry(header);
        self.around[1] = libc::iovec { iov_base: head.iov_base, iov_len: head_len };
        self.around[2] = entry(memory);
        let second = self.first + 2;
        self.around[3..3 + frames].copy_from_slice(&self.iov[second..second + frames]);
        Some(&self.around[..3 + frames])
    }

    /// Takes the `len` bytes just read by [`slices_around`](Self::slices_around) with the same
    /// `head_len` and memory of `memory` bytes.
    pub fn take_around(&mut self, len: usize, head_len: usize, memory: usize) -> Option<Placed> {
        let in_head = len.min(head_len);
        let bytes = (len - in_head).min(memory);
        let beyond = len - in_head - bytes;
        self.small = 0;
        let head = self.take_frame(in_head, None)?;
        let rest = if beyond > 0 { Some(self.take_read(beyond, false)?) } else { None };
        Some(Placed { head, bytes, rest })
    }

    /// The next frame with `len` bytes: those that were read into it, or those at `rest`.
    fn take_frame(&mut self, len: usize, rest: Option<usize>) -> Option<Packet> {
        if self.count == 0 {
            return None;
        }
        let mut frame = self.frames[self.first].take()?;
        self.first += 1;
        self.count -= 1;
        let room = frame.append(len)?;
        if let Some(at) = rest {
            room.copy_from_slice(self.rest.get(at..at + len)?);
        }
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

/// How many packets the next batch of reads probably finds.
///
/// The read that finds nothing costs half of one that finds something. A receive therefore stops
/// after as many packets as last time: under a steady trickle the answer leaves before that read
/// is made, and under load the number doubles until a batch is full. Where doubling proves vain it is
/// tried more rarely.
#[derive(Debug)]
pub(crate) struct Expectation {
    limit: usize,
    /// Batches in a row of as many packets as were read for.
    full: u32,
    /// How many of them make the number double.
    patience: u32,
    /// The number before it was doubled, until that has proved right or wrong.
    doubled: Option<usize>,
    /// Packets of the last batch, when nobody knows yet whether there were more.
    open: Option<usize>,
}

/// Most batches in a row that the number stays as it is although all were full.
const PATIENCE_MAX: u32 = 64;

impl Expectation {
    pub fn new() -> Self {
        Self { limit: 1, full: 0, patience: 1, doubled: None, open: None }
    }

    /// Packets to read before stopping, at least one.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// `found` packets were read; `ended` when there were no more.
    pub fn learn(&mut self, found: usize, ended: bool) {
        self.open = (!ended).then_some(found);
        if ended {
            if self.doubled.take().is_some_and(|before| found <= before) {
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
            }
            self.full = 0;
            self.limit = if found == 0 { self.limit / 2 } else { found }.max(1);
            return;
        }
        if self.doubled.take().is_some() {
            self.patience = 1;
        }
        self.full += 1;
        if self.full >= self.patience && self.limit < BATCH_LIMIT {
            self.full = 0;
            self.doubled = Some(self.limit);
            self.limit = (self.limit * 2).min(BATCH_LIMIT);
        }
    }

    /// Whoever reads sleeps now until there is something: the last batch was all there was.
    pub fn sleep(&mut self) {
        if let Some(found) = self.open.take() {
            (self.full, self.doubled) = (0, None);
            self.limit = found.clamp(1, BATCH_LIMIT);
        }
    }
}

/// The list of a packet's slices for a gathered write.
pub(crate) struct GatherList {
    iov: [libc::iovec; WRITE_SLICES],
}

// SAFETY: the pointers are only read during the call that `of` prepares, in the thread that made
// them.
unsafe impl Send for GatherList {}

impl GatherList {
    pub fn new() -> Self {
        Self { iov: [NOTHING; WRITE_SLICES] }
    }

    /// `header`, unless empty, and the slices of `packet` after it; `None` when there are more than
    /// [`WRITE_SLICES`]. Valid while both live and until the next call here.
    pub fn of(&mut self, header: &[u8], packet: &Packet) -> Option<&[libc::iovec]> {
        let mut len = 0;
        let header = (!header.is_empty()).then_some(header);
        for slice in header.into_iter().chain(packet.slices()) {
            // A write only reads through the pointer.
            let entry =
                libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
            *self.iov.get_mut(len)? = entry;
            len += 1;
        }
        Some(&self.iov[..len])
    }
}

/// A copy of `packet` in as few frames as it fits, with its meta data: for chains of too many small
/// pieces.
pub(crate) fn compact(packet: &Packet, pool: &Pool) -> Option<Packet> {
    let mut copy = pool.alloc_chain(0, packet.len())?;
    for slice in packet.slices() {
        copy.extend_from_slice(pool, slice).ok()?;
    }
    *copy.meta_mut() = *packet.meta();
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_packet::PoolConfig;

    fn fill_memory(slices: &[libc::iovec], bytes: &[u8]) {
        let mut left = bytes;
        for slice in slices {
            let n = left.len().min(slice.iov_len);
            // SAFETY: each entry is writable memory of that length, as for readv.
            unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), slice.iov_base.cast(), n) };
            left = &left[n..];
        }
        assert!(left.is_empty());
    }

    #[test]
    fn packets_of_every_size_come_out_as_read() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut spares = SpareFrames::new(65_553);
        let mut kept = Vec::new();
        for round in 0..400_usize {
            let len = if round % 7 == 0 { 65_553 - round } else { round };
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8).collect();
            assert!(spares.fill(&pool));
            fill_memory(spares.slices(&mut []), &bytes);
            let packet = spares.take(len).unwrap();
            assert_eq!(packet.len(), len);
            assert_eq!(packet.headroom(), RECEIVE_HEADROOM_BYTES);
            assert_eq!(packet.frame_count(), len.div_ceil(FRAME_ROOM_BYTES).max(1));
            let mut copy = vec![0; len];
            packet.copy_to(0, &mut copy);
            assert_eq!(copy, bytes);
            if round % 50 == 0 {
                kept.push(packet);
            }
        }
    }

    #[test]
    fn memory_of_the_caller_lies_between_headers_and_what_it_does_not_hold() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut spares = SpareFrames::new(65_553);
        let mut header = [0; 10];
        for (len, room) in [(66, 2048), (40, 2048), (70, 2048), (2114, 2048), (2115, 2048)]
            .into_iter()
            .chain([(65_552, 65_536), (65_552, 131_072), (30_000, 8_192), (65_552, 2048)])
        {
            let bytes: Vec<u8> = (0..10 + len).map(|i| (i * 7 + room) as u8).collect();
            let mut memory = vec![0; room];
            assert!(spares.fill(&pool));
            let slices = spares.slices_around(&mut header, 66, &mut memory).unwrap();
            assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= 10 + 65_553);
            fill_memory(slices, &bytes);
            let Placed { head, bytes: placed, rest } = spares.take_around(len, 66, room).unwrap();
            let mut all = head.head().to_vec();
            all.extend_from_slice(&memory[..placed]);
            if let Some(rest) = rest {
                rest.slices().for_each(|slice| all.extend_from_slice(slice));
            }
            assert_eq!(header, bytes[..10]);
            assert_eq!(all, bytes[10..], "{len} bytes, room for {room}");
            assert_eq!(head.len(), len.min(66));
        }
    }

    #[test]
    fn after_small_packets_the_list_is_short_and_a_large_one_still_comes_whole() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut spares = SpareFrames::new(65_553);
        let mut header = [0; 10];
        let mut lists = Vec::new();
        for round in 0..200_usize {
            let len = if round % 50 == 49 { 65_553 - round } else { 60 + round };
            let bytes: Vec<u8> = (0..len + 10).map(|i| (i * 7 + round) as u8).collect();
            assert!(spares.fill(&pool));
            let slices = spares.slices(&mut header);
            lists.push(slices.len());
            assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= 10 + 65_553);
            fill_memory(slices, &bytes);
            let packet = spares.take(len).unwrap();
            let mut copy = vec![0; len];
            packet.copy_to(0, &mut copy);
            assert!(packet.len() == len && header == bytes[..10] && copy == bytes[10..]);
        }
        for round in lists.chunks(50) {
            assert!(round[..32].iter().all(|&slices| slices > 30), "{round:?}");
            assert!(round[32..].iter().all(|&slices| slices == 3), "{round:?}");
        }
        // What a caller's memory does not hold is in the frames, however the list was before.
        for _ in 0..=SMALL_RUN {
            assert!(spares.fill(&pool));
            spares.take(60).unwrap();
        }
        let mut memory = vec![0; 2048];
        let bytes: Vec<u8> = (0..10_010_usize).map(|i| (i % 251) as u8).collect();
        assert!(spares.fill(&pool));
        fill_memory(spares.slices_around(&mut header, 66, &mut memory).unwrap(), &bytes);
        let rest = spares.take_around(10_000, 66, 2048).unwrap().rest.unwrap();
        let mut copy = vec![0; rest.len()];
        rest.copy_to(0, &mut copy);
        assert_eq!(copy, bytes[10 + 66 + 2048..]);
    }

    #[test]
    fn a_trickle_costs_hardly_a_vain_read_and_load_fills_batches() {
        let mut expectation = Expectation::new();
        // One packet at a time: a batch of more ends with a vain read.
        let mut vain = 0;
        for _ in 0..1000 {
            let ended = expectation.limit() > 1;
            vain += u32::from(ended);
            expectation.learn(1, ended);
        }
        assert!((1..30).contains(&vain), "{vain}");
        let batches = (0..200).take_while(|_| {
            expectation.learn(expectation.limit(), false);
            expectation.limit() < BATCH_LIMIT
        });
        assert!(batches.count() <= PATIENCE_MAX as usize + 8);
        // Load has proved right: what follows is believed at once.
        expectation.learn(BATCH_LIMIT, false);
        expectation.learn(10, true);
        assert_eq!(expectation.limit(), 10);
        expectation.learn(10, false);
        assert_eq!(expectation.limit(), 20);
        for _ in 0..10 {
            expectation.learn(0, true);
        }
        assert_eq!(expectation.limit(), 1);
    }

    #[test]
    fn sleeping_without_a_vain_read_says_that_the_batch_was_all() {
        let mut expectation = Expectation::new();
        for _ in 0..10 {
            assert_eq!(expectation.limit(), 1);
            expectation.learn(1, false);
            expectation.sleep();
            expectation.sleep();
        }
        expectation.learn(1, false);
        assert_eq!(expectation.limit(), 2);
    }

    #[test]
    fn a_header_goes_before_the_frames() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut spares = SpareFrames::new(3000);
        let mut header = [0; 10];
        for _ in 0..200 {
            assert!(spares.fill(&pool));
            let slices = spares.slices(&mut header);
            assert_eq!(slices.len(), 3);
            assert_eq!(slices[0].iov_len, 10);
            assert_eq!(slices[1].iov_len, FRAME_ROOM_BYTES);
            spares.take(100).unwrap();
        }
    }

    #[test]
    fn too_many_slices_are_refused_and_compacted() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut packet = Packet::from_slice(&pool, 0, b"x").unwrap();
        for _ in 0..WRITE_SLICES {
            packet.concat(Packet::from_slice(&pool, 0, b"y").unwrap());
        }
        let mut list = GatherList::new();
        assert!(list.of(&[], &packet).is_none());
        let compacted = compact(&packet, &pool).unwrap();
        assert_eq!(compacted.len(), packet.len());
        assert_eq!(list.of(&[1, 2], &compacted).unwrap().len(), 2);
    }
}
