//! The values that are published, in their order: one walk gives their names, and another the
//! numbers.

use std::fmt::Display;

use millstream_link::{DropCause, LinkStats};
use millstream_live::{Kind, SchemaText};
use millstream_packet::{Counter, Pool};
use millstream_tcp::{State, TcpStats, TimerKind};
use millstream_wire::Malformed;

use super::LINKS;
use super::answers::SYN_ACK_TIMER;
use super::clients::{ClientDrop, ClientStats};
use super::declared::*;
use super::states::{Fullest, States};
use crate::engine::Engine;
use crate::stages::{Histogram, Stage};
use crate::stats::EngineStats;

/// The labels that tell one value from another of the same name.
type Labels<'a> = &'a [(&'a str, &'a dyn Display)];

/// A receiver of values.
pub(super) trait Visit {
    /// One number of this kind, as declared; `prefix` comes before its name.
    fn one(&mut self, prefix: &str, declared: (Kind, &Counter), labels: Labels<'_>, value: u64);
    /// A histogram by powers of two.
    fn histogram(&mut self, declared: &Family, labels: Labels<'_>, histogram: &Histogram);

    /// One number of a family.
    #[inline]
    fn of(&mut self, (kind, declared): &Family, labels: Labels<'_>, value: u64) {
        self.one("", (*kind, declared), labels, value);
    }

    /// All numbers of a struct.
    #[inline]
    fn all<const N: usize>(
        &mut self,
        prefix: &str,
        (kind, declared): (Kind, &[Counter; N]),
        labels: Labels<'_>,
        values: [(&str, u64); N],
    ) {
        for (one, (_, value)) in declared.iter().zip(values) {
            self.one(prefix, (kind, one), labels, value);
        }
    }
}

/// Takes the names.
pub(super) struct Names<'a>(pub &'a mut SchemaText);

impl Visit for Names<'_> {
    fn one(&mut self, prefix: &str, (kind, of): (Kind, &Counter), labels: Labels<'_>, _: u64) {
        self.0.line(kind, of.unit, 1, &format!("{prefix}{}", of.name), labels);
    }

    fn histogram(&mut self, (kind, of): &Family, labels: Labels<'_>, _: &Histogram) {
        self.0.line(*kind, of.unit, Histogram::BUCKETS, of.name, labels);
    }
}

/// Takes the numbers.
pub(super) struct Values<F>(pub F);

impl<F: FnMut(u64)> Visit for Values<F> {
    #[inline]
    fn one(&mut self, _: &str, _: (Kind, &Counter), _: Labels<'_>, value: u64) {
        (self.0)(value);
    }

    fn histogram(&mut self, _: &Family, _: Labels<'_>, histogram: &Histogram) {
        histogram.buckets().iter().for_each(|&count| (self.0)(count));
    }
}

/// Everything that is published of an engine.
pub(super) fn visit(engine: &Engine, states: &States, clients: &ClientStats, to: &mut impl Visit) {
    counters(engine, to);
    gauges(engine, states, to);
    stages(engine, to);
    packet_traces(engine, to);
    asked(clients, to);
    links(engine, to);
}

fn counters(engine: &Engine, to: &mut impl Visit) {
    let stats = &engine.cx.stats;
    to.all("", (Kind::Counter, &EngineStats::COUNTERS), &[], stats.counters());
    to.all("tcp_", (Kind::Counter, &TcpStats::COUNTERS), &[], stats.tcp.counters());
    for (reason, dropped) in stats.drops_of_stack() {
        to.of(&DROPS, &[("reason", &reason)], dropped);
    }
    for reason in Malformed::ALL {
        to.of(&MALFORMED, &[("reason", &reason.name())], stats.malformed_by(reason));
    }
}

fn gauges(engine: &Engine, states: &States, to: &mut impl Visit) {
    let (tcp, ip, memory) = (&engine.tcp, &engine.ip, engine.inspect().memory_use());
    let timers = tcp.table.wheel.armed()
        + tcp.table.half_open.wheel.armed()
        + tcp.table.time_wait.wheel.armed();
    let levels = Levels {
        connections: engine.inspect().connection_count() as u64,
        listeners: tcp.table.listeners.slots.len() as u64,
        half_open: tcp.table.half_open.len() as u64,
        time_wait: tcp.table.in_time_wait() as u64,
        orphans: tcp.table.orphans.len() as u64,
        udp_sockets: engine.udp.sockets.len() as u64,
        icmp_sockets: engine.echo.sockets.len() as u64,
        timers: timers as u64,
        routes: ip.reach.routing.len() as u64,
        neighbors: ip.reach.neighbors.len() as u64,
        neighbor_pending_bytes: ip.reach.neighbors.stats().pending_bytes as u64,
        memory_held_bytes: memory.held_bytes as u64,
        memory_held_most_bytes: memory.held_most_bytes as u64,
        memory_limit_bytes: memory.limit_bytes as u64,
        memory_pressure: memory.pressure as u64,
        links: ip.reach.links.used_count() as u64,
        pool_limit_frames: engine.cx.pool.limit_frames() as u64,
        pool_free_frames: engine.cx.pool.free_frames() as u64,
    };
    to.all("", (Kind::Gauge, &Levels::COUNTERS), &[], levels.counters());
    to.of(&TIMES_PRESSED, &[], memory.times_pressed);
    pool(&engine.cx.pool, to);
    connections(engine, states, to);
}

