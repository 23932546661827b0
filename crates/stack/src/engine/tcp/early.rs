//! Connections that are open for the application before their handshake is done (RFC 7413).

use std::sync::Arc;

use millstream_packet::Packet;
use millstream_tcp::{Config, ConnError, Connection, FastOpenValidity, FourTuple};
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::engine::context::Context;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::table::TcpTable;
use crate::tuning::FAST_OPEN_RESETS;

impl TcpTable {
    /// The connection in `slot`, if it found one, is open early.
    pub fn begin_early(&mut self, slot: Option<u32>, listener: u32) {
        let generation = self.listeners.slots.generation(listener);
        if let (Some(slot), Some(entry)) = (slot, self.listeners.slots.get_mut(listener)) {
            entry.early += 1;
            self.fast_open.early.insert(slot, (listener, generation));
        }
    }

    /// The connection in `slot` is open early no more.
    pub fn end_early(&mut self, slot: u32) {
        let Some((listener, generation)) = self.fast_open.early.remove(&slot) else { return };
        if self.listeners.slots.generation(listener) != generation {
            return;
        }
        let Some(listener) = self.listeners.slots.get_mut(listener) else { return };
        listener.early -= 1;
        let reset = |conn: &Connection| conn.error() == Some(ConnError::Reset);
        if let Some(socket) = self.sockets.get(slot)
            && reset(&socket.conn)
            && listener.early_resets.len() < FAST_OPEN_RESETS
        {
            listener.early_resets.push_back(socket.conn.last_time());
        }
    }

    /// Handshake or connection are over: what Fast Open has to know of it.
    pub fn note_opened(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        let now = socket.conn.last_time();
        self.fast_open.learn(now, &mut socket.conn);
        if !socket.conn.is_early() && !self.fast_open.early.is_empty() {
            self.end_early(slot);
        }
    }
}

impl TcpLayer {
    /// The connection that a SYN with a good cookie opens at once, `payload` received; `ends` with
    /// the sequence number and timestamp offset to use. None: it goes through the handshake first.
    pub(in crate::engine) fn fast_open_admit(
        &mut self,
        cx: &mut Context,
        listener_slot: u32,
        config: &Arc<Config>,
        ends: (&FourTuple, SeqNumber, u32),
        syn: &TcpHeader,
        payload: Option<Packet>,
    ) -> Option<Connection> {
        let option = syn.options.fast_open.filter(|_| config.fast_open)?;
        let listener = self.table.listeners.slots.get_mut(listener_slot)?;
        let (tuple, isn, ts_offset) = ends;
        let client = tuple.remote.ip();
        let keys = self.table.fast_open.keys(cx.now);
        let validity = keys.check(client, &option);
        if validity == FastOpenValidity::Invalid {
            return None;
        }
        if !listener.takes_early(cx.now, cx.limits.tuning.fast_open_pending, &mut cx.random) {
            // RFC 7413, 5.1: for cx.now as if the option were unknown.
            cx.stats.tcp_fast_open_refused += 1;
            return None;
        }
        let mut conn = Connection::accept(Arc::clone(config), *tuple, isn, ts_offset, syn, cx.now);
        if validity == FastOpenValidity::Previous {
            conn.give_cookie(keys.cookie(client));
        }
        conn.set_memory_limit(cx.account.limit_of_new());
        conn.open_early(cx.now, payload, &cx.pool);
        cx.stats.tcp_fast_opens += 1;
        Some(conn)
    }
}
