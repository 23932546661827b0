//! The first help: the commands in groups by what one wants to do, and the five to begin with.

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;

/// Commands by what one wants to do. A build without a feature lacks some of them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Find out why", &["investigate", "explain", "compare", "gate", "doctor"]),
    (
        "Measure, and keep it",
        &["run", "serve", "list", "show", "report", "export", "forget", "impair", "replay", "clog"],
    ),
    ("Watch this machine", &["top", "probe"]),
    (
        "Look into an engine that runs",
        &[
            "ps", "netstat", "ss", "queue", "census", "links", "pool", "neigh", "route", "groups",
            "timers", "drops", "stages", "trace", "events", "metrics",
        ],
    ),
    ("Put back", &["undo"]),
];

/// The commands to begin with.
const FIRST: [&str; 5] = ["investigate", "doctor", "top", "run", "report"];

/// Columns of the text, and of the commands' names in it.
const WIDTH: usize = 100;
const NAMES: usize = 15;

/// Returns the command line, whose help shows its commands in groups.
pub fn command() -> Command {
    let command = Arguments::command();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += &format!("{heading}:\n");
        names.iter().for_each(|name| text += &line(&command, name));
        text.push('\n');
    }
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    command.help_template(format!("{template}{text}Options:\n{{options}}{{after-help}}"))
}

/// Returns the commands to begin with, a line each.
pub fn first() -> String {
    let command = Arguments::command();
    FIRST.iter().map(|name| line(&command, name)).collect()
}

/// Returns a command's name and what it does, wrapped; nothing where this build has none of it.
fn line(command: &Command, name: &str) -> String {
    let Some(about) = command.find_subcommand(name).and_then(Command::get_about) else {
        return String::new();
    };
    let mut text = format!("  {name:<width$}", width = NAMES - 2);
    let mut column = NAMES;
    for word in about.to_string().split_whitespace() {
        if column + word.chars().count() > WIDTH {
            text = text.trim_end().to_owned() + "\n" + &" ".repeat(NAMES);
            column = NAMES;
        }
        text += word;
        text.push(' ');
        column += word.chars().count() + 1;
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_stands_in_one_group() {
        let command = Arguments::command();
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let name = one.get_name();
            let times = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(times, 1, "{name}");
        }
        #[cfg(all(feature = "top", feature = "parquet"))]
        for name in GROUPS.iter().flat_map(|(_, names)| *names).chain(&FIRST) {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_help_has_groups_that_fit_the_terminal() {
        let help = command().render_help().to_string();
        assert!(help.contains("\nFind out why:\n  investigate "), "{help}");
        assert!(help.contains("\nExit codes:"), "{help}");
        let text = help.lines().filter(|line| line.starts_with("  "));
        assert!(text.clone().count() > 40 && text.clone().all(|line| line.len() <= 102), "{help}");
        assert_eq!(first().lines().filter(|line| !line.starts_with("   ")).count(), FIRST.len());
    }
}
