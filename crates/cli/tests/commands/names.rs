//! Names that others chose, with any bytes: a command that has one runs, and none says anything to
//! a terminal.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::common::{Place, words};

/// No escape sequence, no other control character and nothing that turns the direction of writing.
fn is_plain(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap();
    text.chars().all(|letter| {
        letter == '\n' || !(letter.is_control() || ('\u{202a}'..='\u{202e}').contains(&letter))
    })
}

#[test]
fn a_command_with_a_name_that_is_no_text_is_measured_and_shown() {
    let place = Place::new("names");
    let program = place.folder.join(OsStr::from_bytes(b"echo\xff\x1b[31m"));
    std::fs::copy("/bin/echo", &program).unwrap();
    let mut command =
        place.command(&["gate", "--standard", "odd", "--runs", "4", "--figure", "n=(.)"]);
    command.arg("--").arg(&program).arg(OsStr::from_bytes(b"n=5 \xfe"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    let again = command.output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", words(&again));
    let of = |arguments: &[&str]| words(&place.command(arguments).output().unwrap());
    let said = of(&["explain", "odd", "--only", "command"]);
    assert!(said.contains("the latest of 2 that are named odd; echo\\xff"), "{said}");
    assert_eq!(of(&["list"]).matches(r"finished: echo\xff\u001b[31m n=5 \xfe").count(), 2);
    let same = of(&["gate", "odd", "--name", "odd", "--figure", "n=(.)", "--", "true"]);
    assert!(same.contains("--name odd: that is the standard's"), "{same}");
    for arguments in [&["show"][..], &["list"], &["show", "--json", "-"], &["report"]] {
        let mut command = place.command(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
        assert!(is_plain(&output.stdout) && is_plain(&output.stderr), "{}", words(&output));
        // Records of runs name the program only where it was seen to run, which it did briefly.
        if arguments == ["show"] {
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said.contains(r"echo\xff\u001b[31m"), "{said}");
        }
    }
}

#[test]
fn what_is_refused_is_told_without_what_a_terminal_obeys() {
    let place = Place::new("refused-names");
    let file = place.folder.join("odd.toml");
    std::fs::write(&file, "name = \"a\\u001b]0;X\\u0007\\n\u{202e}\"\n").unwrap();
    for name in [file.as_os_str(), OsStr::from_bytes(b"\x1b[31m\xc2\x9b.toml")] {
        let output = place.command(&["run"]).arg(name).output().unwrap();
        assert!(!output.status.success());
        assert!(is_plain(&output.stderr) && !output.stderr.is_empty(), "{}", words(&output));
    }
}
