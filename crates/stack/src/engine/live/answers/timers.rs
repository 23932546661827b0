//! `timers`: how many timers of each kind are armed, and how soon they are due; with `-v` each of
//! them.

use std::fmt::Display;

use millstream_live::bucket_least;
use millstream_packet::Instant;
use millstream_tcp::TimerKind;

use super::{Done, Page, Pages, Table, Walk, Written, us};
use crate::engine::Engine;
use crate::engine::live::id::Id;
use crate::stages::Histogram;

/// Kinds beside those of connections, behind which they are numbered.
const SYN_ACK: usize = TimerKind::ALL.len();
const NEIGHBOR: usize = SYN_ACK + 1;
const KINDS: usize = NEIGHBOR + 1;

fn name(kind: usize) -> &'static str {
    match kind {
        SYN_ACK => SYN_ACK_TIMER,
        NEIGHBOR => "neighbor",
        _ => TimerKind::ALL[kind].name(),
    }
}

/// The name of an unfinished handshake's timer.
pub(in crate::engine::live) const SYN_ACK_TIMER: &str = "syn_ack";

/// Timers of one kind.
#[derive(Default)]
struct Armed {
    first: Option<Instant>,
    left_us: Histogram,
}

/// See the module text.
pub(super) struct Timers {
    at: Walk,
    is_verbose: bool,
    kinds: [Armed; KINDS],
    /// The kind that is summed up next.
    next: usize,
}

impl Timers {
    pub fn new(is_verbose: bool) -> Self {
        let tables = &[Table::Tcp, Table::HalfOpen, Table::TimeWait, Table::Neighbors];
        Self { at: Walk::over(tables), is_verbose, kinds: Default::default(), next: 0 }
    }
}

impl Pages for Timers {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let engine = &*engine;
        let Self { at, is_verbose, kinds, next } = self;
        let mut count = |kind: usize, due: Instant, of: &dyn Display, page: &mut Page| {
            let Armed { first, left_us } = &mut kinds[kind];
            *first = Some(first.map_or(due, |first| first.min(due)));
            left_us.add(us(engine.cx.now, due) as usize);
            if *is_verbose {
                let mut line = page.line("timer");
                line.put("kind", name(kind)).put("of", of).put("due_us", us(engine.cx.now, due));
                line.end();
            }
        };
        let looked = at.look(engine, page, |table, slot, page| {
            look(engine, table, slot, &mut |kind, due, of| count(kind, due, of, page));
        });
        if looked == Done::More {
            return Ok(Done::More);
        }
        while *next < KINDS {
            if !page.is_left() {
                return Ok(Done::More);
            }
            sum_up(engine, name(*next), &kinds[*next], page);
            *next += 1;
        }
        of_the_engine(engine, page);
        Ok(Done::Last)
    }
}

/// Tells the timers of what is in a slot: their kinds, when they are due, and what they are of.
fn look(
    engine: &Engine,
    table: Table,
    slot: u32,
    tell: &mut dyn FnMut(usize, Instant, &dyn Display),
) -> Option<()> {
    match table {
        Table::Tcp => {
            let socket = engine.tcp.table.sockets.get(slot)?;
            for (kind, due) in socket.conn.armed_timers() {
                tell(kind as usize, due, &Id(socket.id));
            }
        }
        Table::HalfOpen => {
            let one = engine.tcp.table.half_open.get(slot)?;
            let due = engine.tcp.table.half_open.wheel.deadline(slot)?;
            tell(SYN_ACK, due, &one.key.unpack().remote);
        }
        Table::TimeWait => {
            let one = engine.tcp.table.time_wait.get(slot)?;
            let due = engine.tcp.table.time_wait.wheel.deadline(slot)?;
            tell(TimerKind::TimeWait as usize, due, &one.key.unpack().remote);
        }
        Table::Neighbors => {
            let one = engine.ip.reach.neighbors.in_slot(slot as usize)?;
            tell(NEIGHBOR, one.until?, &one.ip);
        }
        Table::Listeners | Table::Udp | Table::Icmp | Table::Links => {}
    }
    Some(())
}

/// Writes how many timers of a kind are armed, when the first is due, and how many are due how
/// soon.
fn sum_up(engine: &Engine, kind: &str, armed: &Armed, page: &mut Page) {
    let mut line = page.line("timers");
    line.put("kind", kind).put("armed", armed.left_us.total());
    if let Some(first) = armed.first {
        line.put("first_us", us(engine.cx.now, first));
    }
    line.end();
    for (at, count) in armed.left_us.buckets().iter().enumerate().filter(|(_, n)| **n != 0) {
        let mut line = page.line("due");
        line.put("kind", kind).put("least_us", bucket_least(at)).put("count", count);
        line.end();
    }
}

/// Writes the timers of the engine itself; only the first of each kind is known.
fn of_the_engine(engine: &Engine, page: &mut Page) {
    for (kind, first) in engine.deadlines() {
        let mut line = page.line("timers");
        line.put("kind", kind);
        if let Some(first) = first {
            line.put("first_us", us(engine.cx.now, first));
        }
        line.end();
    }
}
