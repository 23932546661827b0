//! Failures from outside: places that cannot be written, a full disk, workers that die, two
//! experiments at once.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use millstream_record::store::Store;
use millstream_record::{ExperimentRecord, RunRecord, Timestamp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    self, Place, begun, hosts_possible, nothing_is_left, wait_for, words, workers_of,
};

#[test]
fn a_place_that_cannot_be_written_is_noticed_before_measuring() {
    let place = Place::new("unwritable");
    let file = place.write("file", "not a folder");
    let file = file.to_str().unwrap();
    let below = format!("{file}/below");
    let folder = place.folder.to_str().unwrap();
    let nowhere = format!("{folder}/no/such/folder.json");
    for (option, value) in
        [("--out", file), ("--out", &below), ("--json", folder), ("--json", &nowhere)]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(["run", "first-look", option, value, "--db"]).arg(place.database());
        if option == "--json" {
            command.arg("--out").arg(place.folder.join("out"));
        }
        let output = command.env("XDG_RUNTIME_DIR", &place.folder).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", words(&output));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(&format!("{option} {value}: ")), "{error}");
        assert!(!place.database().exists(), "{option} {value}: nothing was begun");
    }
    // A place that cannot be written fails; what is there and is no database is refused.
    let databases = [(below, 1), ("/proc/nothing.sqlite3".to_owned(), 1), (folder.to_owned(), 2)];
    for (database, code) in databases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(["run", "first-look", "--db", &database, "--out"]);
        command.arg(place.folder.join("out")).env("XDG_RUNTIME_DIR", &place.folder);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), error.lines().count()), (Some(code), 1), "{error}");
    }
}

/// A folder may have a name that is no text, of which the record has as much as is, and a store one
/// that means something to SQLite.
#[test]
fn odd_names_are_as_good_as_others() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new("no-text");
    let folder = place.folder.join(std::ffi::OsStr::from_bytes(b"out-\xff"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.args(["run", "first-look", "--stack", "millstream", "--set", "link=memory"]);
    command.args(["--steady-cpus", "false", "--repeats", "1", "--duration", "1", "--warmup", "0"]);
    command.args(["--db", ":memory:", "--out"]).arg(&folder).current_dir(&place.folder);
    let output = command.env("XDG_RUNTIME_DIR", &place.folder).output().unwrap();
    // 1: a run that does not count, on a machine too busy for it.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", words(&output));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let store = Store::open_existing(&place.folder.join(":memory:")).unwrap();
    assert_eq!(store.experiments().unwrap()[0].runs, 3);
}

#[test]
fn who_looks_makes_nothing_and_what_is_no_text_is_refused() {
    let place = Place::new("looks");
    let ran = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(words).env("XDG_DATA_HOME", place.folder.join("data"));
        let output = command.current_dir(&place.folder).output().unwrap();
        (output.status.code(), common::words(&output))
    };
    let (code, text) = ran(&["list"]);
    assert!(code == Some(0) && text.contains("none yet"), "{text}");
    let missing =
        [&["show"][..], &["report", "no-such"], &["run", "no-such"], &["run", "no-such.toml"]];
    for words in missing {
        let (code, text) = ran(words);
        assert!(code == Some(2) && text.matches("millstream: ").count() == 1, "{words:?}: {text}");
    }
    assert!(!place.folder.join("data").exists());
    fs::write(place.folder.join("empty.db"), "").unwrap();
    let (code, text) = ran(&["list", "--db", "empty.db"]);
    assert!(code == Some(0) && text.contains("none yet"), "{text}");
    let (code, text) = ran(&["show", "--db", "empty.db"]);
    assert!(code == Some(2) && text.contains("no store here"), "{text}");
    assert_eq!(fs::read(place.folder.join("empty.db")).unwrap(), b"");

    fs::write(place.folder.join("noise.toml"), [0xff, 0xfe, 0]).unwrap();
    let (code, text) = ran(&["run", "noise.toml"]);
    assert!(code == Some(2) && text.contains("noise.toml: no TOML file"), "{text}");
}

