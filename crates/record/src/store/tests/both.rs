//! Tests that a store has to pass wherever it is: in a file, and on a server.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::super::server::Dialer;
use super::test_server::TestServer;
use super::*;

const SCENARIOS: &[fn(&Location)] = &[
    what_was_saved_comes_back_in_order,
    an_experiment_is_found_by_id_name_and_beginning,
    the_newest_is_the_one_that_was_kept_last_whatever_the_clock_said,
    a_run_is_kept_once_and_only_with_its_experiment,
    a_record_of_a_newer_format_is_named,
    one_run_that_cannot_be_read_hides_no_other,
    several_may_open_a_store_that_one_of_them_creates,
    a_newer_store_is_refused_and_stays_as_it_is,
    what_is_forgotten_is_gone_and_nothing_else_is,
    a_killed_writer_leaves_the_finished_runs,
];

#[test]
fn a_file_does_all_that_a_store_does() {
    for scenario in SCENARIOS {
        scenario(&Folder::new().file().into());
    }
}

/// It makes a server, which takes longer than other tests: two seconds on a quiet machine.
#[test]
fn a_server_does_all_that_a_store_does() {
    let Some(server) = TestServer::start() else { return };
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        scenario(&database(&server, &format!("scenario{number}")));
    }
    a_database_that_is_not_there_is_refused(&server);
    tables_of_another_program_are_left_alone(&database(&server, "other"));
    a_lost_connection_loses_no_run(&database(&server, "lost"));
    a_reader_needs_no_right_to_write(&server, &database(&server, "readers"));
}

/// A new database of the server.
fn database(server: &TestServer, name: &str) -> Location {
    execute(&location(server, "postgres"), &format!("CREATE DATABASE {name}"));
    let at = location(server, name);
    assert!(Store::is_missing(&at).unwrap());
    assert!(matches!(Store::open_existing(&at), Err(StoreError::Missing { .. })));
    at
}

fn location(server: &TestServer, database: &str) -> Location {
    Location::parse(server.url(database).as_ref()).unwrap()
}

/// Does something beside the store.
fn execute(at: &Location, sql: &str) {
    match at {
        Location::File(file) => Connection::open(file).unwrap().execute_batch(sql).unwrap(),
        Location::Server(server) => {
            let mut client = Dialer::new(server).dial().unwrap();
            client.batch_execute("SET search_path TO millstream").unwrap();
            client.batch_execute(sql).unwrap();
        }
    }
}

fn a_database_that_is_not_there_is_refused(server: &TestServer) {
    let nowhere = "postgres://x@%2Fno%2Fsuch%2Ffolder/lab".to_owned();
    let cases = [(server.url("no-such"), "createdb"), (nowhere, "start the server")];
    for (url, remedy) in cases {
        let at = Location::parse(url.as_ref()).unwrap();
        let errors = [
            Store::open(&at).unwrap_err(),
            Store::open_existing(&at).unwrap_err(),
            Store::is_missing(&at).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(remedy) && text.lines().count() == 1, "{text}");
        }
    }
}

/// A port that somebody else has.
#[test]
fn who_takes_a_connection_and_says_nothing_is_not_waited_for() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let at = format!("postgres://x@{address}/lab?connect_timeout=1");
    let at = Location::parse(at.as_ref()).unwrap();
    let error = Store::open(&at).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("does not answer as a PostgreSQL server"), "{error}");
}

fn tables_of_another_program_are_left_alone(at: &Location) {
    execute(at, "CREATE SCHEMA millstream; CREATE TABLE millstream.run (theirs TEXT)");
    for opened in [Store::open(at), Store::open_existing(at)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
    }
    execute(at, "INSERT INTO millstream.run (theirs) VALUES ('as it was')");
}

