//! Runs by way of a router on a third host. Each takes a second, for its hosts are made and its far
//! end waits until nothing has come for a while.

use crate::common::{Place, hosts_possible, words};
use millstream_record::{RunRecord, keys};

/// Runs the built-in experiment for a moment.
fn forward(name: &str, arguments: &[&str]) -> Option<(Vec<RunRecord>, String)> {
    if !hosts_possible() {
        return None;
    }
    let place = Place::new(name);
    let paced = ["run", "forward", "--steady-cpus", "false", "--set", "send_packets_per_s=20000"];
    let output = place.command(&[&paced[..], super::TINY, arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    Some((place.runs(), words(&output)))
}

fn check(run: &RunRecord) {
    let label = format!("{} {}", run.stack, run.configuration());
    assert!(run.validity.valid, "{label}: {:?}", run.validity);
    assert!(run.path.as_ref().unwrap().agrees, "{label}: {:?}", run.path);
    assert!(run.result(keys::PACKETS).unwrap() > 0.0, "{label}");
    let of = |key| run.result(key).unwrap_or_else(|| panic!("{label}: {key}"));
    assert!(0.0 < of(keys::LATENCY_P50) && of(keys::LATENCY_P50) <= of(keys::LATENCY_P99));
    assert!(of(keys::LOST) < 100.0, "{label}");
}

#[test]
fn the_kernel_and_a_bare_loop_hand_on() {
    let arguments = ["--stack", "kernel,bare", "--set", "router_link=tap"];
    let Some((runs, text)) = forward("routed", &arguments) else { return };
    assert_eq!(runs.len(), 2);
    runs.iter().for_each(check);
    assert!(text.contains("the kernel's forwarding"), "{text}");
    let bare = runs.iter().find(|run| run.stack == "bare").unwrap();
    let router = bare.probes.engines.iter().find(|engine| engine.role == "router").unwrap();
    assert!(router.links.iter().all(|link| link.counters["tx_packets"] > 0), "{router:?}");
    assert!(bare.environment.get("placement.router_cpu").is_some());
}

#[test]
fn millstream_hands_on_over_every_kind_of_link() {
    let set = ["--set", "router_link=tap,xdp,packet", "--set", "flows=3", "--set", "ip=v6"];
    let Some((runs, _)) = forward("links", &[&["--stack", "millstream"], &set[..]].concat()) else {
        return;
    };
    assert_eq!(runs.len(), 3);
    for run in &runs {
        check(run);
        let router = run.probes.engines.iter().find(|engine| engine.role == "router").unwrap();
        assert!(router.counters["forwarded"] > 0, "{router:?}");
        assert!(run.results.keys().any(|key| key.starts_with(keys::STAGE_SHARE)));
    }
}

#[test]
fn a_bare_loop_is_no_stack_and_a_router_has_no_path() {
    let place = Place::new("no-stack");
    for (arguments, why) in [
        (&["first-look", "--stack", "bare"][..], "allowed: kernel, millstream"),
        (&["forward", "--set", "path=impaired"], "no factor 'path' for forward"),
        (
            &["forward", "--stack", "kernel", "--set", "ring_packets=64"],
            "changes nothing on kernel",
        ),
    ] {
        let output = place.command(&[&["run"], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(words(&output).contains(why), "{}", words(&output));
    }
}
