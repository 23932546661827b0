//! A run over the impaired path: any stack at either end, and perhaps a rival beside the near one.

use std::time::Duration;

use millstream::link::{Burst, Faults, Link, Reorder};
use millstream_load::remote::WorkerProcess;
use millstream_load::worker::{MillstreamLink, Reply, StackJob};
use millstream_load::workload::{End, Ports};
use millstream_plan::Configuration;
use millstream_record::error::Error;
use millstream_record::{RUNNER, RunRecord, keys};
use millstream_testbed::hosts::{Between, Hosts, LEFT_INTERFACE, Path, RIGHT_INTERFACE};
use millstream_testbed::impair::{EndConfig, Forwarder, Way, describe};
use millstream_testbed::integrity::{self, Claim};

use super::Run;
use super::steps::Measured;
use crate::limits;
use crate::runner::results;

/// Bytes that Ethernet adds to a packet on the path.
const LINK_HEADER_BYTES: u64 = 14;

/// The faults that a configuration asks for, in either direction.
pub(super) fn faults(configuration: &Configuration) -> Faults {
    let decimal = |name| configuration.level(name).parse::<f64>().unwrap_or(0.0);
    let rtt = Duration::from_secs_f64(decimal("rtt_ms") / 1e3);
    let loss = decimal("loss_percent") / 100.0;
    let run = configuration.number("loss_run_packets") as f64;
    let rate = Some(configuration.number("rate_mbit") * 1_000_000).filter(|&rate| rate > 0);
    let held_back = decimal("reorder_percent") / 100.0;
    let by = Duration::from_micros(configuration.number("reorder_by_us"));
    let packet_bits = (configuration.number("mtu") + LINK_HEADER_BYTES) * 8;
    let in_flight = rate.unwrap_or(0) as f64 * rtt.as_secs_f64() / packet_bits as f64;
    let queue = match configuration.number("queue_packets") as usize {
        0 => (in_flight.ceil() as usize).max(limits::PATH_QUEUE_LEAST_PACKETS),
        asked => asked,
    };
    Faults {
        loss: if run > 1.0 { 0.0 } else { loss },
        burst: (run > 1.0 && loss > 0.0).then(|| runs_of_losses(loss, run)),
        reorder: (held_back > 0.0).then_some(Reorder { probability: held_back, delay: by }),
        delay: rtt / 2,
        rate_bits_per_s: rate,
        queue_bytes: usize::MAX,
        queue_packets: queue,
        late_after: Duration::from_micros(limits::PATH_LATE_US)
            .max(rtt.mul_f64(limits::PATH_LATE_ROUND_TRIPS)),
        ..Faults::default()
    }
}

/// Losses in runs of a mean length, at the same share of all packets as single ones. Where that
/// many are lost that there is a packet between two runs at the most, the share is kept, and runs
/// are longer.
fn runs_of_losses(loss: f64, mean_packets: f64) -> Burst {
    let leave = (1.0 / mean_packets).min((1.0 - loss) / loss);
    let enter = if leave > 0.0 { (leave * loss / (1.0 - loss)).min(1.0) } else { 1.0 };
    Burst { enter, leave, loss_inside: 1.0, loss_outside: 0.0 }
}

/// One end of a pair, by the number that its address has.
#[derive(Clone, Copy)]
struct Place {
    end: End,
    number: u8,
    role: &'static str,
    /// Millstream, else the kernel.
    millstream: bool,
}

