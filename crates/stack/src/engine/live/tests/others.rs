//! Tests of access by other users, and of a full file system. Both need root; without it the tests
//! say that they are left out.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Tells a copy of this program what it is to do: the segment that an intruder tries, or the
/// directory that is full.
const SEGMENT: &str = "MILLSTREAM_TEST_SEGMENT";
const FULL: &str = "MILLSTREAM_TEST_FULL";

/// Nobody, by number.
const NOBODY: u32 = 65_534;

/// A copy of this program that runs one test.
fn copy(test: &str) -> Vec<String> {
    let own = std::env::current_exe().expect("a path");
    let name = format!("engine::live::tests::others::{test}");
    [own.to_str().expect("text"), "--exact", &name, "--nocapture"].map(str::to_owned).into()
}

/// Not a test by itself: another user, who says what he was given.
#[test]
fn an_intruder() {
    let Some(segment) = std::env::var_os(SEGMENT) else { return };
    let segment = Path::new(&segment);
    let said = |result: std::io::Result<usize>| match result {
        Ok(bytes) => format!("{bytes} bytes"),
        Err(error) => format!("{:?}", error.kind()),
    };
    let ask = || -> std::io::Result<usize> {
        let mut stream = UnixStream::connect(segment.with_extension("sock"))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        // It may be dropped before it has asked.
        let _ = stream.write_all(b"ss\n");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Ok(answer.len())
    };
    println!("file: {}", said(std::fs::read(segment).map(|bytes| bytes.len())));
    println!("socket: {}", said(ask()));
}

/// Returns what an intruder is given while the engine takes its turns; `None` where there can be no
/// intruder here.
fn intrude(engine: &mut Engine) -> Option<(String, String)> {
    let path = engine.inspect().live_path().expect("published").to_owned();
    let words = copy("an_intruder");
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(SEGMENT, path).uid(NOBODY).gid(NOBODY).stdout(Stdio::piped());
    let Ok(mut intruder) = command.spawn() else {
        eprintln!("left out: no program can be run as another user here");
        return None;
    };
    while intruder.try_wait().expect("a child").is_none() {
        engine.run_once(Some(Duration::from_millis(1))).expect("a turn");
    }
    let mut said = String::new();
    intruder.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    let part = |name: &str| {
        let line = said.lines().find_map(|line| line.split_once(name));
        line.unwrap_or_else(|| panic!("{name} in {said}")).1.to_owned()
    };
    Some((part("file: "), part("socket: ")))
}

#[test]
fn another_user_reads_and_asks_nothing_whatever_stands_open() {
    if effective_uid() != 0 {
        return eprintln!("left out: it takes root");
    }
    let there = Temporary::new("others");
    let mut engine = engine(None, Some(there.config()));
    engine.run_once(Some(Duration::ZERO)).expect("a turn");
    let segment = engine.inspect().live_path().expect("published").to_owned();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    let denied = || ("PermissionDenied".to_owned(), "PermissionDenied".to_owned());
    let Some(given) = intrude(&mut engine) else { return };
    assert_eq!(given, denied(), "the directory is closed");
    open(&there.0, 0o755);
    assert_eq!(intrude(&mut engine), Some(denied()), "the file and the socket are closed");
    open(&segment.with_extension("sock"), 0o666);
    let (_, asked) = intrude(&mut engine).expect("as before");
    assert_eq!(asked, "0 bytes", "the engine looks who asks");
}

/// Not a test by itself: an engine that publishes in a directory that is full, and then is not. It
/// has its own mounts.
#[test]
fn an_engine_where_all_is_full() {
    let Some(directory) = std::env::var_os(FULL) else { return };
    let directory = Path::new(&directory);
    let filler = directory.join("filler");
    let mut file = std::fs::File::create(&filler).expect("a file");
    while file.write_all(&[7; 4096]).is_ok() {}
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), Some(LiveConfig::new("full").directory(directory)));
    let later = |engine: &mut Engine| {
        engine.turn(engine.now() + Duration::from_secs(1));
    };
    let work = |engine: &mut Engine| {
        engine
            .sockets()
            .tcp_connect("10.9.0.2:7".parse().expect("an address"))
            .expect("a connection");
        (0..3).for_each(|_| later(engine));
    };
    work(&mut engine);
    let why = engine.inspect().live_error().map(ToString::to_string).unwrap_or_default();
    println!("while it is full: {} connections, {why}", engine.inspect().connection_count());
    drop(file);
    std::fs::remove_file(&filler).expect("ours");
    work(&mut engine);
    let seen = engine.inspect().live_error().is_none().then(|| read(&engine).total("connections"));
    println!("when there is room: {seen:?}");
}

#[test]
fn where_the_file_system_is_full_the_engine_runs_on_and_publishes_when_there_is_room() {
    let there = Temporary::new("full");
    std::fs::create_dir_all(&there.0).expect("a directory");
    let script = "mount -t tmpfs -o size=1m,mode=700 none \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&there.0);
    command.args(copy("an_engine_where_all_is_full")).env(FULL, &there.0);
    let done = command.output();
    let Some(done) = done.ok().filter(|done| done.status.success()) else {
        return eprintln!("left out: nothing can be mounted here");
    };
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("while it is full: 1 connections, "), "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert!(said.contains("when there is room: Some(Some("), "{said}");
}
