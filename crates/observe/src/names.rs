//! Names of the kernel's functions for every thread of this process, from one thread that has read
//! them once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};

use crate::symbols::Symbols;

/// The process of the stacks, or the kernel; the stacks; where the answer goes.
type Question = (Option<u32>, Vec<Vec<u64>>, Sender<Vec<Vec<String>>>);

/// Returns the names of stacks in the kernel, each the innermost function first, without those of
/// the probe that took it.
pub fn kernel_stacks(stacks: Vec<Vec<u64>>) -> Vec<Vec<String>> {
    ask(None, stacks).wait()
}

/// Asks for the names of stacks in a living process, each the innermost function first.
///
/// The first names of a program can take a second, for its files are read: whoever samples does not
/// wait for them.
pub fn process_stacks(process: u32, stacks: Vec<Vec<u64>>) -> Named {
    ask(Some(process), stacks)
}

/// Names that were asked for and may not have come yet.
#[derive(Debug)]
pub struct Named {
    stacks: Vec<Vec<u64>>,
    answer: Receiver<Vec<Vec<String>>>,
}

impl Named {
    /// Returns `stacks` with the names that `answer` will bring.
    pub fn new(stacks: Vec<Vec<u64>>, answer: Receiver<Vec<Vec<String>>>) -> Self {
        Self { stacks, answer }
    }

    /// Returns the stacks whose names were asked for.
    pub fn stacks(&self) -> &[Vec<u64>] {
        &self.stacks
    }

    /// Waits for the names, one list for each stack. Addresses in hexadecimal where nobody answers.
    pub fn wait(self) -> Vec<Vec<String>> {
        let Self { stacks, answer } = self;
        let of = |stack: &Vec<u64>| stack.iter().map(|address| format!("{address:#x}")).collect();
        answer.recv().unwrap_or_else(|_| stacks.iter().map(of).collect())
    }
}

/// A function that names the stacks of a process.
pub(crate) type Ask = Box<dyn Fn(u32, Vec<Vec<u64>>) -> Named + Send>;

/// The names of stacks of programs, asked for while the processes live and waited for at the end.
/// This process lives on: its own are asked for at the end, so that looking them up is not among
/// what is measured.
pub(crate) struct Asked {
    ask: Ask,
    asked: HashSet<(u32, Vec<u64>)>,
    answers: Vec<(u32, Named)>,
    own: Vec<Vec<u64>>,
    processes: HashMap<u32, String>,
}

impl Default for Asked {
    fn default() -> Self {
        Self::by(Box::new(process_stacks))
    }
}

impl Asked {
    pub(crate) fn by(ask: Ask) -> Self {
        let (asked, answers, own) = Default::default();
        Self { ask, asked, answers, own, processes: HashMap::new() }
    }

    /// Asks for the names of those stacks, each of a process, that are new.
    pub(crate) fn look<'a>(&mut self, stacks: impl Iterator<Item = (u32, &'a [u64])>) {
        let mut fresh: BTreeMap<u32, Vec<Vec<u64>>> = BTreeMap::new();
        for (process, stack) in stacks {
            self.processes.entry(process).or_insert_with(|| name_of(process));
            if !stack.is_empty() && self.asked.insert((process, stack.to_vec())) {
                fresh.entry(process).or_default().push(stack.to_vec());
            }
        }
        self.own.extend(fresh.remove(&std::process::id()).into_iter().flatten());
        for (process, stacks) in fresh {
            self.answers.push((process, (self.ask)(process, stacks)));
        }
    }

    /// Waits for all names.
    pub(crate) fn wait(self) -> Programs {
        let Self { ask, asked: _, mut answers, own, processes } = self;
        if !own.is_empty() {
            answers.push((std::process::id(), ask(std::process::id(), own)));
        }
        let mut stacks = HashMap::new();
        for (process, named) in answers {
            let those = named.stacks().to_vec();
            let those = those.into_iter().map(|stack| (process, stack));
            stacks.extend(those.zip(named.wait()));
        }
        Programs { processes, stacks }
    }
}

/// Names of processes, and of their stacks.
pub(crate) struct Programs {
    processes: HashMap<u32, String>,
    stacks: HashMap<(u32, Vec<u64>), Vec<String>>,
}

impl Programs {
    /// Returns the name of a process; empty where it was not asked for.
    pub(crate) fn process(&self, process: u32) -> String {
        self.processes.get(&process).cloned().unwrap_or_default()
    }

    /// Returns the functions of a stack, the innermost first; none where they are not known.
    pub(crate) fn functions(&self, process: u32, stack: Vec<u64>) -> &[String] {
        self.stacks.get(&(process, stack)).map_or(&[], Vec::as_slice)
    }
}

fn name_of(process: u32) -> String {
    if process == 0 {
        return "idle".to_owned();
    }
    let name = millstream_foreign::read_name(format!("/proc/{process}/comm")).unwrap_or_default();
    if name.trim().is_empty() { format!("process {process}") } else { name.trim().to_owned() }
}

fn ask(process: Option<u32>, stacks: Vec<Vec<u64>>) -> Named {
    static THREAD: OnceLock<Option<Mutex<Sender<Question>>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (questions, inbox) = channel::<Question>();
        let answer = move || {
            let mut symbols = Symbols::new();
            for (process, stacks, back) in inbox {
                let names = match process {
                    None => stacks.iter().map(|stack| symbols.kernel_stack(stack)).collect(),
                    Some(process) => symbols.process(process, &stacks),
                };
                let _ = back.send(names);
            }
        };
        let thread = std::thread::Builder::new().name("symbols".into()).spawn(answer);
        thread.ok().map(|_| Mutex::new(questions))
    });
    let (back, answer) = channel();
    if let Some(Ok(thread)) = thread.as_ref().map(Mutex::lock) {
        let _ = thread.send((process, stacks.clone(), back));
    }
    Named { stacks, answer }
}

/// Returns true for a function that only takes locks or waits: the caller that asked for the lock
/// is further out.
pub fn takes_locks(name: &str) -> bool {
    const PARTS: [&str; 12] = [
        "spin_lock",
        "read_lock",
        "write_lock",
        "mutex_lock",
        "mutex_slowlock",
        "rwsem_",
        "down_read",
        "down_write",
        "rt_mutex",
        "queued_",
        "percpu_rwsem",
        "slowpath",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_name_stay_addresses() {
        assert_eq!(kernel_stacks(vec![vec![1, 2], vec![]]), [vec!["0x1", "0x2"], vec![]]);
    }

    #[test]
    fn functions_that_take_locks_are_known() {
        for name in
            ["__pv_queued_spin_lock_slowpath", "_raw_spin_lock_bh", "__mutex_lock", "down_read"]
        {
            assert!(takes_locks(name), "{name}");
        }
        for name in ["tcp_sendmsg", "lock_sock_nested", "try_to_wake_up", "__schedule"] {
            assert!(!takes_locks(name), "{name}");
        }
    }
}
