//! Calls on TCP connections and listeners.

use std::net::SocketAddr;

use millstream_packet::Packet;
use millstream_tcp::{Connection, FourTuple, State, TcpInfo};

use crate::engine::ip::IpLayer;
use crate::engine::tcp::api::{conn_error, read_error, write_error};
use crate::engine::tcp::listener::Listener;
use crate::engine::tcp::table::TcpSocket;
use crate::engine::tcp::zero_copy::BorrowedWrite;
use crate::engine::{Engine, TcpSocketOptions};
use crate::error::Error;
use crate::socket::SocketId;
use crate::stats::ListenerStats;
use crate::tuning::ZERO_COPY_LOOKS;

/// A TCP connection of an engine ([`Engine::tcp`](crate::Engine::tcp)): one that is gone answers
/// [`Error::NoSuchSocket`].
#[derive(Debug)]
pub struct TcpHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
    pub(in crate::engine) id: SocketId,
}

/// A TCP listener of an engine ([`Engine::listener`](crate::Engine::listener)).
#[derive(Debug)]
pub struct ListenerHandle<'a> {
    pub(in crate::engine) engine: &'a mut Engine,
    pub(in crate::engine) id: SocketId,
}

impl TcpHandle<'_> {
    /// Returns the connection, for a look at it.
    fn socket(&mut self) -> Result<&mut TcpSocket, Error> {
        let found = self.engine.tcp.table.by_id(self.id);
        found.map(|(_, socket)| socket).ok_or(Error::NoSuchSocket)
    }

    /// Makes a call that may change what the connection holds, or has to send.
    fn call<T>(&mut self, call: impl FnOnce(&mut TcpSocket) -> T) -> Result<T, Error> {
        self.engine.tcp.with_conn(&mut self.engine.cx, self.id, |socket, _| call(socket))
    }

    /// Copies received bytes into `buffer`; 0 is the orderly end of the stream. What ended it
    /// otherwise is told once, by the first call that meets it, as the kernel does: after that
    /// reads come to the end, and writes fail with
    /// [`Error::BrokenPipe`].
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.engine.tcp.read(&mut self.engine.cx, self.id, buffer)
    }

    /// As [`TcpHandle::read`](crate::TcpHandle::read), and the bytes stay to be read.
    pub fn peek(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.socket()?.conn.peek(buffer).map_err(read_error)
    }

    /// Takes up to `max` received bytes as they lie in their frames; `None` is the orderly end.
    #[inline]
    pub fn read_packet(&mut self, max: usize) -> Result<Option<Packet>, Error> {
        self.engine.tcp.read_packet(&mut self.engine.cx, self.id, max)
    }

    /// Copies bytes into the send queue, as many as it takes and as the connection may write before
    /// the next turn (256 KiB, and as much of all connections together). A writable event follows
    /// [`Error::WouldBlock`], and a call that took less than all.
    #[inline]
    pub fn write(&mut self, data: &[u8]) -> Result<usize, Error> {
        self.engine.tcp.write(&mut self.engine.cx, self.id, data)
    }

    /// Appends a packet's bytes to the send queue without copying them, or gives it back; when it
    /// may write is said at [`TcpHandle::write`](crate::TcpHandle::write), but the last packet may
    /// go beyond.
    #[inline]
    pub fn write_packet(&mut self, packet: Packet) -> Result<(), (Packet, Error)> {
        self.engine.tcp.write_packet(&mut self.engine.cx, self.id, packet)
    }

    /// Bytes that a block of a packet for
    /// [`TcpHandle::write_packet`](crate::TcpHandle::write_packet) holds best, as the link takes
    /// that many at once ([`Packet::bulk_from_slice`]). 0 where frames are as good, and until the
    /// connection has sent.
    pub fn bulk_bytes(&mut self) -> Result<usize, Error> {
        Ok(self.socket()?.conn.bulk_bytes())
    }

    /// Ends the writing side: a FIN follows what was written.
    pub fn shutdown_write(&mut self) -> Result<(), Error> {
        self.call(|socket| socket.conn.shutdown_write())
    }

    /// Lets go of the connection: it ends in order by itself, or with a reset when there is unread
    /// data.
    pub fn close(&mut self) {
        self.engine.tcp.close(&mut self.engine.cx, &mut self.engine.ip.reach, self.id)
    }

    /// The connection is to be closed when what the application wrote has been handed over
    /// ([`Connection::orphan`]).
    pub(crate) fn orphan(&mut self) {
        let _ = self.call(|socket| socket.conn.orphan());
    }

    /// Lets go of the connection with a reset.
    pub fn abort(&mut self) {
        self.engine.tcp.abort(&mut self.engine.cx, self.id)
    }

    /// Turns Nagle's rule off, so that small segments are sent at once, or on again.
    pub fn set_nodelay(&mut self, nodelay: bool) -> Result<(), Error> {
        self.call(|socket| socket.conn.set_nodelay(nodelay))
    }

    /// Says whether its data may go into the buffer of who waits for many
    /// ([`crate::local::Stack::wait_read`]).
    pub(crate) fn set_wait_read(&mut self, on: bool) -> Result<(), Error> {
        self.socket()?.wait_read = on;
        Ok(())
    }

    /// The state of a connection.
    pub fn state(&mut self) -> Result<State, Error> {
        Ok(self.socket()?.conn.state())
    }

    /// Returns true if a connect is done; a failed one is an error. One that waits for data to go
    /// with its SYN counts as done.
    pub fn connected(&mut self) -> Result<bool, Error> {
        let conn = &self.socket()?.conn;
        match (conn.error(), conn.state()) {
            (Some(error), _) => Err(conn_error(error)),
            (None, State::SynSent) => Ok(conn.is_deferred()),
            (None, State::SynReceived) => Ok(conn.is_early()),
            (None, _) => Ok(true),
        }
    }

    /// Returns true while the connection stands: it is established, and not over.
    pub fn is_connected(&mut self) -> bool {
        let closed = |state: Result<State, Error>| state.is_ok_and(|state| state == State::Closed);
        self.connected() == Ok(true) && !closed(self.state())
    }

    /// Returns the bytes that can be read at once (`SIOCINQ`).
    pub fn readable_bytes(&mut self) -> Result<usize, Error> {
        let (_, receive) = self.socket()?.conn.queue_stats();
        Ok(receive.bytes)
    }

    /// Returns the bytes in order that have come, read or not, from the start of the stream.
    pub(crate) fn received_bytes(&mut self) -> Result<u64, Error> {
        let conn = &self.socket()?.conn;
        Ok(conn.read_offset() + conn.queue_stats().1.bytes as u64)
    }

    /// Why the connection ended, if not in order and no call has told yet
    /// ([`millstream_tcp::Connection::take_error`]).
    pub fn take_error(&mut self) -> Result<Option<Error>, Error> {
        Ok(self.socket()?.conn.take_error().map(write_error))
    }

    /// Returns whether the peer has ended its side in order, and all that it sent has come.
    pub(crate) fn has_peer_ended(&mut self) -> bool {
        self.socket().is_ok_and(|socket| socket.conn.has_peer_ended())
    }

    /// Both ends of a connection.
    pub fn addresses(&mut self) -> Result<FourTuple, Error> {
        Ok(self.socket()?.conn.tuple())
    }

    /// The connection's counters and estimates.
    pub fn info(&mut self) -> Result<TcpInfo, Error> {
        Ok(self.socket()?.conn.info())
    }

    /// Returns the bytes that a connection has still to deliver, or had when it ended.
    pub(crate) fn undelivered(&mut self) -> Option<u64> {
        self.socket().ok()?.conn.undelivered_bytes()
    }

    /// A connection's options as they are.
    pub fn options(&mut self) -> Result<TcpSocketOptions, Error> {
        Ok(TcpSocketOptions::of(&self.socket()?.conn))
    }

    /// Sets a connection's options, as far as they differ from what they are; all or, with an
    /// error, none.
    pub fn set_options(&mut self, options: &TcpSocketOptions) -> Result<(), Error> {
        options.check()?;
        if options.cork && !self.socket()?.conn.is_corked() {
            // The engine sends first what was written before: the cork does not hold it back.
            self.engine.flush();
        }
        self.call(|socket| options.apply(socket))?;
        // An idle connection has nothing to send, and from now on may have something to wait for.
        self.engine.tcp.table.arm(self.id.slot());
        Ok(())
    }

    /// Acknowledges what waits at once, and the next segments as they come, until data goes the
    /// other way.
    pub fn quick_ack(&mut self) -> Result<(), Error> {
        self.call(|socket| socket.conn.quick_ack())
    }

    /// As [`TcpHandle::write`](crate::TcpHandle::write); what was taken is announced as urgent (RFC
    /// 6093). Not for new applications.
    pub fn write_urgent(&mut self, data: &[u8]) -> Result<usize, Error> {
        let Engine { cx, tcp, .. } = &mut *self.engine;
        tcp.write_by(cx, self.id, (data, false), Connection::write_urgent)
    }

    /// Where the peer's urgent data ends, in bytes from the start of its stream, whether or not it
    /// was read.
    pub(crate) fn urgent_end(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.socket()?.conn.urgent_end())
    }

    /// Bytes to read up to the end of the peer's urgent data; none where none was announced or it
    /// was read. A new mark makes the socket readable.
    pub fn urgent(&mut self) -> Result<Option<u64>, Error> {
        let conn = &self.socket()?.conn;
        Ok(conn.urgent_mark().map(|mark| mark - conn.read_offset()))
    }

    /// Sends what a write of `written` bytes has made ready: everything when nothing was under way,
    /// else only what fills segments. The rest waits for the next write or turn, so that a stream
    /// of large writes does not end each with a small segment; so does that of a connection which
    /// was granted more. All writes between two turns together send as much as one turn does: who
    /// writes on and on must not keep what arrives from being taken.
    pub(crate) fn push_written(&mut self, written: usize) {
        let Engine { tcp, cx, ip, .. } = &mut *self.engine;
        tcp.push_written(cx, &mut ip.reach, self.id, written)
    }

    /// As [`TcpHandle::write`](crate::TcpHandle::write), and sends what that made ready, as far as
    /// the peer, the path and the links take it: who waits for an answer then needs neither
    /// [`Engine::flush`] nor a turn. Much is sent from where it lies, and may wait some
    /// microseconds for its ACKs ([`Tuning::zero_copy_wait`](crate::tuning::Tuning)). The end of a
    /// large write that fills no segment, behind others, waits for the next write or turn.
    #[inline]
    pub fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        let large = self.engine.cx.limits.tuning.zero_copy_bytes;
        let sent = if data.len() < large { 0 } else { self.send_borrowed(data) };
        let Engine { cx, ip, tcp, .. } = &mut *self.engine;
        tcp.send_rest(cx, &mut ip.reach, self.id, (sent, &data[sent..]))
    }

    /// Sends from the start of `data` what can be sent from there. Returns how much.
    fn send_borrowed(&mut self, data: &[u8]) -> usize {
        let Engine { cx, ip, tcp, .. } = &mut *self.engine;
        let (begun, write) = BorrowedWrite::begin(cx, &mut ip.reach, tcp, self.id, data);
        let Some(write) = write else { return begun };
        let mut sending = Sending { engine: self.engine, write };
        while sending.extend() && sending.look() {}
        begun + sending.write.reserved()
    }
}

