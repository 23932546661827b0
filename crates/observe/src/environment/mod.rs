//! The surroundings of an experiment: everything known to change a result that can be read cheaply.
//!
//! A fact that cannot be read is recorded as absent with the reason; nothing here fails.

mod give_back;
mod interface;
mod machine;
mod process;

pub use give_back::{ALL_GIVEN_BACK, GIVEN_BACK, capture_give_back};
pub use interface::capture_interfaces;
pub use machine::network_settings;
pub use process::{open_files_limit, program};

use millstream_record::Environment;

/// The machine, its settings and this program, without the interfaces of hosts.
pub fn capture() -> Environment {
    let mut env = Environment::default();
    machine::capture(&mut env);
    process::capture(&mut env);
    env
}

/// The trimmed text of a small file, or why not.
fn text(path: &str) -> Result<String, String> {
    match millstream_foreign::read(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(format!(
            "{path}: {}",
            error.to_string().split(" (os error").next().unwrap_or_default()
        )),
    }
}

/// The value behind `key` in text of lines `key: value`; the first such line counts.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let env = capture();
        for name in [
            "kernel.release",
            "kernel.command_line",
            "cpu.online",
            "memory.total_bytes",
            "millstream.version",
        ] {
            assert!(env.get(name).is_some_and(|value| !value.is_empty()), "{name}");
        }
        assert!(env.get("process.environment_bytes").unwrap().parse::<u64>().unwrap() > 0);
        assert!(env.facts.keys().all(|name| !env.absent.contains_key(name)));
    }

    #[test]
    fn the_first_line_with_the_key_counts() {
        let text = "model name\t: AMD\nmodel name\t: other\nflags: a:b\n";
        assert_eq!(value_of(text, "model name"), Some("AMD"));
        assert_eq!(value_of(text, "flags"), Some("a:b"));
        assert_eq!(value_of(text, "model"), None);
    }
}
