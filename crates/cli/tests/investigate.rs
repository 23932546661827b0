//! `millstream investigate` of an outside command: its groups, its page and record, and what cannot be meant.

mod common;

use std::process::Output;

use common::{Place, words};
use millstream_lab::store::Store;

/// `investigate` with these options and this script of a shell.
fn investigate(place: &Place, options: &[&str], script: &str) -> Output {
    let mut command = place.command(&[&["investigate"][..], options].concat());
    command.arg("--out").arg(place.folder.join("out"));
    command.args(["--", "sh", "-c", script]).output().unwrap()
}

#[test]
fn the_groups_of_a_command_are_told_shown_and_kept() {
    let place = Place::new("investigate");
    let (count, json) = (place.write("count", "0"), place.folder.join("found.json"));
    // Each second run is five times as fast.
    let file = count.display();
    let script = format!(
        "n=$(cat {file}); echo $((n + 1)) >{file}; [ $((n % 2)) = 0 ] && echo rate=10 || echo rate=50"
    );
    let to = json.to_str().unwrap();
    let options = ["--figure", r"rate=(\d+)", "--runs", "12", "--json", to];
    let output = investigate(&place, &options, &script);
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Runs form 2 groups"), "{text}");
    assert!(text.contains("group 1: 10") && text.contains("group 2: 50"), "{text}");
    assert!(!text.contains("confirmed"), "{text}");
    let found: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let members = |group: usize| found["modes"][group]["members"].as_array().unwrap().len();
    assert_eq!((members(0), members(1)), (6, 6));
    let page = std::fs::read_dir(place.folder.join("out")).unwrap().next().unwrap().unwrap();
    let html = std::fs::read_to_string(page.path()).unwrap();
    assert!(html.contains("Runs form 2 groups") && html.matches("<circle").count() >= 12);
    assert!(!html.contains("http://") && !html.contains("https://"), "it needs no network");
    let store = Store::open_existing(&place.database()).unwrap();
    let kept = store.latest(None).unwrap().expect("it is kept");
    assert_eq!(found["experiments"][0], kept.id.as_str());
    assert_eq!(store.runs(&kept.id).unwrap().len(), 12);
}

#[test]
fn what_cannot_be_meant_is_refused_in_a_line_before_anything_runs() {
    let place = Place::new("investigate-refused");
    let bad = place.write("bad.toml", "id = \"x\"");
    let folder = bad.parent().unwrap().to_str().unwrap().to_owned();
    let cases: [(&[&str], &str); 5] = [
        (&[], "where is the figure of sh? Say it with --figure"),
        (&["--figure", "rate"], "it has no group around the number"),
        (&["--figure", "(x)", "--runs", "3"], "--runs 3: 8 at least"),
        (&["--figure", "(x)", "--causes", &folder], "bad.toml: missing field"),
        (&["--figure", "(x)", "--server", "a 'b"], "a quote is open"),
    ];
    for (options, expected) in cases {
        let output = investigate(&place, options, "echo x >>ran");
        let text = words(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {text}");
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().last().unwrap_or("");
        assert!(error.starts_with("millstream: ") && error.contains(expected), "{text}");
    }
    assert!(!place.database().exists(), "nothing was kept");
}
