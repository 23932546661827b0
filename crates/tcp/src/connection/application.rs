//! Calls of the application.

use millstream_packet::{Instant, Packet, Piece, Pool, QueueStats};
use millstream_wire::tcp::SeqNumber;

use crate::connection::Connection;
use crate::error::{ConnError, Refused};
use crate::state::{Events, State};
use crate::stats::TcpStats;

impl Connection {
    /// Returns whether anything may still be written, now or later; else the error that a write
    /// has.
    #[inline]
    pub fn may_write(&self) -> Result<(), ConnError> {
        match self.cx.state {
            State::Closed => Err(self.untold.unwrap_or(ConnError::Closed)),
            _ if self.sending.snd.is_fin_queued => Err(ConnError::Closed),
            _ => Ok(()),
        }
    }

    /// Why the connection ended, if not in order and no call has told yet: calls that read or write
    /// take it, too, and after that reads come to the end and writes to a closed side. After a
    /// reset by a peer that had ended its side before, that is [`ConnError::Closed`], and only what
    /// writes takes it.
    pub fn take_error(&mut self) -> Option<ConnError> {
        self.untold.take()
    }

    /// As [`may_write`](Self::may_write); an error of the connection is told by that.
    #[inline]
    fn begin_write(&mut self) -> Result<(), ConnError> {
        let result = self.may_write();
        if result.is_err() {
            self.untold = None;
        }
        result
    }

    /// Copies as much of `bytes` into the send queue as has room and answers how much, at least one
    /// byte. Before the handshake is done data is queued and sent after it. `WouldBlock` when there
    /// is no room now; a writable event follows.
    #[inline]
    pub fn write(&mut self, pool: &Pool, bytes: &[u8]) -> Result<usize, ConnError> {
        self.begin_write()?;
        self.end_deferral();
        if bytes.is_empty() {
            return Ok(0);
        }
        let written = self.sending.snd.write(pool, bytes);
        if written > 0 {
            return Ok(written);
        }
        let full = self.sending.snd.queue().held_bytes() >= self.sending.snd.queue().limit() / 2;
        Err(if full { ConnError::WouldBlock } else { ConnError::NoMemory })
    }

    /// Queues a packet's bytes without copying. A packet that is not taken is given back.
    pub fn write_packet(&mut self, packet: Packet) -> Result<(), Refused> {
        if let Err(why) = self.begin_write() {
            return Err(Refused { packet, why });
        }
        if packet.is_empty() {
            return Ok(());
        }
        self.end_deferral();
        let refused = |packet| Refused { packet, why: ConnError::WouldBlock };
        self.sending.snd.append(packet).map_err(refused)
    }

    /// Nothing more will come after what is queued: `Ok` is the orderly end, `Err` the reason.
    fn end_of_data(&self) -> Result<usize, ConnError> {
        match self.cx.state {
            _ if self.receiving.rcv.is_shut => Ok(0),
            State::SynSent | State::SynReceived => Err(ConnError::WouldBlock),
            State::Established | State::FinWait1 | State::FinWait2 => Err(ConnError::WouldBlock),
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait => Ok(0),
            // the peer's end had come before
            State::Closed if self.has_peer_ended() => Ok(0),
            State::Closed => self.untold.map_or(Ok(0), Err),
        }
    }

    /// As [`end_of_data`](Self::end_of_data); an error of the connection is told by that.
    fn tell_end(&mut self) -> Result<usize, ConnError> {
        let end = self.end_of_data();
        if end.is_err_and(|error| error != ConnError::WouldBlock) {
            self.untold = None;
        }
        end
    }

    /// Copies received bytes into `out`. `Ok(0)` is the orderly end of the stream (or an empty
    /// `out`).
    #[inline]
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, ConnError> {
        if self.receiving.rcv.queue().is_empty() {
            self.end_deferral();
            return self.tell_end();
        }
        let read = self.receiving.rcv.read(out);
        self.receiving.after_read(&mut self.cx, read as u64);
        Ok(read)
    }

    /// As [`read`](Self::read), and the bytes stay to be read.
    pub fn peek(&mut self, out: &mut [u8]) -> Result<usize, ConnError> {
        if self.receiving.rcv.queue().is_empty() {
            return self.tell_end();
        }
        Ok(self.receiving.rcv.queue().peek(out))
    }

    /// Takes at most `max` received bytes out as a packet, without copying. `Ok(None)` is the
    /// orderly end.
    pub fn read_packet(&mut self, max: usize, pool: &Pool) -> Result<Option<Packet>, ConnError> {
        if self.receiving.rcv.queue().is_empty() {
            self.end_deferral();
            return self.tell_end().map(|_| None);
        }
        let packet = self.receiving.rcv.read_packet(max, pool).ok_or(ConnError::NoMemory)?;
        self.receiving.after_read(&mut self.cx, packet.len() as u64);
        Ok(Some(packet))
    }

