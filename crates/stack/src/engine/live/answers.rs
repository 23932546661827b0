//! What the control socket answers, a page at a time.
//!
//! A page is bounded in work, not only in length: it looks at so many slots of a table and at so many pieces of queues,
//! and goes on there when it is asked for the next one. What changes between two pages is shown as it is when its turn
//! comes.

use std::fmt::Display;

use millstream_live::{Fields, bucket_least};
use millstream_packet::{Piece, QueueStats};

use super::traces::Traces;
use crate::engine::Engine;
use crate::engine::tcp::table::TcpSocket;
use crate::socket::{SocketId, SocketKind};
use crate::stages::Histogram;

/// Work of one page: sockets that are shown; pieces that are shown; steps, of which a piece that is only counted takes
/// one, and a slot that is looked at [`SLOT_STEPS`].
const SOCKETS: usize = 16;
const SHOWN_PIECES: usize = 128;
const STEPS: usize = 512;
const SLOT_STEPS: usize = 4;

/// Answers one question.
pub(super) struct Answer {
    job: Job,
    is_over: bool,
}

enum Job {
    /// `ss`: all sockets.
    Sockets(Place),
    /// `queue ID`: the queues of one socket, with each piece where that is asked for (`queue ID -v`).
    Queue {
        id: SocketId,
        is_verbose: bool,
        is_begun: bool,
        walk: Walk,
        sizes: Box<Sizes>,
    },
    /// `census`: the sizes of what is queued anywhere.
    Census {
        at: Place,
        walk: Walk,
        sizes: Box<Sizes>,
    },
    /// `traces FROM [N]`: sampled packets.
    Traces(Traces),
    Links,
    Pool,
    Refused(&'static str),
}

/// A slot of the tables of sockets.
#[derive(Clone, Copy)]
struct Place {
    kind: SocketKind,
    slot: u32,
}

/// How far the queues of a socket were looked at.
#[derive(Clone, Copy, Default)]
struct Walk {
    /// The receive queue's turn.
    receives: bool,
    /// Where to go on in a stream, or the number of a datagram.
    from: Option<u64>,
}

/// How often pieces were of which size.
#[derive(Default)]
struct Sizes {
    payload: Histogram,
    held: Histogram,
    pieces: u64,
    payload_bytes: u64,
    held_bytes: u64,
}

impl Sizes {
    fn add(&mut self, piece: &Piece) {
        self.payload.add(piece.bytes);
        self.held.add(piece.held_bytes);
        self.pieces += 1;
        self.payload_bytes += piece.bytes as u64;
        self.held_bytes += piece.held_bytes as u64;
    }

    fn write(&self, page: &mut String) {
        let mut line = Fields::begin(page, "sizes");
        line.put("segments", self.pieces).put("payload_bytes", self.payload_bytes);
        line.put("held_bytes", self.held_bytes);
        line.end();
        for (what, sizes) in [("payload", &self.payload), ("held", &self.held)] {
            for (at, count) in sizes.buckets().iter().enumerate().filter(|(_, count)| **count != 0)
            {
                let mut line = Fields::begin(page, "size");
                line.put("of", what).put("least_bytes", bucket_least(at)).put("count", count);
                line.end();
            }
        }
    }
}

impl Answer {
    /// That to a line.
    pub fn to(question: &str) -> Self {
        let words: Vec<&str> = question.split_ascii_whitespace().take(4).collect();
        let (start, walk) = (Place { kind: SocketKind::Listener, slot: 0 }, Walk::default());
        let queue = |id: &str, is_verbose| match parse_id(id) {
            Some(id) => Job::Queue { id, is_verbose, is_begun: false, walk, sizes: Box::default() },
            None => Job::Refused("no such socket"),
        };
        let traces = |from: &str, every: Option<&str>| {
            Traces::to(from, every).map_or(Job::Refused("not a number"), Job::Traces)
        };
        let job = match words[..] {
            ["ss"] => Job::Sockets(start),
            ["queue", id] => queue(id, false),
            ["queue", id, "-v"] => queue(id, true),
            ["census"] => Job::Census { at: start, walk, sizes: Box::default() },
            ["traces", from] => traces(from, None),
            ["traces", from, every] => traces(from, Some(every)),
            ["links"] => Job::Links,
            ["pool"] => Job::Pool,
            _ => Job::Refused("ask ss, queue ID [-v], census, traces FROM [N], links or pool"),
        };
        Self { job, is_over: false }
    }

