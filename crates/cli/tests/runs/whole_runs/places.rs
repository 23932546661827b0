//! Runs between addresses that are there already, of this host and with a second one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use millstream_record::{RunRecord, keys};
use millstream_testbed::guard::family;
use millstream_testbed::hosts::{Between, Hosts, HostsConfig, Path};
use millstream_testbed::leftovers::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::TINY;
use crate::common::{Place, hosts_possible, isolated, wait_for, words, workers_of};

const TOKEN: &str = "a token for this test alone";

#[test]
fn both_ends_of_a_run_are_at_addresses_that_are_there() {
    let place = Place::new("there");
    let arguments = ["run", "first-look", "--near", "127.0.0.3", "--far", "127.0.0.2"];
    let all: Vec<&str> = arguments.iter().chain(TINY).copied().collect();
    let output = place.command(&all).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains("the kernel keeps that on its loopback"));
    let runs = place.runs();
    assert!(!runs.is_empty());
    for run in &runs {
        assert!(run.validity.valid, "{:?}", run.validity);
        assert_eq!((run.stack.as_str(), run.far_probes.is_none()), ("kernel", true));
        let path = run.path.as_ref().unwrap();
        assert!(path.agrees && path.interface == "near/lo", "{path:?}");
    }
    let refused = place.command(&["run", "first-look", "--far", "192.0.2.1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(words(&refused).contains("this host does not have it"), "{}", words(&refused));
}

/// `millstream serve` in the far namespace.
struct Serving(Child);

impl Serving {
    fn start(place: &Place, hosts: &Hosts, control: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(["serve", "--listen", control]);
        command.env("MILLSTREAM_TOKEN", TOKEN).env("XDG_RUNTIME_DIR", &place.folder);
        command.stderr(Stdio::piped());
        let mut child = hosts.far().run(move || command.spawn()).unwrap();
        let mut line = String::new();
        let mut words = BufReader::new(child.stderr.take().unwrap());
        words.read_line(&mut line).unwrap();
        assert!(line.starts_with("serving at "), "{line}");
        std::thread::spawn(move || words.lines().count());
        Self(child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_far_end_is_on_a_second_host() {
    if !hosts_possible() {
        return;
    }
    let between = Between::Veth;
    let config = HostsConfig { mtu: 1500, offload: true, super_segment_bytes: None, between };
    let hosts = Hosts::set_up("ms-serve", config).unwrap();
    let place = Place::new("second");
    let far = Path::Veth.far_address(false).to_string();
    let control = format!("{far}:7100");
    let serving = Serving::start(&place, &hosts, &control);
    let all: Vec<&str> = ["run", "first-look", "--far", &far, "--serve", &control]
        .iter()
        .chain(TINY)
        .copied()
        .collect();
    let near = |token: &str| {
        let mut command = place.command(&all);
        command.env("MILLSTREAM_TOKEN", token);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        hosts.near().run(move || command.spawn()).unwrap()
    };
    let output = near(TOKEN).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let runs = place.runs();
    assert!(!runs.is_empty());
    for run in &runs {
        assert!(run.validity.valid, "{:?}", run.validity);
        let path = run.path.as_ref().unwrap();
        assert!(path.agrees && path.interface == "near/ms-near", "{path:?}");
        let main = if run.workload == "tcp_rr" { keys::TRANSACTIONS } else { keys::THROUGHPUT };
        assert!(run.result(main).unwrap() > 0.0);
        let probes = run.far_probes.as_ref().expect("what the far host saw");
        let (first, last) = (probes.times_s[0], *probes.times_s.last().unwrap());
        assert!(first < run.window.start_s && last > run.window.end_s, "{first} to {last}");
        assert!(probes.hosts.as_ref().unwrap()["far"].interfaces.contains_key("ms-far"));
        assert!(run.environment.get("far.kernel.release").is_some());
    }
    let wrong = near("another token, as long").wait_with_output().unwrap();
    assert!(words(&wrong).contains("it has another token"), "{}", words(&wrong));
    // The near host is killed while its load goes: that of the far one ends.
    let mut begun = near(TOKEN);
    let serve = serving.0.id();
    wait_for("the far end's worker", || !workers_of(serve).is_empty());
    begun.kill().unwrap();
    begun.wait().unwrap();
    wait_for("the end of the far load", || workers_of(serve).is_empty());
}

/// Two namespaces, in the far one of which words start the program.
struct Pair {
    place: Place,
    hosts: Hosts,
    far: String,
}

impl Pair {
    fn new(name: &str) -> Option<Self> {
        let between = Between::Veth;
        let config = HostsConfig { mtu: 1500, offload: true, super_segment_bytes: None, between };
        let hosts = || Hosts::set_up(&format!("ms-{name}"), config).unwrap();
        let hosts = hosts_possible().then(hosts)?;
        let far = Path::Veth.far_address(false).to_string();
        Some(Self { place: Place::new(name), hosts, far })
    }

    /// Words that join the far namespace.
    fn nsenter(&self) -> String {
        format!("nsenter --net={}", self.hosts.far().path().display())
    }

    /// The near end of runs whose far end `by` starts.
    fn near(&self, by: &str, more: &[&str]) -> Child {
        let all = [&["run", "first-look", "--far", &self.far, "--far-by", by], more].concat();
        let mut command = self.place.command(&all);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.hosts.near().run(move || command.spawn()).unwrap()
    }

    /// Short runs, all of which count, with what the far host saw.
    fn runs(&self, by: &str) -> Vec<RunRecord> {
        let output = self.near(by, TINY).wait_with_output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        let runs = self.place.runs();
        assert!(!runs.is_empty());
        for run in &runs {
            assert!(run.validity.valid, "{:?}", run.validity);
            let path = run.path.as_ref().unwrap();
            assert!(path.agrees && path.interface == "near/ms-near", "{path:?}");
            let probes = run.far_probes.as_ref().expect("what the far host saw");
            assert!(probes.hosts.as_ref().unwrap()["far"].interfaces.contains_key("ms-far"));
        }
        runs
    }

    /// The line that refuses a far end that `by` cannot start, without a run.
    fn refused(&self, by: &str, more: &[&str]) -> String {
        let output = self.near(by, more).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.trim().lines().count()), (Some(2), 1), "{said}");
        said
    }

    /// An investigation whose other end `by` starts in the far namespace: it goes through, and
    /// nothing of the other end stays.
    fn investigates(&self, by: &str) {
        let up = self.place.folder.join("up").display().to_string();
        let server =
            format!("sh -c 'ip link show ms-far && echo $$ >{up} && echo is up && exec sleep 600'");
        let options = ["investigate", "--figure", r"rate=(\d+)", "--runs", "8", "--no-bpf"];
        let by = ["--far-by", by, "--server", &server, "--ready", "up$"];
        let mut command = self.place.command(&[&options[..], &by].concat());
        command.arg("--out").arg(self.place.folder.join("out"));
        command.args(["--", "sh", "-c", &format!("echo rate=$(cat {up}); rm {up}")]);
        let output = self.hosts.near().run(move || command.output()).unwrap();
        assert!(output.status.success(), "{}", words(&output));
        let runs = self.place.runs();
        assert!(runs.iter().all(|run| run.validity.valid && run.far_probes.is_some()));
        let last = runs.last().unwrap().result("figure").unwrap();
        let at = format!("/proc/{last}");
        wait_for("the end of the last other end", || !std::fs::exists(&at).unwrap());
    }

    /// A name of the program by which this test's far ends are known.
    fn named(&self) -> String {
        let named = self.place.folder.join("far");
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_millstream"), &named);
        named.display().to_string()
    }

    /// A long run of that name.
    fn long(&self, by: &str) -> Child {
        self.near(by, &["--far-program", &self.named(), "--duration", "1000"])
    }

    /// Returns the process that is at work as the far end of that name, and its worker.
    fn at_work(&self) -> Option<(u32, u32)> {
        let mut all = self.far_ends().into_iter();
        all.find_map(|one| workers_of(one).first().map(|worker| (one, *worker)))
    }

    /// The far ends of that name, and their workers.
    fn far_ends(&self) -> Vec<u32> {
        let named = self.named();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let found = all.filter(|one| {
            std::fs::read(one.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(named.as_bytes()))
        });
        let ends: Vec<u32> =
            found.filter_map(|one| one.file_name().to_str()?.parse().ok()).collect();
        let workers: Vec<u32> = ends.iter().flat_map(|one| workers_of(*one)).collect();
        [ends, workers].concat()
    }

    fn is_at_work(&self) -> bool {
        self.at_work().is_some()
    }
}

fn killed(mut near: Child) {
    near.kill().unwrap();
    near.wait().unwrap();
}

/// The program that has joined the far namespace is started for each run, and ends with it.
#[test]
fn the_far_end_is_started_by_a_command() {
    let Some(pair) = Pair::new("by") else { return };
    let by = pair.nsenter();
    for run in pair.runs(&by) {
        // Both are of one kernel: the threads of both are looked at.
        let workers = run.probes.workers.as_ref().unwrap();
        assert!(workers.contains_key("far"), "{workers:?}");
    }
    // One that says nothing we know, one that ends, and one whose program is not there: one line,
    // and no run.
    let not_there = ["--far-program", "/no/such/program"];
    for (by, more, why) in [
        ("sh -c yes", &[] as &[&str], "it is no `millstream serve`"),
        ("sh -c 'exec sleep 600'", &[], "it says nothing for 20 s"),
        ("sh -c 'echo over >&2; exit 3'", &[], "it ended with exit status: 3 (over)"),
        (&by, &not_there, "/no/such/program"),
        ("/no/such/command", &[], "No such file"),
    ] {
        let said = pair.refused(by, more);
        assert!(said.contains(why), "{said}");
    }
    // The near host is killed while its load goes: nothing of the far one stays.
    let begun = pair.long(&by);
    wait_for("the far end", || !pair.far_ends().is_empty());
    killed(begun);
    wait_for("its end", || pair.far_ends().is_empty());
    // It hangs, its pipes open: the run ends with a line, and nothing of it stays.
    let mut begun = pair.long(&by);
    wait_for("the far end and its worker", || pair.is_at_work());
    let stopped = pair.far_ends();
    for process in &stopped {
        let _ = kill(Pid::from_raw(*process as i32), Signal::SIGSTOP);
    }
    let mut lines = BufReader::new(begun.stderr.take().unwrap()).lines().map_while(Result::ok);
    let ends =
        |line: &String| line.starts_with("invalid") && line.contains("it says nothing for 10 s");
    assert!(lines.any(|line| ends(&line)), "its run ends");
    let lives = |one: &u32| std::fs::exists(format!("/proc/{one}")).unwrap();
    wait_for("the end of those that hang", || !stopped.iter().any(lives));
    killed(begun);
    wait_for("its end", || pair.far_ends().is_empty());
}

/// The command is the program by the time that it works: the signal that ends it is the command's.
#[test]
fn of_a_far_end_that_dies_it_is_said_how() {
    let Some(pair) = Pair::new("died") else { return };
    let mut begun = pair.long(&pair.nsenter());
    wait_for("the far end and its worker", || pair.is_at_work());
    let (far, _) = pair.at_work().unwrap();
    kill(Pid::from_raw(far as i32), Signal::SIGKILL).unwrap();
    let mut lines = BufReader::new(begun.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("invalid")).unwrap();
    assert!(line.contains("it ended with signal: 9 (SIGKILL)"), "{line}");
    killed(begun);
    wait_for("its end", || pair.far_ends().is_empty());
}

#[test]
fn a_far_worker_has_the_priority_that_is_asked_for() {
    let may = millstream_testbed::priority::may_raise(true);
    let Some(pair) = Pair::new("raised").filter(|_| may.is_ok()) else { return };
    let more = ["--far-program", &pair.named(), "--duration", "1000", "--set", "priority=high"];
    let begun = pair.near(&pair.nsenter(), &more);
    let nice = || {
        let (_, worker) = pair.at_work()?;
        let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).ok()?;
        // The 19th field; the third is the first behind the name.
        stat.rsplit(')').next()?.split_whitespace().nth(19 - 3).map(str::to_owned)
    };
    wait_for("its priority", || nice().as_deref() == Some("-20"));
    killed(begun);
    wait_for("its end", || pair.far_ends().is_empty());
}

/// It says no word, and does not look at its input.
#[test]
fn the_command_that_leads_to_the_far_end_ends_with_a_near_end_that_is_killed() {
    let place = Place::new("by-killed");
    let pid = place.folder.join("pid");
    let by = format!("sh -c 'echo $$ >{0}.part; mv {0}.part {0}; exec sleep 600'", pid.display());
    let mut near = place.command(&["run", "first-look", "--far", "127.0.0.1", "--far-by", &by]);
    let near = near.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the command", || pid.exists());
    wait_for("its watchdog", || family(near.id()).len() > 2);
    let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let identity = ProcessIdentity::of(pid).unwrap();
    killed(near);
    wait_for("its end", || !identity.is_alive());
}

/// The two sides of a command that does as `kubectl exec -i POD --`. The `node` starts what it is
/// asked for: no signal reaches that, and it outlives the command. When the command is gone its
/// input ends and what it writes is kept; or, where the node is one that `forgets`, its input stays
/// open and what it writes has nobody. The command tells an end late, and by a status of its own.
const AS_KUBECTL: &str = r#"
import contextlib, json, os, socket, subprocess, sys, threading, time

def pass_on(source, target):
    with contextlib.suppress(OSError):
        while piece := os.read(source, 65536):
            os.write(target, piece)

def start(words, forgets, of_input, to_input, of_output, to_output, to_status, errors):
    remote = subprocess.Popen(words, stdin=of_input, stdout=to_output, stderr=errors)
    for one in of_input, to_output, errors, of_output if forgets else to_input:
        os.close(one)
    status = remote.wait() % 256
    with contextlib.suppress(OSError):
        os.write(to_status, bytes([status]))
    os.close(to_status)

side, at, *words = sys.argv[1:]
if side != "client":
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(at)
        listener.listen()
        while True:
            with listener.accept()[0] as client:
                asked, descriptors, _, _ = socket.recv_fds(client, 65536, 6)
            arguments = words + json.loads(asked), side == "forgets", *descriptors
            threading.Thread(target=start, args=arguments).start()
of_input, to_input = os.pipe()
of_output, to_output = os.pipe()
of_status, to_status = os.pipe()
with socket.socket(socket.AF_UNIX) as node:
    node.connect(at)
    descriptors = [of_input, to_input, of_output, to_output, to_status, 2]
    socket.send_fds(node, [json.dumps(words).encode()], descriptors)
for one in of_input, to_output, to_status:
    os.close(one)
print('Defaulted container "app" out of: app, proxy', file=sys.stderr, flush=True)
threading.Thread(target=lambda: (pass_on(0, to_input), os.close(to_input)), daemon=True).start()
pass_on(of_output, 1)
status = os.read(of_status, 1)[0]
time.sleep(0.2)
if status:
    sys.exit("command terminated with exit code %d" % status)
"#;

/// The command kills nothing at the far side when it ends. The far end ends by itself, as it sees
/// that the near end is gone.
#[test]
fn the_far_end_is_started_by_what_kills_nothing_there() {
    let Some(pair) = Pair::new("pod") else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        return eprintln!("skipped: no python3");
    }
    let script = pair.place.write("as_kubectl.py", AS_KUBECTL);
    let node = |side: &str| {
        let at = pair.place.folder.join(side);
        let mut command = Command::new("python3");
        command.arg(&script).arg(side).arg(&at).args(pair.nsenter().split(' '));
        let node = Serving(command.spawn().unwrap());
        wait_for("the node", || at.exists());
        (node, format!("python3 {} client {}", script.display(), at.display()))
    };
    let ((_node, by), (_other, forgotten)) = (node("node"), node("forgets"));
    pair.runs(&by);
    pair.investigates(&by);
    let said = pair.refused(&by, &["--far-program", "/no/such/program"]);
    let ended = "it ended with exit status: 1 (Defaulted container";
    assert!(said.contains(ended) && said.contains("with exit code 127"), "{said}");
    // The near end is killed, which ends the command's input; or both are, at once.
    for (by, with_command) in [(&by, false), (&by, true), (&forgotten, true)] {
        let begun = pair.long(by);
        wait_for("the far end and its worker", || pair.is_at_work());
        let started = if with_command { family(begun.id()) } else { vec![] };
        killed(begun);
        for one in started.iter().skip(1) {
            let _ = kill(Pid::from_raw(*one as i32), Signal::SIGKILL);
        }
        wait_for("the end of what was started", || pair.far_ends().is_empty());
    }
}

