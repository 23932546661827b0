//! What must hold, after each step and at the end.

use millstream_wire::tcp::{FastOpenCookie, SeqNumber, TcpHeader};

use super::plan::*;
use super::world::World;
use crate::connection::context::Context;
use crate::connection::sending::Sending;
use crate::connection::sending::recovery::Phase;
use crate::limits::{BUFFER_MIN_BYTES, REASSEMBLY_RANGES};
use crate::tuning::MAX_RTO_MS;
use crate::*;

/// The cookie that end 1 has given before.
pub const GOOD: [u8; 8] = *b"a cookie";

/// Largest super-segment, which is taken whole into an empty queue, and the room of its last frame.
const BURST_BYTES: usize = 70_000;

/// What was seen of one end from outside.
#[derive(Default)]
pub struct Watch {
    /// Right edge of the window it offered.
    offered: Option<SeqNumber>,
    /// Right edge of the window that it was offered, as far as it arrived.
    granted: Option<SeqNumber>,
    /// Segment size that the peer's SYN asked for.
    peer_mss: Option<u16>,
    acked: Option<SeqNumber>,
    /// End of what it sent.
    sent: Option<SeqNumber>,
    fin: Option<SeqNumber>,
    segments_out: u64,
    bytes_received: u64,
    recv_limit: usize,
    send_limit: usize,
}

impl Watch {
    /// The peer's SYN arrived at an end whose sequence numbers begin at `iss`.
    pub fn heard_syn(&mut self, header: &TcpHeader, iss: SeqNumber) {
        self.peer_mss = self.peer_mss.max(header.options.mss);
        self.granted.get_or_insert(iss + 1 + usize::from(header.window));
    }

    /// A SYN-ACK was sent for which nothing is remembered.
    pub fn sent_syn(&mut self, header: &TcpHeader) {
        self.offered = Some(header.ack + usize::from(header.window));
    }

    /// The client is about to open: the cookie and the segment size of last time that it has, if
    /// any.
    pub fn offer_fast_open(&mut self, open: Open, mss: u16) -> Option<(FastOpenCookie, u16)> {
        let cookie = match open {
            Open::Stale => FastOpenCookie::new(&[0; 8]),
            Open::Early => FastOpenCookie::new(&GOOD),
            _ => None,
        }?;
        self.peer_mss = Some(mss);
        Some((cookie, mss))
    }

    /// The connection was made from an entry of the SYN queue, which sent its SYN-ACK.
    pub fn made_from_entry(&mut self, isn: SeqNumber) {
        self.sent = Some(isn + 1);
        self.segments_out = 1;
    }

    /// The connection was made from a cookie: what its SYN-ACK offered is not known exactly.
    pub fn forget_window(&mut self, isn: SeqNumber) {
        self.offered = None;
        self.sent = Some(isn + 1);
        self.segments_out = 1;
    }

    /// A segment arrives; its window counts from now on.
    pub fn hear(&mut self, header: &TcpHeader, connection: &Connection) {
        let syn = header.flags.syn();
        if syn {
            self.heard_syn(header, connection.sending.snd.iss());
        }
        if !header.flags.ack() || header.flags.rst() {
            return;
        }
        let shift = if syn { 0 } else { connection.cx.negotiated.snd_shift };
        let edge = header.ack + (usize::from(header.window) << shift);
        if self.granted.is_none_or(|before| edge.gt(before)) {
            self.granted = Some(edge);
        }
    }
}

fn end_of(header: &TcpHeader, len: usize) -> SeqNumber {
    header.seq + header.sequence_len(len)
}

