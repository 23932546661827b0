//! Tests of the store against real files, and a real server.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;

use super::*;

#[cfg(feature = "postgres")]
mod both;
#[cfg(feature = "postgres")]
mod encrypted;
#[cfg(feature = "postgres")]
mod test_server;

/// A folder that is gone at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("millstream-store-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("lab.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn experiment(name: &str, second: u64) -> ExperimentRecord {
    ExperimentRecord::new(
        name,
        7 + second,
        Timestamp::from_unix_ms(1_700_000_000_000 + second * 1000),
    )
}

fn run(of: &ExperimentRecord, order: u32) -> RunRecord {
    let mut run = RunRecord::new(of.run_id(order));
    run.experiment_id = of.id.clone();
    run.order = order;
    run.results.insert("throughput_bits_per_s".into(), f64::from(order) * 1e9 + 0.1);
    run
}

/// Their numbers are signed where SQLite keeps them: a database of another program may have any.
#[test]
fn a_database_of_another_program_is_no_store_whatever_its_numbers() {
    for (application, version) in [(-5, 0), (-5, -1), (1, -1), (0, -1), (0x4d53_5452, -1)] {
        let folder = Folder::new();
        let other = Connection::open(folder.file()).unwrap();
        other.execute("CREATE TABLE theirs (a)", []).unwrap();
        other.pragma_update(None, "application_id", application).unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        for opened in [Store::open(&folder.file()), Store::open_existing(&folder.file())] {
            let error = opened.unwrap_err();
            assert!(
                matches!(error, StoreError::NotAStore { .. }),
                "{application}, {version}: {error}"
            );
        }
    }
}

/// An experiment of a megabyte.
fn large(name: &str, second: u64, store: &mut Store) -> ExperimentRecord {
    let one = experiment(name, second);
    store.save_experiment(&one).unwrap();
    for order in 0..10 {
        let mut run = run(&one, order);
        run.environment.set("near.cmdline", "x".repeat(100_000));
        store.save_run(&run).unwrap();
    }
    one
}

#[test]
fn what_is_forgotten_is_gone_with_its_room_and_nothing_else_is() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let (kept, gone) = (large("look", 0, &mut store), large("look", 5, &mut store));
    let runs = store.runs(&kept.id).unwrap();
    assert!(matches!(store.find_one("look"), Err(StoreError::Ambiguous { .. })));
    assert_eq!(store.find_one(&gone.id[..20]).unwrap().id, gone.id);
    // Somebody else has it open, as a run would.
    let other = Store::open(&folder.file()).unwrap();
    store.forget(&[&gone.id, "no-such"]).unwrap();
    assert!(store.give_back_room(false).unwrap());
    assert!(fs::metadata(folder.file()).unwrap().len() < 1_200_000, "one is left of two");
    for store in [store, other] {
        assert!(store.experiment(&gone.id).unwrap().is_none());
        assert!(store.runs(&gone.id).unwrap().is_empty());
        assert_eq!(store.runs(&kept.id).unwrap(), runs);
        assert!(matches!(store.find_one(&gone.id), Err(StoreError::NoExperiment { kept: 1, .. })));
    }
}

#[test]
fn a_file_of_an_earlier_version_gives_room_back_where_nobody_else_needs_it() {
    let folder = Folder::new();
    let raw = Connection::open(folder.file()).unwrap();
    raw.pragma_update(None, "journal_mode", "wal").unwrap();
    drop(raw);
    let mut store = Store::open(&folder.file()).unwrap();
    let (kept, gone) = (large("look", 0, &mut store), large("look", 5, &mut store));
    let runs = store.runs(&kept.id).unwrap();
    store.forget(&[&gone.id]).unwrap();
    assert!(!store.give_back_room(false).unwrap());
    assert!(store.give_back_room(true).unwrap());
    assert!(fs::metadata(folder.file()).unwrap().len() < 1_200_000);
    assert_eq!(store.runs(&kept.id).unwrap(), runs);
    // From then on it is as a new one.
    store.forget(&[&kept.id]).unwrap();
    assert!(store.give_back_room(false).unwrap());
    assert!(fs::metadata(folder.file()).unwrap().len() < 100_000);
}

#[test]
fn other_files_are_refused_in_one_line_and_left_alone() {
    let folder = Folder::new();
    let file = folder.file();
    assert!(matches!(Store::open_existing(&file), Err(StoreError::Missing { .. })));
    assert!(!file.exists());

    let text = "hello, I am no database at all. ".repeat(40);
    fs::write(&file, &text).unwrap();
    let error = Store::open(&file).unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    fs::remove_file(&file).unwrap();
    let foreign = Connection::open(&file).unwrap();
    foreign.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(foreign);
    assert!(matches!(Store::open(&file), Err(StoreError::NotAStore { .. })));
    assert!(matches!(Store::open(&folder.0), Err(StoreError::NotAStore { .. })));
    assert!(matches!(Store::open_existing(&folder.0), Err(StoreError::NotAStore { .. })));

    let nowhere = folder.0.join("no/such/folder/lab.db");
    let error = Store::open(&nowhere).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    let text = error.to_string();
    assert_eq!(text.matches(&nowhere.display().to_string()).count(), 1, "{text}");
    assert!(text.contains("--db"), "{text}");
}

