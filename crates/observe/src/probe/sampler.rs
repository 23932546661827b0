//! The thread that asks the probes.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_link::sys::pin_current_thread;
use millstream_record::Probes;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use super::engines::Engines;
use super::worker::Workers;
use super::{Absent, BUDGET, Config, FLOWS, Host, KINDS, Probe, QUEUES, Turn, limits};

/// Samples from `start` to `stop` in a thread of its own.
///
/// When it is dropped without `stop` the thread ends by itself and what it saw is lost.
#[derive(Debug)]
pub struct Sampler {
    messages: Sender<Message>,
    thread: JoinHandle<Probes>,
}

#[derive(Debug)]
enum Message {
    Watch { role: String, pid: u32 },
    Join(Host),
    Stop,
}

impl Sampler {
    /// Starts all probes and returns after the baseline was taken: what happens from now on counts.
    pub fn start(config: Config) -> Self {
        let (messages, inbox) = mpsc::channel();
        let (ready, baseline) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut sampling = Sampling::open(&config);
            sampling.sample(Turn::First);
            let _ = ready.send(());
            sampling.run(&inbox);
            sampling.finish()
        });
        // An error means that the thread panicked: `stop` will say so.
        let _ = baseline.recv();
        Self { messages, thread }
    }

    /// Looks at the process `pid` too, with all its threads, under the name of its role.
    pub fn watch_worker(&self, role: &str, pid: u32) {
        let _ = self.messages.send(Message::Watch { role: role.to_owned(), pid });
    }

    /// Looks at a host, too, that was found after the start.
    pub fn join(&self, host: Host) {
        let _ = self.messages.send(Message::Join(host));
    }

    /// Takes the last sample and gives what was seen. Waits at most half an interval, for a step
    /// that is too short says nothing.
    pub fn stop(self) -> Probes {
        let _ = self.messages.send(Message::Stop);
        self.thread.join().unwrap_or_else(|_| {
            let mut probes = Probes::default();
            probes.absent.insert("all".into(), "the sampler panicked".into());
            probes
        })
    }
}

struct Sampling {
    origin: Instant,
    interval: Duration,
    probes: Vec<Box<dyn Probe>>,
    workers: Box<Workers>,
    engines: Option<Engines>,
    record: Probes,
    last: Instant,
}

impl Sampling {
    fn open(config: &Config) -> Self {
        let Config { interval, origin, cpu, hosts: _, distance: _, flows, queues, budget } = config;
        let interval = (*interval).max(Duration::from_millis(limits::INTERVAL_MIN_MS));
        let mut record = Probes { interval_s: interval.as_secs_f64(), ..Probes::default() };
        if let Some(cpu) = cpu
            && let Err(error) = pin_current_thread(*cpu)
        {
            record.absent.insert("sampler_placement".into(), format!("CPU {cpu}: {error}"));
        }
        let tick_s = tick_s();
        let mut sampling = Self {
            origin: *origin,
            interval,
            probes: Vec::new(),
            workers: Box::new(Workers::new(tick_s)),
            engines: None,
            record,
            last: Instant::now(),
        };
        // The connections first: they may end at any moment, and what comes after them takes time.
        if *flows {
            sampling.add(FLOWS.name, (FLOWS.open)(config));
        }
        for kind in KINDS {
            sampling.add(kind.name, (kind.open)(config));
        }
        if *queues {
            sampling.add(QUEUES.name, (QUEUES.open)(config));
        }
        if *queues || *flows {
            sampling.engines = Some(Engines::default());
        }
        if *budget {
            for kind in BUDGET {
                sampling.add(kind.name, (kind.open)(config));
            }
        }
        sampling
    }

    fn add(&mut self, name: &str, probe: Result<Box<dyn Probe>, Absent>) {
        match probe {
            Ok(probe) => self.probes.push(probe),
            Err(reason) => drop(self.record.absent.insert(name.to_owned(), reason.0)),
        }
    }

