//! A command that runs: started bound and guarded, found with all that it has started, and ended.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millstream_foreign::{shown, to_parse};
use millstream_record::error::Error;
use millstream_testbed::guard::{WorkerProgram, family};
use millstream_testbed::priority;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use regex::{Regex, RegexBuilder};

use crate::ready::{self, LEAD, Outlook, Ready};

/// Bytes of a command's output that are looked at: of its beginning, and of its end.
const OUTPUT_LIMITS: (usize, usize) = (8 << 20, 1 << 20);

/// Longest wait for the end of the output of a command that has ended: only a process that is no
/// descendant of it can still hold it.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(5);

/// Characters of its last line that are told.
const LAST_WORDS: usize = 160;

/// Longest time until a guard must have ended its command.
const GUARD_PATIENCE: Duration = Duration::from_secs(3);

/// A process in a group of its own, which ends with this value.
pub struct Running {
    /// The process, or its guard.
    pub child: Child,
    is_guarded: bool,
}

impl Running {
    /// Starts `words`, bound to a CPU where one is given, and at a high priority where that is
    /// asked for: a child has the CPUs and the priority of the thread that starts it. What it
    /// writes has to be read by [`said`](Self::said).
    pub fn start(
        words: &[impl AsRef<OsStr>],
        (cpu, raised): (Option<usize>, bool),
        guard: Option<&WorkerProgram>,
    ) -> Result<Self, Error> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Error::Refused("no command was given".to_owned()));
        };
        let program = program.as_ref();
        // A guard that makes a session of its own may lead no group before.
        let in_own_session = raised && guard.is_some() && priority::is_by_session();
        let mut command = match guard {
            Some(guard) => {
                let mut command = Command::new(&guard.path);
                command.args(&guard.arguments).args(in_own_session.then_some("--raised"));
                command.arg("--").args(words).stdin(Stdio::piped());
                command
            }
            None => {
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null());
                command
            }
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if !in_own_session {
            command.process_group(0);
        }
        let spawn = move || -> std::io::Result<Child> {
            if let Some(cpu) = cpu {
                let mut set = CpuSet::new();
                set.set(cpu)?;
                sched_setaffinity(Pid::from_raw(0), &set)?;
            }
            if raised {
                priority::raise(None).map_err(std::io::Error::other)?;
            }
            command.spawn()
        };
        // A thread of its own, so that nobody else's CPUs change.
        let started = std::thread::spawn(spawn).join();
        let child = started.unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")));
        let child = child.map_err(|error| {
            Error::Refused(format!("{}: {error}", shown(program.as_encoded_bytes())))
        })?;
        Ok(Self { child, is_guarded: guard.is_some() })
    }

    /// Starts the other end of a command likewise. Where it puts itself into the background it goes
    /// on as what it has started there.
    pub fn start_server(
        words: &[String],
        how: (Option<usize>, bool),
        guard: Option<&WorkerProgram>,
    ) -> Result<Self, Error> {
        let guard = guard.cloned().map(WorkerProgram::of_server);
        Self::start(words, how, guard.as_ref())
    }

    /// The command and what it has started.
    pub fn processes(&self) -> Vec<u32> {
        family(self.child.id()).into_iter().skip(usize::from(self.is_guarded)).collect()
    }

    /// Returns whether it can be used, as `ready` says, where it is of this age. `said` is what it
    /// writes.
    pub fn look(
        &mut self,
        (ready, patience): (&Ready, Duration),
        age: Duration,
        said: &Listening,
    ) -> Result<Outlook, Error> {
        let ended = self.child.try_wait().map_err(Error::file("the other end"))?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            let why = "before the command began the other end (--server)";
            return Ok(Outlook::Failed(said.all().because(&ending(why, status))));
        }
        if *ready == Ready::Listens && age < LEAD {
            return Ok(Outlook::NotYet);
        }
        let is_so = match ready {
            Ready::Listens => ready::listens(&self.processes()),
            Ready::Says(pattern) => said.has(&as_pattern(pattern)?),
        };
        Ok(match is_so || ended.is_some() {
            true => Outlook::Usable,
            false if age < patience => Outlook::NotYet,
            false => Outlook::Unseen,
        })
    }

    /// Reads all that it writes, in threads, so that it never waits for us.
    pub fn said(&mut self) -> Listening {
        let out = self.child.stdout.take().map(Reader::start);
        let err = self.child.stderr.take().map(Reader::start);
        Listening { out, err }
    }
}

