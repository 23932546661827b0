//! `queue ID`: the queues of one socket, with each piece where that is asked for (`-v`). `census`:
//! the sizes of what is queued anywhere, by powers of two; as they are with `-x`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_live::{Fields, bucket_least};
use millstream_packet::{Packet, Piece, QueueStats};

use super::{Done, NO_SUCH_SOCKET, Page, Pages, SLOT_STEPS, Table, Walk, Work, Written};
use crate::engine::Engine;
use crate::engine::tcp::table::TcpSocket;
use crate::socket::{SocketId, SocketKind};
use crate::stages::Histogram;

/// Different sizes that are told one by one; pieces of others are counted together.
const EXACT_SIZES: usize = 1024;

/// Steps of a piece that is shown.
const SHOWN_STEPS: usize = 2;

/// Numbers of surveys, so that a queue tells them apart.
static SURVEYS: AtomicU64 = AtomicU64::new(0);

/// How far the queues of a socket were looked at.
#[derive(Clone, Copy)]
struct Reached {
    /// The number of the survey.
    by: u64,
    /// The receive queue's turn.
    receives: bool,
    /// Where to go on in a stream, or the number of a datagram.
    from: Option<u64>,
}

impl Reached {
    /// Nothing was looked at yet.
    fn nothing() -> Self {
        Self { by: SURVEYS.fetch_add(1, Ordering::Relaxed), receives: false, from: None }
    }
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

    fn write(&self, page: &mut Page) {
        let mut line = page.line("sizes");
        line.put("segments", self.pieces).put("payload_bytes", self.payload_bytes);
        line.put("held_bytes", self.held_bytes);
        line.end();
        for (what, sizes) in [("payload", &self.payload), ("held", &self.held)] {
            for (at, count) in sizes.buckets().iter().enumerate().filter(|(_, count)| **count != 0)
            {
                let mut line = page.line("size");
                line.put("of", what).put("least_bytes", bucket_least(at)).put("count", count);
                line.end();
            }
        }
    }
}

/// The queue of a piece, its payload, the memory that it holds, and references to its frame.
type Size = (&'static str, usize, usize, u32);

/// How often pieces were exactly of which size, with the least and the most bytes of their frames
/// before what is read next.
#[derive(Default)]
struct Exact {
    counts: BTreeMap<Size, (u64, [usize; 2])>,
    others: u64,
}

impl Exact {
    fn add(&mut self, side: &'static str, piece: &Piece) {
        let key = (side, piece.bytes, piece.held_bytes, piece.references);
        let (at, has_room) = (piece.offset_bytes, self.counts.len() < EXACT_SIZES);
        match self.counts.entry(key) {
            Entry::Occupied(mut seen) => {
                let (count, [least, most]) = seen.get_mut();
                (*count, *least, *most) = (*count + 1, at.min(*least), at.max(*most));
            }
            Entry::Vacant(seen) if has_room => drop(seen.insert((1, [at; 2]))),
            Entry::Vacant(_) => self.others += 1,
        }
    }

    /// Writes what was counted and is not written yet, as far as the page has room.
    fn write(&mut self, page: &mut Page) -> Done {
        while let Some((&key, &(count, [least, most]))) = self.counts.first_key_value() {
            let (side, payload, held, references) = key;
            if !page.is_left() {
                return Done::More;
            }
            page.spend(SLOT_STEPS);
            self.counts.pop_first();
            let mut line = page.line("exact");
            line.put("side", side).put("payload_bytes", payload).put("held_bytes", held);
            line.put("references", references).put("least_offset_bytes", least);
            line.put("most_offset_bytes", most).put("count", count);
            line.end();
        }
        let mut line = page.line("exact_others");
        line.put("count", self.others);
        line.end();
        Done::Last
    }
}

/// The queues of one socket.
pub(super) struct Queue {
    id: SocketId,
    is_verbose: bool,
    is_begun: bool,
    reached: Reached,
    sizes: Sizes,
}

impl Queue {
    pub fn new(id: SocketId, is_verbose: bool) -> Self {
        let reached = Reached::nothing();
        Self { id, is_verbose, is_begun: false, reached, sizes: Sizes::default() }
    }
}

impl Pages for Queue {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        if !std::mem::replace(&mut self.is_begun, true) {
            begin_queue(engine, self.id, page).ok_or(NO_SUCH_SOCKET)?;
        }
        let Self { id, is_verbose, reached, sizes, .. } = self;
        let each = if *is_verbose { SHOWN_STEPS } else { 1 };
        let Page { text, work } = page;
        let done = survey(engine, *id, reached, (work, each), &mut |side, piece| {
            sizes.add(piece);
            if *is_verbose {
                show_piece(side, piece, text);
            }
        });
        if done == Done::Last {
            sizes.write(page);
        }
        Ok(done)
    }
}