/// Everything else stays readable: a JSON file that cannot be written keeps its place until then.
#[test]
fn trying_out_a_json_file_does_not_change_it() {
    let place = Place::new("kept-json");
    let json = place.write("runs.json", "{}");
    let arguments = ["run", "first-look", "--json", json.to_str().unwrap(), "--db"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.args(arguments).arg("/proc/nothing.sqlite3").arg("--out").arg(place.folder.join("out"));
    let output = command.env("XDG_RUNTIME_DIR", &place.folder).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(json).unwrap(), "{}");
    assert!(!place.folder.join("out").exists());
}

/// Neither a store nor a folder for one or for pages, whatever it is refused for; what was there
/// stays as it was.
#[test]
fn what_is_refused_before_it_begins_leaves_nothing_behind() {
    let place = Place::new("run-refused");
    let (data, out) = (place.folder.join("a/data"), place.folder.join("b/out"));
    let empty = place.write("empty.sqlite3", "");
    // Without a device for TAPs no path can be impaired, whatever else this machine allows.
    let hidden = "mount -t tmpfs none /dev/net 2>/dev/null; exec \"$0\" run \"$@\"";
    let ran = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", hidden, env!("CARGO_BIN_EXE_millstream")]).args(words);
        command.arg("--out").arg(&out).env("XDG_DATA_HOME", &data);
        command.env("XDG_RUNTIME_DIR", &place.folder).output().ok()
    };
    let possible = Command::new("unshare").args(["-m", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mount namespace of one's own here");
        return;
    }
    let folder = place.folder.to_str().unwrap();
    for words in [
        &["judge-quick"][..],
        &["judge-quick", "--db", empty.to_str().unwrap()],
        &["first-look", "--db", folder],
        &["first-look", "--set", "weather=fine"],
        &["first-look", "--repeats", "0"],
        &["first-look", "--no-such-option"],
    ] {
        let output = ran(words).unwrap();
        let text = common::words(&output);
        assert!(output.status.code() == Some(2) && text.trim().lines().count() == 2, "{text}");
        for made in ["a", "b"] {
            assert!(!place.folder.join(made).exists(), "{words:?} leaves {made}");
        }
        assert_eq!(fs::read(&empty).unwrap(), b"", "{words:?}");
    }
    fs::create_dir_all(&out).unwrap();
    assert_eq!(ran(&["judge-quick"]).unwrap().status.code(), Some(2));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "what was there stays");
    assert!(!place.folder.join("a").exists());
}

#[test]
fn a_full_disk_ends_it_with_what_was_measured_shown() {
    let place = Place::new("full");
    let small = place.folder.join("small");
    fs::create_dir(&small).unwrap();
    let json = place.folder.join("runs.json");
    let script = format!(
        "mount -t tmpfs -o size=500k none {small} && exec {program} run first-look --stack millstream \
         --set link=memory --steady-cpus false --repeats 60 --duration 0.1 --warmup 0 --db {small}/kept.sqlite3 \
         --out {out} --json {json}",
        small = small.display(),
        program = env!("CARGO_BIN_EXE_millstream"),
        out = place.folder.join("out").display(),
        json = json.display(),
    );
    let begin = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).env("XDG_RUNTIME_DIR", &place.folder);
        command.output().ok()
    };
    let trial = format!("mount -t tmpfs none {}", small.display());
    let Some(output) =
        begin(&trial).filter(|trial| trial.status.success()).and_then(|_| begin(&script))
    else {
        eprintln!("skipped: no mount namespace of one's own here");
        return;
    };
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let error = text.lines().last().unwrap();
    assert!(error.starts_with("millstream: ") && error.contains("full"), "{text}");
    assert!(text.contains("(unfinished: ") && text.contains("Page: "), "{text}");
    let lines = fs::read_to_string(json).unwrap();
    let runs: Vec<RunRecord> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!((1..180).contains(&runs.len()), "{} runs", runs.len());
    assert_eq!(fs::read_dir(place.folder.join("out")).unwrap().count(), 1);
    // The store is gone with its file system; it had all but the last.
    let kept = match runs.len() - 1 {
        0 => " without a run; none of the 1 made could be kept".to_owned(),
        kept => format!(" with {kept} of {} runs; 1 run could not be kept", runs.len()),
    };
    assert!(text.contains(&format!("kept.sqlite3{kept}")), "{text}");
}

