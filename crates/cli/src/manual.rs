//! `millstream manual`: the manual pages and the completions, made of the same command line as
//! `--help`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate};
use millstream_record::error::Error;

use crate::help;
use crate::output::write_whole;

/// The file of each shell's completions, below `/usr/share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/millstream"),
    (Shell::Zsh, "zsh/vendor-completions/_millstream"),
    (Shell::Fish, "fish/vendor_completions.d/millstream.fish"),
];

/// Writes them below a folder.
pub fn manual(folder: &Path) -> Result<ExitCode, Error> {
    let made = |folder: &Path| {
        fs::create_dir_all(folder).map_err(Error::file(folder.display().to_string()))
    };
    let pages = folder.join("man/man1");
    made(&pages)?;
    // Completions know of no hidden commands.
    let whole = help::command();
    let visible = whole.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let mut command = Command::new("millstream")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_long_help(whole.get_after_long_help().cloned().unwrap_or_default())
        .subcommands(visible);
    clap_mangen::generate_to(command.clone(), &pages)
        .map_err(Error::file(pages.display().to_string()))?;
    for (shell, name) in COMPLETIONS {
        let path = folder.join(name);
        path.parent().map_or(Ok(()), made)?;
        let mut text = Vec::new();
        generate(shell, &mut command, "millstream", &mut text);
        write_whole(&path, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}