impl World<'_> {
    /// A segment that `from` sends.
    pub fn check_segment(&mut self, from: usize, segment: &Segment) {
        let Segment { header, payload_len, segment_size, ecn: _ } = segment;
        let len = *payload_len as usize;
        let mut bytes = [0; 60];
        let emitted = header.emit(&mut bytes);
        let parsed = TcpHeader::parse(&bytes[..emitted]).map(|(parsed, _)| parsed);
        assert_eq!(parsed.as_ref(), Ok(header), "what is sent is not what is read");
        let heard = self.sides[1 - from].watch.sent;
        let side = &mut self.sides[from];
        let Some(connection) = side.connection.as_ref() else { return };
        let watch = &mut side.watch;
        watch.segments_out += (len.div_ceil(usize::from(*segment_size).max(1))).max(1) as u64;
        if header.flags.rst() {
            side.may_reset = true;
            return;
        }
        let state = connection.state();
        assert!(state != State::Closed, "a closed connection sends");
        assert!(!header.flags.ack() || state != State::SynSent, "an ACK of nothing");
        side.losses.sent(self.now, connection, segment);
        watch.check_window(header, connection.receiving.rcv.shift());
        watch.check_extent(header, len, *segment_size);
        if header.flags.ack() {
            let ahead = watch.acked.is_some_and(|before| header.ack.lt(before));
            assert!(!ahead, "acknowledges less than before");
            watch.acked = Some(header.ack);
            assert!(heard.is_none_or(|end| header.ack.le(end)), "acknowledges what was not sent");
            for (left, right) in header.options.sack.iter() {
                assert!(left.lt(*right), "an empty SACK block");
                assert!(heard.is_some_and(|end| right.le(end)), "SACK of what was not sent");
                assert!(connection.cx.negotiated.sack, "SACK without agreement");
            }
        }
    }

    /// An end after all that was due was done.
    pub fn check(&mut self, index: usize) {
        let [first, second] = &mut self.sides;
        let (side, peer) = if index == 0 { (first, second) } else { (second, first) };
        let Some(connection) = side.connection.as_ref() else { return };
        if connection.is_closed() {
            assert!(connection.next_deadline().is_none(), "a closed connection has a timer");
            return;
        }
        check_timers(connection);
        let limit =
            connection.cx.config.recv_buffer_bytes.max(connection.receiving.rcv.limit_bytes());
        side.watch.recv_limit = side.watch.recv_limit.max(limit).max(BUFFER_MIN_BYTES);
        side.watch.send_limit = side.watch.send_limit.max(connection.sending.snd.queue().limit());
        check_memory(connection, side.watch.recv_limit, side.watch.send_limit);
        check_sender(connection);
        side.losses.check(self.now, connection);
        check_receiver(connection);
        let counters = &connection.cx.counters;
        assert_eq!(counters.segments_out, side.watch.segments_out, "segments sent");
        let received = connection.receiving.rcv.bytes_received();
        assert!(received >= side.watch.bytes_received, "a counter goes back");
        side.watch.bytes_received = received;
        if !side.shut_read {
            let read = side.read + connection.receiving.rcv.queue().len() as u64;
            assert_eq!(received, read, "bytes received");
        }
        assert_eq!(
            counters.bytes_acked + 1,
            connection.sending.snd.data_end() - connection.sending.snd.queue().len() as u64,
            "bytes acknowledged"
        );
        // what a receiver short of memory takes back is delivered twice (RFC 2018 section 8)
        let drops = peer.connection.as_ref().map_or(1, |peer| peer.info().memory_drops);
        let (delivered, sent) = (counters.delivered_bytes, connection.sending.snd.nxt());
        assert!(drops > 0 || delivered <= sent, "delivered {delivered} of {sent} bytes");
        let queued = connection.sending.snd.data_end() - 1;
        assert_eq!(queued, side.written, "bytes taken from the application");
    }

    /// How it ended.
    pub fn check_end(&self) {
        for index in 0..2 {
            let (side, peer) = (&self.sides[index], &self.sides[1 - index]);
            match side.error {
                None => {}
                Some(ConnError::Reset | ConnError::Refused) => {
                    assert!(peer.may_reset || peer.error.is_some(), "a reset out of nothing");
                }
                Some(ConnError::TimedOut) => {
                    assert!(self.may_time_out(index), "end {index} timed out without a cause");
                }
                Some(ConnError::Aborted) => {
                    assert!(side.may_reset, "end {index} aborted without a cause");
                }
                Some(other) => panic!("end {index} ended with {other}"),
            }
        }
        let [first, second] = &self.sides;
        let disturbed = |side: &super::world::Side| side.may_reset || side.error.is_some();
        if !disturbed(first) && !disturbed(second) {
            for (side, peer) in [(first, second), (second, first)] {
                assert_eq!(side.written, side.to_write, "not all was written");
                assert!(side.shut_read || side.read == peer.to_write, "not all was read");
            }
        }
    }

    fn may_time_out(&self, index: usize) -> bool {
        let config = &self.plan.ends[index].config;
        if config.linger_s.is_some() {
            return true;
        }
        let peer = &self.sides[1 - index];
        let keepalive =
            self.plan.actions.iter().any(|action| matches!(action.deed, Deed::Keepalive(true)));
        config.user_timeout_ms.is_some()
            || config.keepalive.is_some()
            || keepalive
            || self.plan.losses() >= usize::from(config.retries.min(config.syn_retries))
            || self.plan.way.hole_bytes > 0
            // a queue that grows while nothing measures it
            || self.plan.way.kbit_per_s > 0 && config.retries < 15
            // an orphan does not wait for ever for a reader
            || !self.plan.ends[1 - index].eager
            || peer.may_reset
            || peer.error.is_some()
    }
}

impl Watch {
    fn check_window(&mut self, header: &TcpHeader, shift: u8) {
        if !header.flags.ack() {
            return;
        }
        let shift = if header.flags.syn() { 0 } else { shift };
        let edge = header.ack + (usize::from(header.window) << shift);
        if let Some(before) = self.offered {
            // a SYN that is sent again cannot say what a scaled window said since
            let all = header.flags.syn() && header.window == u16::MAX;
            assert!(all || edge.ge(before), "takes back its window: {before:?} -> {edge:?}");
            if all && before.gt(edge) {
                return;
            }
        }
        self.offered = Some(edge);
    }