    /// No more will be written: a FIN follows what is queued (RFC 9293 3.6, half close).
    pub fn shutdown_write(&mut self) {
        self.end_deferral();
        match self.cx.state {
            // RFC 9293 3.10.4: queued until the connection is established
            State::SynSent | State::SynReceived => self.sending.snd.is_fin_queued = true,
            State::Established => {
                self.sending.snd.is_fin_queued = true;
                self.cx.set_state(State::FinWait1);
            }
            State::CloseWait => {
                self.sending.snd.is_fin_queued = true;
                self.cx.set_state(State::LastAck);
            }
            _ => {}
        }
    }

    /// No more will be read: what arrives is acknowledged and dropped.
    pub fn shutdown_read(&mut self) {
        self.cx.begin_rare();
        self.receiving.rcv.is_shut = true;
        let all = self.receiving.rcv.discard_unread();
        self.receiving.after_read(&mut self.cx, all as u64);
    }

    /// The application has gone, and what it wrote is still to come: data of the peer are answered
    /// by a reset from now on, and a window that stays shut is not probed for ever.
    /// [`close`](Self::close) is to follow.
    pub fn orphan(&mut self) {
        if self.cx.config.linger_s == Some(0) {
            return self.abort();
        }
        self.cx.begin_rare();
        self.cx.orphaned = true;
    }

    /// The application has no more use for the connection: what is queued is still sent, then the
    /// FIN. Received data that was not read makes it a reset, so that the peer learns of it (RFC
    /// 9293 3.6.1), and so does [`Config::linger_s`](crate::Config::linger_s) when its time is
    /// over.
    pub fn close(&mut self) {
        let reset = !self.receiving.rcv.queue().is_empty() || self.cx.config.linger_s == Some(0);
        if reset && self.cx.state != State::TimeWait {
            self.finish_with_reset(ConnError::Aborted);
            return;
        }
        self.cx.begin_rare();
        self.cx.orphaned = true;
        if self.cx.state == State::SynSent && self.sending.snd.queue().is_empty() {
            // RFC 9293 3.10.4: nothing was promised to anybody
            self.finish(None);
            return;
        }
        // how long that may take is counted from the next `poll`, which knows the time
        self.shutdown_write();
    }

    /// Ends the connection at once; the peer is told by RST (RFC 9293 3.10.5).
    pub fn abort(&mut self) {
        self.finish_with_reset(ConnError::Aborted);
    }

    /// Returns whether the peer's FIN has come, and everything before it.
    pub fn has_peer_ended(&self) -> bool {
        self.receiving.rcv.has_ended()
    }

    /// There is data, the end of the stream, or an error to read.
    pub fn is_readable(&self) -> bool {
        !self.receiving.rcv.queue().is_empty() || self.end_of_data() != Err(ConnError::WouldBlock)
    }

    /// A write would take something or fail for good.
    pub fn is_writable(&self) -> bool {
        match self.cx.state {
            State::SynSent if self.is_deferred() => true,
            State::SynReceived if self.is_early() => {
                self.may_write().is_err() || self.sending.snd.has_room()
            }
            State::SynSent | State::SynReceived => false,
            _ => self.may_write().is_err() || self.sending.snd.has_room(),
        }
    }

    /// The state is CLOSED: the connection can be dropped once [`poll`](Self::poll) is empty.
    pub fn is_closed(&self) -> bool {
        self.cx.state == State::Closed
    }

    /// Payload bytes of a full segment now; at least one.
    #[inline]
    pub fn mss(&self) -> u32 {
        self.sending.snd.mss().max(1) as u32
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.sending.snd.queue().len()
    }

    /// Bytes that the application wrote and that the peer has not acknowledged, if there are any,
    /// or if its end was not acknowledged. After the connection has ended: as it was then.
    pub fn undelivered_bytes(&self) -> Option<u64> {
        if self.cx.state == State::Closed {
            return self.cx.counters.cut_off();
        }
        let bytes = self.sending.snd.queue().len() as u64;
        let is_end_due =
            self.sending.snd.is_fin_queued && self.sending.snd.una() <= self.sending.snd.data_end();
        (bytes != 0 || is_end_due).then_some(bytes)
    }

    /// Bytes of payload in the largest segments that it hands out: whoever gives it packets
    /// ([`write_packet`](Self::write_packet)) had better put so many into each piece of memory. 0
    /// where those fit a frame, and until it has sent.
    pub fn bulk_bytes(&self) -> usize {
        self.sending.snd.queue().whole()
    }

