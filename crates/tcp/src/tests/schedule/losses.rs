//! What a sender ought to take for lost, by the words of RFC 8985 (section 6.2) and RFC 6675, and
//! that it goes again at once.
//!
//! This is a model of its own: it sees the segments that a sender sends and hears, with their
//! times, and keeps a list of them. Of the connection it asks only what these rules take as given:
//! the congestion window, the segment size, the round trips measured, the edge of the peer's
//! window, whether it is in recovery, and what was taken back. Where the RFCs leave a choice, the
//! model waits as long as any of them allows: what it takes for lost the connection must have taken
//! for lost, too.

use core::time::Duration;

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::connection::sending::Sending;
use crate::connection::sending::recovery::Phase;
use crate::tuning::RENEGED_WAIT_MS;
use crate::*;

/// A segment outstanding, or what is left of it.
#[derive(Clone, Debug)]
struct Piece {
    start: u64,
    end: u64,
    /// The last time it was sent, and the timestamp in it.
    at: Instant,
    stamp: Option<u32>,
    /// It was sent more than once.
    again: bool,
    sacked: bool,
    /// And not sent again since.
    lost: bool,
    /// It was in a SYN.
    early: bool,
    /// The segment that it is a part of.
    segment: u32,
    /// The report by which it is known to have arrived.
    report: u32,
}

/// What the connection says of itself before it is told of something.
#[derive(Clone, Copy)]
pub struct Before {
    phase: Phase,
    refused: u32,
    rto: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Losses {
    iss: Option<SeqNumber>,
    pieces: Vec<Piece>,
    una: u64,
    nxt: u64,
    segments: u32,
    reports: u32,
    /// RFC 8985: RACK.xmit_ts and RACK.end_seq; RACK.rtt, RACK.fack, RACK.reordering_seen,
    /// RACK.reo_wnd_mult, RACK.dsack_round.
    rack: Option<(Instant, u64)>,
    rack_rtt: Duration,
    fack: u64,
    reordering: bool,
    widened: u32,
    dsack_round: u64,
    /// How long RACK waits for what may be late: RACK.reo_wnd.
    window: Duration,
    /// End of the recovery that began with a loss that the model saw.
    recover: u64,
    /// Something is to be sent again now, whatever the window says: the first of a recovery.
    at_once: bool,
    /// ACKs that F-RTO waits for after a time-out (RFC 5682).
    undecided: u8,
    /// When something new was acknowledged or sent, and whether a timer has expired since.
    advanced: Instant,
    sent_new: Instant,
    expired: bool,
    /// It was not recovering then.
    open: bool,
    probe_end: u64,
    timeouts: u32,
    probes: u32,
    undone: u32,
}

impl Before {
    pub fn of(connection: &Connection) -> Before {
        let info = connection.info();
        Before {
            phase: connection.sending.recovery.phase(),
            refused: info.paws_rejected + info.out_of_window + info.challenge_acks,
            rto: connection.cx.rtt.base_rto(),
        }
    }
}

impl Losses {
    fn offset(&self, seq: SeqNumber) -> i64 {
        let iss = self.iss.map_or(0, |iss| iss.0);
        self.una as i64 + i64::from(seq.0.wrapping_sub(iss).wrapping_sub(self.una as u32) as i32)
    }

