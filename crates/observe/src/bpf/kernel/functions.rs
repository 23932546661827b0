//! Finds functions of programs and libraries by the names that people call them.

use std::ops::ControlFlow;
use std::path::Path;

use blazesym::inspect::Inspector;
use blazesym::inspect::source::{Elf, Source};
use rustc_demangle::demangle;

/// Functions of one name at most: a generic one is there for each type that it is used with.
const ALIKE: usize = 64;

/// Returns the places of a function in a file, ascending: of the symbol of that name, else of the
/// functions of Rust whose path is that name, or ends with it.
pub(super) fn offsets(path: &Path, name: &str) -> Result<Vec<u64>, String> {
    let (mut exact, mut called) = (Vec::new(), Vec::new());
    let mut elf = Elf::new(path);
    elf.debug_syms = false;
    let read = Inspector::new().for_each(&Source::Elf(elf), |symbol| {
        if let Some(at) = symbol.file_offset {
            if symbol.name == name {
                exact.push(at);
            } else if is_called(&symbol.name, name) {
                called.push(at);
            }
        }
        ControlFlow::Continue(())
    });
    read.map_err(|error| crate::in_one_line(&error))?;
    let mut found = if exact.is_empty() { called } else { exact };
    found.sort_unstable();
    found.dedup();
    match found.len() {
        0 => Err("there is no such function".to_owned()),
        1..=ALIKE => Ok(found),
        many => Err(format!("{many} functions have a name that ends so")),
    }
}

/// Returns true where a symbol is a function of Rust of that path, or of one that ends with it.
fn is_called(symbol: &str, name: &str) -> bool {
    if !symbol.starts_with("_ZN") && !symbol.starts_with("_R") {
        return false;
    }
    // Without the hash at its end.
    let path = format!("{:#}", demangle(symbol));
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_the_end_of_its_path() {
        let symbol = "_ZN10millstream6engine4turn17h0123456789abcdefE";
        for name in ["turn", "engine::turn", "millstream::engine::turn"] {
            assert!(is_called(symbol, name), "{name}");
        }
        for name in ["urn", "stream::engine::turn", "engine", ""] {
            assert!(!is_called(symbol, name), "{name:?}");
        }
        assert!(!is_called("turn", "turn"), "a symbol of C is called by its own name");
    }

    #[test]
    fn a_function_of_this_program_is_at_one_place_and_nothing_at_none() {
        let own = std::env::current_exe().unwrap();
        let name = "kernel::functions::tests::a_function_of_this_program_is_at_one_place_and_nothing_at_none";
        assert_eq!(offsets(&own, name).map(|found| found.len()), Ok(1));
        let why = offsets(&own, "no_such_function_here").unwrap_err();
        assert_eq!(why, "there is no such function");
    }
}
