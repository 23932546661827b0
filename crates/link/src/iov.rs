//! Lists of memory for gathered writes, kept between calls so that none is built twice; and how
//! many packets to read at once.

use millstream_packet::{BATCH_LIMIT, Packet, Pool};

use crate::limits::WRITE_SLICES;

pub(crate) const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// The number of packets that the next batch of reads probably finds.
///
/// The read that finds nothing costs half of one that finds something. A receive therefore stops
/// after as many packets as last time: under a steady trickle the answer leaves before that read is
/// made, and under load the number doubles until a batch is full. Where doubling proves vain it is
/// tried more rarely.
#[derive(Debug)]
pub(crate) struct Expectation {
    limit: usize,
    /// Batches in a row of as many packets as were read for.
    full: u32,
    /// The number of them that makes the number double.
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

    /// `header`, unless empty, and the slices of `packet` after it without their first `skip`
    /// bytes; `None` when there are more than [`WRITE_SLICES`]. Valid while both live and until the
    /// next call here.
    pub fn of(&mut self, header: &[u8], packet: &Packet, skip: usize) -> Option<&[libc::iovec]> {
        self.with(header, packet, skip, &[])
    }

    /// The same, and `behind` after them, unless empty, which must live as long.
    pub fn with(
        &mut self,
        header: &[u8],
        packet: &Packet,
        mut skip: usize,
        behind: &[u8],
    ) -> Option<&[libc::iovec]> {
        let mut len = 0;
        let header = (!header.is_empty()).then_some(header);
        let behind = (!behind.is_empty()).then_some(behind);
        let slices = packet.slices().filter_map(|slice| {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            (skipped == 0 || skipped < slice.len()).then_some(&slice[skipped..])
        });
        for slice in header.into_iter().chain(slices).chain(behind) {
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
    fn too_many_slices_are_refused_and_compacted() {
        let pool = Pool::new(PoolConfig::fixed(WRITE_SLICES + 16)).unwrap();
        let mut packet = Packet::from_slice(&pool, 0, b"x").unwrap();
        for _ in 0..WRITE_SLICES {
            packet.concat(Packet::from_slice(&pool, 0, b"y").unwrap());
        }
        let mut list = GatherList::new();
        assert!(list.of(&[], &packet, 0).is_none());
        let compacted = compact(&packet, &pool).unwrap();
        assert_eq!(compacted.len(), packet.len());
        assert_eq!(list.of(&[1, 2], &compacted, 0).unwrap().len(), 2);
        let written = |list: &[libc::iovec]| list.iter().map(|entry| entry.iov_len).sum::<usize>();
        packet.concat(compacted);
        let left = list.of(&[1, 2], &packet, WRITE_SLICES + 3).unwrap();
        assert_eq!((left.len(), written(left)), (2, packet.len() - WRITE_SLICES - 3 + 2));
    }
}