impl Run<'_> {
    /// Returns the hosts that take part: near and far, and then the rival with its peer, a kernel.
    fn places(&self) -> Vec<Place> {
        let level = |name| self.configuration().level(name);
        let near = self.configuration().stack == "millstream";
        let far = level("peer") == "millstream";
        let mut places = vec![
            Place { end: End::Near, number: 1, role: "near", millstream: near },
            Place { end: End::Far, number: 2, role: "far", millstream: far },
        ];
        if level("rival") != "none" {
            let rival = level("rival") == "millstream";
            places.push(Place { end: End::Near, number: 3, role: "rival", millstream: rival });
            places.push(Place { end: End::Far, number: 4, role: "peer", millstream: false });
        }
        places
    }

    /// Makes both devices and joins them by the path.
    fn path(&self, hosts: &Hosts, record: &mut RunRecord) -> Result<Forwarder, Error> {
        let faults = faults(self.configuration());
        record.environment.set("path.faults", describe(&faults));
        record.environment.set("path.queue_packets", faults.queue_packets.to_string());
        record.environment.set("path.seed", self.path_seed.to_string());
        let end = |name: &str, host: &millstream_testbed::namespace::Namespace| {
            let netns = Some(host.path().display().to_string());
            let config = EndConfig { name: name.to_owned(), netns, addresses: Vec::new() };
            config.open(self.mtu() as usize, self.offload())
        };
        let (left, _) = end(LEFT_INTERFACE, hosts.near())?;
        let (right, _) = end(RIGHT_INTERFACE, hosts.far())?;
        record.notes.extend(left.notes().iter().chain(right.notes()).cloned());
        let kernels = |places: &[Place], which: End| -> Vec<u8> {
            let own = places.iter().filter(|place| place.end == which && !place.millstream);
            own.map(|place| place.number).collect()
        };
        let places = self.places();
        hosts.configure_impaired(&kernels(&places, End::Near), &kernels(&places, End::Far))?;
        Forwarder::start(left, right, self.path_seed, faults)
    }

    fn end(
        &mut self,
        place: Place,
        hosts: &Hosts,
        sampler: &millstream_observe::probe::Sampler,
        record: &mut RunRecord,
    ) -> Result<WorkerProcess, Error> {
        let (host, interface) = match place.end {
            End::Near => (hosts.near(), LEFT_INTERFACE),
            End::Far => (hosts.far(), RIGHT_INTERFACE),
        };
        let mut worker = self.worker(place.role, Some(host), sampler)?;
        let link = MillstreamLink::Raw { interface: interface.to_owned() };
        let stack = match place.millstream {
            true => self.millstream(link, Path::Impaired, place.number),
            false => StackJob::Kernel,
        };
        let job = self.job(Some(place.end), stack);
        self.prepare(&mut worker, job, host.inode(), record)?;
        Ok(worker)
    }

    /// Near and far, and the rival, over two TAP devices with faults between them.
    pub(super) fn over_impaired(&mut self, record: &mut RunRecord) -> Result<(), Error> {
        let hosts = self.hosts(Between::Nothing, record)?;
        let sampler = self.sampler(Some(&hosts));
        // The path is a thread of this process: its time is the run's, and no other program's.
        sampler.watch_worker(RUNNER, std::process::id());
        let path = self.path(&hosts, record)?;
        let places = self.places();
        let mut workers = Vec::with_capacity(places.len());
        for place in &places {
            workers.push(self.end(*place, &hosts, &sampler, record)?);
        }
        let before = hosts.counters()?;
        let mut open: Vec<Ports> = Vec::new();
        for (place, worker) in places.iter().zip(&mut workers).filter(|(p, _)| p.end == End::Far) {
            let address = Path::Impaired.address(self.v6(), place.number);
            open.push(self.listen(worker, address)?);
        }
        for (pair, (ports, places)) in
            workers.chunks_mut(2).zip(open.into_iter().zip(places.chunks(2)))
        {
            let ([near, far], [_, peer]) = (pair, places) else { continue };
            self.connect(near, Path::Impaired.address(self.v6(), peer.number), ports)?;
            match far.hear(limits::STEP_TIMEOUT_MS, self.interrupt())? {
                Reply::Connected => {}
                other => return Err(far.out_of_turn(&other)),
            }
        }
        let measured = self.measure(&mut workers.iter_mut().collect::<Vec<_>>())?;
        let after = hosts.counters()?;
        workers.into_iter().for_each(|worker| drop(worker.leave()));
        let probes = sampler.stop();
        let ways = path.stop()?;
        let of = |ends| results::claim(self.task().plan(), ends);
        let claim = both(of(&measured.ends), of(&measured.rivals));
        let proof = integrity::check(claim, &before, &after, RIGHT_INTERFACE, Some(LEFT_INTERFACE));
        let kept = Kept::of(&measured, self.task().plan());
        self.fill(record, measured, proof, probes);
        self.path_was_late = too_late(self.configuration(), ways);
        kept.fill(record, ways);
        Ok(())
    }
}

/// Returns the reason why a run does not show what its configuration says: the path itself was
/// late.
fn too_late(configuration: &Configuration, (forth, back): (Way, Way)) -> Option<String> {
    let most: f64 = configuration.level("late_percent").parse().unwrap_or(100.0);
    let percent = |way: Way| 100.0 * way.faults.late as f64 / way.faults.left.max(1) as f64;
    let late = percent(forth).max(percent(back));
    (late > most)
        .then(|| format!("the path itself was late with {late:.0} % of the packets one way"))
}

fn both(one: Claim, other: Claim) -> Claim {
    Claim {
        to_far_bytes: one.to_far_bytes + other.to_far_bytes,
        to_near_bytes: one.to_near_bytes + other.to_near_bytes,
        resent_to_far_bytes: one.resent_to_far_bytes + other.resent_to_far_bytes,
        resent_to_near_bytes: one.resent_to_near_bytes + other.resent_to_near_bytes,
    }
}

/// Results that only a run over an impaired path has.
struct Kept {
    recovery: Option<results::Recovery>,
    rival_bits_per_s: Option<f64>,
}

impl Kept {
    fn of(measured: &Measured, plan: millstream_plan::Plan) -> Self {
        let rival = (!measured.rivals.is_empty())
            .then(|| results::stream_bits_per_s(plan, &measured.rivals));
        Self {
            recovery: results::Recovery::of(plan, &measured.ends),
            rival_bits_per_s: rival.flatten(),
        }
    }

