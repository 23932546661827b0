//! Runs between addresses that are there already, of this host and with a second one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use millstream_record::keys;
use millstream_testbed::hosts::{Between, Hosts, HostsConfig, Path};

use super::TINY;
use crate::common::{Place, hosts_possible, wait_for, words, workers_of};

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