    fn sample(&mut self, turn: Turn) {
        if turn == Turn::Middle && self.record.times_s.len() >= limits::STEPS {
            self.record.left_out = true;
            return;
        }
        self.last = Instant::now();
        self.record.times_s.push(rounded(self.last.saturating_duration_since(self.origin)));
        let Probes { absent, probe_cpu_s, .. } = &mut self.record;
        let mut before_s = thread_cpu_s();
        let mut note_cost = |name: &'static str| {
            let now_s = thread_cpu_s();
            if let (Turn::Middle, Ok(before_s), Ok(now_s)) = (turn, &before_s, &now_s) {
                *probe_cpu_s.entry(name.to_owned()).or_default() += now_s - before_s;
            }
            before_s = now_s;
        };
        self.probes.retain_mut(|probe| {
            let taken = probe.sample(turn);
            note_cost(probe.name());
            taken.map_err(|reason| absent.insert(probe.name().to_owned(), reason.0)).is_ok()
        });
        // Workers are never absent for an error: one that ended is the usual case.
        let _ = self.workers.sample(turn);
        note_cost(self.workers.name());
        if let Some(engines) = &mut self.engines {
            engines.sample(turn);
            note_cost(Engines::NAME);
        }
    }

    fn join(&mut self, host: &Host) {
        for probe in &mut self.probes {
            if let Err(why) = probe.join(host) {
                let name = format!("{} of {}", probe.name(), host.name);
                self.record.absent.insert(name, why.0);
            }
        }
    }

    /// Samples at multiples of the interval after the baseline until told to stop.
    fn run(&mut self, inbox: &Receiver<Message>) {
        let mut next = self.last + self.interval;
        loop {
            match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Message::Watch { role, pid }) => {
                    self.workers.watch(&role, pid);
                    self.engines.iter_mut().for_each(|engines| engines.watch(&role, pid));
                    self.probes.iter_mut().for_each(|probe| probe.watch(pid));
                }
                Ok(Message::Join(host)) => self.join(&host),
                Err(RecvTimeoutError::Timeout) => {
                    self.sample(Turn::Middle);
                    // After a long delay samples are left out instead of being taken in a row.
                    while next <= self.last {
                        next += self.interval;
                    }
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let rest = (self.last + self.interval / 2).saturating_duration_since(Instant::now());
        std::thread::sleep(rest);
        self.sample(Turn::Last);
    }

    fn finish(self) -> Probes {
        let Self { origin: _, interval: _, probes, workers, engines, mut record, last: _ } = self;
        for probe in probes {
            probe.finish(&mut record);
        }
        workers.finish(&mut record);
        engines.into_iter().for_each(|engines| engines.finish(&mut record));
        match thread_cpu_s() {
            Ok(seconds) => record.own_cpu_s += seconds,
            Err(why) => drop(record.absent.insert("own_cpu_s".into(), why.0)),
        }
        record
    }
}

/// CPU time that the calling thread has had, seconds to the microsecond.
pub fn thread_cpu_s() -> Result<f64, Absent> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(|time| rounded(Duration::from(time))).map_err(|error| Absent(error.desc().to_owned()))
}

/// Seconds to the microsecond.
fn rounded(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// Length of a tick of the kernel's CPU accounting (`USER_HZ`).
pub(super) fn tick_s() -> f64 {
    match sysconf(SysconfVar::CLK_TCK) {
        Ok(Some(hertz)) if hertz > 0 => 1.0 / hertz as f64,
        _ => 0.01,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Host, NetSource};
    use super::*;

    #[test]
    fn series_have_one_value_per_step() {
        let mut config = Config::new(Instant::now());
        config.interval = Duration::from_millis(10);
        config.hosts = vec![Host { name: "here".into(), net: NetSource::Own }];
        let sampler = Sampler::start(config);
        sampler.watch_worker("test", std::process::id());
        std::thread::sleep(Duration::from_millis(60));
        let probes = sampler.stop();
        let steps = probes.times_s.len() - 1;
        assert!(steps >= 1, "baseline and end at least");
        assert!(probes.times_s.windows(2).all(|pair| pair[0] < pair[1]));
        let cpu = probes.cpu.as_ref().unwrap();
        assert!(
            cpu.cpus.iter().all(|one| one.kinds().iter().all(|(_, series)| series.len() == steps))
        );
        assert_eq!(probes.context_switches.as_ref().unwrap().len(), steps);
        assert_eq!(
            probes.hosts.as_ref().unwrap()["here"].interfaces["lo"].rx_bytes_series.len(),
            steps
        );
        for row in &probes.interrupts.as_ref().unwrap().rows {
            assert!(row.series.iter().all(|series| series.len() == steps));
        }
        assert!(probes.workers.as_ref().unwrap().contains_key("test"));
        assert!(probes.own_cpu_s > 0.0);
        // The probes that looked between the ends cost something, and no other.
        let costs = &probes.probe_cpu_s;
        assert!(steps == 1 || costs.contains_key("cpu"), "{costs:?}");
        assert!(costs.values().sum::<f64>() <= probes.own_cpu_s);
    }

    #[test]
    fn connections_are_asked_for_before_what_takes_time() {
        let config = Config { flows: true, ..Config::new(Instant::now()) };
        let sampling = Sampling::open(&config);
        assert_eq!(sampling.probes[0].name(), "flows");
    }

    #[test]
    fn what_cannot_be_seen_is_absent_and_the_rest_goes_on() {
        let mut config = Config::new(Instant::now());
        config.cpu = Some(1_000_000);
        config.hosts = vec![Host { name: "gone".into(), net: NetSource::Process(u32::MAX) }];
        let probes = Sampler::start(config).stop();
        assert!(probes.absent["hosts"].contains("/proc/4294967295/net"));
        assert!(probes.absent.contains_key("sampler_placement"));
        assert!(probes.absent.contains_key("workers"));
        assert!(probes.cpu.is_some());
    }
}
