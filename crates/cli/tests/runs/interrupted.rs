//! Runs that are interrupted or killed: what was finished is kept, and nothing
//! is left behind.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use millstream_record::store::Store;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    Place, begun, hosts_possible, markers, nothing_is_left, wait_for, words, workers_of,
};

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
    // It may have been about to write its marker anew.
    let mut left = markers(&place);
    left.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    assert_eq!(left.len(), 1, "the marker of the killed run alone: {left:?}");
    let again = ["run", "first-look", "--stack", "kernel", "--repeats", "1", "--duration", "1"];
    let output = place.command(&again).args(["--warmup", "0"]).output().unwrap();
    // 1: a run that does not count, on a machine too busy for it.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", words(&output));
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

#[test]
fn a_second_interrupt_ends_it_at_once_and_the_next_start_tidies_up() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("twice");
    let mut child = begun(&place);
    let pid = child.id();
    for _ in 0..2 {
        kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();
        // Two that come together are one: signal(7).
        sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!place.runs().is_empty());
    wait_for("the end of the workers", || workers_of(pid).is_empty());
    let tiny = ["run", "first-look", "--stack", "millstream", "--set", "link=memory"];
    let rest = ["--repeats", "1", "--duration", "1", "--warmup", "0"];
    let output = place.command(&tiny).args(rest).output().unwrap();
    // 1: a run that does not count, on a machine too busy for it.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", words(&output));
    nothing_is_left(pid, &place);
}

/// Returns true if a process still ignores SIGINT, as a shell's background job inherits it.
fn ignores_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 2 != 0)
}

#[test]
fn an_interrupt_at_any_moment_leaves_nothing() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("any-moment");
    for after_ms in [0, 10, 30, 60, 100, 150, 220, 300, 380, 450, 520, 600, 800, 1100] {
        let arguments = ["run", "first-look", "--repeats", "2", "--duration", "0.2"];
        let mut command = place.command(&arguments);
        command.args(["--warmup", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = child.id();
        wait_for("interrupts to count", || !ignores_interrupts(pid));
        sleep(Duration::from_millis(after_ms));
        kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        // Before there is anything to keep, the signal ends the process as it ends any other.
        let early = output.status.signal() == Some(Signal::SIGINT as i32);
        assert!(early || output.status.code() == Some(130), "{after_ms} ms: {}", words(&output));
        nothing_is_left(pid, &place);
    }
}
