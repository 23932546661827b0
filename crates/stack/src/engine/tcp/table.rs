//! TCP connections of an engine: where they are found, when they are due, which have something to
//! send.

use std::collections::VecDeque;
use std::net::SocketAddr;

use millstream_link::Share;
use millstream_packet::Instant;
use millstream_tcp::isn::IsnGenerator;
use millstream_tcp::{Connection, FourTuple, State, SynCookies, TimeWait};
use millstream_wire::tcp::SeqNumber;

use super::busy::Busy;
use super::configs::Configs;
use super::listener::{ListenerSlot, Listeners, Request};
use super::mini::MiniTable;
use super::orphans::Orphans;
use super::port_choice::PortChoice;
use super::share::{TransmitShare, WriteShare};
use super::time_wait::may_connect;
use crate::demux::{FlowTable, HashKey, PackedKey};
use crate::engine::events::{EventSink, Observed};
use crate::engine::sources::{Counted, Sources};
use crate::engine::tcp::fast_open::FastOpen;
use crate::engine::{Account, Held, Passed, Serial};
use crate::limits::Limits;
use crate::slab::{SLOT_OVERHEAD_BYTES, Slab};
use crate::socket::{EventQueue, Readiness, SocketId, SocketKind};
use crate::stats::{MemoryPressure, Undelivered};
use crate::timer::Wheel;
use crate::tuning::{self};

/// The part of a connection in sending ACKs together (`gathered_acks`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Gathering {
    /// It does not.
    None,
    Waits,
    /// It has waited, and is to be sent.
    Over,
}

/// One connection with what the engine knows about it.
pub(in crate::engine) struct TcpSocket {
    pub conn: Connection,
    pub id: SocketId,
    /// The link that segments leave by, as far as the route does not say otherwise.
    pub scope: Serial,
    pub pending: Readiness,
    /// In the dirty list.
    pub dirty: bool,
    pub gathering: Gathering,
    /// Its data may go into the buffer of who waits for many.
    pub wait_read: bool,
    /// In the flow table.
    pub in_flows: bool,
    /// The application has let go of it: it ends by itself.
    pub detached: bool,
    /// Counted among those in TIME-WAIT that the application holds.
    pub in_time_wait: bool,
    /// Its peer opened it, and it is counted among its source's.
    pub passive: bool,
    /// The listener that it belongs to until it is accepted.
    pub listener: Option<ListenerSlot>,
    /// It is counted in its listener's `half_open`.
    pub half_open: bool,
    pub route: crate::engine::tcp::cached_route::CachedRoute,
    /// Its share of what is sent in a turn.
    pub transmit: TransmitShare,
    /// Its share of what is written between two turns.
    pub write: WriteShare,
    /// Bytes that its queues were last found to hold: so much is in the engine's account.
    charged: u32,
}