    /// A segment leaves, to be cut into such of `size` bytes of payload. What a SYN carries is not
    /// looked at.
    pub fn sent(&mut self, now: Instant, connection: &Connection, segment: &Segment) {
        let Segment { header, payload_len, segment_size, .. } = segment;
        if header.flags.rst() || header.flags.syn() {
            return;
        }
        let (len, size) = (u64::from(*payload_len), u64::from(*segment_size));
        let sequence_len = len + u64::from(header.flags.fin());
        if sequence_len == 0 {
            return;
        }
        let is_new = self.iss.is_none();
        self.iss.get_or_insert(connection.sending.snd.iss());
        let begin = self.offset(header.seq).max(1) as u64;
        if is_new {
            (self.una, self.nxt) = (connection.sending.snd.una().min(begin), begin);
            if self.una < begin {
                let (start, stamp) = (self.una, None);
                let (again, sacked, lost, early) = (false, false, false, true);
                self.pieces.push(Piece {
                    start,
                    end: begin,
                    at: now,
                    stamp,
                    again,
                    sacked,
                    lost,
                    early,
                    segment: 0,
                    report: 0,
                });
            }
        }
        let end = begin + sequence_len;
        let mut start = begin;
        while start < end {
            let next = match start + size.max(1) {
                // the FIN goes with the last
                next if next + 1 >= end => end,
                next => next,
            };
            self.sent_one(now, header, start, next);
            start = next;
        }
        if self.probe_end == u64::MAX {
            // RFC 8985 7.3: TLP.end_seq
            self.probe_end = self.nxt;
        }
    }

    fn sent_one(&mut self, now: Instant, header: &TcpHeader, start: u64, end: u64) {
        let stamp = header.options.timestamps.map(|timestamps| timestamps.value);
        if start >= self.nxt {
            self.segments += 1;
            let segment = self.segments;
            let (again, sacked, lost, early) = (false, false, false, false);
            self.pieces.push(Piece {
                start,
                end,
                at: now,
                stamp,
                again,
                sacked,
                lost,
                early,
                segment,
                report: 0,
            });
            self.nxt = end;
            (self.sent_new, self.expired) = (now, false);
            return;
        }
        self.split(start);
        self.split(end);
        self.at_once = false;
        for piece in self.pieces.iter_mut().filter(|p| start <= p.start && p.end <= end) {
            // what a SYN carried and the peer did not take is sent as if for the first time (RFC
            // 7413 4.2.2)
            piece.again = !piece.early;
            (piece.at, piece.stamp, piece.lost, piece.early) = (now, stamp, false, false);
        }
    }

    /// Has a piece end at `at`.
    fn split(&mut self, at: u64) {
        let Some(index) = self.pieces.iter().position(|p| p.start < at && at < p.end) else {
            return;
        };
        let upper = Piece { start: at, ..self.pieces[index].clone() };
        self.pieces[index].end = at;
        self.pieces.insert(index + 1, upper);
    }

    /// A segment arrived, and the connection has taken it.
    pub fn heard(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        before: Before,
        connection: &Connection,
    ) {
        let Before { phase, refused, .. } = before;
        if refused != Before::of(connection).refused
            || !header.flags.ack()
            || header.flags.rst()
            || self.iss.is_none()
            || !connection.cx.state.is_synchronized()
            || connection.cx.state == State::Closed
        {
            return;
        }
        let own = self.offset(header.ack);
        // RFC 5961 5.2: what lies far below is not looked at
        if own > self.nxt as i64 || own < self.una as i64 - 60_000 {
            return;
        }
        let ack = (own.max(self.una as i64)) as u64;
        let (blocks, dsack) = self.blocks(header, own, ack, connection);
        let delivered = self.deliver(ack, &blocks);
        // RFC 5682 3.1: the first that acknowledges anything, and the next that tells anything
        let decides = ack > self.una || self.undecided == 1 && !delivered.is_empty();
        self.undecided = self.undecided.saturating_sub(u8::from(decides));
        if ack > self.una {
            (self.una, self.advanced, self.expired) = (ack, now, false);
            self.open = connection.sending.recovery.phase() == Phase::Open;
        }
        // RFC 8985 7.4: one acknowledged that was sent again may have repaired a loss, which the
        // next ACK tells
        if self.una > self.probe_end {
            self.probe_end = 0;
        }
        if dsack && self.una >= self.dsack_round {
            // 6.2 step 4
            (self.widened, self.dsack_round) = (self.widened + 1, self.nxt);
        }
        if connection.cx.negotiated.sack {
            self.update(now, &delivered, header, connection);
            self.take_back(connection);
            self.detect(now, phase, connection);
        }
    }

