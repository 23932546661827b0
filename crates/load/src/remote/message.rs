//! The messages of a control connection.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use millstream_foreign::shown;
use millstream_observe::environment::program;
use millstream_plan::{DURATION_LIMIT_S, Factor, Task};
use millstream_record::{Environment, Probes};
use nix::sched::CpuSet;
use serde::{Deserialize, Serialize};

use super::wire::Receiver;
use crate::limits;
use crate::ready::{Outlook, Ready};
use crate::worker::Reply;

/// A request of the runner to the far side, which does nothing else.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Request {
    /// Read CLOCK_MONOTONIC of the far side.
    Now,
    /// Say which machine it is.
    Machine,
    /// Start the far end of a run, and look at the host.
    Begin(FarJob),
    /// Start a command as the far end, and look at the host: only the near end that started this
    /// program may ask for it.
    Command(FarCommand),
    /// Listen. As [`crate::worker::Command::Listen`].
    Listen { address: IpAddr },
    /// Count over this stretch of the far side's CLOCK_MONOTONIC.
    Measure { begin_ns: u64, end_ns: u64 },
    /// End the run, and report what was measured.
    Finish,
}

/// The work of the far end of a run, on the kernel's sockets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FarJob {
    pub(super) task: Task,
    pub(super) buffer_bytes: Option<usize>,
    pub(super) congestion: Option<String>,
    /// CPU of the worker; `None`: wherever the kernel puts it.
    pub(super) cpu: Option<usize>,
    /// True for a high priority.
    pub(super) raised: bool,
    /// Longest life of the load in seconds, from the beginning to the end.
    pub(super) most_s: f64,
}

/// A command that is the far end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarCommand {
    /// Its words.
    pub words: Vec<String>,
    /// The CPU that it is bound to, if it is to one.
    pub cpu: Option<usize>,
    /// True for a high priority.
    pub raised: bool,
    /// The sign that it can be used.
    pub ready: Ready,
    /// Longest wait for the sign, in milliseconds.
    pub patience_ms: u64,
    /// Longest life in seconds.
    pub most_s: f64,
}

/// The machine that a process runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The number of this start of its kernel.
    boot: String,
    /// The namespace of its process numbers.
    processes: String,
    /// Version and commit of this program there.
    program: String,
}

impl Machine {
    /// Returns that of this process.
    pub fn here() -> Self {
        let boot = millstream_foreign::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            boot: boot.trim().to_owned(),
            processes: processes.display().to_string(),
            program: program(),
        }
    }

    /// Refuses one on which this program is of another version or commit: the two ends of a run
    /// would not do the same.
    pub(super) fn check(&self, here: &Self) -> Result<(), String> {
        match self.program == here.program {
            true => Ok(()),
            false => Err(format!(
                "it is {}, and this is {}: bring the same program there",
                shown(&self.program),
                here.program
            )),
        }
    }

    /// Returns whether both are one kernel: CPUs have the same numbers.
    pub fn is_same_kernel(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot
    }

    /// Returns whether processes have the same numbers, too.
    pub fn has_same_processes(&self, other: &Self) -> bool {
        self.is_same_kernel(other) && self.processes == other.processes
    }
}

/// An answer of the far side to the runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// A sign of life, which answers nothing.
    Alive,
    /// The answer to [`Request::Now`].
    Now { at_ns: u64 },
    /// The answer to [`Request::Machine`].
    Machine(Machine),
    /// The far end has this process, with what it starts.
    Started { pid: u32 },
    /// The end of the wait for the command that is the far end: it is looked at no more.
    Outlook(Outlook),
    /// An answer of the worker there.
    Worker(Box<Reply>),
    /// Everything that was measured.
    Finished(Box<FarSide>),
    /// The request is refused.
    Refused { why: String },
}

impl Answer {
    /// Waits for the next one that is more than a sign of life.
    pub(super) fn next(receiver: &mut Receiver) -> io::Result<Self> {
        loop {
            match receiver.receive()? {
                Self::Alive => {}
                other => return Ok(other),
            }
        }
    }
}