/// A write from the writer's memory, during which the engine looks at its links alone; it comes to
/// its end in any case.
struct Sending<'e, 'a> {
    engine: &'e mut Engine,
    write: BorrowedWrite<'a>,
}

impl Sending<'_, '_> {
    fn extend(&mut self) -> bool {
        let Engine { cx, ip, tcp, .. } = &mut *self.engine;
        self.write.extend(cx, &mut ip.reach, tcp)
    }

    /// Takes what has arrived meanwhile, ACKs above all. False when a turn is due for the sake of
    /// others, or when it was waited for too long, whatever came; until then this stands for a
    /// turn.
    fn look(&mut self) -> bool {
        let Self { engine, write } = self;
        let now = engine.refresh_time();
        for _ in 0..ZERO_COPY_LOOKS {
            if engine.receive(now, None) == 0 {
                break;
            }
        }
        // Answers to what came over other links.
        engine.ip.reach.flush(&mut engine.cx);
        engine.ip.follow_links(&mut engine.cx);
        engine.follow_addresses();
        if write.waits() && !write.waited(engine.refresh_time().saturating_duration_since(now)) {
            return false;
        }
        let is_due = engine.next_deadline().is_some_and(|due| due <= now);
        let Engine { cx, ip: IpLayer { reach, .. }, tcp, udp, .. } = &mut **engine;
        !is_due && !udp.has_room_to_tell(cx, reach) && write.goes_on(cx, reach, tcp)
    }
}

