//! Looking at the machine while a run goes.
//!
//! A [`Sampler`] is a thread in the parent process that asks every [`Probe`] at each step. Probes
//! keep their files open and read them again from the start; none of them needs a privilege, and
//! one that cannot look is listed as absent with the reason. What sampling costs is measured and
//! recorded with the rest.

mod attached;
mod budget;
mod callers;
mod calls;
mod connections;
mod context;
mod counters;
mod cpu;
mod disk;
mod distance;
mod drivers;
mod drops;
mod engines;
mod flows;
mod frequency;
mod fullest;
mod host;
mod idle_states;
mod interrupts;
mod kernel;
mod limits;
mod owners;
mod peers;
mod pressure;
mod profile;
mod qdisc;
mod queues;
mod sampler;
mod short_lived;
mod softirqs;
mod softnet;
mod vmstat;
mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use crate::Absent;
pub use crate::bpf::Want;
pub use crate::proc::ProcFile;
use crate::proc::{rise, rise32};
pub use host::inside;
pub use idle_states::IdleReading;
pub use kernel::{kernel, watch_kernel};
pub use owners::{OwnedSocket, owned_sockets};
pub(crate) use pressure::parse as parse_pressure;
pub use sampler::{Sampler, thread_cpu_s};

use millstream_record::Probes;

/// The way in which a machine is observed.
#[derive(Clone, Debug)]
pub struct Config {
    /// Distance of samples; 100 ms is the usual one, less than 10 ms is taken as 10 ms.
    pub interval: Duration,
    /// The zero of all times: the `started_at` of the run.
    pub origin: Instant,
    /// CPU to keep the sampler on, away from the workload if there is one to spare.
    pub cpu: Option<usize>,
    /// Hosts whose network counters are read.
    pub hosts: Vec<Host>,
    /// The CPUs whose distance is looked at, or the reason why none is: it takes some 25 µs of both
    /// for each sample.
    pub distance: Result<(usize, usize), Absent>,
    /// True to watch the load's TCP connections on the hosts (of any program where none is known to
    /// be the load's), and the counters of Millstream's engines in the workers.
    pub flows: bool,
    /// True to read, at each step, the queues of the hosts' TCP connections, and those counters.
    pub queues: bool,
    /// True to sum where the time of every thread goes.
    pub budget: bool,
}

impl Config {
    /// Every 100 ms, times from now, no pinning, no hosts, no distance.
    pub fn new(origin: Instant) -> Self {
        Self {
            interval: Duration::from_millis(limits::INTERVAL_MS),
            origin,
            cpu: None,
            hosts: Vec::new(),
            distance: Err(Absent("not asked for".to_owned())),
            flows: false,
            queues: false,
            budget: false,
        }
    }
}

/// A host of the experiment and the way into its network namespace.
#[derive(Clone, Debug)]
pub struct Host {
    /// Name in the records: `client`, `server`.
    pub name: String,
    /// The namespace that has its counters.
    pub net: NetSource,
}

/// The way into a network namespace.
#[derive(Clone, Debug)]
pub enum NetSource {
    /// The namespace that the calling thread is in.
    Own,
    /// The namespace of a living process, by its number.
    Process(u32),
    /// A file that stands for it, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    Namespace(PathBuf),
}

/// The place of a sample. Probes without a series look only at the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The baseline.
    First,
    /// A sample in between.
    Middle,
    /// The end; [`Probe::finish`] follows.
    Last,
}

/// A kind of probe: what its file gives [`KINDS`].
pub(crate) struct Kind {
    /// Key under which it is listed as absent where it cannot be opened.
    name: &'static str,
    open: fn(&Config) -> Result<Box<dyn Probe>, Absent>,
}

/// All that every run has, in the order in which they look. A further probe is a file with a
/// `KIND`, and a line here.
const KINDS: [Kind; 15] = [
    kernel::KIND,
    drops::KIND,
    cpu::KIND,
    interrupts::KIND,
    context::KIND,
    softirqs::KIND,
    softnet::KIND,
    host::KIND,
    qdisc::KIND,
    drivers::KIND,
    pressure::KIND,
    disk::KIND,
    vmstat::KIND,
    frequency::KIND,
    distance::KIND,
];
/// Opened before all others, where asked for.
const FLOWS: Kind = flows::KIND;
/// Opened after all others, where asked for.
const QUEUES: Kind = queues::KIND;
const BUDGET: [Kind; 2] = [budget::KIND, attached::KIND];

