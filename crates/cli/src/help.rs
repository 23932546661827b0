//! The first help: the commands in groups by what one wants to do, and the five to begin with.

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;
use crate::environment::VARIABLES;
use crate::exits;

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
            "timers", "snapshot", "drops", "stages", "trace", "events", "metrics",
        ],
    ),
    ("Put back", &["undo"]),
];

/// The commands to begin with.
const FIRST: [&str; 5] = ["investigate", "doctor", "top", "run", "report"];

/// Columns of the text, and of the names in it: of commands, exit codes, variables.
const WIDTH: usize = 100;
const NAMES: usize = 15;
const CODES: usize = 7;
const VARIABLE: usize = 21;

/// Returns the command line. Its help shows its commands in groups, and that of each its exit
/// codes.
pub fn command() -> Command {
    let command = Arguments::command().mut_subcommands(|one| {
        let text = one.get_after_long_help().map_or(String::new(), |text| format!("{text}\n\n"));
        let codes = codes(one.get_name());
        one.after_long_help(text + &codes)
    });
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += &format!("{heading}:\n");
        names.iter().for_each(|name| text += &line(&command, name));
        text.push('\n');
    }
    let mut variables = String::from("\nEnvironment:\n");
    VARIABLES.iter().for_each(|(name, what)| variables += &wrapped(name, what, VARIABLE));
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    command
        .help_template(format!("{template}{text}Options:\n{{options}}{{after-help}}"))
        .after_help(codes(exits::ALL))
        .after_long_help(codes(exits::ALL) + &variables)
}

/// Returns the commands to begin with, a line each.
pub fn first() -> String {
    let command = Arguments::command();
    FIRST.iter().map(|name| line(&command, name)).collect()
}

/// Returns a command's name and what it does; nothing where this build has none of it.
fn line(command: &Command, name: &str) -> String {
    let about = command.find_subcommand(name).and_then(Command::get_about);
    about.map_or(String::new(), |about| wrapped(name, &about.to_string(), NAMES))
}

/// Returns the exit codes of a command.
fn codes(command: &str) -> String {
    let lines = exits::of(command).map(|(code, meaning)| wrapped(code, meaning, CODES));
    format!("Exit codes:\n{}", lines.collect::<String>())
}

/// Returns a name and a text beside it that begins at column `names`, in lines of at most `WIDTH`.
fn wrapped(name: &str, what: &str, names: usize) -> String {
    let mut text = format!("  {name:<width$}", width = names - 2);
    let mut column = names;
    for word in what.split_whitespace() {
        if column + word.chars().count() > WIDTH {
            text = text.trim_end().to_owned() + "\n" + &" ".repeat(names);
            column = names;
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

    /// The page has both tables as the code has them.
    #[test]
    fn the_page_of_interfaces_has_every_exit_code_and_variable() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interfaces.md");
        let page = std::fs::read_to_string(path).unwrap();
        let code = |&(command, code, meaning): &(&str, &str, &str)| {
            let command = if command.is_empty() { "all" } else { command };
            format!("| {command} | {code} | {meaning} |\n")
        };
        let codes: String = exits::TABLE.iter().map(code).collect();
        let variable = |(name, what): &(&str, &str)| format!("| `{name}` | {what} |\n");
        let variables: String = VARIABLES.iter().map(variable).collect();
        for (name, table) in [
            ("exit codes", format!("| command | code | meaning |\n|---|---|---|\n{codes}")),
            ("variables", format!("| variable | meaning |\n|---|---|\n{variables}")),
        ] {
            let expected = format!("<!-- {name} -->\n\n{table}\n<!-- end of {name} -->");
            assert!(page.contains(&expected), "docs/interfaces.md is to have:\n{expected}");
        }
    }

    #[test]
    fn the_help_of_each_command_ends_with_its_exit_codes() {
        let mut command = command();
        for one in command.get_subcommands_mut().filter(|one| !one.is_hide_set()) {
            let help = one.render_long_help().to_string();
            let is_gate = one.get_name() == "gate";
            assert!(help.contains("\nExit codes:\n  0 "), "{help}");
            assert_eq!(help.contains("\n  128 "), is_gate, "{help}");
            assert_eq!(help.contains("\n  2 "), !is_gate, "{help}");
        }
        assert!(command.render_long_help().to_string().contains("\n  NO_COLOR "));
    }
}
