//! Runs a schedule: two ends, the way between them, and a clock that jumps.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

use millstream_packet::{CHUNK_BLOCKS, Instant, Pool, PoolConfig};
use millstream_wire::tcp::SeqNumber;

use super::check::Watch;
use super::losses::{Before, Losses};
use super::plan::*;
use super::way::Flying;
use crate::tests::harness::{Random, tuple};
use crate::*;

/// Steps after which a run is taken for one without an end.
const STEPS_LIMIT: u32 = 60_000;
/// Virtual time after the last action within which both ends must have closed.
const PATIENCE: Duration = Duration::from_secs(40 * 3600);
/// Bytes of pattern; a prime.
pub const PERIOD: usize = 65_521;
const KEY: [u8; 16] = *b"of a schedule...";

thread_local! {
    static POOL: Pool = Pool::new(PoolConfig {
        prefault: false,
        initial_blocks: CHUNK_BLOCKS,
        limit_blocks: CHUNK_BLOCKS,
        ..PoolConfig::fixed(8192)
    })
    .expect("a pool");
}

/// What each end writes: two periods of random bytes.
pub fn patterns() -> &'static [Vec<u8>; 2] {
    static PATTERNS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        [1, 2].map(|seed| {
            let mut random = Random(seed);
            let mut bytes: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
            bytes.extend_from_within(..);
            bytes
        })
    })
}

/// An end and its application.
pub struct Side {
    pub connection: Option<Connection>,
    /// What the listener keeps of a SYN meanwhile.
    pub half_open: Option<HalfOpen>,
    /// There was a connection, and there is none any more, nor a listener.
    pub gone: bool,
    /// Wanted of the application so far, and done.
    pub to_write: u64,
    pub written: u64,
    pub read: u64,
    pub shutdown: bool,
    pub close: bool,
    pub closed: bool,
    pub eager: bool,
    /// The end of the stream was read.
    pub eof: bool,
    /// Something it did may make it send a reset.
    pub may_reset: bool,
    pub shut_read: bool,
    pub error: Option<ConnError>,
    pub segments: u32,
    pub dooms: std::vec::IntoIter<Doom>,
    pub doom: Option<Doom>,
    pub free_at: Instant,
    pub watch: Watch,
    pub losses: Losses,
}

/// What a run reached: names of features, for counting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub steps: u32,
    pub segments: u32,
    /// Of either end, the states that were seen, by their number.
    pub states: u16,
    pub timeouts: u32,
    pub fast_recoveries: u32,
    pub spurious: u32,
    pub window_probes: u32,
    pub dsacks: u32,
    pub challenges: u32,
    pub black_holes: u32,
    pub ecn_reductions: u32,
    pub loss_probes: u32,
    pub keepalives: u32,
    pub memory_drops: u32,
    pub in_order_ends: u32,
    pub resets: u32,
    pub timed_out: u32,
    /// Of Fast Open: data of the SYN taken, and refused.
    pub fast_taken: u32,
    pub fast_refused: u32,
}

pub struct World<'a> {
    pub plan: &'a Schedule,
    pub sides: [Side; 2],
    pub now: Instant,
    pub begin: Instant,
    pub next_action: usize,
    pub finale: bool,
    pub pool: Pool,
    pub cookies: SynCookies,
    pub order: BinaryHeap<Reverse<(Instant, u32)>>,
    pub flying: Vec<Option<Flying>>,
    pub reached: Reached,
    /// A line for each segment and action, when wanted.
    pub transcript: Option<Vec<String>>,
}

/// Runs `plan`; panics where an invariant does not hold.
pub fn run(plan: &Schedule) -> Reached {
    let pool = POOL.with(Pool::clone);
    let used = || (pool.stats().used_frames, pool.stats().used_blocks);
    let before = used();
    let mut world = World::new(plan, pool.clone());
    world.run();
    let reached = world.reached;
    drop(world);
    assert_eq!(used(), before, "frames were lost");
    reached
}

/// What passes between the ends of `plan`, up to its end or its failure.
pub fn transcript(plan: &Schedule) -> Vec<String> {
    let mut world = World::new(plan, POOL.with(Pool::clone));
    world.transcript = Some(Vec::new());
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    world.transcript.unwrap_or_default()
}

