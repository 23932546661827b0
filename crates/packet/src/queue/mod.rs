//! Queues of bytes and of packets, bounded in memory held.

mod byte_queue;
mod limit;
mod packet_queue;

pub use byte_queue::{ByteQueue, Cuts, Piece};
pub use limit::Full;
pub use packet_queue::PacketQueue;
