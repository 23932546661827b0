//! Where the time of threads went.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The time of each thread that was at work, in rows that sum to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Duration, in seconds.
    pub width_s: f64,
    /// Threads by the time on a CPU, the most first.
    pub threads: Vec<ThreadBudget>,
    /// Names of processes and of threads that others have in their rows, by number.
    pub names: BTreeMap<u32, String>,
    /// Processes that are ends of connections, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ends: BTreeMap<u32, End>,
    /// Processes that have a TUN or TAP device open: packets of others pass through them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub carriers: BTreeSet<u32>,
    /// Processes that have a UDP socket.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub with_udp: BTreeSet<u32>,
    /// Addresses at which several sockets listen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedAddress>,
    /// Threads that are not here, as there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadBudget {
    /// Its number.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The process that started that one.
    pub parent: u32,
    /// Its name.
    pub name: String,
    /// Further threads of its process, or processes of its name, that ended soon: what they did is
    /// in the rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u32,
    /// The part of the duration in which it existed, in seconds; with others the sum.
    pub alive_s: f64,
    /// Rows, the longest first.
    pub rows: Vec<BudgetRow>,
}

/// The reason of time in which a thread was ready, and this program had its CPU.
pub const LOOKS: &str = "millstream has it, as it looks";

/// The reason of time in which a thread was ready and its CPU idle, for longer than a CPU takes to
/// wake up.
pub const HELD_BACK: &str = "held back, with its CPU idle";

/// In the place of a system call: none is made.
pub const FAULTS: &str = "page faults and interrupts";

/// In the place of the thing that a thread waits for: the time-out of a call that waits for
/// several.
pub const TIME_OUT: &str = "until its time is over";

/// One use of a thread's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetRow {
    /// The state of the thread.
    pub state: ThreadState,
    /// The function of its own code, the system call, or why nothing can be told.
    pub what: String,
    /// The peer, file or lock that it waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on: String,
    /// The functions of its own code that called the system call in which it sleeps, the innermost
    /// first: of the stack that was met most often. Empty where a program keeps no frame pointers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// The thread that woke it; where it was ready, the process that had the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<u32>,
    /// Seconds.
    pub s: f64,
    /// How often; 0 where that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u64,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// On a CPU, in the program's own code.
    OwnCode,
    /// On a CPU, in the kernel.
    Kernel,
    /// Ready, and without a CPU.
    Ready,
    /// Asleep until it is woken.
    Asleep,
    /// Asleep, and no signal wakes it: for a disk, or a lock of the kernel.
    Blocked,
    /// It could not be told.
    #[default]
    Untold,
}

/// The part that a process has in its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// It accepts connections.
    pub accepts: bool,
    /// It opens connections.
    pub connects: bool,
    /// Processes at the other ends.
    pub peers: Vec<u32>,
    /// Settings of its network namespace, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// An address at which several sockets listen, each of which is given connections (SO_REUSEPORT).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedAddress {
    /// The address, with its port.
    pub address: String,
    /// The sockets.
    pub sockets: u32,
    /// Processes that have them, each with the connections at this port that it had at most.
    pub connections: BTreeMap<u32, u32>,
}

impl End {
    /// Returns its role in one word.
    pub fn role(&self) -> &'static str {
        match (self.accepts, self.connects) {
            (true, true) => "proxy",
            (true, false) => "server",
            (false, true) => "client",
            (false, false) => "other",
        }
    }
}

impl Budget {
    /// Returns the name of a thread or process with its number.
    pub fn name(&self, number: u32) -> String {
        let name = self.names.get(&number).map_or("thread", String::as_str);
        format!("{name}/{number}")
    }
}