    /// The ranges that an ACK reports, and whether the first is one that arrived twice (RFC 2883
    /// section 4).
    fn blocks(
        &self,
        header: &TcpHeader,
        own: i64,
        ack: u64,
        connection: &Connection,
    ) -> (Vec<(u64, u64)>, bool) {
        let mut dsack = false;
        let mut blocks = Vec::new();
        if !connection.cx.negotiated.sack {
            return (blocks, dsack);
        }
        let all: Vec<(i64, i64)> =
            header.options.sack.iter().map(|(l, r)| (self.offset(*l), self.offset(*r))).collect();
        for (index, &(left, right)) in all.iter().enumerate() {
            let inside = all.get(1).is_some_and(|&(l, r)| l <= left && right <= r);
            if index == 0 && (left < own || inside) {
                dsack = true;
            } else if left >= ack as i64 && right <= self.nxt as i64 {
                blocks.push((left as u64, right as u64));
            }
        }
        (blocks, dsack)
    }

    /// Marks what has arrived, takes off what is acknowledged, and returns what arrived now, by its
    /// place.
    fn deliver(&mut self, ack: u64, blocks: &[(u64, u64)]) -> Vec<Piece> {
        let edges = blocks.iter().flat_map(|&(left, right)| [left, right]);
        edges.chain([ack]).for_each(|edge| self.split(edge));
        let mut delivered: Vec<Piece> = Vec::new();
        // of what lay in one range with what is acknowledged, how many segments are left is not
        // known
        if self.pieces.iter().any(|piece| piece.sacked && piece.end <= ack) {
            self.pieces.iter_mut().for_each(|piece| piece.report = 0);
        }
        for piece in self.pieces.iter_mut().filter(|piece| !piece.sacked) {
            let inside = |&(left, right): &(u64, u64)| left <= piece.start && piece.end <= right;
            if piece.end <= ack || blocks.iter().any(inside) {
                if delivered.last().is_none_or(|last| last.end != piece.start) {
                    self.reports += 1;
                }
                delivered.push(piece.clone());
                (piece.sacked, piece.lost, piece.report) = (true, false, self.reports);
            }
        }
        self.pieces.retain(|piece| piece.end > ack);
        delivered
    }

    /// 6.2 steps 2 and 3.
    fn update(
        &mut self,
        now: Instant,
        delivered: &[Piece],
        header: &TcpHeader,
        connection: &Connection,
    ) {
        let least = connection.cx.rtt.min_rtt().unwrap_or_default();
        let echo = header.options.timestamps.map(|timestamps| timestamps.echo);
        let mut newest: Option<(Instant, u64)> = None;
        // the longest that it may have taken, where nobody knows
        let mut longest = Duration::ZERO;
        for piece in delivered.iter().filter(|piece| !piece.early) {
            // what was sent again and taken for lost again, as all is by a time-out: which has
            // arrived, nobody knows
            let unknown = piece.again && (piece.lost || self.timeouts > 0);
            let older = |stamp: u32| echo.is_some_and(|echo| (echo.wrapping_sub(stamp) as i32) < 0);
            let soon = now.saturating_duration_since(piece.at) < least;
            if !piece.again || !unknown && !soon && !piece.stamp.is_some_and(older) {
                newest = newest.max(Some((piece.at, piece.end)));
            } else if unknown {
                longest = longest.max(now.saturating_duration_since(piece.at));
            }
            if piece.end > self.fack {
                self.fack = piece.end;
            } else if !piece.again {
                self.reordering = true;
            }
        }
        if let Some(newest) = newest {
            self.rack_rtt = now.saturating_duration_since(newest.0);
            self.rack = self.rack.max(Some(newest));
        }
        self.rack_rtt = self.rack_rtt.max(longest);
    }

    /// What the connection has found to be spurious is lost no more, and segments may be late from
    /// now on.
    fn take_back(&mut self, connection: &Connection) {
        let undone = connection.info().spurious_recoveries;
        if self.undone != undone {
            self.undone = undone;
            (self.reordering, self.recover, self.undecided) = (true, self.nxt, 0);
            self.at_once = false;
            self.pieces.iter_mut().for_each(|piece| piece.lost = false);
        }
    }

