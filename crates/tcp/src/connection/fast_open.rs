//! Fast Open on a connection (RFC 7413): what the SYNs carry, and what comes of it.

use core::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::tcp::{FastOpenCookie, TcpHeader, TcpOptions};

use crate::connection::Connection;
use crate::fast_open::{FastOpen, FastOpenOutcome, FastOpenStatus};
use crate::limits::MIN_MSS_BYTES;
use crate::payload::Payload;
use crate::segment::PayloadSource;
use crate::state::State;
use crate::timers::Expiry;
use crate::tuning::FAST_OPEN_WAIT_MS;

impl Connection {
    /// Opens with Fast Open, to be called right after [`connect`](Self::connect). With a `cookie`
    /// and the server's `mss` of the time it was given, the SYN waits for the first write (or
    /// read), 50 ms at most, to carry what fits of it (RFC 7413 4.2.1); without, it asks for one.
    pub fn offer_fast_open(&mut self, now: Instant, cookie: Option<(FastOpenCookie, u16)>) {
        if self.cx.state != State::SynSent || self.sending.snd.nxt() != 0 {
            return;
        }
        let (option, mss) = cookie.unwrap_or((FastOpenCookie::REQUEST, 0));
        let deferred = cookie.is_some()
            && self.sending.snd.queue().is_empty()
            && !self.sending.snd.is_fin_queued;
        let state = FastOpen { option: Some(option), mss, deferred, ..FastOpen::default() };
        let rare = self.cx.counters.rare();
        rare.fast_open = Some(Box::new(state));
        rare.fast_open_status = FastOpenStatus::Requested;
        self.sending.snd.is_syn_due = !deferred;
        if deferred {
            let wait = Duration::from_millis(FAST_OPEN_WAIT_MS);
            self.cx.timers.arm_retransmit(now + wait, Expiry::Timeout);
        }
        self.cx.events.writable |= deferred;
    }

    /// The SYN waits for the first write.
    pub fn is_deferred(&self) -> bool {
        self.cx.counters.fast_open().is_some_and(|open| open.deferred)
    }

    /// Something happened that lets the SYN go.
    #[inline]
    pub(super) fn end_deferral(&mut self) {
        if self.cx.state == State::SynSent
            && let Some(open) = self.cx.counters.fast_open_mut()
            && std::mem::take(&mut open.deferred)
        {
            self.cx.timers.stop_retransmit();
            self.sending.snd.is_syn_due = true;
        }
    }

    /// The peer's SYN has come before ours, which would have opened with the option.
    pub(super) fn give_up_deferral(&mut self) {
        if self.is_deferred() {
            self.end_deferral();
            self.cx.counters.take_fast_open();
        }
    }

    /// Puts the option into the first SYN or SYN-ACK. What is repeated is plain (RFC 7413 4.2.1 and
    /// 4.2.2), in case that the option or the data was what stopped it.
    pub(super) fn put_fast_open(&mut self, options: &mut TcpOptions) {
        if self.sending.snd.nxt() == 0
            && let Some(open) = self.cx.counters.fast_open()
        {
            options.fast_open = open.option;
        }
    }

    /// Puts the data that goes with the first SYN, if a cookie does, into `batch`: how many bytes.
    pub(super) fn put_fast_open_data(
        &mut self,
        options: &TcpOptions,
        pool: &Pool,
        source: PayloadSource,
        batch: &mut PacketBatch,
    ) -> usize {
        let Some(open) = self.cx.counters.fast_open() else { return 0 };
        if self.sending.snd.nxt() != 0 || open.option.is_none_or(|option| option.is_request()) {
            return 0;
        }
        // RFC 7413 4.1.3: what the server's segment size of last time allows
        let mss = usize::from(open.mss.max(MIN_MSS_BYTES).min(self.cx.config.mss));
        let len = mss.saturating_sub(options.emit_len()).min(self.sending.snd.queue().len());
        self.cx.counters.rare().fast_open_status = FastOpenStatus::Offered;
        if len == 0 {
            return 0;
        }
        let made = match source {
            PayloadSource::Frames { headroom } => {
                self.sending.snd.first_bytes(pool, Some(headroom), len)
            }
            _ => self.sending.snd.first_bytes(pool, None, len),
        };
        made.map_or(0, |packet| batch.push(packet).map_or(0, |()| len))
    }

