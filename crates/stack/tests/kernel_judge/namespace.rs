//! Running a test in namespaces of its own.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Set in the process inside.
const INSIDE: &str = "MILLSTREAM_JUDGE_INSIDE";

/// Why a test ends before its end.
pub enum Stop {
    /// Something it needs is not to be had here: it has not failed.
    Absent(String),
    /// Something went wrong.
    Failed(String),
}

impl<E: std::fmt::Display> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// How a test ends.
pub type Outcome = Result<(), Stop>;

/// Says something that is seen whether or not the test harness keeps output back.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "judge: {text}");
}

/// Declares tests that run in namespaces of their own.
macro_rules! judged {
    ($($(#[$meta:meta])* fn $name:ident() -> Outcome $body:block)*) => {
        $($(#[$meta])*
        #[test]
        fn $name() {
            fn body() -> $crate::namespace::Outcome $body
            $crate::namespace::run(concat!(module_path!(), "::", stringify!($name)), body);
        })*
    };
}
pub(crate) use judged;

/// They share two cores and are not to disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body` in a process of its own in private network and process namespaces; in that process,
/// runs it.
pub fn run(path: &str, body: fn() -> Outcome) {
    if std::env::var_os(INSIDE).is_some() {
        exit_with_the_outside();
        match body() {
            Ok(()) => {}
            Err(Stop::Absent(why)) => say(&format!("skipped: {why}")),
            Err(Stop::Failed(why)) => panic!("{why}"),
        }
        return;
    }
    // "kernel_judge::tools::ping" is "tools::ping" to the test harness.
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(flags) = possible_namespaces() else {
        say(&format!("{name}: skipped: no private network namespace to be had here"));
        return;
    };
    let own = std::env::current_exe().expect("this test has a file");
    // Standard input stays open as long as this process lives: see `exit_with_the_outside`.
    let mut inside = Command::new("unshare")
        .args(flags)
        .arg("--")
        .arg(own)
        .args([name, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare was there a moment ago");
    let _stdin = inside.stdin.take();
    let stdout = inside.stdout.take().map(|mut out| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = out.read_to_string(&mut text);
            text
        })
    });
    let mut errors = String::new();
    if let Some(mut stderr) = inside.stderr.take() {
        let _ = stderr.read_to_string(&mut errors);
    }
    let status = inside.wait().expect("a child that was started");
    let output = stdout.map_or(String::new(), |thread| thread.join().unwrap_or_default());
    for line in errors.lines().filter_map(|line| line.strip_prefix("judge: ")) {
        say(&format!("{name}: {line}"));
    }
    assert!(status.success(), "{name}: {status}\n{output}\n{errors}");
    // A name that matches no test would pass as well.
    assert!(output.contains("1 passed"), "{name} did not run\n{output}\n{errors}");
}

/// The flags of unshare(1) that work here. The process namespace is what takes every program a test
/// starts with it.
fn possible_namespaces() -> Option<&'static [&'static str]> {
    const ROOT: &[&str] = &["--net", "--pid", "--fork", "--kill-child"];
    const USER: &[&str] =
        &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"];
    [ROOT, USER].into_iter().find(|flags| {
        let mut probe = Command::new("unshare");
        probe.args(*flags).args(["--", "true"]).stdin(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

/// Ends this process when the one outside is gone, even if that was killed.
fn exit_with_the_outside() {
    std::thread::spawn(|| {
        let mut byte = [0];
        let _ = std::io::stdin().read(&mut byte);
        std::process::exit(2);
    });
}

/// Ends the test with a message when `progress` stands still for a minute: a hang would otherwise
/// have no message. Nothing here depends on how fast anything is.
pub fn watch(
    progress: impl Fn() -> u64 + Send + 'static,
    tell: impl Fn() -> String + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut last = progress();
        loop {
            // A stop of the process is a long sleep: one of many short ones counts for little.
            for _ in 0..60 {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
            let now = progress();
            if now == last {
                say(&format!("no progress for a minute at {now}: {}", tell()));
                std::process::exit(3);
            }
            last = now;
        }
    });
}

/// A program that could not be started: absent when there is no such program.
pub fn not_started(program: &str, error: &std::io::Error) -> Stop {
    match error.kind() {
        std::io::ErrorKind::NotFound => Stop::Absent(format!("no {program} here")),
        _ => Stop::Failed(format!("{program}: {error}")),
    }
}

/// The standard output of a program, which must succeed; absent when the program is.
pub fn output_of(program: &str, args: &[&str]) -> Result<String, Stop> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_started(program, &error))?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{program} {args:?}: {}\n{out}\n{err}", output.status);
    Ok(out)
}