    /// 6.2 steps 4 and 5, and RFC 6675 section 4: IsLost.
    fn detect(&mut self, now: Instant, before: Phase, connection: &Connection) {
        let (before, after) =
            (before != Phase::Open, connection.sending.recovery.phase() != Phase::Open);
        let recovers = before && after && self.una < self.recover;
        let window = match !self.reordering && (recovers || self.segments_sacked() >= 3) {
            true => Duration::ZERO,
            false => {
                let quarter = connection.cx.rtt.min_rtt().unwrap_or_default() / 4;
                (quarter * (1 + self.widened)).min(connection.cx.rtt.srtt())
            }
        };
        self.window = window;
        let mut found = false;
        for index in 0..self.pieces.len() {
            let piece = &self.pieces[index];
            if piece.sacked || piece.lost || piece.early {
                continue;
            }
            if self.due(piece).is_some_and(|due| due <= now) || self.is_lost(index, connection) {
                self.pieces[index].lost = true;
                found = true;
            }
        }
        if found && !before && self.una >= self.recover {
            (self.recover, self.at_once) = (self.nxt, true);
        }
    }

    /// When RACK takes a piece for lost.
    fn due(&self, piece: &Piece) -> Option<Instant> {
        let sent_before = self.rack.is_some_and(|rack| (piece.at, piece.end) < rack);
        let waits = sent_before && !piece.sacked && !piece.lost && !piece.early;
        waits.then(|| piece.at + self.rack_rtt + self.window)
    }

    /// Segments of which all that is outstanding was reported, as far as one can tell: what an ACK
    /// adds in one piece may be one.
    fn segments_sacked(&self) -> usize {
        let of =
            |piece: &&Piece| self.pieces.iter().all(|p| p.segment != piece.segment || p.sacked);
        let mut sacked: Vec<u32> = self.pieces.iter().filter(of).map(|p| p.segment).collect();
        sacked.dedup();
        let mut reports: Vec<u32> =
            self.pieces.iter().filter(|p| p.sacked).map(|p| p.report).collect();
        reports.sort_unstable();
        reports.dedup();
        sacked.len().min(reports.len())
    }

    /// RFC 6675 section 4, where nothing came in another order (RFC 8985 6.2 step 4: else RACK
    /// alone decides).
    fn is_lost(&self, index: usize, connection: &Connection) -> bool {
        let above = &self.pieces[index + 1..];
        if self.reordering || self.pieces[index].again || above.iter().any(|p| p.sacked && p.again)
        {
            return false;
        }
        let (mut bytes, mut ranges, mut end) = (0, 0, 0);
        for piece in above.iter().filter(|piece| piece.sacked) {
            bytes += piece.end - piece.start;
            ranges += u32::from(piece.start != end);
            end = piece.end;
        }
        ranges >= 3 || bytes > 2 * connection.sending.snd.mss()
    }

    /// A timer of the connection expired.
    pub fn timer(&mut self, now: Instant, before: Before, connection: &Connection) {
        let info = connection.info();
        self.expired = true;
        if info.timeouts != self.timeouts {
            self.timeouts = info.timeouts;
            let since = now.saturating_duration_since(self.advanced);
            let was_taken_back = self.pieces.first().is_some_and(|piece| piece.sacked);
            let least = match was_taken_back {
                true => Duration::from_millis(RENEGED_WAIT_MS).min(before.rto),
                // RFC 6298 5.3
                false => before.rto,
            };
            assert!(since >= least || self.una <= 1, "a time-out {since:?} after an ACK");
            if was_taken_back {
                // RFC 2018 section 8
                self.pieces.iter_mut().for_each(|piece| piece.sacked = false);
            }
            if connection.cx.state.is_synchronized() {
                // RFC 6675 5.1; else it was the SYN's
                self.pieces.iter_mut().for_each(|piece| piece.lost = !piece.sacked && !piece.early);
                (self.recover, self.undecided) = (self.nxt, 2);
                self.at_once = self.pieces.iter().any(|piece| piece.lost);
            }
        } else if self.pieces.iter().filter_map(|piece| self.due(piece)).any(|due| due <= now) {
            self.detect(now, before.phase, connection);
        }
        if info.loss_probes != self.probes {
            self.probes = info.loss_probes;
            self.probe_end = u64::MAX;
            let quiet = now.saturating_duration_since(self.advanced.max(self.sent_new));
            let least = (2 * connection.cx.rtt.srtt()).min(before.rto);
            // RFC 8985 7.2
            assert!(quiet >= least, "a loss probe after {quiet:?}, not {least:?}");
        }
    }