/// The pool, which other engines may have, too.
fn pool(pool: &Pool, to: &mut impl Visit) {
    for (name, stock) in pool.stocks() {
        let levels = StockLevels {
            pool_descriptors: stock.total as u64,
            pool_descriptors_out: stock.total.saturating_sub(stock.depot) as u64,
            pool_descriptors_out_most: stock.high_out as u64,
        };
        let of: Labels<'_> = &[("of", &name)];
        to.all("", (Kind::Gauge, &StockLevels::COUNTERS), of, levels.counters());
        to.of(&POOL_EXHAUSTED, of, stock.exhausted);
    }
}

/// Visits the counts of connections, once all of them have been looked at.
fn connections(engine: &Engine, states: &States, to: &mut impl Visit) {
    let Some(counted) = states.counted() else { return };
    for state in State::ALL {
        to.of(&TCP_SOCKETS, &[("state", &state.name())], counted.states[state as usize]);
    }
    let fullest = counted.fullest.counters();
    to.all("tcp_fullest_queue_", (Kind::Gauge, &Fullest::COUNTERS), &[], fullest);
    let tcp = &engine.tcp;
    let mut armed = |kind: &str, count| to.of(&TIMERS_ARMED, &[("kind", &kind)], count);
    for kind in TimerKind::ALL {
        let detached = match kind {
            TimerKind::TimeWait => tcp.table.time_wait.wheel.armed() as u64,
            _ => 0,
        };
        armed(kind.name(), counted.timers[kind as usize] + detached);
    }
    armed(SYN_ACK_TIMER, tcp.table.half_open.wheel.armed() as u64);
}

fn stages(engine: &Engine, to: &mut impl Visit) {
    let stats = &engine.cx.stats;
    to.of(&STAGE_SAMPLE, &[], u64::from(stats.stages.every()));
    to.of(&STAGE_TIMED_TURNS, &[], stats.stages.timed_turns());
    for &stage in Stage::ALL {
        let (name, time) = (stage.name(), stats.stages.of(stage));
        let labels: Labels<'_> = &[("stage", &name)];
        to.of(&STAGE_NS, labels, time.ns);
        to.of(&STAGE_MOST_NS, labels, time.max_ns);
        to.of(&STAGE_VISITS, labels, time.visits);
        to.of(&STAGE_UNITS, labels, time.units);
    }
    let batches = &stats.batches;
    for (declared, histogram) in [
        (&RECEIVE_PACKETS, &batches.receive_packets),
        (&TRANSMIT_PACKETS, &batches.transmit_packets),
        (&SERVED_BYTES, &batches.served_bytes),
        (&SERVED_CONNECTIONS, &batches.served_connections),
        (&SLEEP_US, &batches.sleep_us),
    ] {
        to.histogram(declared, &[], histogram);
    }
}

/// Visits the counts of sampled packets, while some are sampled.
fn packet_traces(engine: &Engine, to: &mut impl Visit) {
    let Some(tracer) = engine.cx.sink.packets.tracer() else { return };
    to.of(&PACKET_SAMPLE, &[], u64::from(engine.cx.sink.packets.every()));
    to.of(&PACKET_TRACES, &[], engine.cx.sink.packets.ended());
    to.of(&PACKET_TRACES_DISPLACED, &[], tracer.displaced());
    for (point, times) in tracer.residence.stages() {
        let labels: Labels<'_> = &[("way", &point.direction().name()), ("stage", &point.stage())];
        to.histogram(&PACKET_NS, labels, times);
    }
}

/// Visits the counts of clients that asked by the control socket.
fn asked(clients: &ClientStats, to: &mut impl Visit) {
    to.all("control_", (Kind::Counter, &ClientStats::COUNTERS), &[], clients.counters());
    for reason in ClientDrop::ALL {
        to.of(&CONTROL_DROPS, &[("reason", &reason.name())], clients.dropped(reason));
    }
}

fn links(engine: &Engine, to: &mut impl Visit) {
    let links = &engine.ip.reach.links;
    for (id, slot) in links.used().zip(links.used_slots()).take(LINKS) {
        let (number, name, stats) = (id.0, slot.link.name(), slot.link.stats());
        let of: Labels<'_> = &[("link", &number), ("name", &name)];
        to.all("link_", (Kind::Counter, &LinkStats::COUNTERS), of, stats.counters());
        for cause in DropCause::ALL {
            let of: Labels<'_> = &[of[0], of[1], ("cause", &cause.name())];
            to.of(&LINK_DROPS, of, stats.dropped(cause));
        }
        let levels = LinkLevels {
            is_down: u64::from(slot.link.is_down()),
            queued_packets: slot.queue.len() as u64,
            mtu_bytes: slot.capabilities.mtu as u64,
            rx_ring: slot.capabilities.rx_ring as u64,
            tx_ring: slot.capabilities.tx_ring as u64,
        };
        to.all("link_", (Kind::Gauge, &LinkLevels::COUNTERS), of, levels.counters());
    }
}