/// The queues of all sockets.
pub(super) struct Census {
    at: Walk,
    reached: Reached,
    sizes: Sizes,
    exact: Option<Exact>,
    is_counted: bool,
}

impl Census {
    pub fn new(is_exact: bool) -> Self {
        let at = Walk::over(&[Table::Tcp, Table::Udp, Table::Icmp]);
        let exact = is_exact.then(Exact::default);
        Self { at, reached: Reached::nothing(), sizes: Sizes::default(), exact, is_counted: false }
    }
}

impl Pages for Census {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let Self { at, reached, sizes, exact, is_counted } = self;
        while let Some((table, slot)) = at.here(engine) {
            if !page.is_left() {
                return Ok(Done::More);
            }
            let id = match table {
                Table::Tcp => engine.tcp.table.sockets.get(slot).map(|socket| socket.id),
                Table::Udp => engine.udp.sockets.get(slot).map(|socket| socket.id),
                _ => engine.echo.sockets.get(slot).map(|socket| socket.id),
            };
            page.spend(SLOT_STEPS);
            let count = &mut |side, piece: &Piece| {
                sizes.add(piece);
                if let Some(exact) = exact {
                    exact.add(side, piece);
                }
            };
            if id.is_some_and(|id| {
                survey(engine, id, reached, (&mut page.work, 1), count) == Done::More
            }) {
                return Ok(Done::More);
            }
            *reached = Reached::nothing();
            at.advance();
        }
        if !std::mem::replace(is_counted, true) {
            sizes.write(page);
        }
        Ok(exact.as_mut().map_or(Done::Last, |exact| exact.write(page)))
    }
}

/// Writes a line about the queues of a socket as a whole; returns `None` if it is gone.
fn begin_queue(engine: &mut Engine, id: SocketId, page: &mut Page) -> Option<()> {
    if id.kind() != SocketKind::Tcp {
        let queue = datagrams(engine, id)?;
        // The other fields of queues of bytes are not counted here.
        let mut line = page.line("queue");
        line.put("side", "receive").put("datagrams", queue.len);
        line.put("held_bytes", queue.held_bytes).put("limit_bytes", queue.limit_bytes);
        if let Some(refused) = queue.refused {
            line.put("refused", refused);
        }
        line.put("flags", words(&[("readable", queue.len != 0)]));
        line.end();
        return Some(());
    }
    let (_, socket) = engine.tcp.table.by_id(id)?;
    let info = socket.conn.info();
    let (sends, mut receives) = socket.conn.queue_stats();
    receives.held_bytes = info.recv_queue_held_bytes;
    (receives.limit_bytes, receives.queues) = (info.recv_limit_bytes, 1);
    let send = QueueStats { limit_bytes: info.send_limit_bytes, queues: 1, ..sends };
    let sends_from = engine.cx.unsent_limit() / 2;
    queue_line(page, "send", &send, sends_from, &send_flags(socket));
    queue_line(page, "receive", &receives, 1, &receive_flags(socket));
    Some(())
}

/// Writes a line about a queue of bytes. At `low_water` bytes whoever waits is told: a writer once
/// no more than that is unsent, a reader once so many are there.
fn queue_line(page: &mut Page, side: &str, stats: &QueueStats, low_water: usize, flags: &str) {
    let mut line = page.line("queue");
    line.put("side", side).put("payload_bytes", stats.bytes).put("held_bytes", stats.held_bytes);
    line.put("limit_bytes", stats.limit_bytes).put("low_water_bytes", low_water);
    line.put("high_water_bytes", stats.high_water_bytes).put("refused", stats.refused);
    line.put("coalesced_bytes", stats.coalesced_bytes).put("flags", flags);
    line.end();
}

