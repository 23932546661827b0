//! How far the streams of a connection have come: for an owner that follows single bytes of them.

use millstream_wire::tcp::TcpHeader;

use crate::connection::Connection;

/// Bytes of both streams, counted from their first ones. SYN and FIN do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the peer's stream that have arrived in order.
    pub received: u64,
    /// Of these, read by the application, or discarded.
    pub read: u64,
    /// Bytes of our stream that the application has written.
    pub written: u64,
    /// Of these, sent at least once.
    pub sent: u64,
    /// Of these, acknowledged by the peer.
    pub acknowledged: u64,
}

impl Connection {
    /// How far both streams have come.
    pub fn progress(&self) -> Progress {
        let (snd, rcv) = (&self.snd, &self.rcv);
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

    /// How many bytes of the peer's stream there are up to the end of a segment with this header and `len` bytes of
    /// payload; `None` for one that lies before the stream.
    pub fn stream_end(&self, header: &TcpHeader, len: usize) -> Option<u64> {
        let syn = i64::from(header.flags.syn());
        let first = self.rcv.offset_of(header.seq) + syn - 1;
        u64::try_from(first + len as i64).ok()
    }
}
