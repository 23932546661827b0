//! Reading packets and queues: slices, a cursor, copies.

use super::Packet;
use crate::memory::Entry;
use crate::sum;
use std::io;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// The data of a packet or queue, frame by frame; no slice is empty.
#[derive(Clone, Debug)]
pub struct Slices<'a> {
    next: Option<Entry>,
    last: Option<Entry>,
    /// Not for another thread: the packet is not either, while it is borrowed.
    owner: PhantomData<&'a Packet>,
}

impl<'a> Slices<'a> {
    #[inline]
    pub(crate) fn new(first: Entry, last: Entry) -> Self {
        Self { next: Some(first), last: Some(last), owner: PhantomData }
    }

    pub(crate) fn none() -> Self {
        Self { next: None, last: None, owner: PhantomData }
    }
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let entry = self.next?;
            self.next = (Some(entry) != self.last).then(|| entry.next());
            if entry.len() != 0 {
                // SAFETY: the entry is held by what 'a borrows.
                return Some(unsafe { entry.bytes() });
            }
        }
    }
}

impl FusedIterator for Slices<'_> {}

/// A place in a packet's data, moving forward.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    slices: Slices<'a>,
    here: &'a [u8],
    remaining: usize,
}

impl<'a> Reader<'a> {
    /// Returns the number of bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Returns the contiguous bytes at this place; empty only at the end.
    pub fn chunk(&mut self) -> &'a [u8] {
        if self.here.is_empty() {
            self.here = self.slices.next().unwrap_or(&[]);
        }
        self.here
    }

    /// Moves on by `n` bytes, or to the end. Returns how many.
    pub fn skip(&mut self, n: usize) -> usize {
        let mut left = n.min(self.remaining);
        let skipped = left;
        while left != 0 {
            let step = self.chunk().len().min(left);
            self.here = &self.here[step..];
            left -= step;
        }
        self.remaining -= skipped;
        skipped
    }

    /// Copies into `out` as far as there is data. Returns how many bytes.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let chunk = self.chunk();
            let n = chunk.len().min(out.len() - done);
            if n == 0 {
                break;
            }
            out[done..done + n].copy_from_slice(&chunk[..n]);
            self.here = &chunk[n..];
            done += n;
        }
        self.remaining -= done;
        done
    }
}

impl io::Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(Reader::read(self, out))
    }
}

impl Packet {
    /// Returns a cursor over the data.
    pub fn reader(&self) -> Reader<'_> {
        Reader { slices: self.slices(), here: &[], remaining: self.len() }
    }

    /// Copies the bytes from `offset` on into `out`, as far as there are any. Returns how many.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        // Mostly all lies in the first piece.
        if let Some(bytes) = self.head().get(offset..offset.saturating_add(out.len())) {
            out.copy_from_slice(bytes);
            return out.len();
        }
        let mut reader = self.reader();
        if reader.skip(offset) < offset { 0 } else { reader.read(out) }
    }

    /// Copies as [`copy_to`](Self::copy_to) does, and sums in the same pass. Returns the number of
    /// bytes copied, and their folded partial sum ([`crate::sum`]).
    pub fn copy_and_sum_to(&self, offset: usize, out: &mut [u8]) -> (usize, u32) {
        let mut reader = self.reader();
        if reader.skip(offset) < offset {
            return (0, 0);
        }
        let (mut done, mut total) = (0, 0);
        while done < out.len() {
            let chunk = reader.chunk();
            let n = chunk.len().min(out.len() - done);
            if n == 0 {
                break;
            }
            let part = sum::copy_and_sum(&chunk[..n], &mut out[done..done + n]);
            total = sum::combine(total, part, done % 2 == 1);
            reader.skip(n);
            done += n;
        }
        (done, total)
    }

    /// Returns the folded partial sum ([`crate::sum`]) of `len` bytes from `offset`, or as many as
    /// there are.
    pub fn sum(&self, offset: usize, len: usize) -> u32 {
        let mut reader = self.reader();
        reader.skip(offset);
        let (mut done, mut total) = (0, 0);
        while done < len {
            let chunk = reader.chunk();
            let n = chunk.len().min(len - done);
            if n == 0 {
                break;
            }
            total = sum::combine(total, sum::sum(&chunk[..n]), done % 2 == 1);
            reader.skip(n);
            done += n;
        }
        total
    }
}
