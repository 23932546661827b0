//! The budget of threads that do known things. Each thread measures itself what it did, so that
//! nothing depends on how busy the machine is. Without the rights for BPF programs it passes and
//! says so.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use millstream_observe::probe::{Config, Host, NetSource, Sampler};
use millstream_record::{Budget, BudgetRow, Probes, TIME_OUT, ThreadBudget, ThreadState};
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::gettid;

const ROUNDS: u32 = 20;
const SLEEP: Duration = Duration::from_millis(20);
const WORK: Duration = Duration::from_millis(30);

/// Nanoseconds on a CPU and waiting for one, of the calling thread, as the scheduler counts them.
fn schedstat() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

/// Returns how long `work` took.
fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

#[inline(never)]
fn compute() {
    let began = schedstat()[0];
    let mut sum = 0_u64;
    while schedstat()[0] - began < WORK.as_nanos() as u64 {
        for n in 0..200_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
}

/// The worker's own account of its times.
#[derive(Default)]
struct Said {
    thread: u32,
    ran: Duration,
    waited: Duration,
    slept: Duration,
    piped: Duration,
    locked: Duration,
    synced: Duration,
    read: Duration,
}

fn probes_of(work: impl FnOnce()) -> Probes {
    let config = Config { budget: true, ..Config::new(Instant::now()) };
    let sampler = Sampler::start(config);
    work();
    let probes = sampler.stop();
    if let Some(why) = probes.absent.get("budget") {
        println!("NOT RUN: {why}");
        assert!(!why.contains("Permission denied: "), "{why}");
    }
    probes
}

fn budget_of(work: impl FnOnce()) -> Option<Budget> {
    probes_of(work).budget
}

fn of(budget: &Budget, thread: u32) -> &ThreadBudget {
    budget.threads.iter().find(|one| one.thread == thread).expect("the thread was at work")
}

fn sum(thread: &ThreadBudget, is: impl Fn(&BudgetRow) -> bool) -> Duration {
    Duration::from_secs_f64(thread.rows.iter().filter(|row| is(row)).map(|row| row.s).sum())
}

#[track_caller]
fn assert_near(found: Duration, expected: Duration, share: f64, what: &str) {
    let (found, expected) = (found.as_secs_f64(), expected.as_secs_f64());
    let slack = expected * share + 0.004;
    assert!((found - expected).abs() <= slack, "{what}: {found:.4} s, expected {expected:.4} s");
}

#[test]
fn known_times_are_in_their_rows_and_rows_sum_to_the_time() {
    let (mut said, mut helper) = (Said::default(), 0);
    let Some(budget) = budget_of(|| {
        let (mut from, mut to) = std::io::pipe().unwrap();
        let lock = Arc::new((Mutex::new(0_u32), Condvar::new()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let pause = Duration::from_millis(2);
        let its_lock = lock.clone();
        // Each answers some time after it was asked, and whoever asks sleeps meanwhile.
        let (ask, asked) = std::sync::mpsc::channel::<u8>();
        let its_helper = std::thread::spawn(move || {
            for what in asked {
                sleep(pause);
                match what {
                    0 => to.write_all(&[1]).unwrap(),
                    1 => {
                        *its_lock.0.lock().unwrap() += 1;
                        its_lock.1.notify_one();
                    }
                    _ => server.write_all(&[1]).unwrap(),
                }
            }
            gettid().as_raw() as u32
        });
        let path = std::env::temp_dir().join(format!("millstream-budget-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let worker = std::thread::Builder::new().name("worker".into()).spawn(move || {
            let before = schedstat();
            let mut said = Said { thread: gettid().as_raw() as u32, ..Said::default() };
            for round in 1..=ROUNDS {
                compute();
                said.slept += timed(|| sleep(SLEEP));
                ask.send(0).unwrap();
                said.piped += timed(|| from.read_exact(&mut [0]).unwrap());
                ask.send(1).unwrap();
                said.locked += timed(|| {
                    let mut count = lock.0.lock().unwrap();
                    while *count < round {
                        count = lock.1.wait(count).unwrap();
                    }
                });
                ask.send(2).unwrap();
                said.read += timed(|| client.read_exact(&mut [0]).unwrap());
                file.write_all(&[0; 4096]).unwrap();
                said.synced += timed(|| file.sync_data().unwrap());
            }
            let after = schedstat();
            said.ran = Duration::from_nanos(after[0] - before[0]);
            said.waited = Duration::from_nanos(after[1] - before[1]);
            said
        });
        said = worker.unwrap().join().unwrap();
        helper = its_helper.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }) else {
        return;
    };
    let worker = of(&budget, said.thread);
    assert_eq!(worker.process, std::process::id());
    let all = Duration::from_secs_f64(worker.alive_s);
    assert_near(sum(worker, |_| true), all, 0.01, "the sum");
    let untold = sum(worker, |row| row.state == ThreadState::Untold);
    assert!(untold.as_secs_f64() <= 0.01 * worker.alive_s, "{:?}", worker.rows);
    let on = |row: &BudgetRow| matches!(row.state, ThreadState::OwnCode | ThreadState::Kernel);
    // What interrupts and a hypervisor take is known from 50 us at once on.
    let switches: u64 = worker.rows.iter().map(|row| row.count).sum();
    let taken = Duration::from_micros(50 * switches).as_secs_f64() / said.ran.as_secs_f64();
    assert_near(sum(worker, on), said.ran, 0.03 + taken, "on a CPU, beside schedstat");
    // The scheduler begins to count when a thread is in a queue, which is a little later.
    let ready = sum(worker, |row| row.state == ThreadState::Ready);
    let least = said.waited.mul_f64(0.9);
    assert!(ready + Duration::from_millis(5) >= least, "{ready:?} of {:?}", said.waited);
    // A sleep is within the call that sleeps; what is left of the call is a wait for a CPU.
    let asleep = |what: &str, on: &str| {
        let is = |row: &BudgetRow| {
            matches!(row.state, ThreadState::Asleep | ThreadState::Blocked)
                && row.what == what
                && row.on.starts_with(on)
        };
        sum(worker, is)
    };
    let (slack, pause) = (said.waited + ready, Duration::from_millis(2) * ROUNDS);
    for (what, on, wall, least) in [
        ("clock_nanosleep", "", said.slept, SLEEP * ROUNDS),
        ("read", "pipe", said.piped, pause / 2),
        ("futex", "lock", said.locked, pause / 2),
        ("recvfrom", "TCP 127.0.0.1:", said.read, pause / 2),
        ("fdatasync", "millstream-budge", said.synced, Duration::ZERO),
    ] {
        let found = asleep(what, on);
        assert!(found <= wall, "{what} {on}: {found:?} of {wall:?}");
        assert!(found + slack >= least, "{what} {on}: {found:?}, {least:?} at least");
    }
    // The thread that ended each sleep.
    let helper = Some(helper);
    for (what, who) in
        [("read", helper), ("futex", helper), ("recvfrom", helper), ("clock_nanosleep", None)]
    {
        let by = sum(worker, |row| row.what == what && row.with == who);
        let all = asleep(what, "");
        assert!(by.as_secs_f64() >= 0.9 * all.as_secs_f64(), "{what}: {by:?} of {all:?}");
    }
    // It calls the kernel seldom while it computes.
    let own = sum(worker, |row| row.state == ThreadState::OwnCode).as_secs_f64();
    let computed = (WORK * ROUNDS).as_secs_f64();
    assert!(own >= 0.6 * computed, "{own} s in its own code, where it computed for {computed} s");
}

#[test]
fn sleeps_by_one_call_for_two_peers_are_two_rows() {
    let (mut thread, mut ports) = (0, [0; 2]);
    let Some(budget) = budget_of(|| {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        ports = listeners.each_ref().map(|one| one.local_addr().unwrap().port());
        let mut readers = ports.map(|port| TcpStream::connect(("127.0.0.1", port)).unwrap());
        let mut writers = listeners.map(|one| one.accept().unwrap().0);
        let worker = std::thread::spawn(move || {
            for round in 0..40 {
                readers[round % 2].read_exact(&mut [0]).unwrap();
            }
            gettid().as_raw() as u32
        });
        for round in 0..40 {
            sleep(Duration::from_millis(2));
            writers[round % 2].write_all(&[1]).unwrap();
        }
        thread = worker.join().unwrap();
    }) else {
        return;
    };
    let worker = of(&budget, thread);
    for port in ports {
        let on = format!("TCP 127.0.0.1:{port}");
        let all = worker.rows.iter().filter(|row| row.on == on).map(|row| row.count).sum::<u64>();
        // A reader that is late does not sleep.
        assert!((1..=20).contains(&all), "{on}: {all} of 20 in {:#?}", worker.rows);
    }
}

#[test]
fn a_timer_ends_a_sleep_whoever_is_in_the_kernel_on_its_cpu() {
    let mut thread = 0;
    let Some(budget) = budget_of(|| {
        let end = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let in_the_kernel = |end: Arc<std::sync::atomic::AtomicBool>| {
            let (mut zero, mut buffer) = (File::open("/dev/zero").unwrap(), vec![0; 1 << 20]);
            while !end.load(std::sync::atomic::Ordering::Relaxed) {
                zero.read_exact(&mut buffer).unwrap();
            }
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let all: Vec<_> = (0..cpus).map(|_| end.clone()).collect();
        let all: Vec<_> =
            all.into_iter().map(|end| std::thread::spawn(move || in_the_kernel(end))).collect();
        let sleeper = std::thread::spawn(|| {
            (0..100).for_each(|_| sleep(Duration::from_millis(3)));
            gettid().as_raw() as u32
        });
        thread = sleeper.join().unwrap();
        end.store(true, std::sync::atomic::Ordering::Relaxed);
        all.into_iter().for_each(|one| one.join().unwrap());
    }) else {
        return;
    };
    let rows = &of(&budget, thread).rows;
    let sleeps = || rows.iter().filter(|row| row.what == "clock_nanosleep");
    let by_nobody: u64 = sleeps().filter(|row| row.with.is_none()).map(|row| row.count).sum();
    let all: u64 = sleeps().map(|row| row.count).sum();
    // A thread whose time is over before it is off its CPU does not sleep.
    assert!(all >= 50 && by_nobody * 20 >= all * 19, "{by_nobody} of {all} in {rows:#?}");
}

/// A function of its own name that waits for either of two sockets.
#[inline(never)]
fn wait_for_orders(sockets: &[UdpSocket; 2]) -> bool {
    let mut all = sockets.each_ref().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN));
    let ready = poll(&mut all, 3_u16).unwrap();
    std::hint::black_box(&all);
    ready > 0
}

#[test]
fn a_time_out_of_a_call_that_waits_for_several_is_told_with_its_callers() {
    let mut thread = 0;
    let Some(budget) = budget_of(|| {
        let poller = std::thread::spawn(|| {
            let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            (0..100).for_each(|_| assert!(!wait_for_orders(&sockets)));
            gettid().as_raw() as u32
        });
        thread = poller.join().unwrap();
    }) else {
        return;
    };
    let rows = &of(&budget, thread).rows;
    let waits = || rows.iter().filter(|row| row.what == "poll" && row.on == TIME_OUT);
    let all: u64 = waits().map(|row| row.count).sum();
    assert!(all >= 50, "{all} time-outs in {rows:#?}");
    // The library's function first, and its caller where there are frame pointers.
    let stack = waits().next().map(|row| row.stack.clone()).unwrap_or_default();
    assert!(stack.first().is_some_and(|name| name.contains("poll")), "{stack:?}");
}

#[test]
fn a_thread_that_looks_at_its_clock_meanwhile_waits_for_whom_it_waits() {
    let mut threads = (0, 0);
    let Some(budget) = budget_of(|| {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = sockets[0].local_addr().unwrap();
        let poller = std::thread::spawn(move || {
            for _ in 0..20 {
                while !wait_for_orders(&sockets) {}
                sockets[0].recv(&mut [0]).unwrap();
            }
            gettid().as_raw() as u32
        });
        let slow = std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..20 {
                sleep(SLEEP);
                socket.send_to(&[1], to).unwrap();
            }
            gettid().as_raw() as u32
        });
        threads = (poller.join().unwrap(), slow.join().unwrap());
    }) else {
        return;
    };
    let rows = of(&budget, threads.0);
    let by_slow = sum(rows, |row| row.what == "poll" && row.with == Some(threads.1));
    let all = sum(rows, |row| row.what == "poll" && row.state == ThreadState::Asleep);
    // A busy machine may wake others while the thread looks at its clock.
    assert!(by_slow * 2 >= all && by_slow > SLEEP * 5, "{by_slow:?} of {all:?} in {rows:#?}");
}