impl TcpSocket {
    /// Returns it as subscribers of events see it.
    pub fn observed(&self) -> Observed<'_> {
        Observed { id: self.id, conn: &self.conn, is_read: !self.detached }
    }

    /// Tells subscribers that it may have changed.
    #[inline]
    pub fn tell(&self, sink: &mut EventSink, now: Instant) {
        if sink.follows(self.id.slot()) {
            sink.connection_changed(self.observed(), now);
        }
    }

    /// Returns whether its data may go into the buffer of who waits for many.
    pub fn may_wait_read(&self) -> bool {
        self.wait_read && !self.detached && self.listener.is_none()
    }

    /// A segment is to follow: how many connections are busy, and how much memory it may take.
    #[inline(always)]
    pub fn brief(&mut self, sharers: u32, account: &mut Account, now: Instant) {
        self.conn.set_sharers(sharers);
        if account.is_pressed() || self.conn.is_memory_limited() {
            self.limit_memory(account, now);
        }
    }

    #[inline(never)]
    fn limit_memory(&mut self, account: &mut Account, now: Instant) {
        let most = account.is_pressed().then(|| {
            let moving = account.pace(self.id, self.passed(), now);
            // Bytes that it holds out of order would give way to the next ones, and its peer would
            // wait for a time-out.
            let may_be = moving.may_be() && account.level() != MemoryPressure::Critical;
            let passed = if may_be && !moving.is_so() { usize::MAX } else { moving.read };
            account.share(self.conn.receive_held_bytes(), passed)
        });
        self.conn.set_memory_limit(most);
    }

    /// Brings the engine's account up to date with what its queues hold. Returns true when that is
    /// less, and a write waits for memory.
    #[inline(always)]
    pub fn settle_memory(&mut self, account: &mut Account) -> bool {
        let held = self.conn.held_bytes();
        held != self.charged as usize && self.charge(account, held)
    }

    #[inline(never)]
    fn charge(&mut self, account: &mut Account, held: usize) -> bool {
        let is_less = held < self.charged as usize;
        account.settle(Held::Tcp, &mut self.charged, held);
        is_less && self.write.waits_for_memory()
    }

    /// Bytes of memory that its send queue may take beyond what it holds.
    #[inline(always)]
    pub fn room_to_write(&self, account: &mut Account, now: Instant) -> usize {
        if account.is_pressed() { self.pressed_room_to_write(account, now) } else { usize::MAX }
    }

    #[inline(never)]
    fn pressed_room_to_write(&self, account: &mut Account, now: Instant) -> usize {
        let moving = account.pace(self.id, self.passed(), now);
        let held = self.conn.send_held_bytes();
        account.share(held, moving.acked).saturating_sub(held)
    }

    /// Returns true if a write that found too little memory had better be tried again: a quarter of
    /// what the send queue may hold is free.
    pub fn has_room_again(&self, account: &mut Account, now: Instant) -> bool {
        let room = self.room_to_write(account, now);
        room != 0 && room >= self.conn.send_held_bytes() / 3
    }

    /// Returns the bytes that its queues hold, and those that they have passed on.
    pub fn passed(&self) -> Passed {
        let (acked, read) = self.conn.memory_passed();
        let (sends, receives) = (self.conn.send_held_bytes(), self.conn.receive_held_bytes());
        let is_blocked = self.detached || self.write.waits_for_memory();
        Passed { acked, read, sends, receives, is_blocked }
    }
}

/// Memory of an idle connection, all tables included: the socket, its place among the slots, the
/// flows (as many places as can be for one, the table's size being rounded up), the timers and the
/// lists of slots. Nothing of it is elsewhere on the heap once it is quiet, but its congestion
/// control (CUBIC: 64 bytes), its share of a configuration, and counters of trouble.
pub(crate) const IDLE_CONNECTION_BYTES: usize = size_of::<TcpSocket>()
    + SLOT_OVERHEAD_BYTES
    + FlowTable::ENTRY_BYTES
    + Wheel::TIMER_BYTES
    + 2 * size_of::<u32>()
    + size_of::<bool>();
const _: () = assert!(IDLE_CONNECTION_BYTES <= 1024);

/// All connections and listeners.
pub(in crate::engine) struct TcpTable {
    pub sockets: Slab<TcpSocket>,
    flows: FlowTable,
    key: HashKey,
    pub listeners: Listeners,
    /// Handshakes that are not finished.
    pub half_open: MiniTable<Request>,
    /// The share of these tables that each source has.
    pub sources: Sources,
    pub orphans: Orphans,
    /// State of [`Self::draw`].
    drawn: u64,
    /// Connections that there may be.
    limit: usize,
    /// Until then nobody gives way to a new connection, as far as it is known.
    no_room_until: Option<Instant>,
    pub cookies: SynCookies,
    /// Slots that may have something to send. A slot emptied meanwhile may still be named.
    pub dirty: VecDeque<u32>,
    pub wheel: Wheel,
    pub isn: IsnGenerator,
    /// The remains of connections in TIME-WAIT that the application has let go of.
    pub time_wait: MiniTable<TimeWait>,
    /// Connections in TIME-WAIT that the application still holds.
    held_in_time_wait: usize,
    pub fast_open: FastOpen,
    /// The data that ended connections had not delivered.
    cut_off: Undelivered,
    /// Connections that moved of late.
    pub busy: Busy,
    pub configs: Configs,
    /// Memory of sockets that are gone, in bytes: it is still in the engine's account.
    freed: usize,
    /// The flow found last: segments come in runs.
    last: Option<(FourTuple, u32)>,
    ports: PortChoice,
}

