//! The memory that a listener has of a SYN until its handshake is done: a few bytes instead of a
//! connection.

use core::time::Duration;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::CongestionKind;
use crate::config::{Config, FourTuple};
use crate::connection::Connection;
use crate::tuning::{INITIAL_RTO_MS, MAX_RTO_MS, MAX_WINDOW_SCALE};

/// The SYN carried no window shift.
const NO_SHIFT: u8 = u8::MAX;
/// The wishes of the SYN, as bits.
const SACK: u8 = 1;
const TIMESTAMPS: u8 = 2;
const ECN: u8 = 4;
/// The SYN came again and did not ask for ECN any more.
const NOT_CAPABLE: u8 = 8;
/// The SYN-ACK was sent again because the SYN came again.
const REPEATED: u8 = 16;
/// The SYN had the Fast Open option.
const FAST_OPEN: u8 = 32;

/// The last ACK of the handshake has come, and no data.
const ACKNOWLEDGED: u8 = 64;

/// A connection in SYN-RECEIVED that has no data, buffers or estimates yet.
///
/// The owner keeps the two ends, repeats the SYN-ACK when [`deadline`](Self::deadline) is over, and
/// hands a segment between these ends to [`connection`](Self::connection)'s answer: that decides
/// all of RFC 9293 3.10.7.4, and is kept once it is established. `config` and `ts_offset` must be
/// the same at every call.
#[derive(Clone, Debug)]
pub struct HalfOpen {
    sent_at: Instant,
    irs: SeqNumber,
    iss: SeqNumber,
    ts_recent: u32,
    /// The peer's segment size; 0: it named none.
    mss: u16,
    shift: u8,
    bits: u8,
    timeouts: u8,
}

impl HalfOpen {
    /// Takes a `syn` that arrived at `now`; `iss` is the sequence number to answer with (see
    /// [`crate::isn`]).
    pub fn new(syn: &TcpHeader, iss: SeqNumber, now: Instant) -> Self {
        let options = &syn.options;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        HalfOpen {
            sent_at: now,
            irs: syn.seq,
            iss,
            ts_recent: options.timestamps.map_or(0, |timestamps| timestamps.value),
            mss: options.mss.unwrap_or(0),
            shift: options.window_scale.map_or(NO_SHIFT, |shift| shift.min(MAX_WINDOW_SCALE)),
            bits: bit(options.sack_permitted, SACK)
                | bit(options.timestamps.is_some(), TIMESTAMPS)
                | bit(syn.flags.ece() && syn.flags.cwr(), ECN)
                | bit(options.fast_open.is_some(), FAST_OPEN),
            timeouts: 0,
        }
    }

    /// The sequence number of the SYN-ACK.
    pub fn iss(&self) -> SeqNumber {
        self.iss
    }

    /// When the SYN came.
    pub fn since(&self) -> Instant {
        self.sent_at
    }

    /// How often the SYN-ACK was sent again because its deadline was over.
    pub fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// Returns whether the SYN had the Fast Open option: the SYN-ACK may then give a cookie (RFC
    /// 7413 4.1.2).
    pub fn has_fast_open(&self) -> bool {
        self.bits & FAST_OPEN != 0
    }

    /// Returns whether `syn` is the SYN that began this, sent again: then the SYN-ACK is to be sent
    /// again. One that does not ask for ECN any more makes our data not ECN-capable (RFC 3168
    /// 6.1.1).
    pub fn is_same_syn(&mut self, syn: &TcpHeader) -> bool {
        let same = syn.flags.syn() && !syn.flags.ack() && !syn.flags.rst() && syn.seq == self.irs;
        if same {
            self.bits |= REPEATED;
            if !(syn.flags.ece() && syn.flags.cwr()) {
                self.bits |= NOT_CAPABLE;
            }
        }
        same
    }

    /// Returns whether `ack`, the last step of the handshake, is to be dropped, as data shall come
    /// first ([`Config::defer_accept_ms`]).
    pub fn defers(&mut self, ack: &TcpHeader, len: usize, config: &Config, now: Instant) -> bool {
        let Some(wait) = config.defer_accept_ms else { return false };
        let flags = ack.flags;
        let is_bare = flags.ack() && !flags.syn() && !flags.fin() && !flags.rst() && len == 0;
        let is_last = is_bare && ack.ack == self.iss + 1 && ack.seq == self.irs + 1;
        let defers = is_last
            && now < self.sent_at + Duration::from_millis(wait.into())
            && self.timeouts < config.syn_ack_retries;
        if defers {
            self.bits |= ACKNOWLEDGED;
        }
        defers
    }