    /// Our SYN is acknowledged up to `ack`, an offset: what of its data was taken, and what the
    /// server gave. Data that was not taken has not been sent, as far as the connection is
    /// concerned (RFC 7413 4.2.1).
    pub(super) fn end_fast_open(&mut self, answer: &TcpHeader, ack: u64) {
        let (taken, sent) = self.sending.snd.on_syn_acked(ack, answer.window);
        self.cx.counters.bytes_acked += taken;
        self.cx.counters.delivered_bytes += taken;
        if sent > taken {
            self.cx.counters.count_resent(1, sent - taken);
        }
        let Some(open) = self.cx.counters.fast_open_mut() else { return };
        let given = answer.options.fast_open.filter(|cookie| !cookie.is_request());
        open.learnt = given.filter(|_| answer.flags.syn());
        let status = match open.learnt {
            _ if taken > 0 => FastOpenStatus::DataAccepted,
            None if self.sending.snd.syn_retransmits() > 0 => FastOpenStatus::Lost,
            _ if sent > 0 => FastOpenStatus::DataRefused,
            _ => FastOpenStatus::Requested,
        };
        self.cx.counters.rare().fast_open_status = status;
    }

    /// The SYN was given up, or a router or host refused it by ICMP: a bad experience (RFC 7413
    /// 4.1.3.1).
    pub(super) fn fast_open_failed(&mut self) {
        if self.cx.state == State::SynSent && self.cx.counters.fast_open().is_some() {
            self.cx.counters.rare().fast_open_status = FastOpenStatus::Lost;
        }
    }

    /// Returns what a client's cache is to learn; once, when the handshake is done or has failed.
    /// None on other connections.
    pub fn take_fast_open_outcome(&mut self) -> Option<FastOpenOutcome> {
        let opening = matches!(self.cx.state, State::SynSent | State::SynReceived);
        if self.passive || opening {
            return None;
        }
        let mss = (self.receiving.rcv.nxt() > 0).then_some(self.sending.snd.peer_mss());
        let open = self.cx.counters.take_fast_open()?;
        let status = self.cx.counters.rare().fast_open_status;
        Some(FastOpenOutcome { status, cookie: open.learnt, mss })
    }

    /// Server: the SYN-ACK gives the client a cookie for the next time. To be called right after
    /// [`accept`](Self::accept).
    pub fn give_cookie(&mut self, cookie: FastOpenCookie) {
        if self.cx.state != State::SynReceived || !self.passive {
            return;
        }
        let rare = self.cx.counters.rare();
        rare.fast_open.get_or_insert_default().option = Some(cookie);
        rare.fast_open_status = FastOpenStatus::Answered;
    }

    /// Server: the SYN brought a good cookie. Its `payload` is received, and data may be sent
    /// before the handshake is done (RFC 7413 4.2.2). To be called right after
    /// [`accept`](Self::accept); the connection is open for the application from now on, but may
    /// still turn out to have no peer.
    pub fn open_early(&mut self, now: Instant, payload: Option<Packet>, pool: &Pool) {
        if self.cx.state != State::SynReceived || !self.passive || self.sending.snd.nxt() != 0 {
            return;
        }
        self.cx.set_clock(now);
        if let Some(packet) = payload.filter(|packet| !packet.is_empty()) {
            self.take_data::<false>(1, Payload::Packet(packet), pool);
            self.receiving.rcv.offer_syn_window();
        }
        let taken = self.receiving.rcv.nxt() > 1;
        let rare = self.cx.counters.rare();
        rare.fast_open.get_or_insert_default().early = true;
        rare.fast_open_status =
            if taken { FastOpenStatus::DataAccepted } else { FastOpenStatus::Answered };
        self.cx.events.connected = true;
        self.cx.events.writable = true;
    }

    /// The application has the connection although the handshake is not done.
    pub fn is_early(&self) -> bool {
        self.cx.state == State::SynReceived
            && self.cx.counters.fast_open().is_some_and(|open| open.early)
    }
}