/// The words of those that are so.
fn words(flags: &[(&str, bool)]) -> String {
    let set: Vec<&str> = flags.iter().filter(|(_, is_so)| *is_so).map(|(word, _)| *word).collect();
    set.join(",")
}

/// Returns the state of the send queue, and of who waits for what.
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
    ])
}

fn show_piece(side: &str, piece: &Piece, text: &mut String) {
    let mut line = Fields::begin(text, "segment");
    line.put("side", side);
    let numbers = [
        ("position", piece.position),
        ("payload_bytes", piece.bytes as u64),
        ("held_bytes", piece.held_bytes as u64),
        ("offset_bytes", piece.offset_bytes as u64),
        ("references", u64::from(piece.references)),
    ];
    for (key, number) in numbers {
        line.put_number(key, number);
    }
    line.end();
}

/// The received datagrams of a socket that has no stream.
struct Datagrams<'a> {
    len: usize,
    held_bytes: usize,
    limit_bytes: usize,
    /// Datagrams for which there was no room, where that is counted.
    refused: Option<u64>,
    /// The one in a place.
    packet: Box<dyn Fn(usize) -> Option<&'a Packet> + 'a>,
}

fn datagrams(engine: &Engine, id: SocketId) -> Option<Datagrams<'_>> {
    match id.kind() {
        SocketKind::Udp => {
            let socket = engine.udp.sockets.get(id.slot()).filter(|socket| socket.id == id)?;
            Some(Datagrams {
                len: socket.queue.len(),
                held_bytes: socket.held_bytes,
                limit_bytes: socket.limit_bytes,
                refused: Some(socket.refused),
                packet: Box::new(|at| socket.queue.get(at).map(|datagram| &datagram.packet)),
            })
        }
        SocketKind::Icmp => {
            let socket = engine.echo.sockets.get(id.slot()).filter(|socket| socket.id == id)?;
            Some(Datagrams {
                len: socket.queue.len(),
                held_bytes: socket.held_bytes,
                limit_bytes: socket.limit_bytes,
                refused: None,
                packet: Box::new(|at| socket.queue.get(at).map(|echo| &echo.packet)),
            })
        }
        SocketKind::Tcp | SocketKind::Listener => None,
    }
}

/// Looks at the queues of a socket from where that stands, as far as there is work left; a piece
/// takes `each` steps.
fn survey(
    engine: &mut Engine,
    id: SocketId,
    reached: &mut Reached,
    (work, each): (&mut Work, usize),
    see: &mut impl FnMut(&'static str, &Piece),
) -> Done {
    if id.kind() != SocketKind::Tcp {
        return survey_datagrams(engine, id, reached, (work, each), see);
    }
    let Some((_, socket)) = engine.tcp.table.by_id(id) else { return Done::Last };
    while work.left() != 0 {
        let side = if reached.receives { "receive" } else { "send" };
        let (most, mut seen) = (work.left().div_ceil(each), 0);
        let next =
            socket.conn.survey_queue(reached.receives, reached.by, reached.from, most, |piece| {
                seen += 1;
                see(side, &piece);
            });
        // Where it goes on all of them were used up.
        work.spend(each * if next.is_some() { most } else { seen });
        reached.from = next;
        if next.is_none() {
            if reached.receives {
                return Done::Last;
            }
            reached.receives = true;
        }
    }
    Done::More
}

fn survey_datagrams(
    engine: &Engine,
    id: SocketId,
    reached: &mut Reached,
    (work, each): (&mut Work, usize),
    see: &mut impl FnMut(&'static str, &Piece),
) -> Done {
    let Some(queue) = datagrams(engine, id) else { return Done::Last };
    let from = (reached.from.unwrap_or(0) as usize).min(queue.len);
    let end = (from + work.left().div_ceil(each)).min(queue.len);
    for (at, packet) in (from..end).filter_map(|at| Some((at, (queue.packet)(at)?))) {
        see("receive", &packet.as_piece(at as u64));
    }
    work.spend(each * (end - from));
    reached.from = Some(end as u64);
    if end == queue.len { Done::Last } else { Done::More }
}
