//! Calls of a stream that its connection answers in the engine's thread, beside the rings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_tcp::TcpInfo;

use super::shared::WRITE_END;
use super::tcp::TcpStream;
use crate::{Error, TcpSocketOptions};

impl TcpStream {
    /// Turns Nagle's rule off or on: without it small segments are sent at once.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.tcp(id).set_nodelay(nodelay))??)
    }

    /// Returns the options as they are; see also [`TcpStream::set_options`].
    pub fn options(&self) -> io::Result<TcpSocketOptions> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.tcp(id).options())??)
    }

    /// Sets the options, as far as they differ: read them, change some, set them.
    pub fn set_options(&self, options: &TcpSocketOptions) -> io::Result<()> {
        let (id, options) = (self.inner.id, *options);
        Ok(self.mailbox().ask(move |sockets| sockets.engine.tcp(id).set_options(&options))??)
    }

    /// Acknowledges data at once if its ACK waits, and the next segments as they come.
    pub fn quick_ack(&self) -> io::Result<()> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.tcp(id).quick_ack())??)
    }

    /// Returns the bytes to read up to the end of the peer's urgent data, which lie in the stream
    /// like all others; `None` if none was announced, or it was read.
    pub fn urgent(&self) -> io::Result<Option<u64>> {
        let id = self.inner.id;
        let mark = self.mailbox().ask(move |sockets| sockets.engine.tcp(id).urgent_end())??;
        let read = self.inner.read.load(Ordering::Relaxed);
        Ok(mark.filter(|&end| end > read).map(|end| end - read))
    }

    /// Appends data and announces the bytes that were taken as urgent (RFC 6093: not for new
    /// applications). Does not wait for room: fails with [`WouldBlock`](io::ErrorKind::WouldBlock)
    /// while the connection has not taken all that was written before.
    pub fn write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        if self.shared().has(WRITE_END) {
            return Err(self.refusal().into());
        }
        let (id, data) = (self.inner.id, data.to_vec());
        // The engine puts it behind what the ring has: what other threads write meanwhile comes
        // before it or after.
        Ok(self
            .mailbox()
            .ask(move |sockets| sockets.streams.write_urgent(&mut sockets.engine, id, &data))??)
    }

    /// Closes with a reset; written data that is not acknowledged is lost. Other handles of the
    /// connection are told that it was aborted.
    pub fn abort(self) {
        let id = self.inner.id;
        if let Err(Error::EngineThread) =
            self.mailbox().ask(move |sockets| sockets.streams.abort(&mut sockets.engine, id))
        {
            // When the engine is done with the call that this is part of; not closed before, as by
            // a drop.
            let inner = Arc::clone(&self.inner);
            self.mailbox().post(move |sockets| {
                sockets.streams.abort(&mut sockets.engine, id);
                drop(inner);
            });
        }
        // Where the engine is gone, so is the connection.
    }

    /// Counters and estimates.
    pub fn info(&self) -> io::Result<TcpInfo> {
        let id = self.inner.id;
        Ok(self.mailbox().ask(move |sockets| sockets.engine.tcp(id).info())??)
    }
}
