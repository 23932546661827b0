//! Answers of the control socket, a page at a time.
//!
//! A page is bounded in work, not only in length ([`Page`]): it looks at so many slots of tables
//! and pieces of queues, and has so many bytes. The next page goes on where it ended. What changes
//! between two pages is shown as it is when its turn comes.

mod backlog;
mod network;
mod pool;
mod queues;
mod sockets;
mod stages;
mod timers;

use std::time::Duration;

use millstream_link::sys::thread_id;
use millstream_live::Fields;
use millstream_packet::Instant;
use millstream_route::LinkId;

use super::events::ConnectionAnswer;
use super::id::parse_id;
use super::traces::Traces;
use crate::engine::Engine;
use crate::socket::SocketKind;
pub(super) use timers::SYN_ACK_TIMER;

/// Steps of a page. A piece of a queue that is looked at takes one, a slot of a table
/// [`SLOT_STEPS`].
pub(super) const STEPS: usize = 512;
const SLOT_STEPS: usize = 4;

/// Bytes of a page, beyond which it gets no other line.
pub(super) const PAGE_BYTES: usize = 32 << 10;

/// The answer to an unknown question.
const QUESTIONS: &str = "ask ss [-a], queue ID [-v], census [-x], links, neigh, route [PREFIX | get ADDRESS], \
                         groups, timers [-v], stages ID [N], traces FROM [N], events ID FROM, pool or thread";

/// Answers one question.
pub(super) struct Answer {
    pages: Box<dyn Pages>,
    is_over: bool,
    is_refused: bool,
    /// Steps that the last page took.
    #[cfg(test)]
    pub steps: usize,
}

/// An answer that is made a page at a time.
trait Pages: Send {
    /// Writes what comes next, as far as the page has room. An error is the whole answer.
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written;
}

type Written = Result<Done, &'static str>;

/// Tells if a page was the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Last,
    More,
}

/// A page under way.
struct Page {
    text: String,
    work: Work,
}

/// The steps of a page.
#[derive(Default)]
struct Work {
    spent: usize,
}

impl Work {
    /// Returns how many steps it may still take.
    fn left(&self) -> usize {
        STEPS.saturating_sub(self.spent)
    }

    fn spend(&mut self, steps: usize) {
        self.spent += steps;
    }
}

impl Page {
    /// Returns true if it may get another line, and something may be looked at for it.
    fn is_left(&self) -> bool {
        self.work.left() != 0 && self.text.len() < PAGE_BYTES
    }

    fn spend(&mut self, steps: usize) {
        self.work.spend(steps);
    }

    /// Begins a line of this kind.
    fn line(&mut self, kind: &str) -> Fields<'_> {
        Fields::begin(&mut self.text, kind)
    }
}