/// A reader makes no store where there is none yet.
#[test]
fn an_empty_file_holds_nothing_yet_and_stays_empty() {
    let folder = Folder::new();
    fs::write(folder.file(), "").unwrap();
    assert!(Store::is_missing(&folder.file()).unwrap());
    assert!(matches!(Store::open_existing(&folder.file()), Err(StoreError::Missing { .. })));
    assert_eq!(fs::read(folder.file()).unwrap(), b"");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    drop(Store::open(&folder.file()).unwrap());
    assert!(!Store::is_missing(&folder.file()).unwrap());
}

/// Several batches, which as many threads read.
#[test]
fn many_runs_are_read_in_their_order_and_a_spoilt_one_hides_no_other() {
    const RUNS: u32 = 24;
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let one = experiment("many", 1);
    store.save_experiment(&one).unwrap();
    for order in 0..RUNS {
        let mut run = run(&one, order);
        run.notes = vec!["x".repeat(6 * BATCH_BYTES / RUNS as usize)];
        store.save_run(&run).unwrap();
    }
    let orders = |runs: &[RunRecord]| runs.iter().map(|run| run.order).collect::<Vec<_>>();
    assert_eq!(orders(&store.runs(&one.id).unwrap()), (0..RUNS).collect::<Vec<_>>());
    let other = Connection::open(folder.file()).unwrap();
    // as kept before there were briefs
    other.execute("DELETE FROM brief", []).unwrap();
    other.execute("UPDATE run SET record = '{' WHERE ordinal = 7", []).unwrap();
    let (runs, bad) = store.readable_runs(&one.id).unwrap();
    assert_eq!(orders(&runs), (0..RUNS).filter(|order| *order != 7).collect::<Vec<_>>());
    let [StoreError::Record { id, .. }] = &bad[..] else { panic!("{bad:?}") };
    assert_eq!(*id, one.run_id(7));
    // A reader of a part of each run gets the error, too, even for damage outside of that part.
    let cut = "UPDATE run SET record = replace(record, '\"probes\":{', '\"probes\":{\"hosts\":[,') WHERE ordinal = 9";
    assert_eq!(other.execute(cut, []).unwrap(), 1);
    let (runs, bad) = store.readable_runs_for_tables(&one.id).unwrap();
    let expected = (0..RUNS).filter(|order| ![7, 9].contains(order));
    assert_eq!(orders(&runs), expected.collect::<Vec<_>>());
    let ids: Vec<&str> = bad
        .iter()
        .map(|error| match error {
            StoreError::Record { id, .. } => id.as_str(),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(ids, [one.run_id(7), one.run_id(9)]);
    let wanted = [20, 9, 3, 21].map(|order| one.run_id(order));
    let ids: Vec<&str> = wanted.iter().map(String::as_str).chain(["no-such"]).collect();
    let (runs, bad) = store.runs_of(&ids).unwrap();
    assert_eq!((orders(&runs), bad.len()), (vec![20, 3, 21], 1));
}

/// A file as the first version made it, which had no briefs.
fn of_version_1(folder: &Folder, runs: u32) -> ExperimentRecord {
    let mut store = Store::open(&folder.file()).unwrap();
    let one = experiment("old", 1);
    store.save_experiment(&one).unwrap();
    (0..runs).for_each(|order| store.save_run(&run(&one, order)).unwrap());
    drop(store);
    let raw = Connection::open(folder.file()).unwrap();
    raw.execute_batch("DROP TABLE brief; PRAGMA user_version = 1").unwrap();
    one
}

#[test]
fn a_file_of_the_first_version_is_read_for_tables_and_gets_briefs() {
    let folder = Folder::new();
    let one = of_version_1(&folder, 3);
    let unchanged = sqlite::Sqlite::open_read_only(&folder.file()).unwrap();
    let mut ids = Vec::new();
    unchanged.each_brief(&one.id, &mut |id, _| ids.push(id.to_owned())).unwrap();
    assert_eq!(ids, [0, 1, 2].map(|order| one.run_id(order)));
    drop(unchanged);
    let mut store = Store::open_existing(&folder.file()).unwrap();
    store.save_run(&run(&one, 3)).unwrap();
    assert_eq!(store.readable_runs_for_tables(&one.id).unwrap().0.len(), 4);
}

#[test]
fn tables_read_the_briefs_of_their_version_and_the_records_of_other_runs() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let one = experiment("look", 1);
    store.save_experiment(&one).unwrap();
    (0..2).for_each(|order| store.save_run(&run(&one, order)).unwrap());
    let other = Connection::open(folder.file()).unwrap();
    other.execute("UPDATE run SET record = '{' WHERE ordinal = 0", []).unwrap();
    assert_eq!(store.readable_runs_for_tables(&one.id).unwrap().0.len(), 2, "no record is read");
    other.execute("UPDATE brief SET version = version + 1, record = '{'", []).unwrap();
    let (runs, bad) = store.readable_runs_for_tables(&one.id).unwrap();
    assert_eq!((runs.len(), runs[0].order, bad.len()), (1, 1, 1));
}

fn parsed(text: &str) -> Result<Location, StoreError> {
    Location::parse(&OsString::from(text))
}

#[test]
fn all_but_a_url_is_a_file() {
    for file in ["kept.sqlite3", "./postgres://x", "http://x", "postgres:", ""] {
        assert_eq!(parsed(file).unwrap().file(), Some(Path::new(file)), "{file}");
    }
}

#[test]
#[cfg(not(feature = "postgres"))]
fn a_url_is_refused_without_its_password_where_there_are_no_servers() {
    let said = parsed("postgres://ann:secret@db/lab").unwrap_err().to_string();
    assert!(said.starts_with("postgres://ann@db/lab: this millstream was built"), "{said}");
}
