//! How far the streams of a connection have come: for an owner that follows single bytes of them.

use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::connection::Connection;
use crate::state::State;

/// Bytes of both streams, counted from their first ones. SYN and FIN do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the peer's stream that have arrived in order.
    pub received: u64,
    /// The part of these that the application has read, or that was discarded.
    pub read: u64,
    /// Bytes of our stream that the application has written.
    pub written: u64,
    /// The part of these that was sent at least once.
    pub sent: u64,
    /// The part of these that the peer has acknowledged.
    pub acknowledged: u64,
}

impl Connection {
    /// How far both streams have come.
    pub fn progress(&self) -> Progress {
        let (snd, rcv) = (&self.sending.snd, &self.receiving.rcv);
        // Data begins behind the SYN, and ends before the FIN.
        let bytes = |offset: u64| offset.min(snd.data_end()).saturating_sub(1);
        Progress {
            received: rcv.bytes_received(),
            read: rcv.read_offset(),
            written: bytes(snd.data_end()),
            sent: bytes(snd.nxt()),
            acknowledged: bytes(snd.una()),
        }
    }

    /// Returns how many bytes of the peer's stream there are up to the end of a segment with this
    /// header and `len` bytes of payload; `None` for one that lies before the stream.
    pub fn stream_end(&self, header: &TcpHeader, len: usize) -> Option<u64> {
        let syn = i64::from(header.flags.syn());
        let first = self.receiving.rcv.offset_of(header.seq) + syn - 1;
        u64::try_from(first + len as i64).ok()
    }

    /// Returns the bytes of the TCP header that a segment with data probably has.
    pub fn expected_header_len(&self) -> usize {
        if self.cx.negotiated.timestamps { 32 } else { 20 }
    }

    /// Returns whether nothing stands between the next byte that arrives and the application: no
    /// data waits to be read, and none is out of order. Then it is worth placing what comes next in
    /// a reader's memory.
    #[inline]
    pub fn awaits_data(&self) -> bool {
        self.cx.state == State::Established
            && !self.cx.orphaned
            && self.receiving.rcv.is_all_read()
            && !self.receiving.rcv.has_seen_fin()
            && self.receiving.rcv.is_in_order()
    }

    /// The sequence number that the peer's next data in order begin with (RFC 9293: RCV.NXT).
    #[inline]
    pub fn next_seq(&self) -> SeqNumber {
        self.receiving.rcv.next_seq()
    }
}