/// Beginning and end of a long text.
struct Ends {
    limits: (usize, usize),
    begin: Vec<u8>,
    end: VecDeque<u8>,
    /// True when there was more between them.
    is_cut: bool,
}

impl Ends {
    fn new(limits: (usize, usize)) -> Self {
        Self { limits, begin: Vec::new(), end: VecDeque::new(), is_cut: false }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = self.limits.0 - self.begin.len();
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        self.begin.extend_from_slice(first);
        self.end.extend(rest);
        let beyond = self.end.len().saturating_sub(self.limits.1);
        self.is_cut |= beyond > 0;
        self.end.drain(..beyond);
    }

    /// Returns the text without the lines of which a part was left out: half a number is another
    /// number.
    fn text(&self) -> String {
        let end: Vec<u8> = self.end.iter().copied().collect();
        let (mut begin, mut end) = (&self.begin[..], &end[..]);
        let is_break = |byte: &u8| *byte == b'\n';
        if self.is_cut {
            begin = &begin[..begin.iter().rposition(is_break).map_or(0, |at| at + 1)];
            end = &end[end.iter().position(is_break).map_or(end.len(), |at| at + 1)..];
        }
        to_parse(&[begin, end].concat()).into_owned()
    }
}

/// A thread that reads a pipe until it is closed, so that who writes never waits for us.
struct Reader {
    ends: Arc<Mutex<Ends>>,
    is_done: Receiver<()>,
}

impl Reader {
    fn start(mut pipe: impl Read + Send + 'static) -> Self {
        let ends = Arc::new(Mutex::new(Ends::new(OUTPUT_LIMITS)));
        let (kept, (done, is_done)) = (ends.clone(), channel());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..length]);
            }
            // Nobody may wait for it any more.
            let _ = done.send(());
        });
        Self { ends, is_done }
    }

    /// The text that the command wrote until it closed the pipe or the patience was over, and
    /// whether a part of it is left out.
    fn text(&self) -> (String, bool) {
        let _ = self.is_done.recv_timeout(OUTPUT_PATIENCE);
        self.so_far()
    }

    fn so_far(&self) -> (String, bool) {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        (ends.text(), ends.is_cut)
    }
}

/// The threads that read the output of a command.
pub struct Listening {
    out: Option<Reader>,
    err: Option<Reader>,
}

impl Listening {
    /// All of it, once the command has ended.
    pub fn all(&self) -> Said {
        let text = |reader: &Option<Reader>| reader.as_ref().map(Reader::text).unwrap_or_default();
        let ((out, is_cut), (err, _)) = (text(&self.out), text(&self.err));
        Said { out, err, is_cut }
    }
}

impl Listening {
    /// Returns whether what it has written until now has the pattern.
    fn has(&self, pattern: &Regex) -> bool {
        let mut readers = self.out.iter().chain(&self.err);
        readers.any(|reader| pattern.is_match(&reader.so_far().0))
    }
}

/// Reads the pattern of `--ready`; `^` and `$` match at each line.
pub fn as_pattern(text: &str) -> Result<Regex, Error> {
    let pattern = RegexBuilder::new(text).multi_line(true).build();
    pattern.map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or("no regular expression");
        Error::Refused(format!("--ready {text}: {why}"))
    })
}

/// Returns a sentence on the end of a command. If a signal ended the command, its guard tells it as
/// a shell does.
pub fn ending(who: &str, status: ExitStatus) -> String {
    let signal = status.code().and_then(|code| Signal::try_from(code - 128).ok());
    match signal {
        Some(signal) => format!("{who} ended with {status}, which is that of {signal}"),
        None => format!("{who} ended with {status}"),
    }
}

/// The output of a command.
pub struct Said {
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// True when its output was longer than the part that is looked at.
    is_cut: bool,
}