/// One way of looking.
pub trait Probe: Send {
    /// Key under which it is recorded or listed as absent.
    fn name(&self) -> &'static str;

    /// Takes a sample. After an error the probe is dropped and listed as absent for that reason.
    fn sample(&mut self, turn: Turn) -> Result<(), Absent>;

    /// Hears that `pid` is a process of the load.
    fn watch(&mut self, _pid: u32) {}

    /// Hears of a host that was found after the baseline. One that cannot be looked at is left out.
    fn join(&mut self, _host: &Host) -> Result<(), Absent> {
        Ok(())
    }

    /// Puts what was seen into the record.
    fn finish(self: Box<Self>, into: &mut Probes);
}

#[cfg(test)]
mod tests {
    use crate::proc::{interrupts, net_dev, softirqs, stat};

    use super::{disk, host, pressure, softnet, worker};
    use millstream_diagnose::stats::Rng;

    /// Every parser with the text it is for.
    fn parse_all(name: &str, text: &str) -> bool {
        match name {
            "stat" => stat::parse(text).is_ok() && stat::switches(text).is_ok(),
            "interrupts" => interrupts::parse(text).is_ok() && interrupts::totals(text).is_ok(),
            "softirqs" => softirqs::parse(text).is_ok() && softirqs::totals(text).is_ok(),
            "softnet" => softnet::parse(text).is_ok(),
            "dev" => net_dev::parse(text).is_ok(),
            "snmp" => host::parse_paired(text).is_ok(),
            "task-stat" => worker::parse_stat(text).is_ok(),
            "disks" => disk::parse(text).is_ok(),
            "listed" => host::parse_listed(text).is_ok(),
            "by-cpu" => host::parse_by_cpu(text).is_ok(),
            "waits" => worker::parse_waits(text).is_ok(),
            "memory" => worker::parse_memory(text).is_ok(),
            "pressure" => pressure::parse(text).is_ok(),
            _ => worker::parse_switches(text).is_ok(),
        }
    }

    #[test]
    fn damaged_text_never_panics() {
        let samples = [
            ("stat", include_str!("../proc/samples/stat.txt")),
            ("interrupts", include_str!("../proc/samples/interrupts.txt")),
            ("interrupts", include_str!("../proc/samples/interrupts-arm.txt")),
            ("softirqs", include_str!("../proc/samples/softirqs.txt")),
            ("softnet", include_str!("samples/softnet.txt")),
            ("dev", include_str!("../proc/samples/dev.txt")),
            ("snmp", include_str!("samples/snmp.txt")),
            ("task-stat", include_str!("samples/task-stat.txt")),
            ("listed", "Ip6InReceives \t1\nIcmp6OutMsgs 7\n6 5\n"),
            ("by-cpu", "entries  found drop\n0000000a 1 f\n"),
            ("waits", "425095 182140 1\n"),
            ("memory", "1832 911 640 12 0 433 0\n"),
            ("pressure", "some avg10=0.05 total=6590034\nfull avg10=0.03 total=6257450\n"),
            ("disks", " 254 0 vda 50 4 300 7 60 5 400 8 0 90 100\n"),
            ("switches", "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n"),
        ];
        let mut rng = Rng::new(5);
        let pieces = [
            "",
            ":",
            "\n",
            " ",
            "|",
            ")",
            "(",
            "-",
            "18446744073709551616",
            "é",
            "\0",
            "CPU",
            "0x",
            ".",
        ];
        for (name, sample) in samples {
            assert!(parse_all(name, sample), "{name} as it is");
            for _ in 0..400 {
                let mut letters: Vec<char> = sample.chars().collect();
                for _ in 0..=rng.below(4) {
                    let from = rng.below(letters.len() + 1);
                    let to = (from + rng.below(12)).min(letters.len());
                    letters.splice(from..to, pieces[rng.below(pieces.len())].chars());
                }
                parse_all(name, &letters.into_iter().collect::<String>());
            }
        }
    }
}