/// A shell over ssh, to a server of this test alone.
#[test]
fn the_far_end_is_started_by_ssh() {
    let place = Place::new("ssh");
    let at = |name: &str| place.folder.join(name).display().to_string();
    let key = |name: &str| {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)])
            .status();
        made.is_ok_and(|status| status.success())
    };
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root || !std::path::Path::new("/usr/sbin/sshd").exists() || !key("host") || !key("user")
    {
        eprintln!("skipped: it needs root, /usr/sbin/sshd and ssh");
        return;
    }
    std::fs::create_dir_all("/run/sshd").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
         PermitRootLogin yes\nPidFile none\n",
        at("host"),
        at("user.pub")
    );
    let config = place.write("sshd_config", &config);
    let mut command = Command::new("/usr/sbin/sshd");
    command.args(["-D", "-e", "-f"]).arg(config).stderr(Stdio::null());
    let _server = Serving(isolated(&place.folder, &command).spawn().unwrap());
    wait_for("sshd", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let by = format!(
        "ssh -q -F none -p {port} -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes 127.0.0.1",
        at("user")
    );
    let all: Vec<&str> = ["run", "first-look", "--far", "127.0.0.1", "--far-by", &by]
        .iter()
        .chain(TINY)
        .copied()
        .collect();
    let output = place.command(&all).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let runs = place.runs();
    assert!(!runs.is_empty());
    for run in &runs {
        assert!(run.validity.valid && run.far_probes.is_some(), "{:?}", run.validity);
    }
}