    /// Returns whether the SYN-ACK need not be sent again: it has come, and data is waited for. The
    /// last is sent in any case.
    pub fn waits_for_data(&self, config: &Config, now: Instant) -> bool {
        let until = |ms: u32| self.sent_at + Duration::from_millis(ms.into());
        self.bits & ACKNOWLEDGED != 0
            && config.defer_accept_ms.is_some_and(|ms| now < until(ms))
            && self.timeouts < config.syn_ack_retries
    }

    /// When the SYN-ACK is to be sent again: after one second, then after twice as long each time
    /// (RFC 6298 2.1 and 5.5).
    pub fn deadline(&self) -> Instant {
        let wait = |count: u8| (INITIAL_RTO_MS << count.min(16)).min(MAX_RTO_MS);
        let total: u64 = (0..=self.timeouts).map(|count| u64::from(wait(count))).sum();
        self.sent_at + Duration::from_millis(total)
    }

    /// The deadline is over: whether to try again, which `Config::syn_ack_retries` bounds.
    pub fn on_timer(&mut self, config: &Config) -> bool {
        let again = self.timeouts < config.syn_ack_retries;
        self.timeouts = self.timeouts.saturating_add(1);
        again
    }

    /// The SYN-ACK, as sent at `now`.
    pub fn syn_ack(
        &self,
        config: &Arc<Config>,
        tuple: FourTuple,
        ts_offset: u32,
        now: Instant,
    ) -> TcpHeader {
        self.begun(Arc::clone(config), CongestionKind::UNCONTROLLED, tuple, ts_offset, now).1
    }

    /// The connection as it stands after the SYN-ACK. Give it the segment that came with
    /// [`on_segment`](Connection::on_segment) next.
    pub fn connection(
        &self,
        config: impl Into<Arc<Config>>,
        tuple: FourTuple,
        ts_offset: u32,
        now: Instant,
    ) -> Connection {
        let config = config.into();
        let kind = config.congestion;
        let mut connection = self.begun(config, kind, tuple, ts_offset, now).0;
        let is_late = self.bits & ACKNOWLEDGED != 0;
        let retransmits = self.timeouts.max(u8::from(self.bits & REPEATED != 0));
        let retransmits = if is_late { 0 } else { retransmits };
        connection.sending.snd.on_syn_ack_sent_before(self.sent_at, retransmits);
        if is_late {
            // the answer to the SYN-ACK came with data that was waited for: of the round trip
            // nothing is known
            connection.sending.snd.end_wait();
        }
        connection.receiving.rcv.was_heard(self.sent_at);
        if self.bits & NOT_CAPABLE != 0 {
            connection.sending.ecn.take_syn_again(TcpFlags::NONE);
        }
        connection
    }

    /// The connection in SYN-RECEIVED whose SYN-ACK is due, where none was sent yet.
    pub fn accept(
        &self,
        config: impl Into<Arc<Config>>,
        tuple: FourTuple,
        ts_offset: u32,
        now: Instant,
    ) -> Connection {
        let syn = self.syn(&tuple);
        let mut connection = Connection::accept(config, tuple, self.iss, ts_offset, &syn, now);
        connection.receiving.rcv.was_heard(self.sent_at);
        if self.bits & NOT_CAPABLE != 0 {
            connection.sending.ecn.take_syn_again(TcpFlags::NONE);
        }
        connection
    }

    fn begun(
        &self,
        config: Arc<Config>,
        kind: CongestionKind,
        tuple: FourTuple,
        ts_offset: u32,
        now: Instant,
    ) -> (Connection, TcpHeader) {
        let syn = self.syn(&tuple);
        let mut connection =
            Connection::accept_with(config, kind, tuple, (self.iss, ts_offset), &syn, now);
        let syn_ack = connection.syn_ack();
        (connection, syn_ack)
    }

    /// The SYN between these ends, as far as it matters.
    pub fn syn(&self, tuple: &FourTuple) -> TcpHeader {
        let has = |bit: u8| self.bits & bit != 0;
        let setup = if has(ECN) { TcpFlags::ECE | TcpFlags::CWR } else { TcpFlags::NONE };
        TcpHeader {
            src_port: tuple.remote.port(),
            dst_port: tuple.local.port(),
            seq: self.irs,
            flags: TcpFlags::SYN | setup,
            options: TcpOptions {
                mss: (self.mss != 0).then_some(self.mss),
                window_scale: (self.shift != NO_SHIFT).then_some(self.shift),
                sack_permitted: has(SACK),
                timestamps: has(TIMESTAMPS)
                    .then_some(Timestamps { value: self.ts_recent, echo: 0 }),
                ..TcpOptions::default()
            },
            ..TcpHeader::default()
        }
    }
}

// A flood of SYNs fills a table of these.
const _: () = assert!(size_of::<HalfOpen>() <= 32);

#[cfg(test)]
#[path = "tests/half_open.rs"]
mod tests;
