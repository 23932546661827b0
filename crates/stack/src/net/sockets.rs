//! The engine with its ends of all sockets: takes up what the application's threads have left, and
//! hands the engine's news over.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use millstream_packet::ring::{Consumer, Producer, spsc};
use millstream_tcp::FourTuple;

use super::datagrams::DatagramSockets;
use super::reach::{Reach, Sweep};
use super::shared::{CONNECTED, OVER, READ_END, Shared};
use super::slots::Slots;
use super::stream::{RING_PACKETS, StreamParts, Streams};
use crate::{Engine, Error, Readiness, SocketId, SocketKind};

/// Slots whose sockets are looked at between two turns.
const LOOKS: usize = 64;

/// See the module text.
pub struct Sockets {
    pub engine: Engine,
    pub streams: Streams,
    pub datagrams: DatagramSockets,
    listeners: Slots<Listening>,
    /// UDP sockets that intercept, by slot.
    intercepting: Slots<Listening>,
    sweep: Sweep,
}

/// The engine's end of a listener.
struct Listening {
    id: SocketId,
    shared: Arc<Shared>,
    queue: Queue,
    reach: Reach,
}

/// The ring of a listener, or of a socket that intercepts.
pub enum Queue {
    Accepted(Producer<StreamParts>),
    /// Its listener intercepts.
    Requests(Producer<FourTuple>),
    /// Its UDP socket intercepts.
    Flows(Producer<Flow>),
}

/// A flow of datagrams that was not taken yet.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub id: SocketId,
    pub ends: FourTuple,
}

/// A request as it lies in a ring.
pub trait Request: Copy + Send + 'static {
    fn queue(ring: Producer<Self>) -> Queue;

    /// Ends one that nobody has taken out of its ring, as the socket closes.
    fn forget(self, sockets: &mut Sockets);
}

impl Request for FourTuple {
    fn queue(ring: Producer<Self>) -> Queue {
        Queue::Requests(ring)
    }

    /// It ends with its listener.
    fn forget(self, _sockets: &mut Sockets) {}
}

impl Request for Flow {
    fn queue(ring: Producer<Self>) -> Queue {
        Queue::Flows(ring)
    }

    fn forget(self, sockets: &mut Sockets) {
        sockets.engine.close(self.id);
    }
}

impl Queue {
    fn is_full(&self) -> bool {
        match self {
            Self::Accepted(ring) => ring.len() >= ring.capacity(),
            Self::Requests(ring) => ring.len() >= ring.capacity(),
            Self::Flows(ring) => ring.len() >= ring.capacity(),
        }
    }
}

/// The application's ends of a listener.
pub struct ListenerParts {
    pub shared: Arc<Shared>,
    pub accepted: Consumer<StreamParts>,
    pub local: SocketAddr,
}

impl Sockets {
    pub fn new(engine: Engine) -> Self {
        let (streams, datagrams, listeners, intercepting, sweep) = Default::default();
        Self { engine, streams, datagrams, listeners, intercepting, sweep }
    }

