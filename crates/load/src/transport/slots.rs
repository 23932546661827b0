//! Connections by number, with what is known of their readiness. Millstream
//! tells edges; what was told and not yet used up is kept here.

use std::io::{self, Read, Write};

use millstream::Readiness;
use millstream::packet::Packet;

use super::message::Message;
use super::{ConnId, Ready};

/// The connections of a network.
pub(super) struct Slots<S> {
    slots: Vec<Option<Slot<S>>>,
    /// The connections that became ready for what the workload wants of them, each once, in that
    /// order. Some are not ready any more.
    listed: Vec<ConnId>,
    /// The numbers under which no connection is listed any more.
    free: Vec<ConnId>,
}

struct Slot<S> {
    stream: S,
    /// Readiness to read and to write that `wait` is to report; `None`: the connection blocks.
    wants: Option<(bool, bool)>,
    readable: bool,
    writable: bool,
    is_listed: bool,
}

impl<S> Slot<S> {
    /// Returns the readiness that is wanted and is there; `None` if there is none.
    fn ready(&self, conn: ConnId) -> Option<Ready> {
        let (read, write) = self.wants?;
        let (readable, writable) = (read && self.readable, write && self.writable);
        (readable || writable).then_some(Ready { conn, readable, writable })
    }

    /// Lists the connection when it is ready for what is wanted of it. Must be called when it may
    /// have become so.
    fn list(&mut self, conn: ConnId, listed: &mut Vec<ConnId>) {
        if !self.is_listed && self.ready(conn).is_some() {
            self.is_listed = true;
            listed.push(conn);
        }
    }
}

impl<S> Slots<S> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), listed: Vec::new(), free: Vec::new() }
    }

    /// Edges before the first watch are not seen, so a new connection counts as
    /// ready: the first try tells.
    pub(super) fn add(&mut self, stream: S) -> ConnId {
        let (readable, writable, is_listed) = (true, true, false);
        let slot = Some(Slot { stream, wants: None, readable, writable, is_listed });
        if let Some(conn) = self.free.pop() {
            self.slots[conn] = slot;
            return conn;
        }
        self.slots.push(slot);
        self.slots.len() - 1
    }

    fn slot(&mut self, conn: ConnId) -> io::Result<&mut Slot<S>> {
        let slot = self.slots.get_mut(conn).and_then(Option::as_mut);
        slot.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(super) fn stream(&mut self, conn: ConnId) -> io::Result<&mut S> {
        self.slot(conn).map(|slot| &mut slot.stream)
    }

    pub(super) fn take(&mut self, conn: ConnId) -> Option<S> {
        let slot = self.slots.get_mut(conn).and_then(Option::take)?;
        if !slot.is_listed {
            self.free.push(conn);
        }
        Some(slot.stream)
    }

    /// Says what is wanted; true when it is the first time.
    pub(super) fn watch(&mut self, conn: ConnId, wants: (bool, bool)) -> io::Result<bool> {
        let slot = self.slots.get_mut(conn).and_then(Option::as_mut);
        let slot = slot.ok_or(io::ErrorKind::NotConnected)?;
        let first = slot.wants.replace(wants).is_none();
        slot.list(conn, &mut self.listed);
        Ok(first)
    }

    pub(super) fn note(&mut self, conn: ConnId, news: Readiness) {
        let Some(slot) = self.slots.get_mut(conn).and_then(Option::as_mut) else { return };
        slot.readable |= news.readable || news.closed;
        slot.writable |= news.writable || news.closed;
        slot.list(conn, &mut self.listed);
    }

    /// Returns true when a connection is ready for what is wanted of it.
    pub(super) fn any_ready(&self) -> bool {
        let ready = |&conn: &ConnId| self.slots[conn].as_ref()?.ready(conn);
        self.listed.iter().find_map(ready).is_some()
    }

    /// Adds those that are ready for what is wanted of them, in the order in which they became so.
    pub(super) fn collect(&mut self, ready: &mut Vec<Ready>) {
        let slots = &mut self.slots;
        self.listed.retain(|&conn| {
            let Some(slot) = &mut slots[conn] else { return false };
            let one = slot.ready(conn);
            slot.is_listed = one.is_some();
            ready.extend(one);
            slot.is_listed
        });
    }
}