/// Each file that is not written is told of, and none is half there; what was there before stays.
#[test]
fn a_page_and_a_json_file_that_find_no_room_are_both_told_of() {
    let place = Place::new("no-room");
    let small = place.folder.join("small");
    fs::create_dir(&small).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8k none {small} || exit 99; echo before > {small}/runs.json; \
         {program} run first-look --stack millstream --set link=memory --steady-cpus false --repeats 2 \
         --duration 0.1 --warmup 0 --db {folder}/kept.sqlite3 --out {small} --json {small}/runs.json; \
         echo code $?; cat {small}/runs.json; ls -A {small}",
        small = small.display(),
        program = env!("CARGO_BIN_EXE_millstream"),
        folder = place.folder.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).env("XDG_RUNTIME_DIR", &place.folder);
    let Some(output) = command.output().ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: no mount namespace of one's own here");
        return;
    };
    let text = words(&output);
    let told = |what: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with("millstream: "));
        lines.any(|line| line.contains(what) && line.contains("No space left"))
    };
    assert!(told(".html: ") && told("runs.json: "), "{text}");
    assert!(text.contains("\ncode 1\nbefore\nruns.json\n"), "{text}");
    assert!(text.contains("Kept: first-look-") && !text.contains("Page: "), "{text}");
    assert_eq!(place.runs().len(), 6);
}

/// `ulimit -f`: the kernel's signal would end the command without a word.
#[test]
fn a_limit_of_file_sizes_is_an_error_that_is_told() {
    let place = Place::new("file-limit");
    let mut experiment =
        ExperimentRecord::new("old", 1, Timestamp::from_unix_ms(1_700_000_000_000));
    experiment.notes.push("long ".repeat(100_000));
    Store::open(&place.database()).unwrap().save_experiment(&experiment).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 128; exec \"$0\" report --db \"$1\" --out \"$2\""]);
    command.arg(env!("CARGO_BIN_EXE_millstream")).arg(place.database());
    let out = place.folder.join("out");
    let output = command.arg(&out).output().unwrap();
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("millstream: ") && text.contains("File too large"), "{text}");
    assert_eq!(fs::read_dir(out).unwrap().count(), 0, "no half page");
}

/// `2>&1 | head`: nobody reads the standard error any more.
#[test]
fn who_reads_no_more_of_the_standard_error_ends_nothing() {
    let place = Place::new("unread");
    let unread = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(arguments);
        command.stdout(Stdio::null()).stderr(writer).status().unwrap().code()
    };
    let tiny = ["run", "first-look", "--stack", "millstream", "--set", "link=memory"];
    let rest = ["--repeats", "1", "--duration", "1", "--warmup", "0"];
    let code = unread(&[&tiny[..], &rest].concat());
    // 1: a run that does not count, on a machine too busy for it.
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    assert_eq!(place.runs().len(), 3);
    assert_eq!(unread(&["show", "no-such"]), Some(2));
}

/// An archive, or another user's: it is shown, and nothing is taken out of it.
#[test]
fn a_store_that_may_only_be_read_is_shown() {
    let place = Place::new("read-only");
    let experiment = ExperimentRecord::new("old", 1, Timestamp::from_unix_ms(1_700_000_000_000));
    let folder = place.folder.join("a%20b?c");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("kept.sqlite3");
    Store::open(&file).unwrap().save_experiment(&experiment).unwrap();
    let ran = |command: &str| {
        let script =
            "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" || exit 99; exec \"$@\"";
        let mut all = Command::new("unshare");
        all.args(["-m", "sh", "-c", script]).arg(&folder).arg(env!("CARGO_BIN_EXE_millstream"));
        all.args([command, experiment.id.as_str(), "--db"]).arg(&file);
        all.args((command == "report").then_some("--out")).env("XDG_RUNTIME_DIR", &place.folder);
        all.args((command == "report").then(|| place.folder.join("out")));
        all.output().ok()
    };
    for (command, code) in [("show", 0), ("report", 0), ("forget", 1)] {
        let Some(output) = ran(command).filter(|output| output.status.code() != Some(99)) else {
            eprintln!("skipped: no mount namespace of one's own here");
            return;
        };
        let text = words(&output);
        assert_eq!(output.status.code(), Some(code), "{command}: {text}");
        let expected = if code == 0 { &experiment.id } else { "readonly database" };
        assert!(text.contains(expected), "{command}: {text}");
    }
    assert_eq!(Store::open(&file).unwrap().experiments().unwrap().len(), 1);
}

