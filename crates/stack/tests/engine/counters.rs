//! docs/counters.md lists everything that an engine publishes, as it is declared.

use std::fmt::Write;
use std::path::Path;

use millstream::link::DropCause;
use millstream::tcp::TcpDrop;
use millstream::wire::Malformed;
use millstream::{DropReason, published};

const HEAD: &str = "\
# What an engine counts

Made from the declarations in the code by `UPDATE_DOCS=1 cargo test -p millstream --test engine counters`. `millstream metrics` shows all
of it, `drops` the reasons ([docs/live.md](live.md)); `EngineStats` and `LinkStats` have the counters in a program.
";

/// Returns the page as the declarations say.
fn page() -> String {
    let mut text = format!("{HEAD}\n| name | kind | unit | what |\n|---|---|---|---|\n");
    for (name, kind, declared) in published() {
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {} |",
            kind.name(),
            declared.unit,
            declared.help
        );
    }
    let mut stack = DropReason::ALL.map(|reason| (reason.name(), reason.help())).to_vec();
    stack.extend(TcpDrop::ALL.map(|reason| (reason.name(), reason.help())));
    let malformed = Malformed::ALL.map(|reason| (reason.name(), reason.help())).to_vec();
    let links = DropCause::ALL.map(|cause| (cause.name(), cause.help())).to_vec();
    for (title, reasons) in [
        ("`drops`: well-formed packets that the stack dropped, by reason", stack),
        ("`malformed`: packets that could not be read, by reason", malformed),
        ("`link_drops`: packets that a link dropped, by cause", links),
    ] {
        let _ = write!(text, "\n## {title}\n\n| name | what |\n|---|---|\n");
        for (name, help) in reasons {
            let _ = writeln!(text, "| `{name}` | {help} |");
        }
    }
    text
}

#[test]
fn the_page_lists_what_is_declared() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
    let expected = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).expect("the page is written");
    }
    let page = std::fs::read_to_string(&path).expect("the page");
    assert!(page == expected, "docs/counters.md is old: UPDATE_DOCS=1 makes it anew");
}

#[test]
fn names_are_unique_and_helps_are_sentences() {
    let mut names: Vec<String> = published().into_iter().map(|(name, ..)| name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for (name, _, declared) in published() {
        assert!(declared.help.ends_with('.') && !declared.help.contains(['[', '|']), "{name}");
    }
}