/// Everything that the far side measured in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FarSide {
    /// Records of its probes. Their times begin at `origin_ns`.
    pub probes: Probes,
    /// CLOCK_MONOTONIC there.
    pub origin_ns: u64,
    /// Facts of that host.
    pub environment: Environment,
    /// Bytes that each interface carried during the run.
    pub interfaces: BTreeMap<String, InterfaceBytes>,
}

/// Bytes that an interface carried in a run, link headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceBytes {
    /// Received.
    pub rx_bytes: u64,
    /// Sent.
    pub tx_bytes: u64,
}

impl FarJob {
    /// Refuses what no runner asks for: numbers beyond the levels of the factors that they come
    /// from.
    pub(super) fn check(&self) -> Result<(), String> {
        self.task.check()?;
        let allowed = |factor: &str, level: String| match Factor::of(factor) {
            Some(known) if known.level(&level).is_some() => Ok(()),
            _ => Err(format!("{factor} {level:?} is none that is known")),
        };
        if let Some(bytes) = self.buffer_bytes {
            allowed("socket_buffer_bytes", bytes.to_string())?;
        }
        if let Some(name) = &self.congestion {
            allowed("congestion", name.clone())?;
        }
        if self.cpu.is_some_and(|cpu| cpu >= CpuSet::count()) {
            return Err("cpu is beyond what the kernel has".to_owned());
        }
        let most_s = longest_s(DURATION_LIMIT_S, DURATION_LIMIT_S);
        if !(0.0..=most_s).contains(&self.most_s) {
            return Err(format!("most_s is {}; allowed: 0 to {most_s}", self.most_s));
        }
        Ok(())
    }
}

/// Returns the longest life of the load of a run in seconds: its window, and everything that a step
/// may wait for.
pub(super) fn longest_s(warmup_s: f64, duration_s: f64) -> f64 {
    let steps_ms = 4 * limits::STEP_TIMEOUT_MS + limits::FINISH_LIMIT_MS;
    warmup_s + duration_s + steps_ms as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(request_bytes: &str) -> FarJob {
        let workload = millstream_plan::Workload::of("tcp_rr").unwrap();
        let task = Task::new(workload, [("request_bytes", request_bytes)]);
        let (cpu, raised) = (None, false);
        FarJob { task, buffer_bytes: None, congestion: None, cpu, raised, most_s: 60.0 }
    }

    #[test]
    fn what_no_level_allows_is_refused() {
        let good = job("100");
        assert_eq!(good.check(), Ok(()));
        for wrong in [
            job("0"),
            job("18446744073709551615"),
            FarJob { buffer_bytes: Some(usize::MAX), ..good.clone() },
            FarJob { congestion: Some("../../x".to_owned()), ..good.clone() },
            FarJob { most_s: f64::INFINITY, ..good.clone() },
            FarJob { most_s: f64::NAN, ..good.clone() },
            FarJob { cpu: Some(usize::MAX), ..good.clone() },
            FarJob { most_s: -1.0, ..good },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_program_of_another_commit_is_refused_with_what_to_do() {
        let here = Machine::here();
        assert_eq!(Machine::here().check(&here), Ok(()));
        let other = Machine { program: "millstream 9.9.9 (abc)".to_owned(), ..Machine::here() };
        let why = other.check(&here).unwrap_err();
        assert!(why.contains("9.9.9 (abc), and this is millstream"), "{why}");
        assert!(why.ends_with("bring the same program there"), "{why}");
    }

    #[test]
    fn what_is_not_known_is_no_request() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        assert!(read(r#""Now""#).is_ok() && read(r#"{"Listen":{"address":"10.0.0.1"}}"#).is_ok());
        for wrong in [
            r#""Exec""#,
            r#"{"Run":{"command":"sh"}}"#,
            r#"{"Listen":{"address":"10.0.0.1","backlog":9}}"#,
            r#"{"Listen":{"address":"host.example"}}"#,
            r#"{"Begin":{"task":{"workload":"sh","levels":{}},"buffer_bytes":null,"congestion":null,"cpu":null,"raised":false,"most_s":1}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let whole = serde_json::to_string(&Request::Begin(job("1"))).unwrap();
        assert!(read(&whole).is_ok());
        assert!(read(&whole.replace("\"most_s\"", "\"namespace\":\"/x\",\"most_s\"")).is_err());
    }
}