impl<'a> World<'a> {
    fn new(plan: &'a Schedule, pool: Pool) -> World<'a> {
        let begin = Instant::ZERO + Duration::from_secs(1000);
        let side = |index: usize| {
            let mut dooms: Vec<Doom> =
                plan.dooms.iter().filter(|doom| usize::from(doom.end) == index).copied().collect();
            dooms.sort_by_key(|doom| doom.nth);
            let mut dooms = dooms.into_iter();
            Side {
                connection: None,
                half_open: None,
                gone: false,
                to_write: 0,
                written: 0,
                read: 0,
                shutdown: false,
                close: false,
                closed: false,
                eager: plan.ends[index].eager,
                eof: false,
                may_reset: false,
                shut_read: false,
                error: None,
                segments: 0,
                doom: dooms.next(),
                dooms,
                free_at: begin,
                watch: Watch::default(),
                losses: Losses::default(),
            }
        };
        World {
            plan,
            sides: [side(0), side(1)],
            now: begin,
            begin,
            next_action: 0,
            finale: false,
            pool,
            cookies: SynCookies::new(KEY),
            order: BinaryHeap::new(),
            flying: Vec::new(),
            reached: Reached::default(),
            transcript: None,
        }
    }

    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let us = self.now.saturating_duration_since(self.begin).as_micros();
        if let Some(lines) = self.transcript.as_mut() {
            lines.push(format!("{us:>12} {}", line()));
        }
    }

    fn connect(&mut self, side: usize) {
        let end = &self.plan.ends[side];
        let ends = tuple(side, self.plan.way.v6);
        let isn = SeqNumber(end.isn);
        let mut connection = Connection::connect(end.config.clone(), ends, isn, end.isn, self.now);
        let known = (self.sides[side].watch)
            .offer_fast_open(self.plan.open, self.plan.ends[1 - side].config.mss);
        if self.plan.open.is_fast() {
            connection.offer_fast_open(self.now, known);
        }
        self.sides[side].connection = Some(connection);
    }

    fn run(&mut self) {
        self.connect(0);
        if self.plan.open == Open::Both {
            self.connect(1);
        }
        self.attend(0);
        self.attend(1);
        let last = self.begin + Duration::from_micros(self.plan.end_us());
        while let Some((at, what)) = self.next().or_else(|| self.give_up()) {
            self.reached.steps += 1;
            assert!(self.reached.steps < STEPS_LIMIT, "a conversation without an end");
            self.now = self.now.max(at);
            assert!(self.now < last + PATIENCE, "not closed after {PATIENCE:?}");
            match what {
                What::Arrival => self.arrivals(),
                What::Timer(side) => self.timer(side),
                What::Action => self.action(),
                What::Finale => self.begin_finale(),
                What::GiveUp(side) => self.close_now(side),
            }
        }
        for side in 0..2 {
            // an end that never got a connection had nobody to talk to
            assert!(self.sides[side].connection.is_none(), "end {side} is left with no timer");
        }
        self.check_end();
    }

    /// What happens next, and when.
    fn next(&self) -> Option<(Instant, What)> {
        let arrival = self.order.peek().map(|Reverse((at, _))| (*at, What::Arrival));
        let timers = (0..2).filter_map(|side| {
            let Side { connection, half_open, .. } = &self.sides[side];
            let entry = half_open.as_ref().map(HalfOpen::deadline);
            let at = connection.as_ref().map_or(entry, Connection::next_deadline)?;
            Some((self.ticked(at), What::Timer(side)))
        });
        let action = match self.plan.actions.get(self.next_action) {
            Some(action) => Some((self.begin + Duration::from_micros(action.at_us), What::Action)),
            None if self.finale => None,
            None => Some((
                self.begin + Duration::from_micros(self.plan.end_us() + 1_000_000),
                What::Finale,
            )),
        };
        arrival.into_iter().chain(timers).chain(action).min()
    }

    /// Nothing happens any more: who waits for an end that never comes stops waiting.
    fn give_up(&self) -> Option<(Instant, What)> {
        let waits = |side: &Side| side.connection.is_some() && !side.closed;
        let side = self.sides.iter().position(waits)?;
        Some((self.now, What::GiveUp(side)))
    }

    fn close_now(&mut self, index: usize) {
        self.say(|| format!("end {index} waits no more"));
        let side = &mut self.sides[index];
        side.may_reset = true;
        side.closed = true;
        side.to_write = side.written;
        if let Some(connection) = side.connection.as_mut() {
            connection.close();
        }
        self.attend(index);
    }

    fn ticked(&self, at: Instant) -> Instant {
        let tick = self.plan.way.tick_us * 1000;
        if tick == 0 { at } else { Instant::from_nanos(at.as_nanos().div_ceil(tick) * tick) }
    }

