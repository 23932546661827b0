//! An engine whose sockets send datagrams to themselves.

use std::net::SocketAddr;

use crate::{Engine, EngineConfig, SocketId};

pub(in crate::engine::live) struct Talking {
    pub engine: Engine,
    pub sockets: Vec<SocketId>,
}

impl Talking {
    /// With so many sockets.
    pub fn new(sockets: usize) -> Self {
        let mut engine = Engine::new(EngineConfig::default()).expect("an engine");
        engine.links().add_loopback().expect("a link");
        let sockets =
            (0..sockets).map(|at| engine.sockets().udp_bind(address(at)).expect("a socket"));
        let sockets = sockets.collect();
        Self { engine, sockets }
    }

    /// A socket sends and receives so many datagrams, one after the other.
    pub fn talk(&mut self, at: usize, count: usize) {
        let (engine, socket) = (&mut self.engine, self.sockets[at]);
        for _ in 0..count {
            engine.udp(socket).send(b"hello", Some(address(at))).expect("sent");
            while engine.turn(engine.now()).progress {}
            engine.udp(socket).recv(&mut [0; 8]).expect("received");
        }
    }
}

/// Returns the address of a socket.
pub(in crate::engine::live) fn address(at: usize) -> SocketAddr {
    ([127, 0, 0, 1], 9000 + at as u16).into()
}