impl<S> Slots<S> {
    /// A call that reads.
    pub(super) fn reading<T>(
        &mut self,
        conn: ConnId,
        call: impl FnOnce(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.trying(conn, |slot| &mut slot.readable, call)
    }

    /// A call that writes.
    pub(super) fn writing<T>(
        &mut self,
        conn: ConnId,
        call: impl FnOnce(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        self.trying(conn, |slot| &mut slot.writable, call)
    }

    /// A call that uses up what it was `ready` for, where it would block.
    fn trying<T>(
        &mut self,
        conn: ConnId,
        ready: impl FnOnce(&mut Slot<S>) -> &mut bool,
        call: impl FnOnce(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        let slot = self.slot(conn)?;
        let result = call(&mut slot.stream);
        *ready(slot) &= !would_block(&result);
        result
    }

    /// Hands over what `message` has of `data` in one packet, by the stream's own calls: how much
    /// its block is to hold, and the writing. How many bytes that were.
    pub(super) fn write_shared(
        &mut self,
        conn: ConnId,
        (data, message): (&[u8], &mut Message),
        bulk_bytes: fn(&S) -> usize,
        write_packet: fn(&S, Packet) -> io::Result<()>,
    ) -> io::Result<usize> {
        let packet = message.view(data, bulk_bytes(self.stream(conn)?))?;
        let len = packet.len();
        self.writing(conn, |stream| write_packet(stream, packet))?;
        Ok(len)
    }

    /// Takes a packet of `most` bytes by the stream's own call, and lets go of it. How many bytes
    /// it had.
    pub(super) fn read_shared(
        &mut self,
        conn: ConnId,
        most: usize,
        read_packet: fn(&S, usize) -> io::Result<Option<Packet>>,
    ) -> io::Result<usize> {
        let packet = self.reading(conn, |stream| read_packet(stream, most))?;
        Ok(packet.map_or(0, |packet| packet.len()))
    }
}

impl<S: Read + Write> Slots<S> {
    pub(super) fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize> {
        self.reading(conn, |stream| stream.read(buffer))
    }

    pub(super) fn write(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        self.writing(conn, |stream| stream.write(data))
    }
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that always would block.
    struct Dry;

    impl Read for Dry {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    impl Write for Dry {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn readiness_lasts_until_a_try_would_block() {
        let mut slots = Slots::new();
        let conn = slots.add(Dry);
        let ready = |slots: &mut Slots<Dry>| {
            let any = slots.any_ready();
            let mut ready = Vec::new();
            slots.collect(&mut ready);
            assert_eq!(any, !ready.is_empty());
            ready
        };
        assert_eq!(ready(&mut slots), [], "nobody asked");
        assert!(slots.watch(conn, (true, false)).unwrap());
        let readable = [Ready { conn, readable: true, writable: false }];
        assert_eq!(ready(&mut slots), readable);
        assert_eq!(ready(&mut slots), readable, "it was not used up");
        assert!(slots.read(conn, &mut [0]).is_err());
        assert_eq!(ready(&mut slots), []);
        slots.note(conn, Readiness { readable: false, writable: false, closed: true });
        assert_eq!(ready(&mut slots), readable, "the end is something to read");
        assert!(!slots.watch(conn, (false, true)).unwrap());
        assert!(ready(&mut slots)[0].writable);
        slots.take(conn);
        assert_eq!(ready(&mut slots), []);
        assert!(slots.read(conn, &mut [0]).is_err() && slots.stream(conn).is_err());
        assert_eq!(ready(&mut slots), [], "it is gone");
    }
}