#[test]
fn many_short_threads_and_programs_are_told_as_one_each() {
    const EACH: u32 = 20;
    // Beside a second, each of them is short.
    let long = Duration::from_secs(1);
    let mut starter = 0;
    let Some(budget) = budget_of(|| {
        let all = std::thread::spawn(move || {
            for _ in 0..EACH {
                std::thread::spawn(|| sleep(Duration::from_millis(1))).join().unwrap();
                assert!(Command::new("true").status().unwrap().success());
            }
            sleep(long);
            gettid().as_raw() as u32
        });
        starter = all.join().unwrap();
    }) else {
        return;
    };
    let rows = &of(&budget, starter).rows;
    for call in ["futex", "wait4"] {
        let waits = || rows.iter().filter(|row| row.what == call);
        let others = |row: &BudgetRow| {
            let by = row.with?;
            Some(budget.threads.iter().find(|one| one.thread == by)?.others)
        };
        // One may have begun slowly on a busy machine, or ended before it was waited for; other
        // tests start some, too.
        let most = waits().filter_map(others).max();
        assert!(most >= Some(EACH / 2), "{call}: {most:?} in {rows:#?}");
    }
}

#[test]
fn new_connections_and_questions_for_names_are_counted_each() {
    let mut port = 0;
    let probes = probes_of(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        port = listener.local_addr().unwrap().port();
        for _ in 0..30 {
            drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
            drop(listener.accept().unwrap());
        }
        for port in [53, 54] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            // Nobody may be there; a socket that is not connected does not hear of it.
            for _ in 0..10 {
                socket.send_to(&[0; 12], ("127.0.0.1", port)).unwrap();
            }
        }
    });
    let Some(budget) = &probes.budget else { return };
    let here = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let end = budget.ends.get(&std::process::id()).expect("it has connections");
    assert_eq!(end.settings.get("tcp_congestion_control").unwrap(), here.trim());
    if let Some(why) = probes.absent.get("opened") {
        return println!("NOT RUN: {why}");
    }
    let table = &probes.tables["opened"];
    let process = std::process::id();
    let count = |end: &str, column: &str| {
        let mine = format!("/{process} ");
        let role = format!("/{process} (");
        let is_mine = |key: &str| key.contains(&mine) || key.contains(&role);
        let rows = table.column(column).unwrap();
        rows.filter(|(key, _)| is_mine(key) && key.ends_with(end)).map(|(_, n)| n).sum::<f64>()
    };
    // Other tests of this process connect to other ports.
    assert_eq!(count(&format!("to TCP port {port}"), "connections"), 30.0, "{table:?}");
    assert_eq!(count("to UDP port 53", "look_ups"), 10.0, "{table:?}");
    assert_eq!(count("to UDP port 54", "look_ups"), 0.0);
}

