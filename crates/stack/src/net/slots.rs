//! Sockets by their slots in the engine, and the line of those whose applications have left
//! something to do.

use std::collections::VecDeque;

/// See the module text.
pub struct Slots<T> {
    list: Vec<Option<Entry<T>>>,
    line: VecDeque<u32>,
}

struct Entry<T> {
    socket: T,
    /// It stands in line.
    is_due: bool,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { list: Vec::new(), line: VecDeque::new() }
    }
}

impl<T> Slots<T> {
    /// Returns a number that all slots are below.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn put(&mut self, slot: u32, socket: T) {
        let slot = slot as usize;
        if self.list.len() <= slot {
            self.list.resize_with(slot + 1, || None);
        }
        self.list[slot] = Some(Entry { socket, is_due: false });
    }

    #[inline]
    pub fn get(&mut self, slot: u32) -> Option<&mut T> {
        Some(&mut self.list.get_mut(slot as usize)?.as_mut()?.socket)
    }

    pub fn take(&mut self, slot: u32) -> Option<T> {
        Some(self.list.get_mut(slot as usize)?.take()?.socket)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.list.iter_mut().flatten().map(|entry| &mut entry.socket)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().flatten().map(|entry| &entry.socket)
    }

    /// The application has left something to do: the socket stands in line for that.
    pub fn note(&mut self, slot: u32) {
        let Some(Some(entry)) = self.list.get_mut(slot as usize) else { return };
        if !std::mem::replace(&mut entry.is_due, true) {
            self.line.push_back(slot);
        }
    }

    /// Returns how many stand in line.
    pub fn due(&self) -> usize {
        self.line.len()
    }

    /// Takes the first in line.
    pub fn next_due(&mut self) -> Option<u32> {
        let slot = self.line.pop_front()?;
        if let Some(Some(entry)) = self.list.get_mut(slot as usize) {
            entry.is_due = false;
        }
        Some(slot)
    }
}