    /// Whether its last page is made.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Makes the next page.
    pub fn fill(&mut self, engine: &mut Engine, page: &mut String) {
        page.clear();
        let done = match &mut self.job {
            Job::Sockets(at) => sockets(engine, at, page),
            Job::Queue { id, is_verbose, is_begun, walk, sizes } => {
                if !std::mem::replace(is_begun, true) && !begin_queue(engine, *id, page) {
                    self.job = Job::Refused("no such socket");
                    return self.fill(engine, page);
                }
                let is_verbose = *is_verbose;
                let mut steps = if is_verbose { SHOWN_PIECES } else { STEPS };
                let done = survey(engine, *id, walk, &mut steps, &mut |side, piece| {
                    sizes.add(piece);
                    if is_verbose {
                        show_piece(side, piece, page);
                    }
                });
                if done {
                    sizes.write(page);
                }
                done
            }
            Job::Census { at, walk, sizes } => {
                let done = census(engine, at, walk, sizes);
                if done {
                    sizes.write(page);
                }
                done
            }
            Job::Traces(traces) => traces.fill(engine, page),
            Job::Links => links(engine, page),
            Job::Pool => pool(engine, page),
            Job::Refused(why) => {
                let mut line = Fields::begin(page, "error");
                line.put("why", why);
                line.end();
                self.is_over = true;
                return;
            }
        };
        if done {
            page.push_str("end\n");
            self.is_over = true;
        }
    }
}

/// What a socket is called here: its kind, its slot, and how often that was used before.
pub(super) struct Id(pub SocketId);

impl Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}.{}", kind_name(self.0.kind()), self.0.slot(), self.0.generation())
    }
}

fn kind_name(kind: SocketKind) -> &'static str {
    match kind {
        SocketKind::Tcp => "tcp",
        SocketKind::Listener => "listen",
        SocketKind::Udp => "udp",
        SocketKind::Icmp => "icmp",
    }
}

fn parse_id(text: &str) -> Option<SocketId> {
    let kinds = [SocketKind::Tcp, SocketKind::Udp];
    let kind = kinds.into_iter().find(|&kind| text.starts_with(kind_name(kind)))?;
    let (slot, generation) = text[kind_name(kind).len()..].split_once('.')?;
    Some(SocketId::new(kind, slot.parse().ok()?, generation.parse().ok()?))
}

impl Place {
    /// Goes on to the next slot, of the next table where this one has `slots`; `None` behind the last one.
    fn advance(&mut self, slots: usize) -> Option<()> {
        self.slot += 1;
        if (self.slot as usize) < slots {
            return Some(());
        }
        let kind = match self.kind {
            SocketKind::Listener => SocketKind::Tcp,
            SocketKind::Tcp => SocketKind::Udp,
            SocketKind::Udp | SocketKind::Icmp => return None,
        };
        *self = Self { kind, slot: 0 };
        Some(())
    }
}

/// Slots of the table of this kind.
fn slots(engine: &Engine, kind: SocketKind) -> usize {
    match kind {
        SocketKind::Listener => engine.tcp.listeners.slots.slots(),
        SocketKind::Tcp => engine.tcp.sockets.slots(),
        SocketKind::Udp => engine.udp.sockets.slots(),
        SocketKind::Icmp => 0,
    }
}

fn sockets(engine: &Engine, at: &mut Place, page: &mut String) -> bool {
    let mut left = SOCKETS;
    for _ in 0..STEPS / SLOT_STEPS {
        left -= usize::from(show_socket(engine, *at, page));
        if at.advance(slots(engine, at.kind)).is_none() {
            return true;
        }
        if left == 0 {
            break;
        }
    }
    false
}

