//! `show` and `report` of one set of very many runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use millstream_record::store::Store;
use millstream_record::{ExperimentRecord, FORMAT_VERSION, RunRecord, Timestamp, keys};

use crate::common::{Place, hosts_possible, words};

fn experiment(planned_runs: u32) -> ExperimentRecord {
    let at = Timestamp::from_unix_ms(1_795_213_459_123);
    let mut experiment = ExperimentRecord::new("many", 7, at);
    experiment.workloads = vec!["tcp_stream".into()];
    experiment.stacks = vec!["kernel".into(), "millstream".into()];
    (experiment.planned_runs, experiment.finished_at) = (planned_runs, Some(at));
    experiment
}

/// Runs a command that has to succeed. Returns its standard output and error.
fn said(place: &Place, arguments: &[&str]) -> (String, String) {
    let output = place.command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", words(&output));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn page_at(printed: &str) -> PathBuf {
    let line = printed.lines().find_map(|line| line.strip_prefix("Page: "));
    line.unwrap_or_else(|| panic!("{printed}")).into()
}

/// The page looks at some of them one by one and reads no others in full; a run that cannot be read
/// is told of.
#[test]
fn a_set_of_many_runs_is_told_whole_and_its_page_says_what_it_leaves_out() {
    let place = Place::new("many-runs");
    let mut store = Store::open(&place.database()).unwrap();
    let experiment = experiment(900);
    store.save_experiment(&experiment).unwrap();
    for order in 0..900 {
        let mut run = RunRecord::new(experiment.run_id(order));
        run.experiment_id = experiment.id.clone();
        (run.order, run.block, run.workload) = (order, order / 2, "tcp_stream".into());
        run.stack = experiment.stacks[order as usize % 2].clone();
        run.results.insert(keys::THROUGHPUT.into(), 1e9 + f64::from(order));
        run.environment.set("setting.mtu_bytes", "1500");
        if order == 450 {
            run.format = FORMAT_VERSION + 1;
        }
        store.save_run(&run).unwrap();
    }
    drop(store);
    let note = "A run cannot be read and is passed over: ";
    let (text, noted) = said(&place, &["show"]);
    assert!(noted.contains(note) && noted.contains(&experiment.run_id(450)), "{noted}");
    assert!(text.contains(" 449\n") && text.contains(" 450 "), "of all that can be read: {text}");
    let (printed, noted) = said(&place, &["report"]);
    assert!(noted.contains(note), "{noted}");
    let page = fs::read_to_string(page_at(&printed)).unwrap();
    assert!(page.contains("Of 899 runs ") && page.contains("of 899 runs</summary>"), "{page}");
    assert!(page.contains(note), "{page}");
    // The same page where all runs were read in full.
    let json = place.folder.join("runs.json");
    let (printed, _) = said(&place, &["report", "--json", json.to_str().unwrap()]);
    assert!(page == fs::read_to_string(page_at(&printed)).unwrap());
    assert_eq!(fs::read_to_string(&json).unwrap().lines().count(), 899);
}

/// Prints how long it takes; MILLSTREAM_TEST_STORE=FILE keeps the store there.
#[test]
#[ignore = "for measuring, in a release build: 10,000 copies of real runs take some 200 MB"]
fn ten_thousand_real_runs_of_one_set() {
    const RUNS: u32 = 10_000;
    if !hosts_possible() {
        return;
    }
    let place = Place::new("ten-thousand");
    let arguments = ["run", "first-look", "--repeats", "2", "--duration", "1", "--warmup", "0.2"];
    said(&place, &arguments);
    let real = place.runs();
    let kept = std::env::var_os("MILLSTREAM_TEST_STORE");
    let file = kept.map_or_else(|| place.folder.join("many.sqlite3"), PathBuf::from);
    let mut store = Store::open(&file).unwrap();
    let old = Store::open_existing(&place.database()).unwrap().latest(None).unwrap().unwrap();
    let experiment = ExperimentRecord { id: experiment(0).id, planned_runs: RUNS, ..old };
    store.save_experiment(&experiment).unwrap();
    let mut bytes = 0;
    for order in 0..RUNS {
        let mut run = real[order as usize % real.len()].clone();
        (run.id, run.experiment_id) = (experiment.run_id(order), experiment.id.clone());
        (run.order, run.block) = (order, order / real.len() as u32);
        // No two have the same results.
        let noise = 1.0 + f64::from(order.wrapping_mul(2_654_435_761) >> 12) / 1e7;
        run.results.values_mut().for_each(|value| *value *= noise);
        bytes += serde_json::to_string(&run).unwrap().len();
        store.save_run(&run).unwrap();
    }
    drop(store);
    println!("{RUNS} runs, {} kinds, {} MB of records", real.len(), bytes / 1_000_000);
    timed(&file, &place, &["show"]);
    timed(&file, &place, &["report"]);
}

fn timed(file: &Path, place: &Place, arguments: &[&str]) {
    for _ in 0..3 {
        let begun = Instant::now();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).arg("--db").arg(file).current_dir(&place.folder);
        let output = command.output().unwrap();
        let took = begun.elapsed();
        assert!(output.status.success(), "{}", words(&output));
        println!("{arguments:?}: {:.2} s", took.as_secs_f64());
    }
    if arguments == ["report"] {
        let out = fs::read_dir(place.folder.join("out")).unwrap();
        let pages = out.map(|entry| entry.unwrap().metadata().unwrap().len());
        println!("page: {} bytes", pages.max().unwrap_or(0));
    }
}
