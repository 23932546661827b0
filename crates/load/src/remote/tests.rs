//! Whoever may come to `millstream serve`.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use millstream_plan::{Task, Workload};
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;
use serde_json::json;

use super::client::ask_served;
use super::door::UNPROVED;
use super::message::{Answer, FarCommand, FarJob, Request};
use super::server::meet;
use super::session::{Programs, session};
use super::wire::{self, PROOF_TIMEOUT, Receiver, Sender};
use super::{Token, serve};
use crate::ready::{Outlook, Ready};
use crate::worker::Reply;

const RIGHT: &str = "the right token, long";

/// A server whose workers are shells that say they are prepared, leave their process number in a
/// file, and stay.
struct Server {
    at: SocketAddr,
    pids: PathBuf,
    interrupt: Interrupt,
    told: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-serve-{}-{number}", std::process::id());
        let pids = std::env::temp_dir().join(name);
        let prepared = Reply::Prepared { notes: vec![], namespace_inode: 1 };
        let line = serde_json::to_string(&prepared).unwrap();
        let script = format!("echo $$ >{}; echo '{line}'; exec sleep 600", pids.display());
        let program =
            WorkerProgram { path: "/bin/sh".into(), arguments: vec!["-c".to_owned(), script] };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (interrupt, told) = (Interrupt::default(), Arc::new(Mutex::new(Vec::new())));
        let (until, lines) = (interrupt.clone(), told.clone());
        let thread = spawn(move || {
            let tell = move |line| lines.lock().unwrap().push(line);
            serve(&listener, token(RIGHT), program, &until, tell).unwrap();
        });
        Self { at, pids, interrupt, told, thread: Some(thread) }
    }

    fn stream(&self) -> TcpStream {
        TcpStream::connect(self.at).unwrap()
    }

    fn ask(&self, text: &str) -> std::io::Result<(Sender, Receiver)> {
        wire::ask(self.stream().into(), &token(text), PROOF_TIMEOUT)
    }

    fn join(&self) -> (Sender, Receiver) {
        self.ask(RIGHT).unwrap()
    }

    /// A run that has begun, and the process of its worker.
    fn begun(&self, most_s: f64) -> (Sender, Receiver, PathBuf) {
        let _ = std::fs::remove_file(&self.pids);
        let (mut sender, mut receiver) = self.join();
        sender.send(&Request::Begin(FarJob { most_s, ..job() })).unwrap();
        let Answer::Started { pid: told } = Answer::next(&mut receiver).unwrap() else {
            panic!("no pid")
        };
        let Answer::Worker(reply) = Answer::next(&mut receiver).unwrap() else {
            panic!("no worker")
        };
        assert!(matches!(*reply, Reply::Prepared { .. }));
        let pid = std::fs::read_to_string(&self.pids).unwrap();
        assert_eq!(pid.trim(), told.to_string());
        let process = PathBuf::from(format!("/proc/{}", pid.trim()));
        assert!(process.exists());
        (sender, receiver, process)
    }

    fn has_told(&self, what: &str) -> bool {
        self.told.lock().unwrap().iter().any(|line| line.contains(what))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.interrupt.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.pids);
    }
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn rr(request_bytes: &str) -> Task {
    Task::new(Workload::of("tcp_rr").unwrap(), [("request_bytes", request_bytes)])
}

fn job() -> FarJob {
    let (task, cpu, raised) = (rr("1"), None, false);
    FarJob { task, buffer_bytes: None, congestion: None, cpu, raised, most_s: 60.0 }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(Duration::from_millis(2));
    }
}

fn refused(receiver: &mut Receiver) -> String {
    match Answer::next(receiver).unwrap() {
        Answer::Refused { why } => why,
        other => panic!("it does that: {other:?}"),
    }
}