/// Shows the socket in a slot, if there is one.
fn show_socket(engine: &Engine, at: Place, page: &mut String) -> bool {
    match at.kind {
        SocketKind::Listener => {
            let Some(one) = engine.tcp.listeners.slots.get(at.slot) else { return false };
            let mut line = Fields::begin(page, "socket");
            line.put("id", Id(one.id)).put("state", "LISTEN").put("local", one.local);
            line.put("recv_q", one.waiting).put("send_q", one.backlog);
            line.put("half_open", one.half_open).put("syns", one.stats.syns);
            line.end();
        }
        SocketKind::Tcp => {
            let Some(one) = engine.tcp.sockets.get(at.slot) else { return false };
            let mut line = Fields::begin(page, "socket");
            line.put("id", Id(one.id));
            connection(one, &mut line);
            line.end();
        }
        SocketKind::Udp | SocketKind::Icmp => {
            let Some(one) = engine.udp.sockets.get(at.slot) else { return false };
            let mut line = Fields::begin(page, "socket");
            line.put("id", Id(one.id)).put("state", "UNCONN").put("local", one.local);
            if let Some(remote) = one.remote {
                line.put("remote", remote);
            }
            line.put("recv_q", one.queue.len()).put("held_bytes", one.held_bytes);
            line.put("limit_bytes", one.limit_bytes);
            line.end();
        }
    }
    true
}

/// What is known of a connection.
fn connection(socket: &TcpSocket, line: &mut Fields<'_>) {
    let (ends, info) = (socket.conn.ends(), socket.conn.info());
    line.put("state", info.state.name()).put("local", ends.local).put("remote", ends.remote);
    line.put("recv_q", info.recv_queue_bytes).put("send_q", info.send_queue_bytes);
    line.put("held_bytes", socket.conn.held_bytes());
    line.put("owner", if socket.detached { "none" } else { "application" });
    let words = [("congestion", info.congestion), ("ca_state", info.ca_state)];
    for (key, word) in words {
        line.put(key, word);
    }
    let numbers = [
        ("rto_us", info.rto_us),
        ("srtt_us", info.srtt_us),
        ("rttvar_us", info.rttvar_us),
        ("min_rtt_us", info.min_rtt_us),
        ("snd_mss_bytes", u64::from(info.snd_mss_bytes)),
        ("rcv_mss_bytes", u64::from(info.rcv_mss_bytes)),
        ("cwnd_bytes", info.cwnd_bytes),
        ("ssthresh_bytes", info.ssthresh_bytes),
        ("in_flight_bytes", info.in_flight_bytes),
        ("lost_bytes", info.lost_bytes),
        ("notsent_bytes", info.notsent_bytes),
        ("snd_wnd_bytes", info.snd_wnd_bytes),
        ("rcv_wnd_bytes", info.rcv_wnd_bytes),
        ("out_of_order_bytes", info.out_of_order_bytes),
        ("bytes_sent", info.bytes_sent),
        ("bytes_retransmitted", info.bytes_retransmitted),
        ("bytes_acked", info.bytes_acked),
        ("bytes_received", info.bytes_received),
        ("segments_out", info.segments_out),
        ("segments_in", info.segments_in),
        ("retransmits", u64::from(info.retransmits)),
        ("timeouts", u64::from(info.timeouts)),
        ("delivery_rate_bytes_per_s", info.delivery_rate_bytes_per_s),
        ("pacing_rate_bytes_per_s", info.pacing_rate_bytes_per_s),
        ("busy_us", info.busy_us),
        ("rwnd_limited_us", info.rwnd_limited_us),
        ("sndbuf_limited_us", info.sndbuf_limited_us),
        ("last_data_sent_us", info.last_data_sent_us),
        ("last_data_received_us", info.last_data_received_us),
    ];
    for (key, number) in numbers {
        line.put(key, number);
    }
}