    fn check_extent(&mut self, header: &TcpHeader, len: usize, segment_size: u16) {
        let end = end_of(header, len);
        let asks = header.flags.syn() && header.options.fast_open.is_some();
        if len > 0 && asks {
            let (size, most) = (len + header.header_len() - 20, self.peer_mss);
            let most = usize::from(most.expect("data in a SYN without a cookie"));
            assert!(size <= most, "{size} bytes in a SYN, the peer took {most}");
        } else if len > 0 || header.flags.fin() {
            let granted = self.granted.expect("sends before it was granted anything");
            assert!(end.le(granted), "sends beyond the window: {end:?} > {granted:?}");
            let options = header.header_len() - 20;
            let size = len.min(usize::from(segment_size)) + options;
            let most = usize::from(self.peer_mss.unwrap_or(1220)).max(88);
            assert!(size <= most, "{size} bytes in a segment, the peer takes {most}");
        }
        if let Some(fin) = self.fin {
            assert!(end.le(fin), "sends after its FIN");
        }
        if header.flags.fin() {
            assert!(self.fin.is_none_or(|fin| fin == end), "the FIN moves");
            self.fin = Some(end);
        }
        if self.sent.is_none_or(|sent| end.gt(sent)) {
            self.sent = Some(end);
        }
    }
}

fn check_timers(connection: &Connection) {
    let (snd, state) = (&connection.sending.snd, connection.cx.state);
    let deadline = connection.next_deadline();
    let unsent = snd.data_end() > snd.nxt().max(1) || snd.is_fin_queued && !snd.is_fin_sent();
    let waits = snd.una() < snd.nxt() || unsent && state.may_transmit_data();
    let must = match state {
        State::SynSent | State::SynReceived | State::TimeWait => true,
        State::FinWait2 => connection.cx.orphaned,
        _ => waits,
    };
    assert!(!must || deadline.is_some(), "no timer in {state}");
    assert!(
        !snd.is_probe_due && !connection.receiving.ack.is_at_once(),
        "something is left to send"
    );
}

/// The limits are the largest that the buffers ever had: what was taken or promised stays when they
/// are lowered.
fn check_memory(connection: &Connection, recv_limit: usize, send_limit: usize) {
    let held = connection.receive_held_bytes();
    let most = 2 * recv_limit + BURST_BYTES;
    assert!(held <= most, "{held} bytes held to receive, the limit is {most}");
    let held = connection.sending.snd.queue().held_bytes();
    assert!(
        held <= send_limit + BURST_BYTES,
        "{held} bytes held to send, the limit is {send_limit}"
    );
    let ranges = connection.receiving.rcv.early().1;
    assert!(ranges <= REASSEMBLY_RANGES, "{ranges} ranges out of order");
}

fn check_sender(connection: &Connection) {
    let Context { rtt, config, .. } = &connection.cx;
    let Sending { snd, board, window, .. } = &connection.sending;
    assert!(snd.una() <= snd.nxt(), "acknowledged beyond what was sent");
    assert!(snd.nxt() <= snd.data_end() + u64::from(snd.is_fin_queued), "sent beyond the data");
    let outstanding = snd.outstanding();
    let (sacked, lost) = (board.sacked_bytes(), board.lost_bytes());
    assert!(sacked + lost <= outstanding, "{sacked} + {lost} of {outstanding} bytes accounted for");
    assert!(board.pipe(snd.una(), snd.nxt()) <= outstanding, "more in flight than outstanding");
    assert!(window.cwnd_bytes >= u64::from(window.mss_bytes.min(88)), "no congestion window");
    if outstanding == 0 && connection.cx.state.is_synchronized() {
        assert_eq!(connection.sending.recovery.phase(), Phase::Open, "nothing is outstanding");
        assert!(board.is_in_order(), "something exceptional, and nothing outstanding");
    }
    let rto = rtt.rto().as_millis() as u64;
    assert!(rto <= u64::from(MAX_RTO_MS), "a time-out of {rto} ms");
    assert!(rto >= u64::from(config.min_rto_ms), "a time-out of {rto} ms");
    let c = &connection.cx.counters;
    let resent = connection.info().bytes_retransmitted;
    assert!(resent <= c.bytes_sent, "sent again more than sent");
    let once = c.bytes_sent - resent;
    assert_eq!(once, snd.nxt().min(snd.data_end()).saturating_sub(1), "bytes sent once");
}

fn check_receiver(connection: &Connection) {
    let (rcv, state) = (&connection.receiving.rcv, connection.cx.state);
    if !matches!(state, State::SynSent) {
        assert!(rcv.nxt() <= rcv.edge() + 1, "took more than it offered");
    }
    rcv.check_order();
}
