//! Nothing that other users have made, or may write, decides what root does; and no name of a
//! store is a path.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use millstream_record::store::Store;
use millstream_record::{ExperimentRecord, Timestamp};
use millstream_testbed::leftovers::ProcessIdentity;

use crate::common::{Place, isolated, words};

/// A user other than root.
const STRANGER: u32 = 65_534;

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: it takes two users");
    }
    is_root
}

fn ran(place: &Place, arguments: &[&str], variable: (&str, &Path)) -> Output {
    let mut command = Command::new("env");
    let set = format!("{}={}", variable.0, variable.1.display());
    command.arg(set).arg(env!("CARGO_BIN_EXE_millstream")).args(arguments);
    isolated(&place.folder, &command).output().unwrap()
}

/// `su` and `sudo -E` leave a user's variables to root.
#[test]
fn root_takes_no_folder_of_state_that_the_environment_names() {
    if !is_root() {
        return;
    }
    let place = Place::new("others-state");
    let theirs = place.folder.join("theirs");
    let (state, victim) = (theirs.join("millstream"), place.folder.join("victim"));
    fs::create_dir_all(&state).unwrap();
    fs::write(&victim, "before").unwrap();
    let mut owner = ProcessIdentity::of(std::process::id()).unwrap();
    owner.start_ticks += 1;
    let namespace = millstream_testbed::namespace::current_inode().unwrap();
    let change = serde_json::json!({ "path": victim, "before": "forged" });
    let forged = serde_json::json!({ "owner": owner, "namespace": namespace, "changes": [change] });
    fs::write(state.join("1-0.undo"), forged.to_string()).unwrap();
    // The folder is the stranger's, or root's own, as if it had been exchanged in time.
    for user in [STRANGER, 0] {
        for path in [&theirs, &state, &state.join("1-0.undo")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        let output = ran(&place, &["undo"], ("XDG_RUNTIME_DIR", &theirs));
        let text = words(&output);
        assert!(output.status.success() && text.contains("nothing to undo"), "{text}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "before");
        assert!(state.join("1-0.undo").exists());
    }
}

#[test]
fn root_keeps_nothing_in_a_store_that_another_users_variable_names() {
    if !is_root() {
        return;
    }
    let place = Place::new("others-data");
    let theirs = place.folder.join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(STRANGER), Some(STRANGER)).unwrap();
    let run = ["run", "first-look", "--repeats", "1"];
    for arguments in [&["list"][..], &run] {
        let output = ran(&place, arguments, ("XDG_DATA_HOME", &theirs));
        let text = words(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("user 65534") && text.contains("--db FILE"), "{text}");
    }
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn no_id_of_a_shared_store_is_a_path() {
    let place = Place::new("others-ids");
    let store = Store::open(&place.database()).unwrap();
    let ids = ["../../../x", "/x", "..", "a/b", "..\u{202e}\n/x"];
    for id in ids {
        let mut experiment =
            ExperimentRecord::new("shared", 1, Timestamp::from_unix_ms(1_700_000_000_000));
        experiment.id = id.to_owned();
        store.save_experiment(&experiment).unwrap();
    }
    let before = fs::read_dir(&place.folder).unwrap().count();
    for id in ids {
        let output = place.command(&["report", id]).output().unwrap();
        assert!(output.status.success(), "{id:?}: {}", words(&output));
    }
    let out = fs::read_dir(place.folder.join("out")).unwrap();
    let pages: Vec<_> = out.map(|entry| entry.unwrap()).collect();
    assert!(pages.iter().all(|page| page.file_type().unwrap().is_file()), "{pages:?}");
    assert_eq!(pages.len(), ids.len(), "{pages:?}");
    // The folder of the pages, and that of the state.
    let made = fs::read_dir(&place.folder).unwrap().count() - before;
    assert!((1..=2).contains(&made), "{made}");
}

#[test]
fn root_writes_behind_no_link_that_another_has_made() {
    if !is_root() {
        return;
    }
    let place = Place::new("others-links");
    let store = Store::open(&place.database()).unwrap();
    let experiment = ExperimentRecord::new("old", 1, Timestamp::from_unix_ms(1_700_000_000_000));
    store.save_experiment(&experiment).unwrap();
    let (victim, out) = (place.write("victim", "before"), place.folder.join("out"));
    fs::create_dir(&out).unwrap();
    let page = out.join(format!("{}.html", experiment.id));
    symlink(&victim, &page).unwrap();
    lchown(&page, Some(STRANGER), Some(STRANGER)).unwrap();
    let output = place.command(&["report", &experiment.id]).output().unwrap();
    let text = words(&output);
    assert!(output.status.code() == Some(2) && text.contains("user 65534"), "{text}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "before");
}
