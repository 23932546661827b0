//! Finds a name for a function that a library has taken out of its tables: the exported function
//! beside it.
//!
//! Libraries are installed with the names of what they export alone. A local function lies in the
//! same object file as the exported ones that call it, mostly before them: the next of those tells
//! the part that it belongs to. Functions before `malloc` are the allocator's.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use blazesym::Pid;
use blazesym::inspect::Inspector;
use blazesym::inspect::source::{Elf, Source};
use blazesym::normalize::{NormalizeOpts, Normalizer, UserMeta};

/// Farther away than this nothing is beside.
const NEAR_BYTES: u64 = 16 << 10;

/// Places of exported functions in their file, ascending, and their names.
type Exports = Vec<(u64, String)>;

/// Reads each library once.
#[derive(Default)]
pub(crate) struct Beside {
    libraries: HashMap<PathBuf, Exports>,
}

impl Beside {
    /// Returns `[near NAME]` for each address in a living process, where there is such a function.
    pub(crate) fn names(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<String>> {
        let normalizer = Normalizer::builder().enable_build_ids(false).build();
        // Files are found by their names: the links in map_files need more rights.
        let options = NormalizeOpts { map_files: false, ..NormalizeOpts::default() };
        let found = normalizer.normalize_user_addrs_opts(Pid::from(pid), addresses, &options);
        let Ok(found) = found else { return vec![None; addresses.len()] };
        let name = |&(offset, meta): &(u64, usize)| match found.meta.get(meta) {
            Some(UserMeta::Elf(file)) => beside(self.exports(&file.path), offset),
            _ => None,
        };
        found.outputs.iter().map(name).collect()
    }

    fn exports(&mut self, path: &Path) -> &Exports {
        self.libraries.entry(path.to_owned()).or_insert_with(|| read(path))
    }
}

fn read(path: &Path) -> Exports {
    let mut elf = Elf::new(path);
    elf.debug_syms = false;
    let mut exports = Exports::new();
    // A file that cannot be read exports nothing.
    let _ = Inspector::new().for_each(&Source::Elf(elf), |symbol| {
        exports.extend(symbol.file_offset.map(|at| (at, symbol.name.clone().into_owned())));
        ControlFlow::Continue(())
    });
    exports.sort_unstable();
    exports
}

/// Returns the next export; where none is near, the last one before.
fn beside(exports: &Exports, offset: u64) -> Option<String> {
    let after = exports.partition_point(|(at, _)| *at <= offset);
    let mut both = exports.get(after).into_iter().chain(exports[..after].last());
    let (_, name) = both.find(|(at, _)| at.abs_diff(offset) <= NEAR_BYTES)?;
    Some(format!("[near {name}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_export_is_told_else_the_one_before_and_none_that_is_far() {
        let exports = [(0x1000, "timer"), (0x9000, "malloc"), (0x9500, "free")];
        let exports: Exports = exports.map(|(at, name)| (at, name.to_owned())).into();
        let near = |offset| beside(&exports, offset);
        assert_eq!(near(0x8f00).as_deref(), Some("[near malloc]"));
        assert_eq!(near(0x9100).as_deref(), Some("[near free]"));
        assert_eq!(near(0x9600).as_deref(), Some("[near free]"));
        assert_eq!(near(0x1234).as_deref(), Some("[near timer]"));
        assert_eq!(near(0x20000), None);
        assert_eq!(beside(&Exports::new(), 1), None);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_lies_behind_an_export_of_the_c_library_is_beside_it() {
        let malloc = libc::malloc as *const () as u64;
        let names = Beside::default().names(std::process::id(), &[malloc + 1, 1]);
        assert!(names[0].as_ref().is_some_and(|name| name.starts_with("[near ")), "{names:?}");
        assert_eq!(names[1], None);
    }
}
