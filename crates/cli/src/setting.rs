//! The surroundings of runs: this program as their worker, the user's state, the kernel's counters.

use std::fs;

use millstream_lab::runner::{Access, Interrupt, Places, Setting, WorkerProgram};
use millstream_observe::probe::{Want, watch_kernel};
use millstream_plan::{Definition, builtin, builtins};
use millstream_record::error::Error;
use millstream_record::store::without_password;
use millstream_testbed::journal::sweep;
use millstream_testbed::leftovers::StateDir;

use crate::output::say;

/// Samples of each CPU's stacks in a second; no divisor of what timers of programs are set to.
const PROFILE_HZ: u64 = 99;

/// Returns the surroundings that the runner needs; what an earlier run left is taken away first.
/// Where hosts are to be made, to be called before any thread is started: a user namespace can be
/// entered only then.
pub fn setting(places: Places) -> Result<Setting, Error> {
    let access = match places {
        Places::Made => Access::obtain(),
        Places::There(_) => Access::as_it_is(),
    };
    Ok(Setting {
        program: worker_program()?,
        state: state()?,
        access,
        places,
        interrupt: Interrupt::from_signals()?,
        command_line: std::env::args_os()
            .map(|word| without_password(&millstream_foreign::shown(word.as_encoded_bytes())))
            .collect(),
    })
}

/// Returns the folder of this user's state, when the remains of killed runs are put right.
pub fn state() -> Result<StateDir, Error> {
    let state = StateDir::locate()?;
    for line in sweep(&state)? {
        say(line);
    }
    Ok(state)
}

/// Returns this very program, as what ends a command when this process is gone.
pub fn guard_program() -> Result<WorkerProgram, Error> {
    Ok(WorkerProgram { arguments: vec!["guard".to_owned()], ..worker_program()? })
}

/// Reads a definition by the name of a built-in experiment or from a file.
pub fn load(name: &str) -> Result<Definition, Error> {
    if let Some(definition) = builtin(name) {
        return Ok(definition);
    }
    if !name.ends_with(".toml") {
        let names: Vec<&str> = builtins().iter().map(|(name, _)| *name).collect();
        return Err(Error::Refused(format!(
            "no experiment '{name}'; built in: {}; or give a file ending in .toml",
            names.join(", ")
        )));
    }
    let bytes = fs::read(name).map_err(|error| Error::Refused(format!("{name}: {error}")))?;
    #[expect(clippy::disallowed_methods, reason = "TOML is UTF-8")]
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::Refused(format!("{name}: no TOML file, it is not text (UTF-8)")))?;
    Definition::parse(name, &text)
}

/// Returns this very program, as a worker.
pub fn worker_program() -> Result<WorkerProgram, Error> {
    let path = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    Ok(WorkerProgram { path, arguments: vec!["worker".to_owned()] })
}

/// Has all runs from now on looked at by BPF programs, with histograms where they are asked for, or
/// says why they are not.
pub fn look_by_bpf(histograms: bool) {
    let want = Want { histograms, profile_hz: Some(PROFILE_HZ), ..Want::default() };
    if let Err(why) = watch_kernel(&want) {
        say(format_args!("The kernel is not looked at by BPF programs: {why}"));
    }
}
