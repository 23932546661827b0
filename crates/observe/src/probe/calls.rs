//! The calls of programs that led to a cross-call, a wait for a lock, or a function whose argument
//! is counted: who called, and with which argument.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use millstream_record::CallRecord;

use super::callers::Callers;
use super::limits;
use crate::bpf::{Call, Called, Kernel, Place, ProgramStack};
use crate::names::{Asked, Programs};

/// Distance of looks at names, which read the code of the processes.
const LOOK: Duration = Duration::from_secs(1);
/// Time before the first one.
const FIRST_LOOK: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Calls {
    next: Option<Instant>,
    now: Vec<Call>,
    left_out: u64,
    callers: Callers,
    asked: Asked,
}

impl Calls {
    pub(super) fn begin(&mut self, kernel: &Kernel) {
        self.left_out = kernel.calls_left_out();
        self.next = Some(Instant::now() + FIRST_LOOK);
    }

    /// Takes the calls so far where that is due, or at the end, and asks for the names of the
    /// commonest that are new, of processes that still live.
    pub(super) fn look(&mut self, kernel: &Kernel, is_last: bool) {
        let now = Instant::now();
        if is_last || self.next.is_some_and(|next| next <= now) {
            self.next = Some(now + LOOK);
            self.take(kernel.calls().unwrap_or_default());
        }
    }

    fn take(&mut self, mut calls: Vec<Call>) {
        calls.sort_by_key(|one| std::cmp::Reverse(one.count));
        let commonest = &calls[..calls.len().min(limits::CALLERS)];
        let mut processes: BTreeMap<u32, Vec<&ProgramStack>> = BTreeMap::new();
        for one in commonest {
            processes.entry(one.process).or_default().push(&one.stack);
        }
        for (process, stacks) in processes {
            self.callers.look(process, stacks.into_iter());
        }
        let stacks = commonest.iter().map(|one| (one.process, self.addresses(one)));
        let stacks: Vec<(u32, Vec<u64>)> = stacks.collect();
        self.asked.look(stacks.iter().map(|(process, stack)| (*process, &stack[..])));
        self.now = calls;
    }

    /// Returns the addresses of who called, the innermost first: in the kernel's case the function
    /// that made the system call, too.
    fn addresses(&self, one: &Call) -> Vec<u64> {
        let own = one.stack.frames.first().filter(|_| !one.stack.at_entry);
        own.into_iter().chain(self.callers.of(one.process, &one.stack)).copied().collect()
    }

    /// Returns the calls of functions, the most first, those behind each stack of the kernel, and
    /// the number of calls that found no room.
    pub(super) fn finish(mut self, kernel: &Kernel) -> (Vec<CallRecord>, Behind, u64) {
        let left_out = kernel.calls_left_out().saturating_sub(self.left_out);
        let programs = std::mem::take(&mut self.asked).wait();
        let mut functions: BTreeMap<(u32, u64, Vec<String>), u64> = BTreeMap::new();
        let mut behind: HashMap<Vec<u64>, BTreeMap<Vec<String>, u64>> = HashMap::new();
        for one in &self.now {
            let stack = self.stack(one, &programs);
            let sum = match &one.to {
                Called::Function(number, argument) => {
                    functions.entry((*number, *argument, stack)).or_default()
                }
                Called::Kernel(way) => {
                    behind.entry(way.clone()).or_default().entry(stack).or_default()
                }
            };
            *sum += one.count;
        }
        let record = |((number, argument, stack), count): ((u32, u64, Vec<String>), u64)| {
            let function = kernel.name_of(Place::Function(number));
            CallRecord { function, argument, stack, count }
        };
        let mut functions: Vec<CallRecord> = functions.into_iter().map(record).collect();
        functions.sort_by_key(|one| std::cmp::Reverse(one.count));
        (functions, Behind(behind), left_out)
    }

    /// Returns the name of the process and its functions, the innermost first.
    fn stack(&self, one: &Call, programs: &Programs) -> Vec<String> {
        let functions = programs.functions(one.process, self.addresses(one));
        let process = programs.process(one.process);
        [process].into_iter().chain(functions.iter().cloned()).collect()
    }
}

/// The programs behind stacks of the kernel, with how often each was met.
#[derive(Default)]
pub(super) struct Behind(HashMap<Vec<u64>, BTreeMap<Vec<String>, u64>>);

impl Behind {
    /// Returns the program that was met most behind a stack of the kernel, whose `names` say
    /// whether an interrupt began it: that is of no program.
    pub(super) fn of(&self, stack: &[u64], names: &[String]) -> Vec<String> {
        let is_interrupt = |name: &String| {
            name.starts_with("asm_sysvec_") || name.starts_with("asm_common_interrupt")
        };
        let all = self.0.get(stack).filter(|_| !names.iter().any(is_interrupt));
        let most = all.and_then(|all| all.iter().max_by_key(|(_, count)| **count));
        most.map_or_else(Vec::new, |(program, _)| program.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_met_most_is_behind_a_stack_that_no_interrupt_began() {
        let met = |name: &str, count| (vec![name.to_owned()], count);
        let all = BTreeMap::from([met("reader", 2), met("writer", 3)]);
        let behind = Behind(HashMap::from([(vec![1, 2], all)]));
        let names = |last: &str| ["try_to_wake_up".to_owned(), last.to_owned()];
        assert_eq!(behind.of(&[1, 2], &names("do_syscall_64")), ["writer"]);
        assert_eq!(behind.of(&[1, 2], &names("asm_sysvec_reschedule_ipi")), [""; 0]);
        assert_eq!(behind.of(&[1], &names("do_syscall_64")), [""; 0]);
    }
}
