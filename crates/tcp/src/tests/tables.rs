//! Tables of goodput and fairness on a virtual clock, compared with the file checked in: any change
//! shows.
//!
//! `MILLSTREAM_SNAPSHOT=write cargo test -p millstream-tcp tables` writes the file anew.

use core::fmt::Write;
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use super::harness::{Random, pool, tuple};
use crate::*;

fn controls() -> [CongestionKind; 4] {
    [CongestionKind::NEW_RENO, CongestionKind::CUBIC, CongestionKind::BBR, super::bbr1()]
}
const HEADERS_BYTES: u64 = 66;

/// A one-way bottleneck; acknowledgements come back after the delay, unharmed.
#[derive(Clone, Copy)]
struct Link {
    bits_per_s: u64,
    queue_bytes: u64,
    rtt: Duration,
    loss: f64,
    /// Probability that a burst of loss begins with a segment; it takes eight on average.
    burst: f64,
    reorder: f64,
    late: Duration,
    /// Limit of the receive and of the send buffer, in memory.
    buffer_bytes: usize,
}

const LINK: Link = Link {
    bits_per_s: 20_000_000,
    queue_bytes: 50_000,
    rtt: Duration::from_millis(20),
    loss: 0.0,
    burst: 0.0,
    reorder: 0.0,
    late: Duration::ZERO,
    buffer_bytes: crate::limits::BUFFER_MAX_BYTES,
};

impl Link {
    fn config(&self) -> Config {
        Config {
            recv_buffer_bytes: self.buffer_bytes,
            send_buffer_bytes: self.buffer_bytes,
            ..Config::default()
        }
    }
}

struct Flow {
    ends: [Option<Connection>; 2],
    read: u64,
}

struct Lab {
    link: Link,
    flows: Vec<Flow>,
    now: Instant,
    free_at: Instant,
    in_burst: bool,
    random: Random,
    pool: Pool,
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    flying: HashMap<u64, (usize, usize, TcpHeader, Option<Packet>)>,
    count: u64,
    dropped: u64,
}

impl Lab {
    fn new(link: Link, controls: &[CongestionKind], seed: u64) -> Lab {
        let now = Instant::ZERO + Duration::from_secs(1);
        let flows = controls.iter().enumerate().map(|(index, &congestion)| {
            let config = Config { congestion, ..link.config() };
            let isn = SeqNumber(seed as u32 ^ (index as u32) << 8);
            let first = Connection::connect(config, tuple(0, false), isn, index as u32, now);
            Flow { ends: [Some(first), None], read: 0 }
        });
        Lab {
            link,
            flows: flows.collect(),
            now,
            free_at: now,
            in_burst: false,
            random: Random(seed),
            pool: pool(),
            order: BinaryHeap::new(),
            flying: HashMap::new(),
            count: 0,
            dropped: 0,
        }
    }

    /// When a segment arrives; none: it is lost.
    fn arrival(&mut self, from: usize, len: u32) -> Option<Instant> {
        let Link { bits_per_s, queue_bytes, rtt, loss, burst, reorder, late, .. } = self.link;
        if from == 1 {
            return Some(self.now + rtt / 2);
        }
        if len > 0 {
            self.in_burst = match self.in_burst {
                true => !self.random.chance(1.0 / 8.0),
                false => self.random.chance(burst),
            };
        }
        if len > 0 && (self.in_burst || self.random.chance(loss)) {
            return None;
        }
        let bytes = u64::from(len) + HEADERS_BYTES;
        let free = self.free_at.max(self.now);
        let waits = free.saturating_duration_since(self.now).as_nanos() as u64;
        if waits * bits_per_s / 8_000_000_000 + bytes > queue_bytes {
            return None;
        }
        self.free_at = free + Duration::from_nanos(bytes * 8_000_000_000 / bits_per_s);
        let late = if self.random.chance(reorder) { late } else { Duration::ZERO };
        Some(self.free_at + rtt / 2 + late)
    }