    /// Hands the sockets' news to the application's threads.
    pub fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some((id, readiness)) = self.engine.next_event() {
            any = true;
            match id.kind() {
                SocketKind::Tcp => self.streams.serve(&mut self.engine, id.slot(), readiness),
                SocketKind::Listener => self.serve_listener(SocketKind::Listener, id.slot()),
                SocketKind::Udp => {
                    self.serve_listener(SocketKind::Udp, id.slot());
                    self.datagrams.hand_over(&mut self.engine, id.slot());
                }
                SocketKind::Icmp => {}
            }
        }
        any
    }

    /// Makes the ring of a listener. Connections in it have left the engine's list, but still count
    /// as waiting.
    pub fn attach_listener(&mut self, id: SocketId) -> Result<ListenerParts, Error> {
        let mut listener = self.engine.listener(id);
        let (places, local) = (accepted_places(listener.stats()?.backlog), listener.addr()?);
        listener.shares(places)?;
        let (producer, accepted) = spsc(places);
        let shared = self.put_listener(id, Queue::Accepted(producer));
        Ok(ListenerParts { shared, accepted, local })
    }

    /// Makes the ring of a socket that intercepts.
    pub fn attach_requests<T: Request>(&mut self, id: SocketId) -> (Arc<Shared>, Consumer<T>) {
        let (producer, requests) = spsc(RING_PACKETS);
        (self.put_listener(id, T::queue(producer)), requests)
    }

    /// Returns the listeners, or the UDP sockets that intercept.
    fn listening(&mut self, kind: SocketKind) -> &mut Slots<Listening> {
        if kind == SocketKind::Udp { &mut self.intercepting } else { &mut self.listeners }
    }

    /// The application has left a UDP socket something to do, or has taken a flow.
    pub fn note_datagrams(&mut self, slot: u32) {
        self.serve_listener(SocketKind::Udp, slot);
        self.datagrams.list.note(slot);
    }

    fn put_listener(&mut self, id: SocketId, queue: Queue) -> Arc<Shared> {
        let (shared, reach) = <(Arc<Shared>, Reach)>::default();
        let listening = Listening { id, shared: Arc::clone(&shared), queue, reach };
        self.listening(id.kind()).put(id.slot(), listening);
        self.look_at_new(id);
        shared
    }

    /// Hands finished connections over, requests or flows.
    pub fn serve_listener(&mut self, kind: SocketKind, slot: u32) {
        let Self { engine, streams, listeners, intercepting, .. } = self;
        let list = if kind == SocketKind::Udp { intercepting } else { listeners };
        loop {
            let Some(listening) = list.get(slot) else { return };
            if listening.queue.is_full() {
                // The application looks here again when it has taken one.
                listening.shared.rx_stalled.store(true, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if listening.queue.is_full() {
                    return;
                }
            }
            let accepted = match &mut listening.queue {
                Queue::Accepted(accepted) => accepted,
                Queue::Requests(requests) => {
                    let Ok(request) = engine.intercept().next_request(listening.id) else {
                        return listening.reach.end(&listening.shared);
                    };
                    let _ = requests.push(request);
                    listening.shared.readable();
                    continue;
                }
                Queue::Flows(flows) => {
                    let Ok(id) = engine.intercept().next_flow(listening.id) else {
                        return listening.reach.end(&listening.shared);
                    };
                    let Ok((local, Some(remote))) = engine.udp(id).addresses() else { continue };
                    let _ = flows.push(Flow { id, ends: FourTuple { local, remote } });
                    listening.shared.readable();
                    continue;
                }
            };
            let Ok((id, _)) = engine.listener(listening.id).accept() else {
                return listening.reach.end(&listening.shared);
            };
            let Ok(parts) = streams.attach(engine, id) else { continue };
            parts.shared.set_state(CONNECTED);
            if engine.inspect().has_lost_links() {
                streams.look_at(engine, id.slot());
            }
            let _ = accepted.push(parts);
            listening.shared.readable();
            let readiness = Readiness { readable: true, writable: false, closed: false };
            streams.serve(engine, id.slot(), readiness);
        }
    }

    /// Ends a listener, and with it the connections that nobody took out of its ring.
    pub fn close_listener(&mut self, id: SocketId, mut accepted: Consumer<StreamParts>) {
        while let Some(parts) = accepted.pop() {
            self.streams.abort(&mut self.engine, parts.id);
        }
        self.forget_listener(id);
    }

    /// Ends a listener of which nothing lies in a ring, or one that intercepts.
    pub fn forget_listener(&mut self, id: SocketId) {
        self.engine.close(id);
        let list = self.listening(id.kind());
        if list.get(id.slot()).is_some_and(|listening| listening.id == id) {
            list.take(id.slot());
        }
    }

    /// As the engine ends: closes all streams and listeners, and tells all waiting threads.
    pub fn close_all(&mut self) {
        self.streams.close(&mut self.engine);
        for listening in self.listeners.iter().chain(self.intercepting.iter()) {
            self.engine.close(listening.id);
        }
        self.tell_end();
    }

    /// Wakes all calls, so that none waits for an engine that is gone.
    pub fn tell_end(&mut self) {
        self.streams.tell_end();
        for listening in self.listeners.iter().chain(self.intercepting.iter()) {
            listening.shared.set_error(Error::EngineGone);
            listening.shared.set_state(READ_END | OVER);
        }
        self.datagrams.tell_end();
    }

    /// Where links have ended, and routes or links have changed since, looks at some of the sockets
    /// that were not looked at yet; whether there were any.
    pub fn look_at_ways(&mut self) -> bool {
        self.sweep.note(self.engine.inspect());
        let slots =
            self.streams.list.len().max(self.listeners.len()).max(self.datagrams.list.len());
        let mut any = false;
        for _ in 0..LOOKS {
            let Some(slot) = self.sweep.next(slots) else { break };
            any = true;
            self.streams.look_at(&mut self.engine, slot as u32);
            self.look_at_listener(SocketKind::Listener, slot as u32);
            self.look_at_listener(SocketKind::Udp, slot as u32);
            self.datagrams.look_at(&mut self.engine, slot as u32);
        }
        any
    }

    /// A socket that is new, or has another peer, may be unreachable while all others have been
    /// looked at.
    pub fn look_at_new(&mut self, id: SocketId) {
        if !self.engine.inspect().has_lost_links() {
            return;
        }
        match id.kind() {
            SocketKind::Tcp => self.streams.look_at(&mut self.engine, id.slot()),
            SocketKind::Udp => {
                self.look_at_listener(id.kind(), id.slot());
                self.datagrams.look_at(&mut self.engine, id.slot());
            }
            SocketKind::Listener => self.look_at_listener(id.kind(), id.slot()),
            SocketKind::Icmp => {}
        }
    }

    fn look_at_listener(&mut self, kind: SocketKind, slot: u32) {
        let list =
            if kind == SocketKind::Udp { &mut self.intercepting } else { &mut self.listeners };
        let Some(listening) = list.get(slot) else { return };
        let is_cut = !self.engine.inspect().is_reachable(listening.id);
        if listening.reach.note(is_cut, &listening.shared) {
            self.serve_listener(kind, slot);
        }
    }
}

/// Returns how many connections may lie in the ring of a listener with this backlog: half of it,
/// and one at least.
fn accepted_places(backlog: usize) -> usize {
    let places = (backlog / 2).clamp(1, RING_PACKETS);
    // A ring has a power of two.
    1 << places.ilog2()
}