    /// Bytes written and not sent for the first time.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.sending.snd.unsent_bytes()
    }

    /// Returns what the send queue and the receive queue hold and count; data out of order aside.
    pub fn queue_stats(&self) -> (QueueStats, QueueStats) {
        (self.sending.snd.queue().stats(), self.receiving.rcv.queue().stats())
    }

    /// Tells of the pieces of the send queue, or of the receive queue where `receives`, data out of
    /// order aside: at most `most` of them, from where the call before has answered, or from the
    /// front ([`ByteQueue::survey`](millstream_packet::ByteQueue::survey)).
    pub fn survey_queue(
        &mut self,
        receives: bool,
        by: u64,
        from: Option<u64>,
        most: usize,
        see: impl FnMut(Piece),
    ) -> Option<u64> {
        match receives {
            true => self.receiving.rcv.survey_queue(by, from, most, see),
            false => self.sending.snd.survey_queue(by, from, most, see),
        }
    }

    /// Returns whether R1 was reached since the last call (RFC 9293 3.8.3), for an owner that looks
    /// after the way.
    pub fn take_delivery_problem(&mut self) -> bool {
        std::mem::take(&mut self.cx.events.delivery_problem)
    }

    /// Adds to the owner's `sums` what was counted since the last call.
    #[inline]
    pub fn add_counted(&mut self, sums: &mut TcpStats) {
        self.cx.counters.tell(sums);
    }

    /// Returns whether [`take_events`](Self::take_events) has anything to tell.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.cx.events.is_empty()
    }

    /// Returns whether all there is to tell is that there is data to read; then it is told.
    #[inline]
    pub fn take_readable(&mut self) -> bool {
        let alone = self.cx.events.is_readable_alone();
        if alone {
            self.cx.events.readable = false;
        }
        alone
    }

    /// Returns what happened since the last call.
    pub fn take_events(&mut self) -> Events {
        std::mem::take(&mut self.cx.events)
    }

    /// An ICMP error that means `error` quoted a segment of this connection whose sequence number
    /// is `seq`. `hard`: trying again is of no use (RFC 1122 4.2.3.9). Only believed while the
    /// segment is outstanding (RFC 5927 4.1).
    ///
    /// While nothing has come from the peer, each ends the connection, so that who connects hears
    /// of it soon and may try another address (RFC 5461 section 4, as in Linux). Once its SYN has
    /// come only hard ones do, and of an open connection none: it is remembered, as
    /// the reason if the connection is given up (RFC 1122 4.2.3.9 and 4.2.4.1).
    pub fn on_icmp_error(&mut self, now: Instant, seq: SeqNumber, error: ConnError, hard: bool) {
        self.cx.set_clock(now);
        if !self.sending.is_about_outstanding(&mut self.cx, seq) {
            return;
        }
        let is_fatal = match self.cx.state {
            State::SynSent => true,
            State::SynReceived => hard,
            _ => false,
        };
        if !is_fatal {
            self.cx.begin_rare();
            self.soft_error = Some(error);
            return;
        }
        if hard {
            self.fast_open_failed();
        }
        self.finish(Some(error));
    }

    /// The last [`poll`](Self::poll) had something to send and found no free frame.
    pub fn is_starved_of_frames(&self) -> bool {
        self.sending.snd.wants_frames
    }

    /// An ICMP message that quoted a segment with sequence number `seq` says that the path takes IP
    /// packets of at most `mtu_bytes` (RFC 1191, RFC 8201). Believed only while that segment is
    /// outstanding (RFC 5927 4.1): then segments shrink and what is outstanding is sent again. Once
    /// a path may have carried full segments, which it may as soon as the bytes of one have
    /// arrived, the message waits until the segment is found missing, and is dropped when that is
    /// acknowledged (RFC 5927 7.2). IPv4 packets do not become smaller than 552 bytes: who asks for
    /// smaller ones, of 68 bytes at least, and is believed, may fragment those of the next ten
    /// minutes. Who asks for IPv6 packets of less than 1,280 bytes is not heard.
    pub fn set_path_mtu(&mut self, now: Instant, seq: SeqNumber, mtu_bytes: u16) {
        self.cx.set_clock(now);
        if self.sending.is_about_outstanding(&mut self.cx, seq) {
            self.sending.hear_path_claim(&mut self.cx, seq, mtu_bytes);
        }
    }

    /// IPv4 packets may be fragmented: a router asked for smaller ones than are made.
    #[inline]
    pub fn may_be_fragmented(&self) -> bool {
        self.sending.path.is_fragmentable()
    }

    /// The link of the way to the peer takes IP packets of at most `mtu_bytes`, as it is another
    /// one or as its MTU was set. No segment is larger from now on, and what is outstanding in
    /// larger ones is sent again. Where it takes more again segments grow, up to what they were to
    /// be when the connection was opened.
    #[inline]
    pub fn set_link_mtu(&mut self, now: Instant, mtu_bytes: usize) {
        if let Some(limit) = self.sending.path.other_link(&self.cx, mtu_bytes) {
            self.cx.set_clock(now);
            self.sending.follow_link(&mut self.cx, limit);
        }
    }
}
