//! The words of a command line, and the end of a program that cannot go on with them.
#![allow(dead_code, reason = "each example uses its part")]

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

/// Ends the program with one line.
pub fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(2);
}