/// A capture and programs at hooks, each of a process in a network namespace of their own, and one
/// program that is left behind.
#[test]
fn captures_and_programs_on_the_way_are_told_with_who_has_them() {
    const CAPTURE: &str = "import socket, struct, time\n\
        capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n\
        capture.setsockopt(263, 5, struct.pack('4I', 65536, 4, 2048, 128))  # PACKET_RX_RING\n\
        print('there', flush=True)\ntime.sleep(3600)";
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/truth_bpf.py");
    let all = "exec 2>&1; python3 $0 egress lo --leave; python3 $0 ingress lo & \
               python3 $0 xdp lo & python3 -c \"$1\" & wait";
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", all, program]);
    let mut begun = command.arg(CAPTURE).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(begun.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take(4).collect();
    let net = NetSource::Process(begun.id());
    let hosts = vec![Host { name: "near".to_owned(), net }];
    let sampler = Sampler::start(Config { budget: true, hosts, ..Config::new(Instant::now()) });
    let probes = sampler.stop();
    begun.kill().unwrap();
    begun.wait().unwrap();
    if said != ["there"; 4] {
        return println!("NOT RUN: {said:?}");
    }
    let keys = |table: &str| -> Vec<&str> {
        probes.tables[table].rows.iter().map(|(key, _)| key.as_str()).collect()
    };
    let is_there = |begin: &str, end: &str| {
        let found = keys("classifiers");
        let is_it = |key: &&str| {
            key.trim_end_matches(|one: char| one.is_ascii_digit()).ends_with(end)
                && key.starts_with(&format!("{begin} at near/lo: program "))
        };
        assert!(found.iter().any(is_it), "{begin}: {found:?}");
    };
    is_there("tcx ingress", " rounds, held by python3/");
    is_there("XDP", " rounds, held by python3/");
    is_there("tcx egress", " rounds");
    assert!(matches!(keys("captures")[..], [one] if one.starts_with("python3/")));
}
