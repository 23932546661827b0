//! Names of addresses, in the kernel and in programs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use blazesym::Pid;
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolizer};

use millstream_foreign::shown;

use crate::exports::Beside;

/// Names that are remembered; beyond, all are forgotten and looked up again.
const REMEMBERED: usize = 65_536;

/// In the place of the name of a function that has none.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// Looks names up and remembers them.
pub struct Symbols {
    symbolizer: Symbolizer,
    kernel: Source<'static>,
    names: HashMap<u64, String>,
    beside: Beside,
}

impl Default for Symbols {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbols {
    /// Returns a resolver that has read nothing yet.
    pub fn new() -> Self {
        // Names alone: neither lines nor inlined functions.
        let symbolizer =
            Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        let kernel = Source::Kernel(Kernel {
            // Debug information of the kernel, where it is, says no more names.
            vmlinux: blazesym::MaybeDefault::None,
            ..Kernel::default()
        });
        Self { symbolizer, kernel, names: HashMap::new(), beside: Beside::default() }
    }

    /// Returns the name of a function of the kernel; the address in hexadecimal where it has none
    /// (`kernel.kptr_restrict`).
    pub fn kernel(&mut self, address: u64) -> String {
        if let Some(name) = self.names.get(&address) {
            return name.clone();
        }
        let name = self.look_up(&self.kernel, address).unwrap_or_else(|| format!("{address:#x}"));
        if self.names.len() >= REMEMBERED {
            self.names.clear();
        }
        self.names.insert(address, name.clone());
        name
    }

    /// Returns the names of a stack in the kernel, the innermost first, without the functions of
    /// the probe that took it at a tracepoint.
    pub fn kernel_stack(&mut self, stack: &[u64]) -> Vec<String> {
        without_probe(stack.iter().map(|address| self.kernel(*address)).collect())
    }

    /// Returns the names of stacks of a living process, whose maps are read once for all of them.
    /// Where there is none, `[near NAME]` of what its library exports beside; else `[unknown]`.
    pub fn process(&mut self, pid: u32, stacks: &[Vec<u64>]) -> Vec<Vec<String>> {
        let mut source = Process::new(Pid::from(pid));
        // Files are found by their names: the links in map_files need more rights.
        source.map_files = false;
        source.debug_syms = true;
        source.perf_map = has_own_map(pid);
        let source = Source::Process(source);
        let addresses = stacks.concat();
        let found = self.symbolizer.symbolize(&source, Input::AbsAddr(&addresses));
        let found = found.unwrap_or_default();
        let named = |at: usize| found.get(at).and_then(|one| one.as_sym());
        let nameless: Vec<u64> = (0..addresses.len())
            .filter(|&at| named(at).is_none())
            .map(|at| addresses[at])
            .collect();
        let mut beside = self.beside.names(pid, &nameless).into_iter();
        let mut names = (0..addresses.len()).map(|at| match named(at) {
            Some(symbol) => shown(symbol.name.as_bytes()),
            None => beside.next().flatten().map(shown).unwrap_or_else(|| UNKNOWN.to_owned()),
        });
        stacks.iter().map(|stack| names.by_ref().take(stack.len()).collect()).collect()
    }

    fn look_up(&self, source: &Source<'_>, address: u64) -> Option<String> {
        let found = self.symbolizer.symbolize_single(source, Input::AbsAddr(address)).ok()?;
        found.as_sym().map(|symbol| shown(symbol.name.as_bytes()))
    }
}

/// Returns the names behind those of a tracepoint and of the programs that it calls. A program that
/// no tracepoint calls was itself met by a sample.
fn without_probe(mut names: Vec<String>) -> Vec<String> {
    let is_program = |name: &&String| name.starts_with("bpf_prog_");
    let programs = names.iter().take_while(is_program).count();
    let of_tracepoint = |name: &&String| {
        let starts = ["bpf_trace_run", "__bpf_trace_", "__traceiter_"];
        starts.iter().any(|start| name.starts_with(start))
    };
    let behind = names[programs..].iter().take_while(of_tracepoint).count();
    names.drain(..if behind > 0 { programs + behind } else { 0 });
    names
}

/// Returns whether a process has told names of what it compiled while it ran, in a file of its own
/// user's or root's: anybody can make one of that name in `/tmp`, or a pipe that nobody writes.
fn has_own_map(pid: u32) -> bool {
    let map = || {
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        let status = millstream_foreign::lines(&status);
        let ids = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
        // As the process is called where it runs, and in its own view of /tmp.
        let inner = ids.split_whitespace().last()?;
        let map = fs::symlink_metadata(format!("/proc/{pid}/root/tmp/perf-{inner}.map")).ok()?;
        let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        Some(map.is_file() && [0, owner].contains(&map.uid()))
    };
    map().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_has_its_name_and_nothing_has_none() {
        #[inline(never)]
        fn here_it_is() -> u32 {
            std::process::id()
        }
        let mut symbols = Symbols::new();
        let address = here_it_is as *const () as u64;
        let names = symbols.process(std::process::id(), &[vec![1], vec![], vec![address, 1]]);
        assert_eq!((names[0].as_slice(), names[1].len()), (&["[unknown]".to_owned()][..], 0));
        assert!(names[2][0].contains("here_it_is"), "{names:?}");
        assert_eq!(names[2][1], "[unknown]");
        assert_eq!(symbols.kernel(1), "0x1");
    }

    #[test]
    fn the_program_of_a_probe_is_left_out_and_one_that_a_sample_met_is_not() {
        let without = |names: &str| without_probe(names.split(' ').map(str::to_owned).collect());
        let probe = "bpf_prog_1_cross_call bpf_trace_run3 __traceiter_ipi_send_cpu try_to_wake_up";
        assert_eq!(without(probe), ["try_to_wake_up"]);
        assert_eq!(without("bpf_prog_2_drop tc_run").len(), 2);
        assert_eq!(without("tcp_sendmsg"), ["tcp_sendmsg"]);
    }

    #[test]
    fn names_are_believed_of_a_process_own_user_alone() {
        use std::os::unix::fs::{chown, symlink};
        let pid = std::process::id();
        let map = std::path::PathBuf::from(format!("/tmp/perf-{pid}.map"));
        assert!(!has_own_map(pid) && !has_own_map(u32::MAX));
        symlink("/etc/hostname", &map).unwrap();
        assert!(!has_own_map(pid), "a link");
        fs::remove_file(&map).unwrap();
        fs::create_dir(&map).unwrap();
        assert!(!has_own_map(pid), "no file, as a pipe is none");
        fs::remove_dir(&map).unwrap();
        fs::write(&map, "0 1 name").unwrap();
        let own = has_own_map(pid);
        // Where nothing may be given away this is root's no more than another's.
        let is_given = chown(&map, Some(65_534), None).is_ok();
        let given = has_own_map(pid);
        fs::remove_file(&map).unwrap();
        assert!(own && !(is_given && given));
    }
}