    /// All that the connection sends now was sent.
    pub fn check(&self, now: Instant, connection: &Connection) {
        let state = connection.cx.state;
        let Sending { snd, window, pacer, .. } = &connection.sending;
        if !state.may_transmit_data() || !connection.cx.negotiated.sack || self.una >= self.nxt {
            return;
        }
        assert_eq!((self.una, self.nxt), (snd.una(), snd.nxt()), "the model heard something else");
        let deadline = connection.next_deadline().expect("a timer");
        if deadline <= now {
            // it expires next, at this moment
            return;
        }
        let due =
            self.pieces.iter().filter_map(|piece| self.due(piece)).filter(|due| *due > now).min();
        // what it takes for lost already is sent as soon as it may be
        if let Some(due) = due.filter(|_| connection.info().lost_bytes == 0) {
            // RFC 8985 6.3
            assert!(
                deadline <= due,
                "RACK is to look at {due:?}, the timer is {deadline:?}: {self:#?}"
            );
        }
        let rto = connection.cx.rtt.rto();
        assert!(
            deadline <= now + rto,
            "the timer is {:?} away, the time-out {rto:?}",
            deadline.saturating_duration_since(now)
        );
        self.check_probe(now, connection, deadline);
        let Some(first) = self.pieces.iter().position(|piece| piece.lost) else { return };
        let Piece { start, .. } = self.pieces[first];
        let may = start < snd.edge() || start == snd.una();
        if !may || snd.wants_frames || pacer.next() > now {
            return;
        }
        assert!(
            !self.at_once,
            "{start} is the first that is lost, and did not go again at once: {self:#?}"
        );
        if self.undecided > 0 {
            return;
        }
        // RFC 6675 section 5 (C)
        let in_flight = |p: &&Piece| !p.sacked && !p.lost;
        let pipe: u64 = self.pieces.iter().filter(in_flight).map(|p| p.end - p.start).sum();
        let lost = self.pieces[first..].iter().take_while(|piece| piece.lost);
        let lost: u64 = lost.map(|piece| piece.end - piece.start).sum();
        let wanted = lost.min(snd.mss());
        let quota =
            window.cwnd_bytes.saturating_sub(pipe + connection.sending.recovery.short_bytes());
        assert!(
            quota < wanted,
            "{start} is lost, and {wanted} bytes of it do not go again: {} bytes of window, {pipe} in flight: {self:#?}",
            window.cwnd_bytes
        );
    }

    /// RFC 8985 7.2: the loss probe of a tail of which nothing is known.
    fn check_probe(&self, now: Instant, connection: &Connection, deadline: Instant) {
        let rtt = &connection.cx.rtt;
        let Sending { recovery, snd, .. } = &connection.sending;
        let known = self.pieces.iter().any(|piece| piece.sacked || piece.lost || piece.early);
        let waits =
            known || self.expired || !self.open || self.probe_end > 0 || rtt.is_backed_off();
        if waits || !recovery.is_open() || self.sent_new.max(self.advanced) < now {
            return;
        }
        let mut wait = 2 * rtt.srtt() + Duration::from_millis(2);
        if self.nxt - self.una <= snd.mss() {
            wait += Duration::from_millis(198);
        }
        if rtt.srtt().is_zero() {
            wait += Duration::from_secs(1);
        }
        // the round trip may have become shorter at this moment, after the timer was started
        assert!(
            deadline <= now + wait + wait / 16,
            "a tail waits {:?}, not {wait:?}",
            deadline.saturating_duration_since(now)
        );
    }
}