    fn fill(self, record: &mut RunRecord, (forth, back): (Way, Way)) {
        let mut set = |key: &str, value: f64| {
            record.results.insert(key.to_owned(), value);
        };
        for (direction, way) in [("to_far", forth), ("to_near", back)] {
            let faults = way.faults;
            let lost = faults.lost + faults.burst_lost;
            set(&format!("path_{direction}_entered_packets"), faults.entered as f64);
            set(&format!("path_{direction}_lost_packets"), lost as f64);
            set(&format!("path_{direction}_dropped_packets"), faults.queue_dropped as f64);
            set(&format!("path_{direction}_reordered_packets"), faults.reordered as f64);
            set(&format!("path_{direction}_late_packets"), faults.late as f64);
        }
        if let Some(recovery) = self.recovery {
            set("sent_packets", recovery.sent);
            set("retransmitted_packets", recovery.retransmitted);
            set("spurious_packets", recovery.spurious);
            set(keys::RETRANSMITTED, recovery.percent(recovery.retransmitted));
            set(keys::SPURIOUS, recovery.percent(recovery.spurious));
        }
        if let Some(rival) = self.rival_bits_per_s {
            set("rival_throughput_bits_per_s", rival);
            if let Some(own) = record.result(keys::THROUGHPUT) {
                // Jain, Chiu and Hawe 1984, for two.
                let jain = (own + rival).powi(2) / (2.0 * (own * own + rival * rival));
                record.results.insert(keys::SHARE.to_owned(), 100.0 * own / (own + rival));
                record.results.insert(keys::JAIN.to_owned(), jain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_plan::{Definition, plan};

    fn configured(factors: &str) -> Configuration {
        let text = format!(
            "name = \"p\"\nworkload = \"tcp_stream\"\nrepeats = 1\n[factors]\n\
             stack = \"kernel\"\npath = \"impaired\"\n{factors}"
        );
        plan(&Definition::parse("p", &text).unwrap(), 1).remove(0).configuration
    }

    fn of(factors: &str) -> Faults {
        faults(&configured(factors))
    }

    #[test]
    fn a_path_is_late_by_the_share_of_its_packets_in_the_worse_direction() {
        let way = |left, late| Way {
            faults: millstream::link::FaultStats { left, late, ..Default::default() },
            ..Way::default()
        };
        let ways = (way(1000, 51), way(1000, 0));
        assert!(too_late(&configured(""), ways).is_some_and(|why| why.contains("5 %")));
        assert!(too_late(&configured(""), (ways.1, ways.0)).is_some());
        assert_eq!(too_late(&configured(""), (way(1000, 50), way(0, 0))), None);
        assert_eq!(too_late(&configured("late_percent = 10\n"), ways), None);
        assert!(too_late(&configured("late_percent = 0\n"), (way(1, 0), way(9, 1))).is_some());
        assert_eq!(too_late(&configured("late_percent = 100\n"), (way(9, 9), ways.0)), None);
        assert_eq!(of("rtt_ms = 10\n").late_after, Duration::from_millis(1));
        assert_eq!(of("rtt_ms = 100\n").late_after, Duration::from_millis(5));
    }

    #[test]
    fn levels_become_faults() {
        let empty = of("");
        assert_eq!((empty.loss, empty.burst, empty.rate_bits_per_s), (0.0, None, None));
        let bad = of("rtt_ms = 100\nloss_percent = 0.1\nreorder_percent = 5\nrate_mbit = 100\n");
        assert_eq!(bad.delay, Duration::from_millis(50));
        assert_eq!((bad.loss, bad.rate_bits_per_s), (0.001, Some(100_000_000)));
        assert_eq!(
            bad.reorder,
            Some(Reorder { probability: 0.05, delay: Duration::from_millis(1) })
        );
        // 100 Mbit/s for 100 ms in packets of 1,514 bytes.
        assert_eq!(bad.queue_packets, 826);
        assert_eq!(of("rate_mbit = 100\nrtt_ms = 1\n").queue_packets, 100);
        assert_eq!(of("rate_mbit = 100\nqueue_packets = 7\n").queue_packets, 7);
    }

    #[test]
    fn runs_of_losses_lose_the_same_share() {
        for (percent, leave) in [(2.0, 0.25), (80.0, 0.25), (90.0, 1.0 / 9.0), (100.0, 0.0)] {
            let faults = of(&format!("loss_percent = {percent}\nloss_run_packets = 4\n"));
            let burst = faults.burst.unwrap();
            assert!(faults.loss == 0.0 && (burst.leave - leave).abs() < 1e-9, "{burst:?}");
            assert!((0.0..=1.0).contains(&burst.enter), "{burst:?}");
            let share = burst.enter / (burst.enter + burst.leave);
            assert!((share - percent / 100.0).abs() < 1e-9, "{share}");
        }
    }
}