    fn arrivals(&mut self) {
        let end = self.now + Duration::from_micros(self.plan.way.batch_us);
        let batch = self.plan.way.batch_us > 0;
        let mut touched = [false; 2];
        while let Some(Reverse((at, id))) = self.order.peek().copied() {
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            self.order.pop();
            let Some(flying) = self.flying[id as usize].take() else { continue };
            touched[flying.to] = true;
            self.deliver(flying);
            if !batch {
                break;
            }
        }
        for (side, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
            self.attend(side);
        }
    }

    fn timer(&mut self, side: usize) {
        let now = self.now;
        match self.sides[side].connection.as_mut() {
            Some(connection) => {
                let before = Before::of(connection);
                connection.on_timer(now);
                let Side { connection: Some(connection), losses, .. } = &mut self.sides[side]
                else {
                    unreachable!("it was there")
                };
                losses.timer(now, before, connection);
            }
            None => self.half_open_timer(side),
        }
        self.attend(side);
        if let Some(connection) = self.sides[side].connection.as_ref() {
            let again = connection.next_deadline().is_some_and(|at| at <= now);
            assert!(!again, "a timer that is due again at once");
        }
    }

    fn action(&mut self) {
        let Action { end, deed, .. } = self.plan.actions[self.next_action];
        self.next_action += 1;
        self.say(|| format!("end {end} {deed:?}"));
        let index = usize::from(end);
        let v6 = self.plan.way.v6;
        let side = &mut self.sides[index];
        if side.gone {
            return;
        }
        match deed {
            Deed::Write(n) if !side.shutdown && !side.close && !side.closed => {
                side.to_write += u64::from(n)
            }
            Deed::Shutdown => side.shutdown = true,
            Deed::Close => side.close = true,
            _ => {}
        }
        if deed == Deed::CloseNow && side.connection.is_some() {
            return self.close_now(index);
        }
        let now = self.now;
        if let Some(connection) = side.connection.as_mut() {
            connection.cx.set_clock(now);
            match deed {
                Deed::Read(n) => self.read(index, n as usize),
                Deed::ShutdownRead => {
                    connection.shutdown_read();
                    side.shut_read = true;
                }
                Deed::Abort => {
                    side.may_reset = true;
                    connection.abort();
                }
                Deed::Nodelay => connection.set_nodelay(true),
                Deed::RecvBuffer(n) => connection.set_buffers(Some(n as usize), None),
                Deed::SendBuffer(n) => connection.set_buffers(None, Some(n as usize)),
                Deed::PathMtu(mtu) => {
                    let seq = connection.sending.snd.seq(connection.sending.snd.una());
                    let mtu = if v6 { mtu.max(1280) } else { mtu };
                    connection.set_path_mtu(now, seq, mtu);
                }
                Deed::Keepalive(on) => {
                    let config = connection.config().clone().keepalive(keepalive(on.into()));
                    connection.set_config(&config);
                }
                Deed::Compact => {
                    connection.compact();
                }
                Deed::Write(_) | Deed::Shutdown | Deed::Close | Deed::CloseNow => {}
            }
        }
        self.attend(index);
    }

    /// From now on both applications read all there is and close when they have written all.
    fn begin_finale(&mut self) {
        self.finale = true;
        self.say(|| "both read on, and close".to_string());
        for side in 0..2 {
            self.sides[side].eager = true;
            self.sides[side].close = true;
            // nobody came: the listener goes away
            self.sides[side].gone |= self.sides[side].is_free();
            self.attend(side);
        }
    }
}

impl Side {
    /// There is neither a connection nor the beginning of one.
    pub fn is_free(&self) -> bool {
        self.connection.is_none() && self.half_open.is_none()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival,
    Timer(usize),
    Action,
    Finale,
    GiveUp(usize),
}

impl Reached {
    pub fn take(&mut self, info: &TcpInfo, error: Option<ConnError>) {
        self.timeouts += info.timeouts;
        self.fast_recoveries += info.fast_recoveries;
        self.spurious += info.spurious_recoveries;
        self.window_probes += info.window_probes;
        self.dsacks += info.dsacks_in;
        self.challenges += info.challenge_acks;
        self.black_holes += info.black_holes;
        self.ecn_reductions += info.ecn_reductions;
        self.loss_probes += info.loss_probes;
        self.keepalives += info.keepalives;
        self.memory_drops += info.memory_drops;
        self.fast_taken += u32::from(info.fast_open == FastOpenStatus::DataAccepted);
        self.fast_refused += u32::from(info.fast_open == FastOpenStatus::DataRefused);
        match error {
            None => self.in_order_ends += 1,
            Some(ConnError::TimedOut) => self.timed_out += 1,
            Some(_) => self.resets += 1,
        }
    }
}
