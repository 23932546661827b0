//! What `docs/rfc.md` names exists: files, functions, tests, conversations.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files and the scripts below `crates`: path and text.
fn sources(folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "txt") {
            let text = std::fs::read_to_string(&path).expect("readable");
            into.push((path.to_string_lossy().into_owned(), text));
        }
    }
}

/// What stands between two `mark`s.
fn marked(cell: &str, mark: char) -> Vec<&str> {
    cell.split(mark).skip(1).step_by(2).collect()
}

/// Whether `text` defines `name`: a function, type, constant, module, field or variant.
fn defines(text: &str, name: &str) -> bool {
    if !text.contains(name) {
        return false;
    }
    let ways = ["fn ", "struct ", "enum ", "trait ", "const ", "mod ", "type "];
    let begins = |way: &str| {
        text.match_indices(&format!("{way}{name}")).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next();
            next.is_none_or(|c| !c.is_alphanumeric() && c != '_')
        })
    };
    ways.iter().any(|way| begins(way))
        || text.contains(&format!("pub {name}:"))
        || text.contains(&format!("pub(crate) {name}:"))
        || text.contains(&format!("    {name},"))
}

/// Whether what stands in the file belongs to `owner`: a module by that name, or a type that is
/// written there.
fn belongs((path, text): &(String, String), owner: &str) -> bool {
    let module = path.ends_with(&format!("/{owner}.rs")) || path.contains(&format!("/{owner}/"));
    let implements = ["impl ", " for "].iter().any(|way| {
        text.contains(&format!("{way}{owner} ")) || text.contains(&format!("{way}{owner}<"))
    });
    owner == "*" || module || implements || defines(text, owner)
}

fn exists(all: &[(String, String)], name: &str) -> bool {
    let file = |name: &str| all.iter().any(|(path, _)| path.ends_with(&format!("/{name}")));
    if name.contains('.') {
        return file(name);
    }
    if name.ends_with('/') {
        return all.iter().any(|(path, _)| path.contains(&format!("/{name}")));
    }
    // a module is named by its path, whose last part may be a file; the part before it says whose
    // that is
    let mut parts = name.rsplit("::");
    let (last, owner) = (parts.next().unwrap_or(name), parts.next());
    all.iter().any(|source| {
        let (path, text) = source;
        let here = defines(text, last)
            || path.ends_with(&format!("/{last}.rs"))
            || path.ends_with(&format!("/{last}/mod.rs"));
        here && owner.is_none_or(|owner| belongs(source, owner))
    })
}

/// Names that follow a file's, up to a semicolon, and do not stand in it: a reader would look for
/// them there in vain.
fn misplaced<'a>(all: &[(String, String)], line: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut file = None;
    let mut wrong = Vec::new();
    for (at, part) in line.split('`').enumerate() {
        let is_name = at % 2 == 1;
        if !is_name {
            let ends = part.contains(';') || part.contains('|');
            file = file.filter(|_| !ends);
        } else if part.ends_with(".rs") {
            file = Some(part);
        } else if let Some(file) = file
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
        {
            let end = file.rsplit("crates/").next().unwrap_or(file);
            let stands = |(path, text): &(String, String)| {
                path.ends_with(&format!("/{end}"))
                    && (defines(text, part) || text.contains(&format!("{part}:")))
            };
            if !all.iter().any(stands) {
                wrong.push((file, part));
            }
        }
    }
    wrong
}

fn conversation(all: &[(String, String)], title: &str) -> bool {
    let (head, tail) = title.split_once('…').unwrap_or((title, ""));
    let (head, tail) = (head.trim(), tail.trim());
    let fits = |line: &str| {
        line.strip_prefix("== ").is_some_and(|name| match title.contains('…') {
            true => name.contains(head) && name.contains(tail),
            false => name == title,
        })
    };
    all.iter().any(|(path, text)| path.contains("/scripts/") && text.lines().any(fits))
}

#[test]
fn what_the_table_names_exists() {
    let mut all = Vec::new();
    sources(&root().join("crates"), &mut all);
    let text = std::fs::read_to_string(root().join("docs/rfc.md")).expect("docs/rfc.md");
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.contains("| test")) {
        rows += 1;
        for name in marked(line, '`') {
            // words of the protocol or of Rust, not names
            let name = name.trim_start_matches("crates/stack/tests/");
            let word = name.contains(' ') || name.starts_with('<');
            if !word && !exists(&all, name) {
                wrong.push(format!("{name} in {line}"));
            }
        }
        for (file, name) in misplaced(&all, line) {
            wrong.push(format!("{name} is not in {file}: {line}"));
        }
        let plain: String = line.split('`').step_by(2).collect();
        for title in marked(&plain, '*') {
            if !conversation(&all, title) {
                wrong.push(format!("*{title}* in {line}"));
            }
        }
        let excused =
            ["left out", "by construction", "no such message", "not looked at", "not told"];
        if line.contains("| none") && !excused.iter().any(|why| line.contains(why)) {
            wrong.push(format!("no test in {line}"));
        }
    }
    assert!(!exists(&all, "Connection::what_nobody_defines") && !exists(&all, "Nobody::write"));
    assert_eq!(misplaced(&all, "| `rtt.rs` `on_persist` |"), [("rtt.rs", "on_persist")]);
    assert!(rows > 100, "only {rows} rows found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