/// A question that has no answer.
struct Refused(&'static str);

impl Pages for Refused {
    fn write(&mut self, _: &mut Engine, _: &mut Page) -> Written {
        Err(self.0)
    }
}

/// The thread that drives the engine, and answers for it.
struct Thread;

impl Pages for Thread {
    fn write(&mut self, _: &mut Engine, page: &mut Page) -> Written {
        let mut line = page.line("thread");
        line.put("id", thread_id());
        line.end();
        Ok(Done::Last)
    }
}

impl Answer {
    /// Returns the answer to a line.
    pub fn to(question: &str) -> Self {
        let words: Vec<&str> = question.split_ascii_whitespace().take(4).collect();
        let pages: Option<Box<dyn Pages>> = match words[..] {
            ["ss"] => Some(Box::new(sockets::Sockets::new(false))),
            ["ss", "-a"] => Some(Box::new(sockets::Sockets::new(true))),
            ["queue", id] => queue(id, false),
            ["queue", id, "-v"] => queue(id, true),
            ["events", id, from] => events(id, from),
            ["stages", id] => Some(stages::FlowStages::to(id, None)),
            ["stages", id, every] => Some(stages::FlowStages::to(id, Some(every))),
            ["traces", from] => traces(from, None),
            ["traces", from, every] => traces(from, Some(every)),
            ["census"] => Some(Box::new(queues::Census::new(false))),
            ["census", "-x"] => Some(Box::new(queues::Census::new(true))),
            ["links"] => Some(Box::<network::Links>::default()),
            ["neigh"] => Some(Box::<network::Neighbors>::default()),
            ["route"] => Some(Box::<network::Routes>::default()),
            ["route", prefix] => prefix.parse().ok().map(network::Routes::within),
            ["route", "get", address] => address.parse().ok().map(network::RouteTo::boxed),
            ["groups"] => Some(Box::<network::Groups>::default()),
            ["timers"] => Some(Box::new(timers::Timers::new(false))),
            ["timers", "-v"] => Some(Box::new(timers::Timers::new(true))),
            ["pool"] => Some(Box::<pool::Pool>::default()),
            ["thread"] => Some(Box::new(Thread)),
            _ => None,
        };
        Self {
            pages: pages.unwrap_or_else(|| Box::new(Refused(QUESTIONS))),
            is_over: false,
            is_refused: false,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Returns true once its last page is made.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true if it said why there is no answer.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Makes the next page.
    pub fn fill(&mut self, engine: &mut Engine, text: &mut String) {
        let mut page = Page { text: std::mem::take(text), work: Work::default() };
        page.text.clear();
        match self.pages.write(engine, &mut page) {
            Ok(Done::More) => {}
            Ok(Done::Last) => {
                page.text.push_str("end\n");
                self.is_over = true;
            }
            Err(why) => {
                page.text.clear();
                let mut line = page.line("error");
                line.put("why", why);
                line.end();
                (self.is_over, self.is_refused) = (true, true);
            }
        }
        #[cfg(test)]
        {
            self.steps = page.work.spent;
        }
        *text = page.text;
    }
}

/// The answer about the queues of a socket.
fn queue(id: &str, is_verbose: bool) -> Option<Box<dyn Pages>> {
    let Some(id) = parse_id(id) else { return Some(Box::new(Refused(NO_SUCH_SOCKET))) };
    Some(match id.kind() {
        SocketKind::Listener => Box::new(backlog::Backlog::new(id, is_verbose)),
        _ => Box::new(queues::Queue::new(id, is_verbose)),
    })
}

/// The answer about what happens to a connection.
fn events(id: &str, from: &str) -> Option<Box<dyn Pages>> {
    Some(match ConnectionAnswer::to(id, from) {
        Some(events) => Box::new(events),
        None => Box::new(Refused(NO_SUCH_SOCKET)),
    })
}

impl Pages for ConnectionAnswer {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        self.fill(engine, &mut page.text)
            .map(|is_last| if is_last { Done::Last } else { Done::More })
    }
}

/// The answer about sampled packets.
fn traces(from: &str, every: Option<&str>) -> Option<Box<dyn Pages>> {
    let traces = Traces::to(from, every);
    Some(traces.map_or_else(
        || Box::new(Refused("not a number")) as Box<dyn Pages>,
        |traces| Box::new(traces),
    ))
}

impl Pages for Traces {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        Ok(if self.fill(engine, &mut page.text) { Done::Last } else { Done::More })
    }
}

const NO_SUCH_SOCKET: &str = "no such socket";

/// A table of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Listeners,
    Tcp,
    Udp,
    Icmp,
    /// Unfinished handshakes.
    HalfOpen,
    /// Connections in TIME-WAIT that the application has let go of.
    TimeWait,
    Neighbors,
    /// With those that have failed.
    Links,
}

impl Table {
    fn slots(self, engine: &Engine) -> usize {
        match self {
            Self::Listeners => engine.tcp.table.listeners.slots.slots(),
            Self::Tcp => engine.tcp.table.sockets.slots(),
            Self::Udp => engine.udp.sockets.slots(),
            Self::Icmp => engine.echo.sockets.slots(),
            Self::HalfOpen => engine.tcp.table.half_open.slots(),
            Self::TimeWait => engine.tcp.table.time_wait.slots(),
            Self::Neighbors => engine.ip.reach.neighbors.slots(),
            Self::Links => engine.ip.reach.links.numbers(),
        }
    }
}

/// How far tables were looked at, one after the other.
struct Walk {
    tables: &'static [Table],
    slot: u32,
}

impl Walk {
    fn over(tables: &'static [Table]) -> Self {
        Self { tables, slot: 0 }
    }

    /// The slot whose turn it is; `None` behind the last one.
    fn here(&mut self, engine: &Engine) -> Option<(Table, u32)> {
        while let Some((&table, others)) = self.tables.split_first() {
            if (self.slot as usize) < table.slots(engine) {
                return Some((table, self.slot));
            }
            *self = Self::over(others);
        }
        None
    }

    fn advance(&mut self) {
        self.slot += 1;
    }

    /// Has `look` see the slots that come, one after the other, as far as there is work left.
    fn look(
        &mut self,
        engine: &Engine,
        page: &mut Page,
        mut look: impl FnMut(Table, u32, &mut Page),
    ) -> Done {
        while let Some((table, slot)) = self.here(engine) {
            if !page.is_left() {
                return Done::More;
            }
            page.spend(SLOT_STEPS);
            look(table, slot, page);
            self.advance();
        }
        Done::Last
    }
}

/// The number and the name of a link.
fn put_link(line: &mut Fields<'_>, engine: &Engine, link: LinkId) {
    line.put("link", link.0);
    if let Some(slot) = engine.ip.reach.links.get(link) {
        line.put("name", slot.link.name());
    }
}

/// Microseconds from `from` until `to`; 0 where that is over.
fn us(from: Instant, to: Instant) -> u64 {
    let time: Duration = to.saturating_duration_since(from);
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
