//! The worker processes: CPU time, waits for a CPU, context switches, faults, and the CPUs their
//! threads were on.

use std::collections::BTreeMap;
use std::fs;

use millstream_record::{Probes, WorkerActivity};
use nix::unistd::{SysconfVar, sysconf};

use super::{Absent, Probe, ProcFile, Turn, limits, rise};

/// All workers; new ones may be added between samples. A worker that ended keeps what was seen
/// last.
pub(super) struct Workers {
    tick_s: f64,
    workers: Vec<Worker>,
    /// Samples so far, the first one aside.
    steps: usize,
}

struct Worker {
    role: String,
    process: Option<ProcFile>,
    memory: Option<ProcFile>,
    status: Option<ProcFile>,
    first: Option<Stat>,
    last: Stat,
    threads: BTreeMap<u32, Thread>,
    seen: WorkerActivity,
}

struct Thread {
    stat: ProcFile,
    status: ProcFile,
    first: Stat,
    last: Stat,
    switches_first: Switches,
    switches_last: Switches,
    /// The file in which the kernel counts the time that a thread was ready and had no CPU.
    waits: Option<ProcFile>,
    waited_first_ns: u64,
    waited_last_ns: u64,
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stat {
    minor_faults: u64,
    major_faults: u64,
    usr_ticks: u64,
    sys_ticks: u64,
    cpu: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Switches {
    voluntary: u64,
    involuntary: u64,
}

impl Workers {
    pub(super) fn new(tick_s: f64) -> Self {
        Self { tick_s, workers: Vec::new(), steps: 0 }
    }

    /// Watches the process `pid` from the next sample on. A second worker of the same role gets a
    /// number behind it.
    pub(super) fn watch(&mut self, role: &str, pid: u32) {
        let same = self
            .workers
            .iter()
            .filter(|worker| worker.role.split('#').next() == Some(role))
            .count();
        let role = if same == 0 { role.to_owned() } else { format!("{role}#{}", same + 1) };
        let mut worker = Worker {
            role,
            process: ProcFile::open(format!("/proc/{pid}/stat")).ok(),
            memory: ProcFile::open(format!("/proc/{pid}/statm")).ok(),
            status: ProcFile::open(format!("/proc/{pid}/status")).ok(),
            first: None,
            last: Stat::default(),
            threads: BTreeMap::new(),
            seen: WorkerActivity { pid, name: name_of(pid), ..WorkerActivity::default() },
        };
        // The run does not count what the process did before it was watched.
        worker.sample();
        worker.seen.resident_bytes = vec![None; self.steps];
        self.workers.push(worker);
    }
}

impl Probe for Workers {
    fn name(&self) -> &'static str {
        "workers"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        self.workers.iter_mut().for_each(Worker::sample);
        if turn != Turn::First {
            self.workers.iter_mut().for_each(Worker::sample_memory);
            self.steps += 1;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        if self.workers.is_empty() {
            into.absent.insert("workers".into(), "no worker process was named".into());
            return;
        }
        let tick_s = self.tick_s;
        let workers =
            self.workers.into_iter().map(|worker| (worker.role.clone(), worker.finish(tick_s)));
        into.workers = Some(workers.collect());
    }
}

impl Worker {
    fn sample(&mut self) {
        let Some(process) = &mut self.process else { return };
        let Ok(now) = process.parse(parse_stat) else {
            // It ended: what was seen stays.
            self.process = None;
            return;
        };
        self.first.get_or_insert(now);
        self.last = now;
        // A shell that has called `exec` has another name.
        self.seen.name = name_of(self.seen.pid);
        if let Some(Ok((tracer, filters))) =
            self.status.as_mut().map(|file| file.parse(parse_watched))
        {
            self.seen.traced_by = self.seen.traced_by.or(Some(tracer).filter(|pid| *pid != 0));
            self.seen.system_call_filters = self.seen.system_call_filters.max(filters);
        }
        self.sample_threads();
    }

    /// Adds the resident memory of the process, if it lives.
    fn sample_memory(&mut self) {
        let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096) as u64;
        let alive = self.process.as_ref().and(self.memory.as_mut());
        let pages = alive.and_then(|file| file.parse(parse_memory).ok());
        self.seen.resident_bytes.push(pages.map(|pages| pages * page_bytes));
    }

    fn sample_threads(&mut self) {
        let pid = self.seen.pid;
        let Ok(list) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
        let mut count = 0;
        for entry in list.flatten() {
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            count += 1;
            if self.threads.contains_key(&tid) || self.threads.len() >= limits::WORKER_THREADS {
                continue;
            }
            if let Ok(thread) = Thread::open(pid, tid) {
                self.threads.insert(tid, thread);
            }
        }
        self.seen.threads = self.seen.threads.max(count);
        for thread in self.threads.values_mut() {
            thread.sample(&mut self.seen);
        }
    }

    fn finish(self, tick_s: f64) -> WorkerActivity {
        let Self { first, last, threads, mut seen, .. } = self;
        let first = first.unwrap_or_default();
        seen.usr_s = rise(first.usr_ticks, last.usr_ticks) as f64 * tick_s;
        seen.sys_s = rise(first.sys_ticks, last.sys_ticks) as f64 * tick_s;
        seen.minor_faults = rise(first.minor_faults, last.minor_faults);
        seen.major_faults = rise(first.major_faults, last.major_faults);
        for thread in threads.values() {
            let (before, now) = (thread.switches_first, thread.switches_last);
            seen.voluntary_switches += rise(before.voluntary, now.voluntary);
            seen.involuntary_switches += rise(before.involuntary, now.involuntary);
        }
        let ticks = |stat: &Stat| stat.usr_ticks + stat.sys_ticks;
        let used = threads.values().map(|thread| rise(ticks(&thread.first), ticks(&thread.last)));
        seen.busiest_thread_s = used.max().map(|ticks| ticks as f64 * tick_s);
        let waits = threads.values().filter(|thread| thread.waits.is_some());
        let waited = waits.map(|thread| rise(thread.waited_first_ns, thread.waited_last_ns));
        seen.longest_cpu_wait_s = waited.max().map(|ns| ns as f64 / 1e9);
        seen
    }
}

impl Thread {
    fn open(pid: u32, tid: u32) -> Result<Self, Absent> {
        let mut stat = ProcFile::open(format!("/proc/{pid}/task/{tid}/stat"))?;
        let mut status = ProcFile::open(format!("/proc/{pid}/task/{tid}/status"))?;
        let last = stat.parse(parse_stat)?;
        let switches = status.parse(parse_switches)?;
        let mut waits = ProcFile::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok();
        let waited = waits.as_mut().and_then(|file| file.parse(parse_waits).ok());
        Ok(Self {
            stat,
            status,
            first: last,
            last,
            switches_first: switches,
            switches_last: switches,
            waits: waits.filter(|_| waited.is_some()),
            waited_first_ns: waited.unwrap_or(0),
            waited_last_ns: waited.unwrap_or(0),
        })
    }

