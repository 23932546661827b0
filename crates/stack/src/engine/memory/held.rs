//! Memory that the queues of an engine hold, by holder: sums that are made socket by socket.

use millstream_packet::{Holder, Pool, QueueStats};
use millstream_route::NeighborStats;
use millstream_tcp::Connection;

/// The holders of an engine in the books of its pool.
pub(in crate::engine) struct Holders([Holder; NAMES.len()]);

/// Their names, in the order of [`HeldSums::all`].
const NAMES: [&str; 6] =
    ["tcp-send", "tcp-receive", "tcp-out-of-order", "datagrams", "neighbours", "fragments"];

impl Holders {
    pub fn new(pool: &Pool) -> Self {
        Self(NAMES.map(|name| pool.holder(name)))
    }

    /// Says what they hold now.
    pub fn publish(&self, sums: &HeldSums) {
        self.0.iter().zip(sums.all()).for_each(|(holder, held)| holder.publish(held));
    }
}

/// See the module text.
#[derive(Default)]
pub(in crate::engine) struct HeldSums {
    tcp_send: QueueStats,
    tcp_receive: QueueStats,
    out_of_order: QueueStats,
    datagrams: QueueStats,
    neighbors: QueueStats,
    fragments: QueueStats,
}

impl HeldSums {
    /// Adds the queues of a connection.
    pub fn add_connection(&mut self, conn: &Connection) {
        let ((send, mut receive), info) = (conn.queue_stats(), conn.info());
        // Charged as the connection is: views may share a frame that another queue has.
        receive.held_bytes = receive.held_bytes.max(receive.bytes);
        // Bytes that came out of order wait beside the queue.
        let early = info.recv_queue_held_bytes.saturating_sub(receive.held_bytes);
        self.out_of_order += waiting(info.out_of_order_bytes as usize, early);
        self.tcp_send += send;
        self.tcp_receive += receive;
    }

    /// Adds the queue of a UDP or ICMP socket, with as many bytes of payload.
    pub fn add_datagrams(&mut self, bytes: usize, held_bytes: usize, limit_bytes: usize) {
        self.datagrams += QueueStats { limit_bytes, ..waiting(bytes, held_bytes) };
    }

    /// Takes what waits for neighbours, and fragments that are not whole.
    pub fn set_rest(&mut self, neighbors: &NeighborStats, fragments: usize) {
        let refused = neighbors.refused;
        self.neighbors = QueueStats { refused, ..waiting(0, neighbors.pending_bytes) };
        self.fragments = waiting(0, fragments);
    }

    fn all(&self) -> [QueueStats; NAMES.len()] {
        [
            self.tcp_send,
            self.tcp_receive,
            self.out_of_order,
            self.datagrams,
            self.neighbors,
            self.fragments,
        ]
    }
}

/// One queue that holds as much.
fn waiting(bytes: usize, held_bytes: usize) -> QueueStats {
    QueueStats { queues: 1, bytes, held_bytes, high_water_bytes: held_bytes, ..Default::default() }
}