/// As where the server was started anew between two runs.
pub(super) fn a_lost_connection_loses_no_run(at: &Location) {
    let mut store = Store::open(at).unwrap();
    let one = experiment("look", 0);
    store.save_experiment(&one).unwrap();
    for order in 0..3 {
        execute(
            at,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        store.save_run(&run(&one, order)).unwrap();
    }
    assert_eq!(Store::open_existing(at).unwrap().runs(&one.id).unwrap().len(), 3);
}

fn a_reader_needs_no_right_to_write(server: &TestServer, at: &Location) {
    let one = experiment("look", 0);
    Store::open(at).unwrap().save_experiment(&one).unwrap();
    execute(
        at,
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA millstream TO reader;
         GRANT SELECT ON ALL TABLES IN SCHEMA millstream TO reader",
    );
    let url = server.url("readers").replacen("millstream@", "reader@", 1);
    let store = Store::open_existing(&Location::parse(url.as_ref()).unwrap()).unwrap();
    assert_eq!(store.find("look").unwrap(), one);
    let refused = store.save_experiment(&one).unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
}

pub(super) fn what_was_saved_comes_back_in_order(at: &Location) {
    let mut store = Store::open(at).unwrap();
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

    let again = Store::open_existing(at).unwrap();
    assert_eq!(again.experiment(&first.id).unwrap().unwrap(), first);
    let runs = again.runs(&first.id).unwrap();
    assert_eq!(runs.iter().map(|run| run.order).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(runs[3], invalid);
    let list = again.experiments().unwrap();
    assert_eq!((list[0].runs, list[0].valid_runs, list[0].finished_at), (4, 3, first.finished_at));
}

fn an_experiment_is_found_by_id_name_and_beginning(at: &Location) {
    let store = Store::open(at).unwrap();
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
fn the_newest_is_the_one_that_was_kept_last_whatever_the_clock_said(at: &Location) {
    let mut store = Store::open(at).unwrap();
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
    execute(at, "VACUUM");
    let last = experiment("look", day);
    store.save_experiment(&last).unwrap();
    assert_eq!(order(&store), [&last.id, &kept[2].id, &kept[0].id].map(String::clone));
}

fn a_run_is_kept_once_and_only_with_its_experiment(at: &Location) {
    let mut store = Store::open(at).unwrap();
    let one = experiment("look", 0);
    assert!(matches!(store.save_run(&run(&one, 0)), Err(StoreError::Forgotten { .. })));
    store.save_experiment(&one).unwrap();
    store.save_run(&run(&one, 0)).unwrap();
    assert!(store.save_run(&run(&one, 0)).is_err());
    assert_eq!(store.runs(&one.id).unwrap().len(), 1);
}

fn a_record_of_a_newer_format_is_named(at: &Location) {
    let store = Store::open(at).unwrap();
    let mut one = experiment("look", 0);
    one.format = FORMAT_VERSION + 1;
    store.save_experiment(&one).unwrap();
    let error = store.experiment(&one.id).unwrap_err().to_string();
    assert!(error.contains(&one.id) && error.contains("run format"), "{error}");
}

fn one_run_that_cannot_be_read_hides_no_other(at: &Location) {
    let mut store = Store::open(at).unwrap();
    let one = experiment("look", 0);
    store.save_experiment(&one).unwrap();
    (0..3).for_each(|order| store.save_run(&run(&one, order)).unwrap());
    let spoil = |which: &str| {
        execute(at, &format!("UPDATE run SET record = '{{' WHERE {which}"));
        let ids = format!("SELECT id FROM run WHERE {which}");
        execute(at, &format!("UPDATE brief SET record = '{{' WHERE run_id IN ({ids})"));
    };
    spoil("ordinal = 1");
    let (runs, bad) = store.readable_runs(&one.id).unwrap();
    assert_eq!(runs.iter().map(|run| run.order).collect::<Vec<_>>(), [0, 2]);
    assert!(bad.len() == 1 && bad[0].to_string().contains(&run(&one, 1).id), "{bad:?}");
    assert!(store.runs(&one.id).is_err());
    let (runs, bad) = store.readable_runs_for_tables(&one.id).unwrap();
    assert_eq!(runs.iter().map(|run| run.order).collect::<Vec<_>>(), [0, 2]);
    assert!(bad.len() == 1 && bad[0].to_string().contains(&run(&one, 1).id), "{bad:?}");
    let ids = [2, 1, 0].map(|order| one.run_id(order));
    let ids: Vec<&str> = ids.iter().map(String::as_str).chain(["no-such"]).collect();
    let (runs, bad) = store.runs_of(&ids).unwrap();
    assert_eq!(runs.iter().map(|run| run.order).collect::<Vec<_>>(), [2, 0]);
    assert!(bad.len() == 1 && bad[0].to_string().contains(ids[1]), "{bad:?}");
    spoil("true");
    assert!(matches!(store.readable_runs_for_tables(&one.id), Err(StoreError::Record { .. })));
    assert!(matches!(store.readable_runs(&one.id), Err(StoreError::Record { .. })));
}

fn several_may_open_a_store_that_one_of_them_creates(at: &Location) {
    let together = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                (0..3).for_each(|_| drop(Store::open(at).unwrap()));
            });
        }
    });
}

fn a_newer_store_is_refused_and_stays_as_it_is(at: &Location) {
    drop(Store::open(at).unwrap());
    match at {
        Location::File(_) => execute(at, "PRAGMA user_version = 99"),
        Location::Server(_) => execute(at, "UPDATE store SET version = 99"),
    }
    for opened in [Store::open(at), Store::open_existing(at)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error:?}");
        assert!(error.to_string().contains("newer millstream"));
    }
}

fn what_is_forgotten_is_gone_and_nothing_else_is(at: &Location) {
    let mut store = Store::open(at).unwrap();
    let (kept, gone) = (experiment("look", 0), experiment("look", 5));
    for one in [&kept, &gone] {
        store.save_experiment(one).unwrap();
        (0..3).for_each(|order| store.save_run(&run(one, order)).unwrap());
    }
    let other = Store::open_existing(at).unwrap();
    store.forget(&[&gone.id, "no-such"]).unwrap();
    assert!(store.give_back_room(true).unwrap());
    let late = store.save_run(&run(&gone, 3)).unwrap_err();
    assert!(matches!(late, StoreError::Forgotten { .. }), "{late:?}");
    for store in [store, other] {
        assert!(store.experiment(&gone.id).unwrap().is_none());
        assert!(store.runs(&gone.id).unwrap().is_empty());
        assert_eq!(store.runs(&kept.id).unwrap().len(), 3);
    }
}

/// The child of the next test: saves runs until it is killed.
#[test]
fn child_that_saves_until_killed() {
    let Some(path) = std::env::var_os("MILLSTREAM_TEST_STORE") else { return };
    let mut store = Store::open(&Location::parse(&path).unwrap()).unwrap();
    let one = experiment("killed", 0);
    store.save_experiment(&one).unwrap();
    for order in 0.. {
        store.save_run(&run(&one, order)).unwrap();
        println!("saved {order}");
    }
}

fn a_killed_writer_leaves_the_finished_runs(at: &Location) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["store::tests::both::child_that_saves_until_killed", "--exact", "--nocapture"])
        .env("MILLSTREAM_TEST_STORE", at.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.filter(|line| line.contains("saved ")).take(5).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told, 5);
    let store = Store::open(at).unwrap();
    let list = store.experiments().unwrap();
    assert!(list[0].runs >= 5 && list[0].finished_at.is_none());
    let runs = store.runs(&list[0].id).unwrap();
    assert!(runs.iter().enumerate().all(|(at, run)| run.order == at as u32));
}