    /// A thread that ended keeps what was seen last.
    fn sample(&mut self, seen: &mut WorkerActivity) {
        let Ok(now) = self.stat.parse(parse_stat) else { return };
        let Ok(switches) = self.status.parse(parse_switches) else { return };
        let ran = now.usr_ticks + now.sys_ticks > self.last.usr_ticks + self.last.sys_ticks;
        if ran || switches != self.switches_last {
            *seen.seen_on_cpu.entry(now.cpu).or_default() += 1;
            seen.moves_seen += u64::from(now.cpu != self.last.cpu);
        }
        self.last = now;
        self.switches_last = switches;
        let waited = self.waits.as_mut().and_then(|file| file.parse(parse_waits).ok());
        self.waited_last_ns = waited.unwrap_or(self.waited_last_ns);
    }
}

/// Returns the kernel's name of a process; empty where it has ended.
fn name_of(pid: u32) -> String {
    millstream_foreign::read_name(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// Fields by number as in proc(5): 10 minflt, 12 majflt, 14 utime, 15 stime, 39 processor. The
/// second field, the name in parentheses, may hold blanks and parentheses itself.
pub(super) fn parse_stat(text: &str) -> Result<Stat, String> {
    let (_, rest) = text.rsplit_once(')').ok_or("no name in parentheses")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| -> Result<u64, String> {
        let word = fields.get(number - 3).ok_or_else(|| format!("no field {number}"))?;
        word.parse().map_err(|_| format!("odd field {number}: {word:?}"))
    };
    Ok(Stat {
        minor_faults: field(10)?,
        major_faults: field(12)?,
        usr_ticks: field(14)?,
        sys_ticks: field(15)?,
        cpu: field(39)? as u32,
    })
}

/// Pages of a process that are resident: the second number of its statm (proc(5)).
pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    let word = text.split_ascii_whitespace().nth(1).ok_or("fewer than two numbers")?;
    word.parse().map_err(|_| format!("odd number {word:?}"))
}

/// Nanoseconds in which a thread was ready and had no CPU: the second number of its schedstat
/// (Documentation/scheduler/sched-stats.rst).
pub(super) fn parse_waits(text: &str) -> Result<u64, String> {
    let word = text.split_ascii_whitespace().nth(1).ok_or("fewer than two numbers")?;
    word.parse().map_err(|_| format!("odd number {word:?}"))
}

/// The process that traces one, 0 where none does, and the filters of its system calls, of which
/// kernels before 5.9 do not tell.
fn parse_watched(text: &str) -> Result<(u32, Option<u32>), String> {
    let value =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    let tracer = value("TracerPid:").ok_or("no line TracerPid:")?;
    Ok((tracer, value("Seccomp_filters:")))
}

pub(super) fn parse_switches(text: &str) -> Result<Switches, String> {
    let value = |key: &str| -> Result<u64, String> {
        let value = text.lines().find_map(|line| line.strip_prefix(key));
        let value = value.ok_or_else(|| format!("no line {key}"))?;
        value.trim().parse().map_err(|_| format!("odd number in line {key}"))
    };
    Ok(Switches {
        voluntary: value("voluntary_ctxt_switches:")?,
        involuntary: value("nonvoluntary_ctxt_switches:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat = parse_stat(include_str!("samples/task-stat.txt")).unwrap();
        let expected =
            Stat { minor_faults: 99, major_faults: 2, usr_ticks: 17, sys_ticks: 5, cpu: 1 };
        assert_eq!(stat, expected);
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse_stat("").is_err());
        assert!(parse_stat("1 (x) R 1 2 3").unwrap_err().contains("no field 10"));
        assert!(parse_switches("voluntary_ctxt_switches:\t5\n").is_err());
        assert!(
            parse_switches("voluntary_ctxt_switches: a\nnonvoluntary_ctxt_switches: 1\n").is_err()
        );
    }

    #[test]
    fn voluntary_is_not_taken_from_nonvoluntary() {
        let text = "Name:\tx\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t5\n";
        assert_eq!(parse_switches(text), Ok(Switches { voluntary: 5, involuntary: 7 }));
    }

    #[test]
    fn who_watches_system_calls_is_read() {
        let text = "Name:\tx\nTracerPid:\t71\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(parse_watched(text), Ok((71, Some(3))));
        assert_eq!(parse_watched("TracerPid:\t0\n"), Ok((0, None)));
        assert!(parse_watched("Name:\tx\n").is_err());
    }

    #[test]
    fn this_process_is_seen_with_its_threads_and_a_gone_one_is_kept_empty() {
        let mut workers = Box::new(Workers::new(0.01));
        workers.watch("client", std::process::id());
        workers.watch("client", u32::MAX);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            workers.sample(Turn::Middle).unwrap();
        }
        let mut probes = Probes::default();
        workers.finish(&mut probes);
        let workers = probes.workers.unwrap();
        assert!(workers["client"].threads >= 1 && workers["client"].voluntary_switches >= 1);
        assert_eq!(workers["client#2"].threads, 0);
        let resident = &workers["client"].resident_bytes;
        assert!(
            resident.len() == 3 && resident.iter().all(|seen| seen.is_some_and(|bytes| bytes > 0))
        );
        assert_eq!(workers["client#2"].resident_bytes, [None; 3]);
    }
}