#[test]
fn strangers_neither_get_in_nor_keep_others_out() {
    let server = Server::start();
    server.stream().write_all(&[b'G'; 10_000]).unwrap();
    until("garbage is refused", || server.has_told("no `millstream serve`"));
    assert!(server.ask("some other token, long").is_err());
    until("the wrong token is refused", || server.has_told("another token"));
    // More silent ones than have room: the oldest goes, and who knows the token comes in.
    let mut silent: Vec<TcpStream> = (0..UNPROVED + 20).map(|_| server.stream()).collect();
    let (mut sender, mut receiver) = server.join();
    sender.send(&Request::Now).unwrap();
    assert!(matches!(Answer::next(&mut receiver).unwrap(), Answer::Now { .. }));
    let mut left = Vec::new();
    silent[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The client reads what it was told, and then the end.
    let _ = silent[0].read_to_end(&mut left);
    assert!(left.len() <= 42, "{}", left.len());
}

/// A thread that connects as quickly as it can, and never says a word.
#[test]
fn a_flood_of_strangers_keeps_nobody_out_and_few_lines_tell_of_it() {
    const RIGHT_ONES: usize = 30;
    const FLOOD: usize = 20_000;
    let server = Server::start();
    let is_over = Arc::new(AtomicBool::new(false));
    let (at, over, made) = (server.at, is_over.clone(), Arc::new(AtomicUsize::new(0)));
    let count = made.clone();
    let flood = spawn(move || {
        let mut open = VecDeque::new();
        while !over.load(Ordering::Relaxed) && count.load(Ordering::Relaxed) < FLOOD {
            open.extend(TcpStream::connect(at));
            count.fetch_add(1, Ordering::Relaxed);
            // Its own files are bounded, too: what the server has closed goes first.
            if open.len() > 500 {
                open.pop_front();
            }
        }
    });
    until("the flood is there", || made.load(Ordering::Relaxed) > 100);
    for _ in 0..RIGHT_ONES {
        until("one that knows the token is let in", || {
            match ask_served(server.at, &token(RIGHT)) {
                Ok((sender, _receiver)) => {
                    sender.close();
                    true
                }
                Err(error) => error.kind() != ErrorKind::ResourceBusy && panic!("{error}"),
            }
        });
    }
    is_over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let lines = server.told.lock().unwrap();
    let refused = lines.iter().filter(|line| line.contains("refused")).count();
    assert!(refused < 100, "{refused} lines");
}

#[test]
fn there_is_one_run_at_a_time() {
    let server = Server::start();
    let (sender, receiver, process) = server.begun(60.0);
    let error = server.ask(RIGHT).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(process.exists(), "the run that goes is not disturbed");
    sender.close();
    drop(receiver);
    until("the place is free again", || server.has_told("gone") || server.has_told("ended"));
    until("the next one is served", || server.ask(RIGHT).is_ok());
}

/// Whatever ends the connection ends the load.
#[test]
fn the_load_ends_with_its_control_connection_its_time_and_what_is_not_known() {
    type End = fn(&mut Sender, &mut Receiver);
    let ends: [(&str, f64, End); 3] = [
        ("it is closed", 60.0, |sender, _| sender.close()),
        ("its time is over", 0.2, |_, receiver| {
            assert!(refused(receiver).contains("longer than it may"));
        }),
        ("an unknown request", 60.0, |sender, receiver| {
            sender.send(&json!({ "Exec": { "command": "id" } })).unwrap();
            assert!(refused(receiver).contains("an odd message"));
        }),
    ];
    let server = Server::start();
    for (what, most_s, end) in ends {
        let (mut sender, mut receiver, process) = server.begun(most_s);
        end(&mut sender, &mut receiver);
        until(what, || !process.exists());
        until("the place is free", || server.has_told("gone") || server.has_told("ended"));
        server.told.lock().unwrap().clear();
    }
}

#[test]
fn what_is_out_of_turn_or_beyond_the_limits_is_refused_and_starts_nothing() {
    let server = Server::start();
    let (mut sender, mut receiver) = server.join();
    for request in [Request::Finish, Request::Measure { begin_ns: 0, end_ns: u64::MAX }] {
        sender.send(&request).unwrap();
        assert!(refused(&mut receiver).contains("nothing was begun"));
    }
    // A runner that comes over the network has no commands started.
    let words = vec!["id".to_owned()];
    let (ready, patience_ms, most_s) = (Ready::Listens, 0, 60.0);
    let command = FarCommand { words, cpu: None, raised: false, ready, patience_ms, most_s };
    sender.send(&Request::Command(command)).unwrap();
    assert!(refused(&mut receiver).contains("--far-by"));
    let task = rr("18446744073709551615");
    sender.send(&Request::Begin(FarJob { task, ..job() })).unwrap();
    assert!(refused(&mut receiver).contains("request_bytes"));
    assert!(!server.pids.exists(), "no worker was started");
}

/// A session with who has started this program. Its guard is a shell.
fn started() -> (Sender, Receiver, JoinHandle<Result<(), String>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let script = "until [ \"$1\" = -- ]; do shift; done; shift; \"$@\"; exit $?";
    let arguments = ["-c", script, "sh"].map(str::to_owned).to_vec();
    let guard = WorkerProgram { path: "/bin/sh".into(), arguments };
    let programs = Programs { worker: guard.clone(), guard: Some(guard) };
    let serving = spawn(move || {
        let ends = meet(far.into(), PROOF_TIMEOUT).unwrap();
        session(ends, &programs, &Interrupt::default())
    });
    let ends = wire::ask(near.into(), &Token::of_who_starts(), PROOF_TIMEOUT);
    let (sender, receiver) = ends.unwrap();
    (sender, receiver, serving)
}

/// From then on the command tells of it, as of one that was started here.
#[test]
fn a_command_is_looked_at_until_patience_is_over_and_no_more() {
    let go = std::env::temp_dir().join(format!("millstream-go-{}", std::process::id()));
    let script = format!("until [ -e {} ]; do sleep 0.01; done; exit 3", go.display());
    let words = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let (ready, patience_ms, most_s) = (Ready::Listens, 0, 600.0);
    let command = FarCommand { words, cpu: None, raised: false, ready, patience_ms, most_s };
    let (mut sender, mut receiver, serving) = started();
    sender.send(&Request::Command(command)).unwrap();
    let Answer::Started { pid } = Answer::next(&mut receiver).unwrap() else { panic!("no pid") };
    let told = Answer::next(&mut receiver).unwrap();
    assert!(matches!(told, Answer::Outlook(Outlook::Unseen)), "{told:?}");
    std::fs::write(&go, "").unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    until("it has failed", || stat().is_empty() || stat().contains(") Z"));
    for _ in 0..3 {
        sender.send(&Request::Now).unwrap();
        let told = Answer::next(&mut receiver).unwrap();
        assert!(matches!(told, Answer::Now { .. }), "{told:?}");
    }
    sender.send(&Request::Finish).unwrap();
    assert!(matches!(Answer::next(&mut receiver).unwrap(), Answer::Finished(_)));
    sender.close();
    let _ = serving.join().unwrap();
    std::fs::remove_file(go).unwrap();
}

#[test]
fn a_command_that_may_last_longer_than_a_clock_counts_is_refused() {
    let (mut sender, mut receiver, serving) = started();
    for most_s in [1e19, 1e300, -1.0] {
        let (words, ready, patience_ms) = (vec!["true".to_owned()], Ready::Listens, 0);
        let command = FarCommand { words, cpu: None, raised: false, ready, patience_ms, most_s };
        sender.send(&Request::Command(command)).unwrap();
        assert!(refused(&mut receiver).contains("lower --timeout"));
    }
    sender.close();
    let _ = serving.join().unwrap();
}

#[test]
fn what_the_probes_saw_comes_at_the_end() {
    let server = Server::start();
    let (mut sender, mut receiver, process) = server.begun(60.0);
    sender.send(&Request::Finish).unwrap();
    let Answer::Finished(side) = Answer::next(&mut receiver).unwrap() else {
        panic!("not finished")
    };
    assert!(side.probes.times_s.len() >= 2 && side.probes.cpu.is_some());
    assert!(side.environment.get("kernel.release").is_some());
    assert!(side.interfaces.contains_key("lo") && side.origin_ns > 0);
    assert!(!process.exists());
}
