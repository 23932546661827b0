//! The commands that look at engines which run.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use millstream::link::{PairConfig, pair};
use millstream::{Engine, EngineConfig, LiveConfig};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_millstream");

/// Tells the copy of this program that is to have an engine where to publish it.
const ENGINE: &str = "MILLSTREAM_TEST_ENGINE";
/// Tells it how many more sockets that engine has.
const SOCKETS: &str = "MILLSTREAM_TEST_SOCKETS";

/// A directory, and a program with an engine in it.
struct World {
    directory: PathBuf,
    program: Child,
}

impl World {
    fn new(name: &str) -> Self {
        Self::with_sockets(name, 0)
    }

    fn with_sockets(name: &str, sockets: usize) -> Self {
        let directory = std::env::temp_dir().join(format!("ms-live-{}-{name}", std::process::id()));
        let program = start(&directory, sockets);
        Self { directory, program }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("MILLSTREAM_LIVE_DIR", &self.directory);
        command.output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let object: Value = serde_json::from_str(&self.text(arguments)).unwrap();
        assert_eq!(object["format"], 1, "{arguments:?}");
        object
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Starts a program with an engine; it is published when this returns.
fn start(directory: &Path, sockets: usize) -> Child {
    let own = std::env::current_exe().unwrap();
    let mut program = Command::new(own)
        .args(["--exact", "live::an_engine_for_the_other_tests", "--nocapture"])
        .env(ENGINE, directory)
        .env(SOCKETS, sockets.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    let stdout = program.stdout.as_mut().unwrap();
    while !said.ends_with(b"ready\n") {
        stdout.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    program
}

/// Not a test by itself: the engine that others look at. It has a listener, a connection that
/// nobody answers, a link, a socket that sends datagrams to itself, and a malformed packet that it
/// has dropped. It ends when it is killed.
#[test]
fn an_engine_for_the_other_tests() {
    let Some(directory) = std::env::var_os(ENGINE) else { return };
    let config = LiveConfig::new("looked-at").directory(directory);
    let mut config = EngineConfig::default().stage_sample(1).live(config);
    config.limits.udp_sockets = 16_384;
    let mut engine = Engine::new(config).unwrap();
    let (near, mut far) = pair(PairConfig::default()).unwrap();
    let link = engine.add_link(Box::new(near)).unwrap();
    engine.add_address(link, "10.9.0.1/24".parse().unwrap()).unwrap();
    engine.sockets().tcp_listen("10.9.0.1:7".parse().unwrap(), 4).unwrap();
    engine.sockets().tcp_connect("10.9.0.2:80".parse().unwrap()).unwrap();
    let mut batch = millstream::packet::PacketBatch::new();
    let damaged = millstream::packet::Packet::from_slice(engine.pool(), 0, &[0xff; 20]).unwrap();
    batch.push(damaged).unwrap();
    millstream::link::Link::transmit(&mut far, engine.now(), &engine.pool().clone(), &mut batch)
        .unwrap();
    engine.links().add_loopback().unwrap();
    let own = "127.0.0.1:9".parse().unwrap();
    let talking = engine.sockets().udp_bind(own).unwrap();
    let sockets = std::env::var(SOCKETS).map_or(0, |count| count.parse().unwrap());
    for _ in 0..sockets {
        engine.sockets().udp_bind("10.9.0.1:0".parse().unwrap()).unwrap();
    }
    let (mut is_told, mut sent) = (false, Instant::now());
    loop {
        engine.run_once(Some(Duration::from_millis(5))).unwrap();
        // So that it sleeps, too.
        if sent.elapsed() >= Duration::from_millis(5) {
            sent = Instant::now();
            let _ = engine.udp(talking).send(b"hello", Some(own));
        }
        let _ = engine.udp(talking).recv(&mut [0; 8]);
        // Twice 10 ms are over: all of it is published.
        if !is_told && engine.stats().turns > 20 {
            is_told = true;
            println!("ready");
        }
    }
}

#[test]
fn each_command_shows_the_engine_as_text_and_as_json() {
    let world = World::new("shows");
    let text = world.text(&["ps"]);
    assert!(text.starts_with("ID ") && text.contains("looked-at-"), "{text}");
    let engines = world.json(&["ps", "--json"]);
    let engine = &engines["engines"][0];
    assert_eq!(engine["pid"], world.program.id());
    assert_eq!((&engine["listeners"], &engine["running"]), (&Value::from(1), &Value::from(true)));

    let drops = world.json(&["drops", "--json"]);
    assert_eq!(drops["drops"][0]["count"], 1, "{drops}");
    assert!(world.text(&["drops"]).lines().count() == 2);
    assert!(world.text(&["drops", "--all"]).contains("no_route"));

    let text = world.text(&["netstat", "-i", "0.02", "-n", "3"]);
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(world.text(&["netstat"]).contains("total"));
    let log = world.directory.join("log");
    let log = log.to_str().unwrap();
    world.text(&["netstat", "-i", "0.02", "-n", "3", "--log", log]);
    world.text(&["netstat", "-i", "0.02", "-n", "2", "--log", log]);
    let looks = fs::read_to_string(log).unwrap();
    assert_eq!(looks.lines().count(), 5, "{looks}");
    // The first look of either is since the engine began, and no burst.
    let bursts = world.text(&["netstat", "--bursts", log]);
    assert!(bursts.starts_with("looked-at-") && bursts.contains(": 3 intervals, "), "{bursts}");
    fs::remove_file(log).unwrap();
    let netstat = world.json(&["netstat", "looked-at", "--json"]);
    assert_eq!(netstat["links"][0]["rx_packets"], 1, "{netstat}");

    let stages = world.json(&["stages", "--json"]);
    assert!(stages["stages"].as_array().unwrap().iter().any(|stage| stage["stage"] == "receive"));
    assert!(world.text(&["stages"]).contains("distribution"));

    // The one interval that is shown has rates of the engine.
    let top = world.json(&["top", "--json", "--no-bpf", "-n", "1", "-d", "0.1"]);
    assert!(top["engines"]["all"][0]["busy_turns_per_s"].is_number(), "{top}");

    // It is counted on between the commands.
    let flow = ["stages", "looked-at", "--flow", "udp0.0", "--sample", "1", "--seconds", "0"];
    let mut looks = (0..100).map(|_| world.json(&[&flow[..], &["--json"]].concat()));
    let counted = looks.find(|stages| stages["traces"].as_u64() > Some(0));
    assert_eq!(counted.expect("a datagram is counted")["flow"], "udp0.0");
    let text = world.text(&flow);
    assert!(text.starts_with("udp0.0: ") && text.contains("stage=receive_queue"), "{text}");
    assert_eq!(world.run(&["stages", "--flow", "tcp77.0"]).status.code(), Some(2));

    let metrics = world.text(&["metrics"]);
    assert!(metrics.contains("# TYPE millstream_turns_total counter\n"), "{metrics}");
    assert!(metrics.contains("millstream_tcp_sockets{") && metrics.contains("le=\"+Inf\""));
    assert!(
        metrics.contains("millstream_timers_armed{") && metrics.contains("kind=\"retransmit\"")
    );
    is_plain_prometheus(&metrics);
}

#[test]
fn each_command_shows_all_engines_or_the_one_that_is_meant() {
    let world = World::new("several");
    let mut second = start(&world.directory, 0);
    let pids = [world.program.id(), second.id()].map(|pid| pid.to_string());
    let engine = |line: &str| line.starts_with("engine looked-at-");
    for command in
        ["ss", "ss -i", "ss -a", "census", "links", "pool", "neigh", "route", "groups", "timers"]
            .into_iter()
            .chain(["timers -v", "drops", "netstat", "stages", "queue udp0.0", "queue udp0.0 -v"])
    {
        let words: Vec<&str> = command.split(' ').collect();
        let text = world.text(&words);
        assert_eq!(text.lines().filter(|line| engine(line)).count(), 2, "{command}: {text}");
        // A value that is not set is absent, not the largest number.
        assert!(!text.contains(&u64::MAX.to_string()), "{command}: {text}");
        assert!(!text.contains(&u32::MAX.to_string()), "{command}: {text}");
        for pid in &pids {
            let one = world.text(&[&words[..], &["--engine", pid]].concat());
            assert!(!one.lines().any(engine), "{command}: {one}");
            if !["queue", "route"].contains(&words[0]) {
                let json = world.json(&[&words[..], &["--engine", pid, "--json"]].concat());
                let id = json["engine"].as_str().unwrap();
                assert!(id.contains(pid.as_str()), "{command}: {json}");
            }
        }
        let json = world.text(&[&words[..], &["--json"]].concat());
        assert!(json.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{json}");
    }
    let text = world.text(&["netstat", "-i", "0.02", "-n", "2"]);
    assert_eq!(text.lines().filter(|line| line.contains("looked-at-")).count(), 4, "{text}");
    // Both have it: one must be named.
    assert_eq!(world.run(&["events", "tcp0.0", "--seconds", "0"]).status.code(), Some(2));
    world.text(&["events", "tcp0.0", "--seconds", "0", "--engine", &pids[1]]);
    assert_eq!(world.run(&["ss", "--engine", "nobody"]).status.code(), Some(2));
    second.kill().unwrap();
    second.wait().unwrap();
    // One that has ended without a word is there no more.
    assert!(!world.text(&["ss"]).lines().any(engine));
}

/// Each name is of Prometheus' base units, has its meaning, and one type before its samples; each
/// sample is a number.
fn is_plain_prometheus(text: &str) {
    let mut family = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, meaning) = help.split_once(' ').expect("a meaning");
            assert!(meaning.ends_with('.'), "{line}");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let (same, kind) = kind.and_then(|kind| kind.split_once(' ')).expect("a type");
            assert_eq!((same, kind == "counter"), (name, name.ends_with("_total")), "{line}");
            assert!(!["_ns", "_us", "_ms"].iter().any(|unit| name.contains(unit)), "{line}");
            family = name.to_owned();
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a sample");
        let name = sample.split_once('{').expect("labels").0;
        let parts = ["", "_bucket", "_count"].map(|part| format!("{family}{part}"));
        assert!(parts.iter().any(|part| part == name), "{line}: {family}");
        assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
    }
}

#[test]
fn an_engine_that_runs_answers_about_its_sockets_and_queues() {
    let world = World::new("asks");
    let text = world.text(&["ss"]);
    assert!(text.contains("LISTEN") && text.contains("SYN-SENT"), "{text}");
    let sockets = world.json(&["ss", "--json"]);
    let connection = &sockets["sockets"][1];
    assert_eq!(connection["remote"], "10.9.0.2:80", "{sockets}");
    assert!(connection["ssthresh_bytes"].is_null() && connection["srtt_us"].is_null());
    let id = connection["id"].as_str().unwrap();
    assert!(world.text(&["ss", "-i"]).contains("cwnd_bytes:"));
    let text = world.text(&["queue", id, "-v"]);
    assert!(text.contains("send queue") && text.contains("0 segments"), "{text}");
    assert!(world.text(&["census"]).starts_with("0 segments"));
    assert_eq!(world.json(&["links", "--json"])["links"][0]["mtu_bytes"], 1500);
    assert!(world.text(&["pool"]).contains("\ntcp-send "));
    let links = world.text(&["links"]);
    assert!(links.starts_with("link ") && links.lines().nth(1).unwrap().contains(" 0 "), "{links}");
    // A counter that came to nothing is shown as zero, for the pair and for the loopback.
    let calls = links.lines().find(|line| line.starts_with("rx_syscalls ")).unwrap();
    assert_eq!(calls.split_whitespace().collect::<Vec<_>>(), ["rx_syscalls", "0", "0"], "{links}");
    let text = world.text(&["neigh"]);
    assert!(text.contains("10.9.0.2") && text.contains("INCOMPLETE"), "{text}");
    assert!(text.contains("neighbors entries 1 ") && text.contains(" evicted 0 "), "{text}");
    // The SYN, and those that came after it on a busy machine.
    let neighbors = world.json(&["neigh", "--json"]);
    assert!(neighbors["neigh"][0]["pending_packets"].as_u64() >= Some(1), "{neighbors}");
    assert!(world.text(&["route"]).contains("10.9.0.0/24 dev "));
    assert!(world.text(&["route", "10.9.0.0/16", "--json"]).contains("\"metric\":0"));
    assert!(world.text(&["route", "--get", "10.9.0.9"]).starts_with("10.9.0.9 dev "));
    assert_eq!(world.run(&["route", "--get", "99.0.0.1"]).status.code(), Some(2));
    assert_eq!(world.run(&["route", "nonsense"]).status.code(), Some(2));
    assert!(world.text(&["groups"]).starts_with("group  link"), "nobody joined one");
    let text = world.text(&["timers", "-v"]);
    assert!(text.contains("retransmit") && text.contains("tcp0.0"), "{text}");
    assert!(world.json(&["timers", "--json"])["timers"].is_array());
    assert_eq!(world.json(&["ss", "--all", "--json"])["sockets"].as_array().unwrap().len(), 3);
    assert!(world.text(&["queue", "listen0.0", "-v"]).contains("accept queue"));
    let refused = world.run(&["queue", "tcp77.0"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// A file that was written of an engine says what the engine said: each command shows the same of
/// either, while nothing changes.
#[test]
fn a_snapshot_is_looked_at_as_the_engine_was() {
    let world = World::new("kept");
    let [before, after] = ["before", "after"].map(|name| world.directory.join(name));
    let [before, after] = [before.to_str().unwrap(), after.to_str().unwrap()];
    // It publishes what it has dropped within some milliseconds.
    while !world.text(&["drops"]).contains("malformed") {}
    // A socket of the kernel's, which is gone when somebody looks.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, fd) = (listener.local_addr().unwrap().port(), listener.as_raw_fd());
    world.text(&["snapshot", before]);
    drop(listener);
    let text = world.text(&["ss", "-kp", "--from", before, &format!("sport = :{port}")]);
    let owner = format!("({},fd={fd})", std::process::id());
    assert!(text.contains("kernel  tcp:") && text.contains(&owner), "{text}");
    let text = world.text(&["ss", "-p", "--from", before]);
    assert!(text.contains(&format!("-({},thread=", world.program.id())), "{text}");
    for command in [
        "ps",
        "ss",
        "queue listen0.0 -v",
        "queue listen0.0",
        "census",
        "census -x",
        "links",
        "pool",
        "neigh",
        "route",
        "groups",
        "timers",
        "timers -v",
        "drops",
        "netstat",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let [live, kept] = [&[][..], &["--from", before]].map(|from| {
            let text = world.text(&[&words[..], from].concat());
            // What counts on has other numbers in the same places.
            text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(live, kept, "{command}");
    }
    assert!(world.text(&["stages", "--from", before]).contains("receive "));
    let kept = world.json(&["ss", "--json", "--from", before]);
    assert_eq!(kept["sockets"][1]["remote"], "10.9.0.2:80");
    let refused = world.run(&["route", "--get", "10.9.0.9", "--from", before]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("no answer to"), "{said}");
    world.text(&["snapshot", after]);
    let compared = world.text(&["snapshot", "--compare", before, after]);
    let turns = compared.lines().find(|line| line.starts_with("turns ")).expect("it goes on");
    assert!(turns.contains('+'), "{turns}");
    let of_kernel = compared.split("\nkernel\n").nth(1).expect("one is gone");
    assert!(of_kernel.lines().any(|line| line.contains("  LISTEN → -")), "{compared}");
    fs::write(after, &fs::read(before).unwrap()[..200]).unwrap();
    assert_eq!(world.run(&["ps", "--from", after]).status.code(), Some(2), "cut short");
}

#[test]
fn sockets_are_chosen_ordered_and_told_with_whose_they_are() {
    let world = World::new("chosen");
    let ids = |words: &[&str]| -> Vec<String> {
        let all = world.text(&[&["ss", "--lines"], words].concat());
        let ids = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["listen0.0", "tcp0.0", "udp0.0"]);
    assert_eq!(ids(&["state", "listening"]), ["listen0.0"]);
    assert_eq!(ids(&["looked-at", "( dport = :80 or sport = :9 )"]), ["tcp0.0", "udp0.0"]);
    assert_eq!(ids(&["--order", "send_q", "--limit", "1"]), ["listen0.0"]);
    assert_eq!(world.run(&["ss", "dport", "=", "x"]).status.code(), Some(2));
    // The kernel's beside them: that of this test, with its descriptor.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, fd) = (listener.local_addr().unwrap().port(), listener.as_raw_fd());
    let text = world.text(&["ss", "-k", "-p", &format!("sport = :{port}")]);
    let owner = format!("({},fd={fd})", std::process::id());
    assert!(text.starts_with("engine ") && text.contains(&owner), "{text}");
    let text = world.text(&["ss", "-p"]);
    // The thread that drives the engine has the name of its test, or is the first one.
    let pid = world.program.id();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|one| one.unwrap().path());
    let is_driver = |one: &PathBuf| {
        fs::read_to_string(one.join("comm")).is_ok_and(|name| name.starts_with("live::an_engine"))
    };
    let thread = threads.filter(is_driver).map(|one| one.file_name().unwrap().to_owned()).next();
    let thread = thread.unwrap_or_else(|| pid.to_string().into());
    let owner = format!("({pid},thread={},looked-at-", thread.display());
    assert!(text.lines().nth(1).unwrap().contains(&owner), "{text}");
}

/// `ss` writes each of ten thousand sockets, an engine's or the kernel's, as an object in a line.
#[test]
fn very_many_sockets_are_a_line_of_json_each() {
    const COUNT: usize = 10_000;
    let world = World::with_sockets("many", COUNT);
    let sockets: Vec<_> =
        (0..200).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let text = world.text(&["ss", "-k", "--lines"]);
    let (mut of_engine, mut of_kernel) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let one: Value = serde_json::from_str(line).unwrap();
        let keys = ["id", "state", "local", "recv_q", "engine", "format"];
        assert!(keys.iter().all(|key| !one[key].is_null()), "{line}");
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        match one["engine"].as_str() {
            Some("kernel") => of_kernel.insert(text("local")),
            _ => of_engine.insert(text("id")),
        };
    }
    // The listener, the connection and the one that talks are beside them.
    assert_eq!(of_engine.len(), COUNT + 3);
    let is_there =
        |one: &std::net::UdpSocket| of_kernel.contains(&one.local_addr().unwrap().to_string());
    assert!(sockets.iter().all(is_there));
    assert_eq!(world.text(&["ss", "--order", "recv_q", "--limit", "5"]).lines().count(), 6);
}

#[test]
fn what_a_killed_engine_has_left_is_removed_by_the_next_look() {
    let mut world = World::new("killed");
    world.program.kill().unwrap();
    world.program.wait().unwrap();
    assert_ne!(fs::read_dir(&world.directory).unwrap().count(), 0);
    assert_eq!(world.text(&["ps"]).lines().count(), 1, "only the heading");
    assert_eq!(fs::read_dir(&world.directory).unwrap().count(), 0);
    let refused = world.run(&["drops"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no engine of this user"));
}

#[test]
fn a_file_that_is_no_segment_is_named_and_left_alone() {
    let world = World::new("strange");
    let strange = world.directory.join("strange-1-0.live");
    // Somebody holds it, so it is not taken for one that an engine has left.
    let file = fs::File::create(&strange).unwrap();
    file.lock().unwrap();
    fs::write(&strange, vec![0x5a; 5000]).unwrap();
    let done = world.run(&["ps"]);
    assert!(done.status.success());
    assert!(String::from_utf8_lossy(&done.stderr).contains("not a segment"));
    assert!(String::from_utf8_lossy(&done.stdout).contains("looked-at-"));
    assert!(strange.exists());
}

#[test]
fn prometheus_is_served_on_this_machine_and_strangers_only_where_that_is_said() {
    let world = World::new("served");
    let refused = world.run(&["metrics", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(2));
    let mut server = Command::new(PROGRAM)
        .args(["metrics", "--listen", "127.0.0.1:0"])
        .env("MILLSTREAM_LIVE_DIR", &world.directory)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"\n") {
        server.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    let said = String::from_utf8(said).unwrap();
    let address = said.trim().trim_start_matches("serving http://").trim_end_matches("/metrics");
    let ask = |request: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(request);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(
        ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .contains("millstream_turns_total{")
    );
    // More than a request may have, and nothing that is one.
    assert!(!ask(&[b'x'; 10_000]).contains("200 OK"));
    assert!(ask(b"GET /else HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask(b"GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
    server.kill().unwrap();
    server.wait().unwrap();
}
