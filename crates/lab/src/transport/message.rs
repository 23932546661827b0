//! What is sent again and again without being copied.

use std::io;

use millstream::packet::{Packet, Pool};

/// The bytes of a message in packets of a pool, from the first call on.
pub(super) struct Message {
    pool: Pool,
    packet: Option<Packet>,
}

impl Message {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, packet: None }
    }

    /// A packet that shares the frames in which `data` was put by the first call.
    pub(super) fn view(&mut self, data: &[u8]) -> io::Result<Packet> {
        let full = |_| io::Error::other("the pool has no frames for a message");
        let packet = match self.packet.take() {
            Some(packet) => packet,
            None => Packet::from_slice(&self.pool, 0, data).map_err(full)?,
        };
        let view = packet.view(&self.pool, 0, packet.len());
        self.packet = Some(packet);
        view.map_err(|_| io::ErrorKind::WouldBlock.into())
    }
}
