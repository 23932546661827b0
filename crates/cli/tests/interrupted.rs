//! Runs that are interrupted or killed: what was finished is kept, and nothing
//! is left behind.

mod common;

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Place, hosts_possible, words};
use millstream_lab::netlink::Netlink;
use millstream_lab::store::Store;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Starts a long experiment and waits until a run is kept and the next one goes.
fn begun(place: &Place) -> Child {
    let arguments = ["run", "first-look", "--repeats", "50", "--duration", "0.4", "--warmup", "0"];
    let child =
        place.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let kept = || {
        let store = Store::open_existing(&place.database()).ok()?;
        let experiment = store.latest(None).ok()??;
        Some(store.runs(&experiment.id).ok()?.len())
    };
    wait_for("a finished run", || kept().is_some_and(|n| n > 0));
    wait_for("a worker", || !workers_of(child.id()).is_empty());
    child
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Process numbers of the workers that this process has started.
fn workers_of(parent: u32) -> Vec<u32> {
    let mine = format!("worker\0{parent}\0");
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.ends_with(&mine))
    })
    .collect()
}

/// A namespace lives as long as a process in it or a mount of it.
fn nothing_is_left(pid: u32, place: &Place) {
    wait_for("the end of the workers", || workers_of(pid).is_empty());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let held = |line: &&str| line.contains(" nsfs ") && line.contains("ms-");
    assert_eq!(mounts.lines().find(held), None, "a namespace is held by a mount");
    let interfaces = Netlink::route().unwrap().interfaces().unwrap();
    assert!(interfaces.iter().all(|i| !i.name.starts_with("ms-")), "{interfaces:?}");
    let markers = markers(place);
    assert!(markers.is_empty(), "{markers:?}");
}

/// Marker files of the test's own state folder.
fn markers(place: &Place) -> Vec<std::path::PathBuf> {
    let folder = place.folder.join("millstream");
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}

#[test]
fn kill_9_leaves_the_finished_runs_and_nothing_else() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("killed");
    let mut child = begun(&place);
    let pid = child.id();
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let kept = place.runs();
    assert!(!kept.is_empty() && kept.len() < 300);
    assert_eq!(markers(&place).len(), 1, "the marker of the killed run");
    let again = ["run", "first-look", "--stack", "kernel", "--repeats", "1", "--duration", "0.2"];
    let output = place.command(&again).args(["--warmup", "0"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains("whose owner is gone"), "{}", words(&output));
    nothing_is_left(pid, &place);
    let store = Store::open_existing(&place.database()).unwrap();
    let experiments = store.experiments().unwrap();
    assert_eq!(experiments.len(), 2);
    assert_eq!(experiments[0].runs, 3, "the new one");
    assert_eq!(experiments[1].runs as usize, kept.len(), "the killed one");
    assert_eq!(experiments[1].finished_at, None);
}

#[test]
fn an_interrupt_keeps_what_was_finished_and_says_so() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("interrupted");
    let child = begun(&place);
    let pid = child.id();
    kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", words(&output));
    let text = words(&output);
    assert!(text.contains("finished runs are kept") && text.contains("Page: "), "{text}");
    assert!(!place.runs().is_empty());
    nothing_is_left(pid, &place);
    let page = std::fs::read_dir(place.folder.join("out")).unwrap().flatten().next().unwrap();
    assert!(Path::new(&page.path()).extension().is_some_and(|e| e == "html"));
}
