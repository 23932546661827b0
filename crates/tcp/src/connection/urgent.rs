//! Urgent data (RFC 9293 3.8.5 in the reading of RFC 6093): it stays in the stream, and a mark
//! tells where it ends.
//!
//! The pointer names the byte after the urgent data (MUST-62). New applications should not use it
//! (SHLD-13).

use millstream_packet::Pool;

use crate::connection::Connection;
use crate::error::ConnError;

impl Connection {
    /// As [`write`](Self::write), and tells the peer that what was taken, and all before it, is
    /// urgent.
    pub fn write_urgent(&mut self, pool: &Pool, bytes: &[u8]) -> Result<usize, ConnError> {
        let written = self.write(pool, bytes)?;
        if written > 0 {
            self.cx.begin_rare();
            self.cx.counters.rare().urgent_out = self.sending.snd.data_end();
        }
        Ok(written)
    }

    /// Where the urgent data ends that the peer announced last, counted in bytes from the start of
    /// its stream, as long as it was not read up to there. The data may be still to come.
    pub fn urgent_mark(&self) -> Option<u64> {
        self.urgent_end().filter(|&end| end > self.read_offset())
    }

    /// The same, whether or not it was read.
    pub fn urgent_end(&self) -> Option<u64> {
        self.cx.counters.urgent_in().checked_sub(1)
    }

    /// Bytes of the peer's stream that were read, or discarded.
    pub fn read_offset(&self) -> u64 {
        self.receiving.rcv.read_offset()
    }
}