    fn transmit(&mut self, flow: usize, from: usize) {
        let limits = TransmitLimits::ONE;
        let pool = self.pool.clone();
        loop {
            let Some(end) = self.flows[flow].ends[from].as_mut() else { return };
            let Some(segment) = end.poll_one(self.now, &pool, &limits) else { return };
            match self.arrival(from, segment.payload_len) {
                None => self.dropped += 1,
                Some(at) => {
                    self.count += 1;
                    self.order.push(Reverse((at, self.count)));
                    let what = (flow, 1 - from, segment.header, segment.payload);
                    self.flying.insert(self.count, what);
                }
            }
        }
    }

    fn deliver(&mut self, id: u64) -> usize {
        let Some((index, to, header, payload)) = self.flying.remove(&id) else { return 0 };
        let (now, pool) = (self.now, self.pool.clone());
        let flow = &mut self.flows[index];
        match flow.ends[to].as_mut() {
            Some(end) => drop(end.on_segment(now, &header, payload.into(), 0, &pool)),
            None => {
                let isn = SeqNumber(header.seq.0.wrapping_mul(7));
                let ends = tuple(1, false);
                let end = Connection::accept(self.link.config(), ends, isn, 9, &header, now);
                flow.ends[to] = Some(end);
            }
        }
        index
    }

    fn work(&mut self, index: usize) {
        let pool = self.pool.clone();
        let flow = &mut self.flows[index];
        if let Some(sender) = flow.ends[0].as_mut() {
            while sender.write(&pool, &[0x5a; 16_384]).is_ok_and(|n| n > 0) {}
        }
        if let Some(receiver) = flow.ends[1].as_mut() {
            while let Ok(Some(packet)) = receiver.read_packet(usize::MAX, &pool) {
                flow.read += packet.len() as u64;
            }
        }
        self.transmit(index, 0);
        self.transmit(index, 1);
    }

    fn deadline(&self) -> Option<(Instant, usize, usize)> {
        let all = self.flows.iter().enumerate().flat_map(|(index, flow)| {
            flow.ends
                .iter()
                .enumerate()
                .filter_map(move |(side, end)| Some((end.as_ref()?.next_deadline()?, index, side)))
        });
        all.min()
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for index in 0..self.flows.len() {
            self.work(index);
        }
        loop {
            let arrival = self.order.peek().map(|Reverse((at, _))| *at);
            let timer = self.deadline();
            let Some(next) = arrival.into_iter().chain(timer.map(|t| t.0)).min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let index = if arrival == Some(next) {
                let Some(Reverse((_, id))) = self.order.pop() else { break };
                self.deliver(id)
            } else {
                let Some((_, index, side)) = timer else { break };
                if let Some(end) = self.flows[index].ends[side].as_mut() {
                    end.on_timer(self.now);
                }
                index
            };
            if self.pool.growth_wanted() {
                let _ = self.pool.grow();
            }
            self.work(index);
        }
        self.now = end;
    }
}

/// One flow for four seconds: goodput, segments sent again and dropped, time-outs, mean round trip.
fn line(text: &mut String, what: &str, control: CongestionKind, link: Link, seed: u64) {
    const SECONDS: u64 = 4;
    let mut lab = Lab::new(link, &[control], seed);
    lab.run(Duration::from_secs(SECONDS));
    let Some(info) = lab.flows[0].ends[0].as_ref().map(Connection::info) else { return };
    let kbit_per_s = lab.flows[0].read * 8 / 1000 / SECONDS;
    let (name, dropped) = (control.name(), lab.dropped);
    let _ = writeln!(
        text,
        "{what:28} {name:6} {kbit_per_s:8} {:7} {dropped:8} {:9} {:9}",
        info.retransmits,
        info.timeouts,
        info.srtt_us / 1000
    );
}

