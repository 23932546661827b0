//! `millstream forget`: experiments that were kept, one that runs, and what cannot be meant.

#[path = "../../../record/src/store/tests/test_server.rs"]
mod test_server;

use std::fs;

use millstream_record::store::{Location, Store};
use millstream_record::{ExperimentRecord, RunRecord, Timestamp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_server::TestServer;

use crate::common::{self, Place, begun, hosts_possible, nothing_is_left, words};

/// An experiment of this name with a run of a megabyte, begun at this second.
fn keep(place: &Place, name: &str, second: u64) -> String {
    let started_at = Timestamp::from_unix_ms(1_700_000_000_000 + second * 1000);
    let experiment = ExperimentRecord::new(name, second, started_at);
    let mut run = RunRecord::new(experiment.run_id(0));
    run.experiment_id.clone_from(&experiment.id);
    run.environment.set("near.cmdline", "x".repeat(1_000_000));
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

/// Four runs of the kernel at a rate each, in megabits per second.
fn measured(place: &Place, second: u64, rate: f64) -> String {
    measured_in(&mut Store::open(&place.database()).unwrap(), second, rate)
}

fn measured_in(store: &mut Store, second: u64, rate: f64) -> String {
    let started_at = Timestamp::from_unix_ms(1_700_000_000_000 - second * 1000);
    let mut experiment = ExperimentRecord::new("look", second, started_at);
    experiment.stacks = vec!["kernel".to_owned()];
    store.save_experiment(&experiment).unwrap();
    for order in 0..4 {
        let mut run = RunRecord::new(experiment.run_id(order));
        run.experiment_id.clone_from(&experiment.id);
        (run.workload, run.stack) = ("tcp_stream".to_owned(), "kernel".to_owned());
        (run.order, run.block) = (order, order);
        run.results.insert("throughput_bits_per_s".to_owned(), rate * 1e6);
        store.save_run(&run).unwrap();
    }
    experiment.id
}

/// The clock went back between the two: the order of keeping is what counts.
#[test]
fn a_before_and_an_after_are_compared_and_never_pooled_unasked() {
    let place = Place::new("beside");
    let (before, after) = (measured(&place, 0, 200.0), measured(&place, 3 * 86_400, 100.0));
    let shown = |words: &[&str]| {
        let output = place.command(&[&["show"][..], words].concat()).output().unwrap();
        assert!(output.status.success(), "{}", common::words(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(shown(&[]).starts_with(&after), "the one that was kept last");
    let text = shown(&[&before, &after]);
    let row = |experiment: &str| {
        let mut lines =
            text.lines().skip_while(|line| !line.ends_with(&format!("experiment={experiment}")));
        lines
            .nth(1)
            .unwrap_or_else(|| panic!("{text}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row(&before), "throughput kernel 200 Mbit/s 200 to 200 4");
    assert_eq!(row(&after), "throughput kernel 100 Mbit/s 100 to 100 4 0.50 (0.50 to 0.50) worse");
    assert!(
        text.contains(&format!("experiment={after} against {before}, kernel: throughput 0.50"))
    );
    let text = shown(&[&before, &after, "--pool"]);
    assert!(text.contains("150 Mbit/s") && text.contains("Pooled into one sample"), "{text}");
    // The records are as they were kept, in either case.
    let lines = shown(&[&before, &after, "--json", "-"]);
    let ids: Vec<RunRecord> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(ids.len() == 8 && ids.iter().all(|run| run.factors.is_empty() && run.order < 4));
}

/// All that reads or writes kept runs, over a database of a server. It makes a server: two seconds
/// on a quiet machine.
#[test]
fn a_server_keeps_what_a_file_keeps() {
    let Some(server) = TestServer::start() else { return };
    let place = Place::new("server");
    let url = server.url("postgres");
    let with_password = url.replacen('@', ":secret@", 1);
    let told = |url: &str, words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(words).args(["--db", url]).current_dir(&place.folder);
        let output = command.env("XDG_RUNTIME_DIR", &place.folder).output().unwrap();
        let text = words_without_secret(&output);
        (output.status.code(), text)
    };
    assert_eq!(told(&url, &["list"]).0, Some(0));
    let (code, text) = told(&url, &["show"]);
    assert!(code == Some(2) && text.contains("no store here"), "{text}");
    let (code, text) = told(&server.url("nowhere"), &["run", "first-look"]);
    assert!(code == Some(2) && text.contains("createdb"), "{text}");

    let run = "run first-look --stack millstream --set link=memory --repeats 1 --duration 0.1 \
               --warmup 0 --steady-cpus false";
    let run: Vec<&str> = run.split_whitespace().collect();
    let (code, text) = told(&with_password, &run);
    assert!(code == Some(0) && text.contains(&format!("in {url}")), "{text}");
    let location = Location::parse(url.as_ref()).unwrap();
    let mut store = Store::open_existing(&location).unwrap();
    let done = store.latest(None).unwrap().unwrap();
    let records = format!("{done:?} {:?}", store.runs(&done.id).unwrap());
    assert!(done.finished_at.is_some() && !records.contains("secret"), "{records}");

    let (before, after) = (measured_in(&mut store, 0, 200.0), measured_in(&mut store, 60, 100.0));
    for words in [
        &["list"][..],
        &["show", &before, &after],
        &["report", &done.id],
        &["compare", &before, &after],
        &["export", "--out", "exported"],
        &["forget", &before, &done.id],
    ] {
        let (code, text) = told(&with_password, words);
        assert_eq!(code, Some(0), "{words:?}: {text}");
    }
    let kept: Vec<String> = store.experiments().unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(kept, [after]);
}

fn words_without_secret(output: &std::process::Output) -> String {
    let text = words(output);
    assert!(!text.contains("secret"), "{text}");
    text
}
