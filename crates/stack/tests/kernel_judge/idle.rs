//! The cost of ten thousand open connections while nothing happens on them.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use millstream::link::Link;
use millstream::{EngineStats, local, net};

use crate::host::{self, Ip};
use crate::namespace::{Stop, judged, say};

const CONNECTIONS: usize = 10_000;
const PORT: u16 = 7003;
/// The measured time, in which nothing happens.
const QUIET: Duration = Duration::from_secs(10);
/// The idle time before it. By then the kernel's own announcements, acknowledgements and neighbour
/// probes have passed, and unused memory has gone back.
const SETTLED: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the CPU time of a thread (its directory in procfs), and how often it went to sleep of
/// its own will.
fn spent(task: &Path) -> (Duration, u64) {
    let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
    let status = read("status");
    let mut lines = status.lines();
    let sleeps = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let nanos = number(&read("schedstat")).unwrap_or(0);
    (Duration::from_nanos(nanos), sleeps.and_then(number).expect("procfs"))
}

/// The directory of the engine's thread.
fn engines_thread() -> PathBuf {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
    let named = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "millstream")
    };
    tasks.map(|task| task.path()).find(named).expect("the engine's thread")
}

/// Holds the quiet time to no wake-up at all: a count, which does not depend on how busy others
/// are.
fn judge(cost: Duration, wakes: u64) {
    say(&format!(
        "{CONNECTIONS} open connections idle: {wakes} wake-ups and {cost:?} of CPU time in {QUIET:?}"
    ));
    assert_eq!(wakes, 0, "woken without a reason");
}

fn clients(to: SocketAddr) -> thread::JoinHandle<Vec<TcpStream>> {
    let connect = move |_| TcpStream::connect(to).expect("a connection");
    thread::spawn(move || (0..CONNECTIONS).map(connect).collect())
}

/// A TAP device on which the kernel does not speak unasked: it solicits routers for ever, less and
/// less often (RFC 7559), and each of these packets would wake the engine.
fn silent_tap() -> Result<Box<dyn Link>, Stop> {
    for conf in ["default", "all"] {
        let file = format!("/proc/sys/net/ipv6/conf/{conf}/router_solicitations");
        if let Err(error) = std::fs::write(&file, "0") {
            return Err(Stop::Absent(format!("{file}: {error}")));
        }
    }
    host::tap(true)
}

/// Too few file descriptors for the kernel's ends.
fn too_few_descriptors() -> Option<Stop> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft: usize = line.split_whitespace().next()?.parse().ok()?;
    (soft < CONNECTIONS + 100)
        .then(|| Stop::Absent(format!("{soft} file descriptors; `ulimit -n` says how many")))
}

judged! {
    fn in_the_engines_thread() -> Outcome {
        if let Some(stop) = too_few_descriptors() {
            return Err(stop);
        }
        let stack = local::Stack::new(host::engine(&host::pool(), silent_tap()?, Ip::ours)?);
        let at = SocketAddr::new(Ip::V4.ours(), PORT);
        let listener = local::TcpListener::bind(&stack, at, 4096)?;
        let clients = clients(at);
        let accepted: Vec<local::TcpStream> =
            (0..CONNECTIONS).map(|_| listener.accept().expect("a connection").0).collect();
        let held = clients.join().expect("the clients");
        // Sleeping is one sleep when nothing wakes it.
        let slept = |time| -> Result<EngineStats, Stop> {
            stack.sleep(time)?;
            Ok(stack.engine().stats().clone())
        };
        let start = Instant::now();
        let mut before = slept(Duration::ZERO)?;
        loop {
            let after = slept(SETTLED)?;
            if after.sleeps <= before.sleeps + 1 && after.rx_packets == before.rx_packets {
                break;
            }
            before = after;
            assert!(start.elapsed() < PATIENCE, "it does not settle: {before:?}");
        }
        // This thread sleeps once, as the engine says and as the kernel counts it.
        let task = Path::new("/proc/thread-self");
        let mut events = Vec::new();
        stack.wait(Some(Duration::ZERO), &mut events)?;
        events.clear();
        let (before, (cpu, switches)) = (stack.engine().stats().sleeps, spent(task));
        stack.wait(Some(QUIET), &mut events)?;
        let (after, (cpu_after, switches_after)) = (stack.engine().stats().sleeps, spent(task));
        assert!(events.is_empty());
        let wakes = (after - before).max(switches_after - switches);
        judge(cpu_after - cpu, wakes.saturating_sub(1));
        drop((accepted, held));
        Ok(())
    }

    fn in_threads_of_its_own() -> Outcome {
        if let Some(stop) = too_few_descriptors() {
            return Err(stop);
        }
        let (pool, link) = (host::pool(), silent_tap()?);
        let stack = net::Stack::spawn(move || {
            host::engine(&pool, link, Ip::ours)
        })?;
        let at = SocketAddr::new(Ip::V6.ours(), PORT);
        let listener = net::TcpListener::bind(&stack, at, 4096)?;
        let clients = clients(at);
        let accepted: Vec<net::TcpStream> =
            (0..CONNECTIONS).map(|_| listener.accept().expect("a connection").0).collect();
        let held = clients.join().expect("the clients");
        let engine = &engines_thread();
        let start = Instant::now();
        loop {
            let (_, before) = spent(engine);
            thread::sleep(SETTLED);
            if spent(engine).1 == before {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "it does not settle");
        }
        let (cpu, switches) = spent(engine);
        thread::sleep(QUIET);
        let (cpu_after, switches_after) = spent(engine);
        judge(cpu_after - cpu, switches_after - switches);
        // It was asleep and not gone.
        let mut one = accepted.last().expect("a connection");
        let bytes = std::io::Write::write(&mut one, b"awake")?;
        assert_eq!(bytes, 5);
        drop((accepted, held));
        stack.shutdown();
        Ok(())
    }
}