impl Drop for Sending<'_, '_> {
    fn drop(&mut self) {
        self.write.end(&mut self.engine.cx, &mut self.engine.tcp);
    }
}

impl ListenerHandle<'_> {
    fn listener(&mut self) -> Result<&mut Listener, Error> {
        self.engine.tcp.table.listeners.by_id(self.id)
    }

    /// The address of a listener.
    pub fn addr(&mut self) -> Result<SocketAddr, Error> {
        Ok(self.listener()?.local)
    }

    /// The state of a listener's queues, and what it counted.
    pub fn stats(&mut self) -> Result<ListenerStats, Error> {
        let listener = self.listener()?;
        Ok(ListenerStats {
            half_open: listener.half_open,
            ready: listener.waiting,
            backlog: listener.backlog,
            ..listener.stats
        })
    }

    /// Returns the options of its connections as they begin.
    pub fn options(&mut self) -> Result<TcpSocketOptions, Error> {
        Ok(TcpSocketOptions::of_config(&self.listener()?.config))
    }

    /// Sets the options of connections whose handshake is finished from now on; all or, with an
    /// error, none.
    pub fn set_options(&mut self, options: &TcpSocketOptions) -> Result<(), Error> {
        options.check()?;
        options.put(&mut self.listener()?.config);
        Ok(())
    }

    /// So many of the listener's backlog wait elsewhere at most, after an accept that nobody asked
    /// for.
    pub(crate) fn shares(&mut self, elsewhere: usize) -> Result<(), Error> {
        self.listener()?.elsewhere = elsewhere;
        Ok(())
    }

    /// The oldest finished connection, and its peer's address. [`Error::WouldBlock`] when there is
    /// none.
    pub fn accept(&mut self) -> Result<(SocketId, SocketAddr), Error> {
        self.engine.tcp.table.accept(&mut self.engine.cx.events, self.id)
    }

    /// Stops listening. Connections that nobody accepted are reset.
    pub fn close(&mut self) {
        self.engine.tcp.table.close_listener(&mut self.engine.cx.account, self.id)
    }
}
