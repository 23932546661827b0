//! Data that lies in the application's memory when its segment is looked at: a read that waits offers its buffer
//! to the link, and where the link puts payload there nothing has to be copied.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{TcpFlags, TcpHeader};

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
        self.remember_timestamp(now, header, self.rcv.nxt as i64);
        self.process_ack(now, header, self.rcv.nxt, true);
        self.rcv.ack_at = ticks(now);
        self.rcv.data_at = self.rcv.ack_at;
        self.touch_keepalive(now);
        self.ecn_take_data(header, ecn);
        self.time_data(now, header, len);
        self.rcv.nxt += bytes as u64;
        self.counters.bytes_received += bytes as u64;
        self.schedule_ack(now, bytes as u32);
        if let Some(rest) = rest {
            self.take_in_order(now, rest, pool);
        }
        self.after_read(bytes as u64);
        self.check();
    }
}