/// What is known of the queues of a socket as a whole; false where it is gone.
fn begin_queue(engine: &mut Engine, id: SocketId, page: &mut String) -> bool {
    match id.kind() {
        SocketKind::Tcp => {
            let Some((_, socket)) = engine.tcp.by_id(id) else { return false };
            let info = socket.conn.info();
            let (sends, mut receives) = socket.conn.queue_stats();
            receives.held_bytes = info.recv_queue_held_bytes;
            (receives.limit_bytes, receives.queues) = (info.recv_limit_bytes, 1);
            let send = QueueStats { limit_bytes: info.send_limit_bytes, queues: 1, ..sends };
            queue_line(page, "send", &send, &send_flags(socket));
            queue_line(page, "receive", &receives, &receive_flags(socket));
        }
        _ => {
            let Some(socket) = engine.udp.sockets.get(id.slot()).filter(|socket| socket.id == id)
            else {
                return false;
            };
            // What else is said of queues of bytes is not counted here.
            let mut line = Fields::begin(page, "queue");
            line.put("side", "receive").put("datagrams", socket.queue.len());
            line.put("held_bytes", socket.held_bytes).put("limit_bytes", socket.limit_bytes);
            line.put("flags", words(&[("readable", !socket.queue.is_empty())]));
            line.end();
        }
    }
    true
}

fn queue_line(page: &mut String, side: &str, stats: &QueueStats, flags: &str) {
    let mut line = Fields::begin(page, "queue");
    line.put("side", side).put("payload_bytes", stats.bytes).put("held_bytes", stats.held_bytes);
    line.put("limit_bytes", stats.limit_bytes);
    line.put("high_water_bytes", stats.high_water_bytes).put("refused", stats.refused);
    line.put("coalesced_bytes", stats.coalesced_bytes).put("flags", flags);
    line.end();
}

/// The words of those that are so.
fn words(flags: &[(&str, bool)]) -> String {
    let set: Vec<&str> = flags.iter().filter(|(_, is_so)| *is_so).map(|(word, _)| *word).collect();
    set.join(",")
}

/// What the send queue's state is, and who waits for what.
fn send_flags(socket: &TcpSocket) -> String {
    let info = socket.conn.info();
    words(&[
        ("output_due", socket.dirty),
        ("peer_window_closed", info.notsent_bytes != 0 && info.snd_wnd_bytes == 0),
        ("writer_waits_for_room", socket.write.wants_room()),
        ("writer_waits_for_memory", socket.write.waits_for_memory()),
        ("closed_by_application", socket.detached),
    ])
}

fn receive_flags(socket: &TcpSocket) -> String {
    let info = socket.conn.info();
    words(&[
        ("readable", info.recv_queue_bytes != 0),
        ("reader_not_told_yet", socket.pending.readable),
        ("window_closed", info.rcv_wnd_bytes == 0),
        ("out_of_order", info.out_of_order_bytes != 0),
        ("ack_held", socket.ack_held != 0),
    ])
}

fn show_piece(side: &str, piece: &Piece, page: &mut String) {
    let mut line = Fields::begin(page, "segment");
    line.put("side", side).put("position", piece.position);
    line.put("payload_bytes", piece.bytes).put("held_bytes", piece.held_bytes);
    line.end();
}

