//! Queues of bytes and of packets, bounded in memory held.

mod byte_queue;
mod limit;
mod packet_queue;

pub use byte_queue::{ByteQueue, Cuts, Piece, Written};
pub use limit::{Appended, Full, QueueLimits, Room};
pub use packet_queue::PacketQueue;
