//! The values that are published, in their order: one walk gives their names, and another the numbers.

use millstream_link::DropCause;
use millstream_live::{Kind, SchemaText};
use millstream_packet::Pool;
use millstream_route::LinkId;
use millstream_tcp::{State, TimerKind};
use millstream_wire::Malformed;

use super::LINKS;
use super::answers::SYN_ACK_TIMER;
use super::clients::ClientDrop;
use super::states::States;
use crate::engine::Engine;
use crate::stages::{Histogram, Stage};
use crate::stats::DropReason;

/// What is told each value.
pub(super) trait Visit {
    /// One number.
    fn one(&mut self, kind: Kind, name: &str, labels: &[(&str, &str)], value: u64);
    /// A histogram by powers of two.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram);
    /// One number of a link, whose number and name are `link`; of drops with their cause.
    fn of_link(
        &mut self,
        kind: Kind,
        name: &str,
        link: (LinkId, &str),
        cause: Option<&str>,
        value: u64,
    );
}

/// Takes the names.
pub(super) struct Names<'a>(pub &'a mut SchemaText);

impl Visit for Names<'_> {
    fn one(&mut self, kind: Kind, name: &str, labels: &[(&str, &str)], _: u64) {
        self.0.line(kind, unit_of(name), 1, name, labels);
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], _: &Histogram) {
        self.0.line(Kind::Histogram, unit_of(name), Histogram::BUCKETS, name, labels);
    }

    fn of_link(
        &mut self,
        kind: Kind,
        name: &str,
        link: (LinkId, &str),
        cause: Option<&str>,
        _: u64,
    ) {
        let (name, number) = (format!("link_{name}"), link.0.0.to_string());
        let labels = [("link", number.as_str()), ("name", link.1)];
        match cause {
            None => self.one(kind, &name, &labels, 0),
            Some(cause) => self.one(kind, &name, &[labels[0], labels[1], ("cause", cause)], 0),
        }
    }
}

/// Takes the numbers.
pub(super) struct Values<F>(pub F);

impl<F: FnMut(u64)> Visit for Values<F> {
    #[inline]
    fn one(&mut self, _: Kind, _: &str, _: &[(&str, &str)], value: u64) {
        (self.0)(value);
    }

    fn histogram(&mut self, _: &str, _: &[(&str, &str)], histogram: &Histogram) {
        histogram.buckets().iter().for_each(|&count| (self.0)(count));
    }

    #[inline]
    fn of_link(&mut self, _: Kind, _: &str, _: (LinkId, &str), _: Option<&str>, value: u64) {
        (self.0)(value);
    }
}

/// The unit that the name of a number ends with.
fn unit_of(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("bytes") => "bytes",
        Some("ns") => "ns",
        Some("us") => "us",
        _ => "count",
    }
}

/// Everything that is published of an engine.
pub(super) fn visit(engine: &Engine, states: &States, to: &mut impl Visit) {
    counters(engine, to);
    gauges(engine, states, to);
    stages(engine, to);
    packet_traces(engine, to);
    clients(engine, to);
    links(engine, to);
}

fn counters(engine: &Engine, to: &mut impl Visit) {
    let stats = &engine.out.stats;
    for (name, value) in stats.counters() {
        to.one(Kind::Counter, name, &[], value);
    }
    for &reason in DropReason::ALL {
        to.one(Kind::Counter, "drops", &[("reason", reason.name())], stats.dropped(reason));
    }
    for &reason in Malformed::ALL {
        to.one(
            Kind::Counter,
            "malformed",
            &[("reason", reason.name())],
            stats.malformed_by(reason),
        );
    }
}

fn gauges(engine: &Engine, states: &States, to: &mut impl Visit) {
    let mut gauge = |name: &str, value: usize| to.one(Kind::Gauge, name, &[], value as u64);
    let (tcp, memory) = (&engine.tcp, engine.memory_use());
    gauge("connections", engine.connection_count());
    gauge("listeners", tcp.listeners.slots.len());
    gauge("half_open", tcp.half_open.len());
    gauge("time_wait", tcp.in_time_wait());
    gauge("orphans", tcp.orphans.len());
    gauge("udp_sockets", engine.udp.sockets.len());
    gauge("icmp_sockets", engine.icmp.sockets.len());
    gauge("timers", tcp.wheel.armed() + tcp.half_open.wheel.armed() + tcp.time_wait.wheel.armed());
    gauge("routes", engine.out.routing.len());
    gauge("neighbors", engine.out.neighbors.len());
    gauge("neighbor_pending_bytes", engine.out.neighbors.stats().pending_bytes);
    gauge("memory_held_bytes", memory.held_bytes);
    gauge("memory_held_most_bytes", memory.held_most_bytes);
    gauge("memory_limit_bytes", memory.limit_bytes);
    // 0 none, 1 pressure, 2 critical
    gauge("memory_pressure", memory.pressure as usize);
    gauge("links", engine.out.links.used_count());
    to.one(Kind::Counter, "memory_times_pressed", &[], memory.times_pressed);
    pool(&engine.out.pool, to);
    connections(engine, states, to);
}

