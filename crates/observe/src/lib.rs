//! Observes a machine under a network load: counters of `/proc` and netlink, BPF programs that
//! count in the kernel, probes that put both into the record of a run, and one look at all of it.
//!
//! It works for any program on any Linux and knows nothing of how a run is made. Each way of
//! looking is optional: what cannot look here is [`Absent`] with the reason, and is never a zero.
//! Nothing on the machine is changed: programs and events belong to descriptors of this process and
//! are gone with it, whatever ends it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod bpf;
pub mod doctor;
pub mod environment;
mod exports;
#[cfg(all(
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
pub mod faults;
#[cfg(not(all(
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
)))]
#[path = "no_faults.rs"]
pub mod faults;
pub mod names;
pub mod probe;
pub mod proc;
pub mod symbols;
pub mod table;
pub mod watch;

use std::fmt;

/// The reason why something is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(pub String);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Absent {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

/// Returns an error and its causes in one line, without the numbers of the system's errors.
pub(crate) fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let one = error.to_string();
        let one = one.lines().next().unwrap_or_default();
        let one = one.split(" (os error").next().unwrap_or_default().trim_end_matches('.');
        if !text.contains(one) {
            let colon = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{colon}{one}"));
        }
        next = error.source();
    }
    text
}
