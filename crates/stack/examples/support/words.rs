//! The words of a command line, and the end of a program that cannot go on with them.
#![allow(dead_code, reason = "each example uses its part")]

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::process::exit;
use std::str::FromStr;

/// The value of an option, or the end of the program.
pub fn parsed<T: FromStr>(option: &str, text: &str) -> T {
    text.parse().unwrap_or_else(|_| fail(&format!("{option} {text}: not a valid value")))
}

/// The same of the next word.
pub fn next<T: FromStr>(option: &str, words: &mut impl Iterator<Item = String>) -> T {
    parsed(option, &words.next().unwrap_or_else(|| fail(&format!("{option} needs a value"))))
}

/// Returns the fault of a value outside its range, if it is.
pub fn within<T: PartialOrd + Display>(
    option: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Option<String> {
    let is_outside = !range.contains(&value);
    let (low, high) = range.into_inner();
    is_outside.then(|| format!("{option} {value}: it can be {low} to {high}"))
}

/// Returns the fault of a value below its least, if it is.
pub fn at_least<T: PartialOrd + Display>(option: &str, value: T, least: T) -> Option<String> {
    (value < least).then(|| format!("{option} {value}: it can be {least} at least"))
}

/// Ends the program with the first fault, if there is one.
pub fn refuse(wrong: impl IntoIterator<Item = Option<String>>) {
    if let Some(why) = wrong.into_iter().flatten().next() {
        fail(&why);
    }
}

/// The text at the head of a source file is the help, and the end of the program.
pub fn help(source: &str) -> ! {
    head(source);
    exit(0);
}

/// Shows the text at the head of a source file, without the marks that are for rustdoc.
pub fn head(source: &str) {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    for line in lines.map(|line| line.strip_prefix(' ').unwrap_or(line)) {
        match line.strip_prefix("```") {
            Some(_) => println!(),
            None => println!("{}", line.replace("[`", "`").replace("`]", "`")),
        }
    }
}

/// Returns the text that the kernel does not know a congestion control, and the names of those it
/// knows.
pub fn refused_control(name: &str, error: impl Display) -> String {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.unwrap_or_default().trim().replace(' ', ", ");
    format!("--control {name}: {error}; it can be one of: {known}")
}

/// Ends the program with one line.
pub fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(2);
}