/// The pool, which other engines may have, too.
fn pool(pool: &Pool, to: &mut impl Visit) {
    to.one(Kind::Gauge, "pool_limit_frames", &[], pool.limit_frames() as u64);
    to.one(Kind::Gauge, "pool_free_frames", &[], pool.free_frames() as u64);
    for (name, stock) in pool.stocks() {
        let of = [("of", name)];
        let mut gauge = |name, value| to.one(Kind::Gauge, name, &of, value as u64);
        gauge("pool_descriptors", stock.total);
        gauge("pool_descriptors_out", stock.total.saturating_sub(stock.depot));
        gauge("pool_descriptors_out_most", stock.high_out);
        to.one(Kind::Counter, "pool_exhausted", &of, stock.exhausted);
    }
}

/// What is counted of connections, once all of them have been looked at.
fn connections(engine: &Engine, states: &States, to: &mut impl Visit) {
    let Some(counted) = states.counted() else { return };
    for state in State::ALL {
        let of = [("state", state.name())];
        to.one(Kind::Gauge, "tcp_sockets", &of, counted.states[state as usize]);
    }
    let tcp = &engine.tcp;
    let mut armed = |kind, count| to.one(Kind::Gauge, "timers_armed", &[("kind", kind)], count);
    for kind in TimerKind::ALL {
        let detached = match kind {
            TimerKind::TimeWait => tcp.time_wait.wheel.armed() as u64,
            _ => 0,
        };
        armed(kind.name(), counted.timers[kind as usize] + detached);
    }
    armed(SYN_ACK_TIMER, tcp.half_open.wheel.armed() as u64);
}

fn stages(engine: &Engine, to: &mut impl Visit) {
    let stats = &engine.out.stats;
    to.one(Kind::Gauge, "stage_sample", &[], u64::from(stats.stages.every()));
    to.one(Kind::Counter, "stage_timed_turns", &[], stats.stages.timed_turns());
    for &stage in Stage::ALL {
        let (labels, time) = ([("stage", stage.name())], stats.stages.of(stage));
        to.one(Kind::Counter, "stage_ns", &labels, time.ns);
        to.one(Kind::Gauge, "stage_most_ns", &labels, time.max_ns);
        to.one(Kind::Counter, "stage_visits", &labels, time.visits);
        to.one(Kind::Counter, "stage_units", &labels, time.units);
    }
    for (name, histogram) in stats.batches.named() {
        to.histogram(name, &[], histogram);
    }
}

/// What is known of sampled packets, while some are.
fn packet_traces(engine: &Engine, to: &mut impl Visit) {
    let Some(tracer) = engine.out.traces.tracer() else { return };
    to.one(Kind::Gauge, "packet_sample", &[], u64::from(engine.out.traces.every()));
    to.one(Kind::Counter, "packet_traces", &[], engine.out.traces.ended());
    to.one(Kind::Counter, "packet_traces_displaced", &[], tracer.displaced());
    for (point, times) in tracer.residence.stages() {
        let labels = [("way", point.way().name()), ("stage", point.stage())];
        to.histogram("packet_ns", &labels, times);
    }
}

/// What became of those who asked by the control socket.
fn clients(engine: &Engine, to: &mut impl Visit) {
    let clients = &engine.live.clients;
    for (name, value) in clients.counters() {
        to.one(Kind::Counter, name, &[], value);
    }
    for reason in ClientDrop::ALL {
        to.one(
            Kind::Counter,
            "control_drops",
            &[("reason", reason.name())],
            clients.dropped(reason),
        );
    }
}

fn links(engine: &Engine, to: &mut impl Visit) {
    let links = &engine.out.links;
    for (id, slot) in links.used().zip(links.used_slots()).take(LINKS) {
        let (link, stats) = ((id, slot.link.name()), slot.link.stats());
        for (name, value) in stats.counters() {
            to.of_link(Kind::Counter, name, link, None, value);
        }
        for cause in DropCause::ALL {
            let dropped = stats.dropped(cause);
            to.of_link(Kind::Counter, "drops", link, Some(cause.name()), dropped);
        }
        let mut gauge = |name, value| to.of_link(Kind::Gauge, name, link, None, value as u64);
        gauge("is_down", usize::from(slot.link.is_down()));
        gauge("queued_packets", slot.queue.len());
        gauge("mtu_bytes", slot.capabilities.mtu);
        gauge("rx_ring", slot.capabilities.rx_ring);
        gauge("tx_ring", slot.capabilities.tx_ring);
    }
}
