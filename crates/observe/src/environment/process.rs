//! This program: version, command, and what of the process can shift a result.

use std::ffi::OsStr;

use millstream_foreign::shown;
use millstream_record::Environment;
use millstream_record::store::without_password;

use super::{text, value_of};

/// The commit that this program was built from.
const COMMIT: Option<&str> = option_env!("MILLSTREAM_COMMIT");

/// Returns version and commit of this program.
pub fn program() -> String {
    format!("millstream {} ({})", env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or("no commit"))
}

pub(super) fn capture(env: &mut Environment) {
    env.set("millstream.version", env!("CARGO_PKG_VERSION"));
    env.record("millstream.commit", COMMIT.map(str::to_owned).ok_or("built outside of git"));
    env.set("millstream.build", if cfg!(debug_assertions) { "debug" } else { "release" });
    env.set(
        "millstream.target",
        option_env!("MILLSTREAM_TARGET").unwrap_or(std::env::consts::ARCH),
    );
    // A word that is no text counts as far as it is one.
    let words = std::env::args_os().map(|word| without_password(&shown(word.as_encoded_bytes())));
    env.set("process.command_line", words.collect::<Vec<_>>().join(" "));
    env.set("process.environment_bytes", environment_bytes().to_string());
    match text("/proc/self/status") {
        Ok(status) => {
            for (name, key) in
                [("process.cpus_allowed", "Cpus_allowed_list"), ("process.user_ids", "Uid")]
            {
                let value = value_of(&status, key)
                    .map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "));
                env.record(
                    name,
                    value.ok_or_else(|| format!("/proc/self/status has no line {key}")),
                );
            }
        }
        Err(reason) => env.record::<String>("process.cpus_allowed", Err(reason)),
    }
    env.record("process.open_files_limit", open_files_limit("self"));
}

/// Returns the number of files that a process may have open. `process` is its number, or `self`.
pub fn open_files_limit(process: &str) -> Result<String, String> {
    let path = format!("/proc/{process}/limits");
    let all = text(&path)?;
    let line = all.lines().find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3)).map(str::to_owned);
    soft.ok_or_else(|| format!("{path} has no such line"))
}

/// Size of the environment as it lies on the stack: it shifts addresses (Mytkowicz et al., ASPLOS
/// 2009).
fn environment_bytes() -> usize {
    let len = |text: &OsStr| text.len();
    // `=` and the closing zero of each.
    std::env::vars_os().map(|(name, value)| len(&name) + len(&value) + 2).sum()
}
