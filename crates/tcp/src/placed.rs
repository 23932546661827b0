//! Data that lies in the application's memory when its segment is looked at: a read that waits offers its buffer
//! to the link, and where the link puts payload there nothing has to be copied.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{PlainHeader, TcpFlags, TcpHeader};

use crate::connection::{Connection, NO_FIN};
use crate::state::State;
use crate::ticks::ticks;

/// Payload of a segment that is partly in the application's memory.
pub struct PlacedData {
    /// Bytes there: the first ones.
    pub bytes: usize,
    /// The bytes after them.
    pub rest: Option<Packet>,
    /// Size of the parts, if it was merged from several segments.
    pub segment_size: Option<u16>,
    /// The ECN field of its IP header.
    pub ecn: u8,
}

impl Connection {
    /// Whether nothing stands between the next byte that arrives and the application: no data waits to be read, and
    /// none is out of order.
    #[inline]
    pub fn awaits_data(&self) -> bool {
        let rcv = &self.rcv;
        self.state == State::Established
            && !self.orphaned
            && !rcv.shut
            && rcv.fin == NO_FIN
            && rcv.queue.is_empty()
            && rcv.reassembly.is_none()
    }

    /// Bytes of the TCP header that a segment with data probably has.
    pub fn expected_header_len(&self) -> usize {
        if self.negotiated.timestamps { 32 } else { 20 }
    }

    /// Whether a segment with this header and `len` bytes of data is the one expected and has nothing about it that
    /// needs a closer look (RFC 9293 3.10.7.4; in the manner of Van Jacobson's header prediction): then
    /// [`on_placed`](Self::on_placed) takes it. All others go to [`on_segment`](Self::on_segment).
    pub fn takes_placed(&self, header: &TcpHeader, len: usize) -> bool {
        let rcv = &self.rcv;
        let timestamps = match (self.negotiated.timestamps, header.options.timestamps) {
            (true, Some(timestamps)) => rcv.ts_recent.wrapping_sub(timestamps.value) as i32 <= 0,
            (true, None) => false,
            (false, _) => true,
        };
        let ack = self.ack_offset(header);
        timestamps
            && self.awaits_data()
            && header.flags | TcpFlags::PSH == TcpFlags::ACK | TcpFlags::PSH
            && header.seq == self.rcv_seq(rcv.nxt)
            && len > 0
            && len as u64 <= rcv.edge.saturating_sub(rcv.nxt)
            && (self.snd.una as i64..=self.snd.nxt as i64).contains(&ack)
    }

    /// Takes a segment whose data the application has already, and for which [`takes_placed`](Self::takes_placed)
    /// was true.
    pub fn on_placed(&mut self, now: Instant, header: &TcpHeader, data: PlacedData, pool: &Pool) {
        let PlacedData { bytes, rest, segment_size, ecn } = data;
        let len = bytes + rest.as_ref().map_or(0, Packet::len);
        debug_assert!(self.takes_placed(header, len), "not looked at before");
        self.set_clock(now);
        self.count_data_in(len, segment_size);
        self.process_ack(now, header, self.rcv.nxt, true);
        self.rcv.ack_at = ticks(now);
        self.rcv.data_at = self.rcv.ack_at;
        self.touch_keepalive(now);
        self.ecn_take_data(header, ecn);
        self.time_data(now, header, len);
        self.rcv.nxt += bytes as u64;
        // it holds no more memory than its own: the window is that of all such connections, whatever came before
        self.observe_density(bytes as u64, bytes);
        self.counters.bytes_received += bytes as u64;
        self.schedule_ack(now, bytes as u32);
        if let Some(rest) = rest {
            self.take_in_order(now, rest, pool);
        }
        self.note_push(header.flags.psh(), len as u64);
        self.after_read(bytes as u64);
        self.check();
    }
    /// Bytes of data in order that [`on_plain_placed`](Self::on_plain_placed) takes behind this header, if it is that
    /// of the expected segment, with `len` bytes of data, and a reader would have them next; else none.
    #[inline(always)]
    pub fn plain_room(&self, header: &PlainHeader, len: usize) -> u64 {
        let expected = len > 0 && self.expects(header, len as u64, None).is_some();
        if expected { self.rcv.edge - self.rcv.nxt } else { 0 }
    }

    /// Takes a segment, or several that were merged, whose data the application has already, and for which
    /// [`plain_room`](Self::plain_room) said that there is room. Answers what [`has_output`](Self::has_output) does
    /// then. `data` has nothing beyond what was placed.
    #[inline(never)]
    pub fn on_plain_placed(
        &mut self,
        now: Instant,
        header: &PlainHeader,
        data: PlacedData,
    ) -> bool {
        debug_assert!(self.plain_room(header, data.bytes) >= data.bytes as u64);
        let acked = header.ack.0.wrapping_sub(self.snd_seq(self.snd.una).0);
        self.take_expected_placed(now, header, data, u64::from(acked))
    }

    /// Both at once: `None`, and nothing has changed, where there is no room.
    #[inline(always)]
    pub fn take_plain_placed(
        &mut self,
        now: Instant,
        header: &PlainHeader,
        data: PlacedData,
    ) -> Option<bool> {
        let acked = self.expects(header, data.bytes as u64, None)?;
        Some(self.take_expected_placed(now, header, data, acked))
    }

    /// The expected segment's data are placed; it acknowledges `acked` bytes.
    #[inline(always)]
    fn take_expected_placed(
        &mut self,
        now: Instant,
        header: &PlainHeader,
        data: PlacedData,
        acked: u64,
    ) -> bool {
        let PlacedData { bytes, rest, segment_size, ecn } = data;
        debug_assert!(bytes > 0 && rest.is_none());
        self.set_clock(now);
        let len = bytes as u64;
        self.count_data_in(bytes, segment_size);
        let echo = self.take_expected_header(now, header, acked);
        self.note_expected_data(now, echo, len, ecn);
        self.rcv.nxt += len;
        self.observe_density(len, bytes);
        self.counters.bytes_received += len;
        self.schedule_ack(now, bytes as u32);
        self.note_push(header.push, len);
        self.after_read(len);
        self.check();
        self.rcv.ack.now || self.snd.nxt != self.data_end()
    }
}