fn single_flows(text: &mut String) {
    text.push_str("One flow, 20 Mbit/s for 4 s; 20 ms and 50,000 bytes of queue where not said\n");
    text.push_str(
        "path                         control   kbit/s  resent  dropped  timeouts  srtt ms\n",
    );
    for rtt_ms in [1, 10, 40, 80, 150] {
        let rtt = Duration::from_millis(rtt_ms);
        for per_mille in [0, 1, 10, 30] {
            let link = Link { rtt, loss: f64::from(per_mille) / 1000.0, ..LINK };
            for control in controls() {
                let what = format!("rtt {rtt_ms} ms, loss {per_mille}/1000");
                line(text, &what, control, link, 31);
            }
        }
        for per_mille in [1, 4] {
            let link = Link { rtt, burst: f64::from(per_mille) / 1000.0, ..LINK };
            for control in controls() {
                let what = format!("rtt {rtt_ms} ms, bursts {per_mille}/1000");
                line(text, &what, control, link, 32);
            }
        }
    }
    for queue_bytes in [10_000, 25_000, 100_000, 400_000] {
        for control in controls() {
            let link = Link { queue_bytes, ..LINK };
            line(text, &format!("queue {queue_bytes}"), control, link, 33);
        }
    }
    for buffer_bytes in [16_384, 65_536, 262_144] {
        for control in controls() {
            let link = Link { buffer_bytes, ..LINK };
            line(text, &format!("buffers of {buffer_bytes}"), control, link, 36);
        }
    }
    for (percent, late_ms) in [(1, 5), (5, 5), (5, 15)] {
        for control in controls() {
            let late = Duration::from_millis(late_ms);
            let link = Link { reorder: f64::from(percent) / 100.0, late, ..LINK };
            line(text, &format!("{percent} % late by {late_ms} ms"), control, link, 34);
        }
    }
}

/// Jain's index of what each flow got, in thousandths: 1,000 when all got the same.
fn jain(shares: &[u64]) -> u64 {
    let sum: f64 = shares.iter().map(|&s| s as f64).sum();
    let squares: f64 = shares.iter().map(|&s| (s as f64) * (s as f64)).sum();
    (sum * sum / (shares.len() as f64 * squares.max(1.0)) * 1000.0).round() as u64
}

fn shared(text: &mut String) {
    text.push_str("\nFlows through one bottleneck, 20 Mbit/s, 20 ms; the last 9 of 12 s\n");
    text.push_str(
        "flows                        queue    kbit/s  Jain/1000  least  most (kbit/s)\n",
    );
    let mut row = |what: String, controls: &[CongestionKind], queue_bytes: u64| {
        let mut lab = Lab::new(Link { queue_bytes, ..LINK }, controls, 35);
        lab.run(Duration::from_secs(3));
        let before: Vec<u64> = lab.flows.iter().map(|f| f.read).collect();
        lab.run(Duration::from_secs(9));
        let shares: Vec<u64> =
            lab.flows.iter().zip(before).map(|(f, b)| (f.read - b) * 8 / 9000).collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        let _ = writeln!(
            text,
            "{what:28} {queue_bytes:6} {:8} {:10} {:6} {:6}",
            shares.iter().sum::<u64>(),
            jain(&shares),
            least.unwrap_or(&0),
            most.unwrap_or(&0)
        );
    };
    for control in controls() {
        for (flows, queue) in [
            (2, 50_000),
            (3, 50_000),
            (4, 50_000),
            (6, 50_000),
            (8, 50_000),
            (10, 50_000),
            (4, 200_000),
        ] {
            row(format!("{flows} x {}", control.name()), &vec![control; flows], queue);
        }
    }
    for queue in [50_000, 200_000] {
        let two = [CongestionKind::CUBIC, CongestionKind::NEW_RENO];
        row("cubic and reno".into(), &two, queue);
        row("cubic and bbr".into(), &[CongestionKind::CUBIC, CongestionKind::BBR], queue);
    }
}

#[test]
fn tables_are_as_checked_in() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/tables.txt");
    let mut text = String::new();
    single_flows(&mut text);
    shared(&mut text);
    if std::env::var_os("MILLSTREAM_SNAPSHOT").is_some() {
        std::fs::write(file, &text).expect("written");
    }
    let wanted = std::fs::read_to_string(file).unwrap_or_default();
    for (got, wanted) in text.lines().zip(wanted.lines()) {
        assert_eq!(got, wanted, "changed; MILLSTREAM_SNAPSHOT=write writes {file} anew");
    }
    assert_eq!(text.lines().count(), wanted.lines().count(), "lines of {file}");
}
