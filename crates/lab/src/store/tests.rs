//! Tests of the store against real files.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

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

#[test]
fn what_was_saved_comes_back_in_order() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let mut first = experiment("first-look", 0);
    store.save_experiment(&first).unwrap();
    for order in [2, 0, 1] {
        store.save_run(&run(&first, order)).unwrap();
    }
    let mut invalid = run(&first, 3);
    invalid.validity.reject("lost its way");
    store.save_run(&invalid).unwrap();
    first.finished_at = Some(Timestamp::from_unix_ms(1_700_000_009_000));
    store.save_experiment(&first).unwrap();

    let again = Store::open_existing(&folder.file()).unwrap();
    assert_eq!(again.experiment(&first.id).unwrap().unwrap(), first);
    let runs = again.runs(&first.id).unwrap();
    assert_eq!(runs.iter().map(|run| run.order).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(runs[3], invalid);
    let list = again.experiments().unwrap();
    assert_eq!((list[0].runs, list[0].valid_runs, list[0].finished_at), (4, 3, first.finished_at));
}

#[test]
fn an_experiment_is_found_by_id_name_and_beginning() {
    let folder = Folder::new();
    let store = Store::open(&folder.file()).unwrap();
    assert!(store.latest(None).unwrap().is_none());
    let (old, new, other) = (experiment("look", 0), experiment("look", 5), experiment("sweep", 3));
    for one in [&old, &new, &other] {
        store.save_experiment(one).unwrap();
    }
    assert_eq!(store.latest(None).unwrap().unwrap(), other);
    assert_eq!(store.find("look").unwrap(), new);
    assert_eq!(store.find(&old.id).unwrap(), old);
    assert_eq!(store.find("sw").unwrap(), other);
    assert!(matches!(store.find("loo"), Err(StoreError::Ambiguous { .. })));
    assert!(matches!(store.find("x"), Err(StoreError::NoExperiment { kept: 3, .. })));
    assert!(matches!(store.find(""), Err(StoreError::NoExperiment { .. })));
}

/// A clock that is set back, or reads nonsense, makes no experiment older than it is.
#[test]
fn the_newest_is_the_one_that_was_kept_last_whatever_the_clock_said() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let day = 86_400;
    let kept: Vec<_> = [9, 6, 7, 3].map(|days| experiment("look", days * day)).into();
    for one in &kept {
        store.save_experiment(one).unwrap();
    }
    let mut ended = kept[0].clone();
    ended.finished_at = Some(Timestamp::from_unix_ms(1_800_000_000_000));
    store.save_experiment(&ended).unwrap();
    let order = |store: &Store| -> Vec<String> {
        store.experiments().unwrap().into_iter().map(|one| one.id).collect()
    };
    let expected: Vec<String> = kept.iter().rev().map(|one| one.id.clone()).collect();
    assert_eq!(order(&store), expected);
    assert_eq!(store.latest(None).unwrap().unwrap(), kept[3]);
    assert_eq!(store.find("look").unwrap(), kept[3]);
    // Nor does taking some out, writing the file anew, or one that comes after.
    store.forget(&[&kept[1].id, &kept[3].id]).unwrap();
    store.connection.execute_batch("VACUUM").unwrap();
    let last = experiment("look", day);
    store.save_experiment(&last).unwrap();
    assert_eq!(order(&store), [&last.id, &kept[2].id, &kept[0].id].map(String::clone));
}

#[test]
fn a_run_is_kept_once_and_only_with_its_experiment() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let one = experiment("look", 0);
    assert!(matches!(store.save_run(&run(&one, 0)), Err(StoreError::Forgotten { .. })));
    store.save_experiment(&one).unwrap();
    store.save_run(&run(&one, 0)).unwrap();
    assert!(store.save_run(&run(&one, 0)).is_err());
    assert_eq!(store.runs(&one.id).unwrap().len(), 1);
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
        run.notes = vec!["x".repeat(100_000)];
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

#[test]
fn several_may_open_a_store_that_one_of_them_creates() {
    let folder = Folder::new();
    for turn in 0..40 {
        let file = folder.0.join(format!("{turn}.db"));
        let together = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    (0..10).for_each(|_| drop(Store::open(&file).unwrap()));
                });
            }
        });
    }
}

#[test]
fn a_newer_store_is_refused_and_stays_as_it_is() {
    let folder = Folder::new();
    drop(Store::open(&folder.file()).unwrap());
    let raw = Connection::open(folder.file()).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let error = Store::open(&folder.file()).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error:?}");
    assert!(error.to_string().contains("newer millstream"));
}

#[test]
fn a_record_of_a_newer_format_is_named() {
    let folder = Folder::new();
    let store = Store::open(&folder.file()).unwrap();
    let mut one = experiment("look", 0);
    one.format = FORMAT_VERSION + 1;
    store.save_experiment(&one).unwrap();
    let error = store.experiment(&one.id).unwrap_err().to_string();
    assert!(error.contains(&one.id) && error.contains("run format"), "{error}");
}

/// Whoever only looks makes no store of what is none yet.
#[test]
fn an_empty_file_holds_nothing_yet_and_stays_empty() {
    let folder = Folder::new();
    fs::write(folder.file(), "").unwrap();
    assert!(Store::is_missing(&folder.file()));
    assert!(matches!(Store::open_existing(&folder.file()), Err(StoreError::Missing { .. })));
    assert_eq!(fs::read(folder.file()).unwrap(), b"");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    drop(Store::open(&folder.file()).unwrap());
    assert!(!Store::is_missing(&folder.file()));
}

#[test]
fn one_run_that_cannot_be_read_hides_no_other() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.file()).unwrap();
    let one = experiment("look", 0);
    store.save_experiment(&one).unwrap();
    (0..3).for_each(|order| store.save_run(&run(&one, order)).unwrap());
    let raw = Connection::open(folder.file()).unwrap();
    let spoil = |which: &str| {
        raw.execute_batch(&format!("UPDATE run SET record = '{{' WHERE {which}")).unwrap();
    };
    spoil("ordinal = 1");
    let (runs, bad) = store.readable_runs(&one.id).unwrap();
    assert_eq!(runs.iter().map(|run| run.order).collect::<Vec<_>>(), [0, 2]);
    assert!(bad.len() == 1 && bad[0].to_string().contains(&run(&one, 1).id), "{bad:?}");
    assert!(store.runs(&one.id).is_err());
    spoil("true");
    assert!(matches!(store.readable_runs(&one.id), Err(StoreError::Record { .. })));
}

/// The child of the next test: saves runs until it is killed.
#[test]
fn child_that_saves_until_killed() {
    let Some(path) = std::env::var_os("MILLSTREAM_TEST_STORE") else { return };
    let mut store = Store::open(&PathBuf::from(path)).unwrap();
    let one = experiment("killed", 0);
    store.save_experiment(&one).unwrap();
    for order in 0.. {
        store.save_run(&run(&one, order)).unwrap();
        println!("saved {order}");
    }
}

#[test]
fn a_killed_writer_leaves_the_finished_runs() {
    use std::io::{BufRead, BufReader};
    let folder = Folder::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["store::tests::child_that_saves_until_killed", "--exact", "--nocapture"])
        .env("MILLSTREAM_TEST_STORE", folder.file())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.filter(|line| line.contains("saved ")).take(5).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told, 5);
    let store = Store::open(&folder.file()).unwrap();
    let list = store.experiments().unwrap();
    assert!(list[0].runs >= 5 && list[0].finished_at.is_none());
    let runs = store.runs(&list[0].id).unwrap();
    assert!(runs.iter().enumerate().all(|(at, run)| run.order == at as u32));
}