impl TcpTable {
    /// Secrets come from `seed`, those of cookies (of SYNs and of Fast Open) from `cookie_seed`,
    /// those of ports from `port_seed`.
    pub fn new(
        limits: &Limits,
        [seed, cookie_seed, port_seed]: [&[u64; 6]; 3],
        now: Instant,
    ) -> Self {
        let half_open = limits.tuning.syn_queue_bytes / MiniTable::<Request>::entry_bytes();
        Self {
            sockets: Slab::new(limits.connection_slots()),
            flows: FlowTable::new(limits.connections),
            key: HashKey(seed[2], seed[3]),
            listeners: Listeners::new(limits.listeners),
            dirty: VecDeque::new(),
            wheel: Wheel::with_capacity(now, limits.connection_slots()),
            half_open: MiniTable::new(half_open, now),
            sources: Sources::new(HashKey(cookie_seed[4], cookie_seed[5])),
            orphans: Orphans::default(),
            drawn: cookie_seed[4] ^ seed[0],
            limit: limits.connections,
            no_room_until: None,
            cookies: SynCookies::new(key_of(cookie_seed[0], cookie_seed[1])),
            isn: IsnGenerator::new(key_of(seed[0], seed[1])),
            time_wait: MiniTable::new(limits.time_wait, now),
            held_in_time_wait: 0,
            fast_open: FastOpen::new(key_of(cookie_seed[2], cookie_seed[3])),
            cut_off: Undelivered::default(),
            busy: Busy::new(limits.connection_slots()),
            configs: Configs::new(limits.tuning.windows_bytes),
            freed: 0,
            last: None,
            ports: PortChoice::new(port_seed),
        }
    }

    /// Where a flow is looked for.
    #[inline]
    pub fn hash(&self, tuple: &FourTuple) -> u32 {
        self.key.flow(tuple)
    }

    /// Connections that the application has not seen end: TIME-WAIT does not count.
    pub fn unfinished(&self) -> usize {
        self.sockets.len() - self.held_in_time_wait + self.half_open.len()
    }

    /// Connections in TIME-WAIT, those that the application has let go of among them.
    pub fn in_time_wait(&self) -> usize {
        self.time_wait.len() + self.held_in_time_wait
    }

    /// Returns the data that ended connections had not delivered.
    pub fn cut_off(&self) -> Undelivered {
        self.cut_off
    }

    /// Nobody gives way to a new connection before `until`, as far as it is known.
    pub fn note_no_room(&mut self, until: Instant) {
        self.no_room_until = Some(until);
    }

    /// Returns true if there is no room for a new connection, and nobody gave way of late.
    pub fn is_known_full(&self, now: Instant) -> bool {
        self.no_room_until.is_some_and(|until| now < until) && self.is_full()
    }

    /// The connection of a segment.
    #[inline]
    pub fn find(&mut self, tuple: &FourTuple) -> Option<u32> {
        if let Some((last, slot)) = &self.last
            && last == tuple
        {
            return Some(*slot);
        }
        self.find_hashed(self.key.flow(tuple), tuple)
    }

    /// The same, for who knows the hash.
    pub fn find_hashed(&mut self, hash: u32, tuple: &FourTuple) -> Option<u32> {
        let found = find_flow(&self.flows, &self.sockets, (hash, tuple))?;
        self.last = Some((*tuple, found));
        Some(found)
    }