/// Looks at the queues of a socket from where `walk` stands, within `steps`; whether that was all.
fn survey(
    engine: &mut Engine,
    id: SocketId,
    walk: &mut Walk,
    steps: &mut usize,
    see: &mut impl FnMut(&'static str, &Piece),
) -> bool {
    if id.kind() != SocketKind::Tcp {
        return survey_datagrams(engine, id, walk, steps, see);
    }
    let Some((_, socket)) = engine.tcp.by_id(id) else { return true };
    while *steps != 0 {
        let side = if walk.receives { "receive" } else { "send" };
        let (most, mut seen) = (*steps, 0);
        let next = socket.conn.survey_queue(walk.receives, walk.from, most, |piece| {
            seen += 1;
            see(side, &piece);
        });
        // Where it goes on all of them were used up.
        *steps = if next.is_some() { 0 } else { most - seen.min(most) };
        walk.from = next;
        if next.is_none() {
            if walk.receives {
                return true;
            }
            walk.receives = true;
        }
    }
    false
}

fn survey_datagrams(
    engine: &Engine,
    id: SocketId,
    walk: &mut Walk,
    steps: &mut usize,
    see: &mut impl FnMut(&'static str, &Piece),
) -> bool {
    let socket = engine.udp.sockets.get(id.slot()).filter(|socket| socket.id == id);
    let Some(socket) = socket else { return true };
    let from = (walk.from.unwrap_or(0) as usize).min(socket.queue.len());
    let end = (from + *steps).min(socket.queue.len());
    for (at, datagram) in socket.queue.range(from..end).enumerate() {
        see(
            "receive",
            &Piece {
                position: (from + at) as u64,
                bytes: datagram.packet.len(),
                held_bytes: datagram.packet.held_bytes(),
            },
        );
    }
    *steps -= end - from;
    walk.from = Some(end as u64);
    end == socket.queue.len()
}

/// Counts what is queued in all sockets, from where it stands; whether that was all.
fn census(engine: &mut Engine, at: &mut Place, walk: &mut Walk, sizes: &mut Sizes) -> bool {
    let mut steps = STEPS;
    while steps != 0 {
        let id = match at.kind {
            SocketKind::Tcp => engine.tcp.sockets.get(at.slot).map(|socket| socket.id),
            SocketKind::Udp => engine.udp.sockets.get(at.slot).map(|socket| socket.id),
            SocketKind::Listener | SocketKind::Icmp => None,
        };
        let count = &mut |_: &'static str, piece: &Piece| sizes.add(piece);
        if id.is_some_and(|id| !survey(engine, id, walk, &mut steps, count)) {
            return false;
        }
        *walk = Walk::default();
        steps = steps.saturating_sub(SLOT_STEPS);
        if at.advance(slots(engine, at.kind)).is_none() {
            return true;
        }
    }
    false
}

/// The links, of which there are few; those that have failed are named by the application alone.
fn links(engine: &Engine, page: &mut String) -> bool {
    let links = &engine.out.links;
    for (id, slot) in links.used().zip(links.used_slots()) {
        let (capabilities, stats) = (&slot.capabilities, slot.link.stats());
        let mut line = Fields::begin(page, "link");
        line.put("link", id.0).put("name", slot.link.name());
        line.put("state", if slot.link.is_down() { "down" } else { "up" });
        line.put("mtu_bytes", capabilities.mtu).put("rx_ring", capabilities.rx_ring);
        line.put("tx_ring", capabilities.tx_ring).put("queued_packets", slot.queue.len());
        for (name, value) in stats.counters() {
            line.put(name, value);
        }
        for (cause, count) in stats.drops_by_name() {
            line.put(&format!("drop_{cause}"), count);
        }
        line.end();
    }
    true
}

/// The pool, and who last said to hold what of it.
fn pool(engine: &Engine, page: &mut String) -> bool {
    let stats = engine.out.pool.stats();
    let mut line = Fields::begin(page, "pool");
    line.put("frames", stats.frames).put("limit_frames", stats.limit_frames);
    line.put("used_frames", stats.used_frames).put("used_frames_high", stats.used_frames_high);
    line.put("depot_frames", stats.depot_frames).put("cached_frames", stats.cached_frames());
    line.put("blocks", stats.blocks).put("used_blocks", stats.used_blocks);
    line.put("mapped_bytes", stats.mapped_bytes).put("frames_exhausted", stats.frames_exhausted);
    line.end();
    for holder in &stats.holders {
        let mut line = Fields::begin(page, "holder");
        line.put("name", &holder.name).put("queues", holder.queues.queues);
        line.put("payload_bytes", holder.queues.bytes).put("held_bytes", holder.queues.held_bytes);
        line.end();
    }
    true
}