impl Said {
    /// `why` it does not count, with what the command itself says: the error in its JSON, else its
    /// last line.
    pub fn because(&self, why: &str) -> String {
        let why = match self.is_cut {
            true => format!("{why}; of its output the first 8 MiB and the last MiB were looked at"),
            false => why.to_owned(),
        };
        let error = Regex::new(r#""error":\s*"([^"]+)"#).expect("a pattern");
        let in_json = error.captures(&self.out).map(|found| found[1].to_owned());
        let mut lines = self.err.lines().rev().chain(self.out.lines().rev()).map(str::trim);
        let last = || lines.find(|line| !line.is_empty()).map(str::to_owned);
        match in_json.or_else(last) {
            Some(said) => {
                format!(
                    "{why}; it said: {}",
                    shown(said.chars().take(LAST_WORDS).collect::<String>())
                )
            }
            None => format!("{why}; it said nothing"),
        }
    }
}

/// Returns true when there is a process of this number.
pub fn is_process(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Refuses a program that does not exist: the guard, which starts it, would not say so.
pub fn may_be_started(program: &OsStr) -> Result<(), Error> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let found = match program.as_encoded_bytes().contains(&b'/') {
        true => is_program(Path::new(program)),
        false => std::env::var_os("PATH").is_some_and(|folders| {
            std::env::split_paths(&folders).any(|folder| is_program(&folder.join(program)))
        }),
    };
    match found {
        true => Ok(()),
        false if program.is_empty() => {
            Err(Error::Refused("the first word of a command is empty: name a program".to_owned()))
        }
        false => {
            let program = shown(program.as_encoded_bytes());
            Err(Error::Refused(format!("{program}: there is no such program")))
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Told so, a guard ends also what has left its group.
        if self.child.stdin.take().is_some() {
            let deadline = Instant::now() + GUARD_PATIENCE;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
            let _ = self.child.wait();
        } else {
            // Children of its own that it left.
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        }
    }
}

/// Binds every thread of these processes to a CPU, unless it is.
pub fn bind(pids: &[u32], cpu: usize) {
    let mut set = CpuSet::new();
    if set.set(cpu).is_err() {
        return;
    }
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
        for tid in tids.map(Pid::from_raw) {
            // One that has ended meanwhile needs none.
            if sched_getaffinity(tid).is_ok_and(|now| now != set) {
                let _ = sched_setaffinity(tid, &set);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program looks no more at one that is usable: until then it must have been.
    #[test]
    fn one_that_listens_and_fails_within_the_lead_is_not_usable() {
        let script = "use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0); \
                      bind($s, sockaddr_in(0, INADDR_LOOPBACK)); listen($s, 1); sleep 600";
        let Ok(mut one) = Running::start(&["perl", "-e", script], (None, false), None) else {
            eprintln!("skipped: no perl");
            return;
        };
        let said = one.said();
        while !ready::listens(&one.processes()) {
            assert_eq!(one.child.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(1));
        }
        let how = (&Ready::Listens, 2 * LEAD);
        let look = |age, one: &mut Running| one.look(how, age, &said).unwrap();
        assert_eq!(look(Duration::ZERO, &mut one), Outlook::NotYet);
        assert_eq!(look(LEAD, &mut one), Outlook::Usable);
        one.child.kill().unwrap();
        while one.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = look(Duration::ZERO, &mut one);
        assert!(matches!(&after, Outlook::Failed(why) if why.contains("SIGKILL")), "{after:?}");
    }

    #[test]
    fn one_that_gives_no_sign_is_waited_for_as_long_as_patience_lasts() {
        let mut one = Running::start(&["sleep", "600"], (None, false), None).unwrap();
        let said = one.said();
        for ready in [Ready::Listens, Ready::Says("up".to_owned())] {
            let mut look = |age| one.look((&ready, 2 * LEAD), age, &said).unwrap();
            assert_eq!(look(LEAD), Outlook::NotYet);
            assert_eq!(look(2 * LEAD), Outlook::Unseen);
        }
    }

    #[test]
    fn of_a_long_output_whole_lines_of_both_ends_are_kept() {
        let kept = |limits, parts: &[&str]| {
            let mut ends = Ends::new(limits);
            parts.iter().for_each(|part| ends.add(part.as_bytes()));
            (ends.text(), ends.is_cut)
        };
        assert_eq!(kept((4, 4), &["ab", "cd", "ef", "gh"]), ("abcdefgh".to_owned(), false));
        assert_eq!(
            kept((8, 8), &["a\nbcd\n12345", "678\nx 9\n"]),
            ("a\nbcd\nx 9\n".to_owned(), true)
        );
        assert_eq!(kept((3, 3), &["abcdefghi"]), (String::new(), true));
        assert_eq!(kept((0, 3), &["abcd\ne\n"]), ("e\n".to_owned(), true));
    }
}
