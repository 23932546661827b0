//! Packets shown where they lie, in frames that go back into the fill ring at once: no packet is
//! made of them, and none of their descriptors is touched.

use millstream_packet::{Checksum, Instant, Pool};

use super::Xdp;
use crate::{Shown, limits};

/// How far ahead packets are brought into the cache that will be shown.
const AHEAD: u32 = 8;

impl Xdp {
    /// See [`Link::show`](crate::Link::show).
    pub(super) fn show_waiting(
        &mut self,
        now: Instant,
        pool: &Pool,
        limit: usize,
        take: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> usize {
        self.poll_device();
        let count = self.show_each(limit, take);
        if count == 0 {
            return 0;
        }
        self.socket.rx.publish();
        self.socket.fill.publish();
        self.settle_received(now, pool);
        self.watch.came(now);
        count
    }

    /// Shows packets, and puts the frames of those taken back into the fill ring. The kernel is not
    /// told yet: it may write into none of them before the last was looked at.
    fn show_each(&mut self, limit: usize, take: &mut dyn FnMut(Shown<'_>) -> bool) -> usize {
        let Self { socket, frames, partial, stats, .. } = self;
        let mut count = 0;
        // The rest of a packet whose first pieces were taken out is no packet.
        while count < limit && partial.is_none() {
            let Some(entry) = socket.rx.peek(0) else { break };
            if let Some(later) = socket.rx.peek(AHEAD) {
                frames.prefetch(later.addr);
            }
            let (len, is_whole) = (entry.len as usize, entry.options & libc::XDP_PKT_CONTD == 0);
            if !is_whole || len < limits::ETHERNET_HEADER_BYTES || socket.fill.room(1) == 0 {
                break;
            }
            let Some(bytes) = frames.written(entry.addr, len) else { break };
            if !take(Shown { bytes, checksum: Checksum::Unverified }) {
                break;
            }
            socket.rx.pop();
            // The kernel finds the start of the frame itself.
            socket.fill.push(entry.addr);
            stats.count_received(len, false);
            count += 1;
        }
        count
    }
}
