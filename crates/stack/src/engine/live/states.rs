//! Counts of connections by state, and of their armed timers by kind; the receive queue that holds
//! most.

use millstream_packet::counters;
use millstream_tcp::{State, TimerKind};

use crate::engine::Engine;

/// Connections that are looked at for one publication.
pub(super) const LOOKED_AT: u32 = 128;

/// The counts of all connections, by the numbers of states and of kinds of timers.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    pub states: [u64; State::ALL.len()],
    pub timers: [u64; TimerKind::ALL.len()],
    /// The receive queue that holds most.
    pub fullest: Fullest,
}

counters! {
    /// The receive queue that holds most memory, of all connections.
    #[derive(Clone, Copy)]
    pub struct Fullest {
        /// The number of its connection: `tcpN` of the socket's name.
        socket: count,
        /// Its payload.
        bytes: bytes,
        /// The memory that it really holds.
        held_bytes: bytes,
        /// Its limit.
        limit_bytes: bytes,
        /// Bytes that the application has read of it.
        read_bytes: bytes,
    }
}

/// Connections are counted a few at a time: over several publications, if there are more than
/// [`LOOKED_AT`].
#[derive(Clone, Copy, Default)]
pub(super) struct States {
    last: Option<Counted>,
    counting: Counted,
    next: u32,
}

impl States {
    pub fn look(&mut self, engine: &Engine) {
        let sockets = &engine.tcp.table.sockets;
        let end = self.next.saturating_add(LOOKED_AT).min(sockets.slots() as u32);
        for slot in self.next..end {
            if let Some(socket) = sockets.get(slot) {
                self.counting.states[socket.conn.state() as usize] += 1;
                let (_, queue) = socket.conn.queue_stats();
                let most = &mut self.counting.fullest;
                if most.limit_bytes == 0 || queue.held_bytes as u64 > most.held_bytes {
                    let info = socket.conn.info();
                    *most = Fullest {
                        socket: slot.into(),
                        bytes: queue.bytes as u64,
                        held_bytes: queue.held_bytes as u64,
                        limit_bytes: info.recv_limit_bytes as u64,
                        read_bytes: info.bytes_received.saturating_sub(queue.bytes as u64),
                    };
                }
                for (kind, _) in socket.conn.armed_timers() {
                    self.counting.timers[kind as usize] += 1;
                }
            }
        }
        self.next = end;
        if end as usize >= sockets.slots() {
            self.last = Some(std::mem::take(&mut self.counting));
            self.next = 0;
        }
    }

    /// As counted last; `None` until all have been looked at for the first time.
    pub fn counted(&self) -> Option<&Counted> {
        self.last.as_ref()
    }
}
