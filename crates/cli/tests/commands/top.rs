//! `millstream top`, as its user meets it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_millstream");
/// Looks for something are so far apart, and there are so many at most.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: usize = 1500;

#[test]
fn as_json_it_has_every_source_or_says_why_not() {
    let done = Command::new(PROGRAM).args(["top", "--json", "-n", "2", "-d", "0.1"]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    let moments: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(moments.len(), 2);
    for moment in &moments {
        assert!(moment["width_s"].as_f64().unwrap() >= 0.1);
        assert!(moment["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty()));
        for source in ["interfaces", "interrupts", "pressure", "sockets"] {
            let there = moment.get(source).is_some();
            assert!(there || moment["absent"].get(source).is_some(), "{source}: {moment}");
        }
        for column in ["csw", "xcal", "intr"] {
            let there = moment["cpus"][0].get(column).is_some();
            assert!(there || moment["absent"].get(column).is_some(), "{column}: {moment}");
        }
    }
}

#[test]
fn as_text_it_has_every_table_and_says_what_is_missing() {
    let arguments = ["top", "--batch", "--no-bpf", "-n", "1", "-d", "0.1"];
    let done = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert!(done.status.success());
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    // Interfaces and engines have rates of packets, sockets of the kernel and of engines have
    // queues.
    for (head, tables) in [("xcal", 1), ("in/s", 2), ("intr/s", 1), ("recv-q", 2), ("turns/s", 1)] {
        assert_eq!(out.lines().filter(|line| line.contains(head)).count(), tables, "{head}: {out}");
    }
    assert!(err.contains("csw: not measured, because --no-bpf"), "{err}");
}

#[test]
fn what_it_cannot_do_is_refused() {
    for (arguments, why) in [
        (&["top"][..], "this is no terminal"),
        (&["top", "-b", "-d", "0"], "from 0.1 to 86400 seconds"),
        (&["top", "-b", "-d", "-1"], "from 0.1 to 86400 seconds"),
        (&["top", "-b", "--json"], "cannot be used with"),
    ] {
        let done = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && err.contains(why), "{arguments:?}: {err}");
    }
}

/// `top` on a terminal of its own.
struct OnTerminal {
    child: Child,
    ours: File,
    theirs: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start() -> Self {
        let size = Winsize { ws_row: 50, ws_col: 150, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let theirs = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(PROGRAM)
            .args(["top", "--no-bpf", "-d", "0.1"])
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .stdin(theirs())
            .stdout(theirs())
            .stderr(theirs())
            .spawn()
            .unwrap();
        let ours = File::from(pty.master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, all) = (ours.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                all.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        let started = Self { child, ours, theirs: pty.slave, shown };
        started.until("it shows its tables", || started.has_shown("recv-q"));
        assert!(started.is_raw());
        started
    }

    fn has_shown(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).contains(text)
    }

    fn is_raw(&self) -> bool {
        let flags = tcgetattr(&self.theirs).unwrap().local_flags;
        !flags.contains(LocalFlags::ECHO) && !flags.contains(LocalFlags::ICANON)
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if is_so() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        panic!("never: {what}");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    }

    /// Its end, after which the terminal is to be as it was.
    fn end(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        assert!(!self.is_raw(), "the terminal stays raw");
        self.until("the other screen is left", || self.has_shown("\x1b[?1049l"));
        assert!(self.has_shown("\x1b[?25h"), "the cursor is shown again");
        status
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_are_heard_and_q_gives_the_terminal_back() {
    use std::io::Write;
    let mut top = OnTerminal::start();
    // In the list of keys any key goes back to the tables, and this one ends it.
    top.ours.write_all(b"?x1i\t>Rq").unwrap();
    let shown = top.shown.clone();
    assert_eq!(top.end().code(), Some(0));
    // SGR (ECMA-48, 8.3.117) without colours: 30 to 49 and 90 to 107.
    let shown = String::from_utf8_lossy(&shown.lock().unwrap()).into_owned();
    for sequence in shown.split("\x1b[").skip(1) {
        let Some((numbers, _)) = sequence.split_once('m') else { continue };
        let codes: Result<Vec<u8>, _> = numbers.split(';').map(str::parse).collect();
        let is_colour = |code: &u8| matches!(code, 30..=49 | 90..=107);
        assert!(!codes.is_ok_and(|codes| codes.iter().any(is_colour)), "{numbers}");
    }
}

#[test]
fn a_signal_that_ends_it_gives_the_terminal_back() {
    let top = OnTerminal::start();
    top.signal(Signal::SIGTERM);
    assert_eq!(top.end().code(), Some(130));
}

#[test]
fn stopped_it_gives_the_terminal_back_and_takes_it_again() {
    let top = OnTerminal::start();
    top.signal(Signal::SIGTSTP);
    top.until("it stops", || top.is_stopped());
    assert!(!top.is_raw(), "the shell has a raw terminal");
    top.signal(Signal::SIGCONT);
    top.until("it takes the terminal again", || top.is_raw());
    top.signal(Signal::SIGTERM);
    assert_eq!(top.end().code(), Some(130));
}