    /// Takes in a connection under its addresses, which no other has.
    pub fn insert(
        &mut self,
        conn: Connection,
        scope: Serial,
        listener: Option<ListenerSlot>,
    ) -> Option<u32> {
        let tuple = conn.tuple();
        let hash = self.key.flow(&tuple);
        if self.is_full() {
            return None;
        }
        let socket = TcpSocket {
            conn,
            id: SocketId::new(SocketKind::Tcp, 0, 0),
            scope,
            pending: Readiness::default(),
            dirty: false,
            gathering: Gathering::None,
            wait_read: false,
            in_flows: true,
            detached: false,
            in_time_wait: false,
            passive: listener.is_some(),
            listener,
            half_open: false,
            route: Default::default(),
            transmit: TransmitShare::new(),
            write: WriteShare::default(),
            charged: 0,
        };
        let slot = self.sockets.insert(socket).ok()?;
        if self.flows.insert(hash, slot).is_err() {
            self.sockets.remove(slot);
            return None;
        }
        if listener.is_some() {
            self.sources.add(tuple.remote.ip(), Counted::Connections);
        }
        let generation = self.sockets.generation(slot);
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.id = SocketId::new(SocketKind::Tcp, slot, generation);
        }
        Some(slot)
    }

    /// Returns true if there is no room for a further connection, unless one gives way.
    pub fn is_full(&self) -> bool {
        self.flows.len() >= self.limit || self.sockets.is_full()
    }

    /// The next number for a choice of what gives way (SplitMix64): nobody sees it.
    pub fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.drawn ^ self.drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns the connection that `id` names, if it is still that one, and its slot.
    #[inline]
    pub fn by_id(&mut self, id: SocketId) -> Option<(u32, &mut TcpSocket)> {
        let socket = self.sockets.get_mut(id.slot())?;
        (socket.id == id).then_some((id.slot(), socket))
    }

    /// Returns the connection that `id` names, if there is one yet, as subscribers of events see
    /// it.
    #[cold]
    pub fn observed(&mut self, id: Option<SocketId>) -> Option<Observed<'_>> {
        id.and_then(|id| self.by_id(id)).map(|(_, socket)| socket.observed())
    }

    /// Has the connection's output looked at, in its turn.
    #[inline]
    pub fn mark_dirty(&mut self, slot: u32) {
        if let Some(socket) = self.sockets.get_mut(slot)
            && !socket.dirty
        {
            socket.dirty = true;
            self.dirty.push_back(slot);
        }
    }

    /// Something happened to the connection: its output is looked at in its turn if there may be
    /// any, else only its timer is armed.
    #[inline]
    pub fn touch(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        if socket.dirty {
            return;
        }
        if socket.conn.has_output() {
            socket.dirty = true;
            return self.dirty.push_back(slot);
        }
        if let Some(deadline) = socket.conn.next_deadline()
            && !self.wheel.covers(slot, deadline)
        {
            self.wheel.arm(slot, deadline);
        }
    }

    /// Arms the wheel for what the connection waits for. A deadline that only moved later stays
    /// armed for the earlier time: the connection is asked again then.
    #[inline]
    pub fn arm(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get(slot) else { return };
        if let Some(deadline) = socket.conn.next_deadline()
            && !self.wheel.covers(slot, deadline)
        {
            self.wheel.arm(slot, deadline);
        }
    }

    /// Arms the wheel for what the connection waits for when that is not before `soon`: where it
    /// stood, the connection would only have been asked again.
    pub fn put_off(&mut self, slot: u32, soon: Instant) {
        let Some(socket) = self.sockets.get(slot) else { return };
        let deadline = socket.conn.next_deadline();
        if socket.dirty || deadline.is_some_and(|deadline| deadline < soon) {
            return;
        }
        self.wheel.cancel(slot);
        if let Some(deadline) = deadline {
            self.wheel.arm(slot, deadline);
        }
    }

    /// Tells the application, or the listener, what happened to a connection since it was last
    /// asked. True when its handshake was done by that.
    pub fn collect_events(&mut self, slot: u32, events: &mut EventQueue) -> bool {
        let Some(socket) = self.sockets.get_mut(slot) else { return false };
        let news = socket.conn.take_events();
        if news.is_empty() {
            return false;
        }
        if news.connected && socket.half_open {
            socket.half_open = false;
            let listener = socket.listener.map(ListenerSlot::get);
            if let Some(listener) = listener.and_then(|slot| self.listeners.slots.get_mut(slot)) {
                listener.half_open -= 1;
                listener.push_ready(socket.id);
                self.sources.add(socket.conn.ends().remote.ip(), Counted::Waiting);
                let readable = Readiness { readable: true, ..Readiness::default() };
                events.push(listener.id, &mut listener.pending, readable);
            }
        }
        if socket.listener.is_none() && !socket.detached {
            let what = Readiness {
                readable: news.readable | news.peer_closed | news.urgent | news.closed | news.error,
                writable: news.writable | news.connected | news.closed | news.error,
                closed: news.closed | news.error,
            };
            events.push(socket.id, &mut socket.pending, what);
        }
        if news.connected || news.closed {
            self.note_opened(slot);
        }
        news.connected
    }

    /// Returns whether an unfinished handshake waits for a verdict, and no SYN-ACK was sent.
    pub fn is_request(&self, entry: u32) -> bool {
        let listener = self.half_open.get(entry).map(|request| request.value.listener);
        let listener = listener.and_then(|listener| self.listeners.slots.get(listener));
        listener.is_some_and(|listener| listener.intercept.is_some())
    }

    /// Ends an unfinished handshake, whether it became a connection or not.
    pub fn remove_half_open(&mut self, entry: u32) {
        let Some(request) = self.half_open.remove(entry) else { return };
        self.sources.remove(request.key.unpack().remote.ip(), Counted::HalfOpen);
        if let Some(listener) = self.listeners.slots.get_mut(request.value.listener) {
            listener.half_open -= 1;
        }
    }

    /// The connection in `slot`, if it is one that waits to be accepted, waits no more.
    pub fn end_waiting(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot).filter(|socket| !socket.half_open) else {
            return;
        };
        let Some(listener) = socket.listener.take() else { return };
        self.sources.remove(socket.conn.ends().remote.ip(), Counted::Waiting);
        if let Some(listener) = self.listeners.slots.get_mut(listener.get()) {
            listener.waiting -= 1;
        }
    }

    /// Forgets names in a listener's queue of connections that gave way, when they are many.
    pub fn trim_ready(&mut self, listener: u32) {
        let Some(listener) = self.listeners.slots.get_mut(listener) else { return };
        if listener.ready.len() > 2 * listener.waiting + tuning::READY_UNTRIMMED {
            let sockets = &self.sockets;
            let waits = |id: &SocketId| sockets.get(id.slot()).is_some_and(|s| s.id == *id);
            listener.ready.retain(waits);
        }
    }

    /// Notices that a connection is over or in TIME-WAIT; called when it has nothing more to send.
    /// One that waits in an accept queue stays there, for the application to see what became of it.
    /// True when the oldest in TIME-WAIT had to give way to it.
    pub fn settle(&mut self, slot: u32) -> bool {
        let Some(socket) = self.sockets.get_mut(slot) else { return false };
        match socket.conn.state() {
            State::Closed => {
                if socket.detached || socket.half_open {
                    self.remove(slot);
                } else {
                    self.forget_flow(slot);
                }
            }
            State::TimeWait if socket.detached => return self.keep_waiting(slot),
            State::TimeWait if !socket.in_time_wait => {
                socket.in_time_wait = true;
                self.held_in_time_wait += 1;
            }
            _ => {}
        }
        false
    }

    /// Leaves an entry in the place of a connection in TIME-WAIT that nobody holds. True when the
    /// oldest entry had to give way.
    fn keep_waiting(&mut self, slot: u32) -> bool {
        let Some(socket) = self.sockets.get(slot) else { return false };
        let Some((wait, until)) = socket.conn.time_wait() else { return false };
        let tuple = socket.conn.tuple();
        let hash = self.key.flow(&tuple);
        self.remove(slot);
        let full = self.time_wait.is_full();
        if full && let Some(oldest) = self.time_wait.oldest() {
            self.time_wait.remove(oldest);
        }
        let entry = self.time_wait.insert(hash, PackedKey::new(&tuple), wait);
        if let Some(entry) = entry {
            self.arm_time_wait(entry, until);
        }
        full
    }

    /// Sets when an entry's time is over. Many end together, so that they do not wake the engine
    /// one by one.
    pub fn arm_time_wait(&mut self, entry: u32, until: Instant) {
        let grain = tuning::TIME_WAIT_GRAIN.as_nanos() as u64;
        let until = until.as_nanos().div_ceil(grain) * grain;
        self.time_wait.wheel.arm(entry, Instant::from_nanos(until));
    }

    /// Takes the ends of a new connection of ours, whose hash is `hash`, if they are free or in
    /// TIME-WAIT with a peer that can tell the two apart (RFC 6191). Answers with the number to
    /// begin at.
    pub fn take_ends(&mut self, hash: u32, tuple: &FourTuple, now: Instant) -> Option<SeqNumber> {
        if !self.is_free(hash, tuple, now) {
            return None;
        }
        let isn = self.isn.isn(tuple, now);
        let Some(entry) = self.time_wait.find(hash, &PackedKey::new(tuple)) else {
            return Some(isn);
        };
        self.time_wait.remove(entry).map(|waiting| waiting.value.next_isn(isn))
    }

    fn is_free(&mut self, hash: u32, tuple: &FourTuple, now: Instant) -> bool {
        let Self { flows, sockets, half_open, time_wait, .. } = self;
        find_flow(flows, sockets, (hash, tuple)).is_none()
            && may_connect(half_open, time_wait, (hash, tuple), now)
    }

    /// Takes back the memory that only busy connections need from those that have been quiet, a
    /// bounded number at a time.
    pub fn sweep_quiet(&mut self, now: Instant) {
        let Self { busy, sockets, .. } = self;
        busy.sweep(now, |slot| {
            let Some(socket) = sockets.get_mut(slot) else { return false };
            let moves =
                now.saturating_duration_since(socket.conn.last_time()) < tuning::QUIET_AFTER;
            if !moves {
                socket.conn.compact();
                socket.route.forget();
            }
            moves
        });
    }

    /// Bytes that sockets held which have gone since this was last asked.
    #[inline]
    pub fn take_freed(&mut self) -> usize {
        std::mem::take(&mut self.freed)
    }

    /// Takes a connection in TIME-WAIT out of the way of a new one between the same ends.
    pub fn reuse_time_wait(&mut self, slot: u32) {
        if self.sockets.get(slot).is_some_and(|socket| socket.detached) {
            self.remove(slot);
        } else {
            self.forget_flow(slot);
            self.leave_time_wait(slot);
        }
    }

    fn leave_time_wait(&mut self, slot: u32) {
        if let Some(socket) = self.sockets.get_mut(slot)
            && std::mem::take(&mut socket.in_time_wait)
        {
            self.held_in_time_wait -= 1;
        }
    }

    /// Frees the connection's addresses for another; the socket stays until the application closes
    /// it.
    pub fn forget_flow(&mut self, slot: u32) {
        self.last = None;
        if let Some(socket) = self.sockets.get_mut(slot)
            && std::mem::take(&mut socket.in_flows)
        {
            self.flows.remove(self.key.flow(socket.conn.ends()), slot);
            self.ports.release(socket.conn.ends());
            self.no_room_until = None;
            if socket.passive {
                self.sources.remove(socket.conn.ends().remote.ip(), Counted::Connections);
            }
        }
    }

    /// Nothing is left of a connection that is over but its reset, which is to be sent.
    pub fn let_go(&mut self, slot: u32) {
        self.forget_flow(slot);
        self.end_waiting(slot);
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.detached = true;
            if self.orphans.remove(slot) {
                self.sources.remove(socket.conn.ends().remote.ip(), Counted::Orphans);
            }
        }
    }

    /// Removes a connection altogether.
    pub fn remove(&mut self, slot: u32) {
        self.let_go(slot);
        self.leave_time_wait(slot);
        self.wheel.cancel(slot);
        self.end_early(slot);
        let Some(socket) = self.sockets.remove(slot) else { return };
        self.freed += socket.charged as usize;
        if let Some(bytes) = socket.conn.undelivered_bytes() {
            self.cut_off.add(bytes);
        }
        let listener = socket.listener.map(ListenerSlot::get);
        if socket.half_open
            && let Some(listener) = listener.and_then(|slot| self.listeners.slots.get_mut(slot))
        {
            listener.half_open -= 1;
        }
    }

    /// A free ephemeral port for a connection to `remote` ([`PortChoice`]). It is of the engine's
    /// `share`.
    pub fn choose_port(
        &mut self,
        share: Share,
        local: std::net::IpAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> Option<u16> {
        let Self { ports, sockets, flows, key, listeners, half_open, time_wait, .. } = self;
        let own = (share.own_ports(), |n| share.own_port(n));
        ports.choose((local, remote), now, own, |port| {
            let tuple = FourTuple { local: SocketAddr::new(local, port), remote };
            let hash = key.flow(&tuple);
            // first where most are found
            find_flow(flows, sockets, (hash, &tuple)).is_none()
                && may_connect(half_open, time_wait, (hash, &tuple), now)
                && !listeners.uses_port(port)
        })
    }
}

/// Returns the slot of the connection between these ends.
#[inline(always)]
fn find_flow(
    flows: &FlowTable,
    sockets: &Slab<TcpSocket>,
    (hash, tuple): (u32, &FourTuple),
) -> Option<u32> {
    flows.find(hash, |slot| sockets.get(slot).is_some_and(|socket| socket.conn.ends() == tuple))
}

/// The first two words as a key.
fn key_of(low: u64, high: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low.to_ne_bytes());
    key[8..].copy_from_slice(&high.to_ne_bytes());
    key
}