#[test]
fn a_worker_that_dies_inside_the_window_ends_its_run_at_once() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("dies");
    let file = place.write(
        "long.toml",
        "name = \"long\"\nworkload = \"tcp_stream\"\nrepeats = 1\nwarmup_s = 0\n\
         duration_s = 3600\n[factors]\nstack = \"kernel\"\n",
    );
    let mut command = place.command(&["run", file.to_str().unwrap()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    wait_for("two workers", || workers_of(pid).len() == 2);
    // Until it moves data: then its data thread has used CPU time.
    let worker = workers_of(pid)[0];
    let busy = || {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        let ticks: Vec<u64> = stat.split(' ').skip(13).take(2).flat_map(str::parse).collect();
        ticks.iter().sum::<u64>() > 20
    };
    wait_for("traffic", busy);
    kill(Pid::from_raw(worker as i32), Signal::SIGKILL).unwrap();
    let ended =
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "));
    wait_for("the end of the run, an hour before its window's", ended);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    let runs = place.runs();
    let reasons = runs[0].validity.reasons.join("; ");
    assert!(!runs[0].validity.valid && reasons.contains("worker: "), "{reasons}");
    nothing_is_left(pid, &place);
}

/// Stopped, its readings are none, and what they show is nothing of its stack.
#[test]
fn a_worker_that_stood_still_is_told_of_and_no_interval_is_narrower_than_it_was() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("stopped");
    let file = place.write(
        "stream.toml",
        "name = \"stream\"\nworkload = \"tcp_stream\"\nrepeats = 1\nwarmup_s = 0\n\
         duration_s = 15\n[factors]\nstack = \"kernel\"\n",
    );
    let mut command = place.command(&["run", file.to_str().unwrap()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    wait_for("two workers", || workers_of(pid).len() == 2);
    let worker = workers_of(pid)[1];
    // It has moved data for a while then, and the window is long beside that.
    let busy = || {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        stat.split(' ').skip(13).take(2).flat_map(str::parse::<u64>).sum::<u64>() > 20
    };
    wait_for("traffic", busy);
    let worker = Pid::from_raw(worker as i32);
    kill(worker, Signal::SIGSTOP).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1600));
    kill(worker, Signal::SIGCONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = words(&output);
    assert!(text.contains(" worker stood still for "), "{text}");
    for run in place.runs() {
        let told = run.validity.reasons.iter().chain(&run.notes);
        assert!(told.into_iter().any(|why| why.contains("stood still")), "{text}");
        let Some(rates) = run.intervals.series.get("throughput_bits_per_s") else { continue };
        let widths = &run.intervals.widths_s;
        let bits: f64 = rates.iter().zip(widths).map(|(rate, width)| rate * width).sum();
        assert!((bits / 8.0 / run.results["payload_bytes"] - 1.0).abs() < 1e-6, "{widths:?}");
        assert!(widths.iter().any(|width| *width > 1.0), "{widths:?}");
    }
}

#[test]
fn two_experiments_at_once_know_of_each_other() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("two");
    let first = begun(&place);
    let arguments = ["run", "first-look", "--stack", "kernel", "--repeats", "1"];
    let mut second = place.command(&arguments);
    let output = second.args(["--duration", "1", "--warmup", "0"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains("  ! Another experiment (ms-"), "{}", words(&output));
    let (first_pid, second_runs) = (first.id(), place.runs());
    assert!(second_runs.iter().all(|run| run.validity.valid), "each has hosts of its own");
    let kept = || Store::open_existing(&place.database()).unwrap().experiments().unwrap();
    let oldest = kept().pop().unwrap();
    let runs_of_first =
        || Store::open_existing(&place.database()).unwrap().runs(&oldest.id).unwrap();
    let noted = || {
        let noted = |run: &RunRecord| run.notes.iter().any(|note| note.contains("ran beside this"));
        runs_of_first().iter().any(noted)
    };
    // A run of the first may last longer than all of the second.
    wait_for("a run of the first that says so too", noted);
    kill(Pid::from_raw(first_pid as i32), Signal::SIGINT).unwrap();
    let output = first.wait_with_output().unwrap();
    assert!(output.status.code() == Some(130) && output.status.signal().is_none());
    nothing_is_left(first_pid, &place);
}
