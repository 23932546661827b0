//! `queue listenN.G`: the two queues of a listener, of finished handshakes that wait to be accepted
//! and of unfinished ones; with `-v` each of them.

use super::sockets::half_open;
use super::{Done, NO_SUCH_SOCKET, Page, Pages, SLOT_STEPS, Table, Walk, Written};
use crate::engine::Engine;
use crate::engine::live::id::Id;
use crate::engine::tcp::listener::Listener;
use crate::socket::SocketId;

/// See the module text.
pub(super) struct Backlog {
    id: SocketId,
    is_verbose: bool,
    is_begun: bool,
    /// Place in the accept queue.
    place: usize,
    half_open: Walk,
}

impl Backlog {
    pub fn new(id: SocketId, is_verbose: bool) -> Self {
        let half_open = Walk::over(&[Table::HalfOpen]);
        Self { id, is_verbose, is_begun: false, place: 0, half_open }
    }
}

impl Pages for Backlog {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let engine = &*engine;
        let slot = self.id.slot();
        let found = engine.tcp.table.listeners.slots.get(slot).filter(|one| one.id == self.id);
        let listener = match found {
            Some(listener) => listener,
            None if self.is_begun => return Ok(Done::Last),
            None => return Err(NO_SUCH_SOCKET),
        };
        if !std::mem::replace(&mut self.is_begun, true) {
            queues(engine, listener, page);
        }
        if !self.is_verbose {
            return Ok(Done::Last);
        }
        while let Some(&id) = listener.ready.get(self.place) {
            if !page.is_left() {
                return Ok(Done::More);
            }
            page.spend(SLOT_STEPS);
            waiting(engine, id, page);
            self.place += 1;
        }
        Ok(self.half_open.look(engine, page, |_, entry, page| {
            let one = engine.tcp.table.half_open.get(entry);
            if one.is_some_and(|one| one.value.listener == slot) {
                half_open(engine, entry, page);
            }
        }))
    }
}

fn queues(engine: &Engine, listener: &Listener, page: &mut Page) {
    let stats = &listener.stats;
    let mut line = page.line("queue");
    line.put("side", "accept").put("connections", listener.waiting);
    line.put("limit", listener.backlog).put("elsewhere", listener.elsewhere);
    line.put("early", listener.early).put("dropped", stats.accept_queue_full);
    line.end();
    let mut line = page.line("queue");
    line.put("side", "syn").put("handshakes", listener.half_open);
    line.put("limit", engine.cx.limits.syn_queue).put("dropped", stats.syn_queue_full);
    line.put("syns", stats.syns).put("timed_out", stats.timed_out).put("reset", stats.reset);
    line.put("cookies_sent", stats.cookies_sent);
    line.put("cookies_accepted", stats.cookies_accepted);
    line.put("cookies_refused", stats.cookies_refused);
    line.end();
}

/// Shows one that waits to be accepted. One that gave way to others may still be named in the
/// queue.
fn waiting(engine: &Engine, id: SocketId, page: &mut Page) -> Option<()> {
    let one = engine.tcp.table.sockets.get(id.slot()).filter(|socket| socket.id == id)?;
    let (ends, info) = (one.conn.ends(), one.conn.info());
    let mut line = page.line("waiting");
    line.put("id", Id(id)).put("state", info.state.name()).put("remote", ends.remote);
    line.put("recv_q", info.recv_queue_bytes).put("held_bytes", one.conn.held_bytes());
    line.end();
    Some(())
}
