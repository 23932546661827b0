//! `millstream forget`: experiments that were kept, one that runs, and what cannot be meant.

mod common;

use std::fs;

use common::{Place, begun, hosts_possible, nothing_is_left, words};
use millstream_lab::record::{ExperimentRecord, RunRecord, Timestamp};
use millstream_lab::store::Store;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// An experiment of this name with a run of a megabyte, begun at this second.
fn keep(place: &Place, name: &str, second: u64) -> String {
    let started_at = Timestamp::from_unix_ms(1_700_000_000_000 + second * 1000);
    let experiment = ExperimentRecord::new(name, second, started_at);
    let mut run = RunRecord::new(experiment.run_id(0));
    run.experiment_id.clone_from(&experiment.id);
    run.notes.push("x".repeat(1_000_000));
    let mut store = Store::open(&place.database()).unwrap();
    store.save_experiment(&experiment).unwrap();
    store.save_run(&run).unwrap();
    experiment.id
}

fn kept(place: &Place) -> Vec<String> {
    let store = Store::open_existing(&place.database()).unwrap();
    store.experiments().unwrap().into_iter().map(|one| one.id).collect()
}

/// Exit code and words of `forget` with these.
fn forget(place: &Place, ids: &[&str]) -> (Option<i32>, String) {
    let output = place.command(&[&["forget"][..], ids].concat()).output().unwrap();
    (output.status.code(), words(&output))
}

#[test]
fn those_that_are_named_go_and_the_file_gets_smaller() {
    let place = Place::new("forget");
    let (first, second) = (keep(&place, "look", 0), keep(&place, "look", 60));
    let third = keep(&place, "sweep", 120);
    let before = fs::metadata(place.database()).unwrap().len();
    let (code, text) = forget(&place, &[&first, "sw", &third]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("Forgotten: {first} (1 run)")), "{text}");
    assert_eq!(text.matches(&third).count(), 1, "the same one twice counts once: {text}");
    assert!(text.contains(" MB, ") && text.contains(" MB before"), "{text}");
    assert_eq!(kept(&place), [second]);
    let after = fs::metadata(place.database()).unwrap().len();
    assert!(before > 3_000_000 && after < 1_100_000, "{before} to {after}");
}

#[test]
fn what_may_mean_another_takes_nothing_out() {
    let place = Place::new("forget-doubt");
    let (code, text) = forget(&place, &["look"]);
    assert!(code == Some(2) && text.contains("no store here"), "{text}");
    let (first, second) = (keep(&place, "look", 0), keep(&place, "look", 60));
    let cases: [(&[&str], &str); 4] = [
        (&[&first, "look"], "\"look\" may mean "),
        (&[&first, "lock"], "no experiment \"lock\" among 2"),
        (&[&first, ""], "no experiment \"\" among 2"),
        (&[], "<ID>..."),
    ];
    for (ids, expected) in cases {
        let (code, text) = forget(&place, ids);
        assert!(code == Some(2) && text.contains(expected), "{ids:?}: {text}");
        assert_eq!(kept(&place), [&second, &first].map(String::clone), "all or none");
    }
}

#[test]
fn one_that_runs_is_refused_and_goes_on_beside_others_that_are_forgotten() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("forget-running");
    let old = keep(&place, "old", 0);
    let child = begun(&place);
    let running = kept(&place).remove(0);
    let (code, text) = forget(&place, &[&old, &running]);
    assert!(code == Some(2) && text.contains("is running; interrupt it first"), "{text}");
    let (code, text) = forget(&place, &[&old]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(kept(&place).as_slice(), std::slice::from_ref(&running));
    let runs = place.runs().len();
    common::wait_for("another run", || place.runs().len() > runs);
    let pid = child.id();
    kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    nothing_is_left(pid, &place);
    let (code, text) = forget(&place, &[&running]);
    assert_eq!(code, Some(0), "{text}");
    assert!(kept(&place).is_empty());
}
