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

/// Starts an investigation of a script that says its number in a file, and gives both once it runs.
fn begun(place: &Place, options: &[&str], script: &str) -> (std::process::Child, u32) {
    let (said, runs) = (place.folder.join("pid"), ["--figure", r"rate=(\d+)", "--runs", "8"]);
    let script = format!("{script}\necho $$ >{}.part; mv {0}.part {0}; sleep 600", said.display());
    let mut command = place.command(&[&["investigate"][..], &runs, options].concat());
    command.arg("--out").arg(place.folder.join("out"));
    command.args(["--", "sh", "-c", &script]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let child = command.spawn().unwrap();
    common::wait_for("the command", || said.exists());
    (child, std::fs::read_to_string(&said).unwrap().trim().parse().unwrap())
}

fn lives(pid: u32) -> bool {
    // A zombie that nobody has taken yet has ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

#[test]
fn a_command_ends_with_the_laboratory_that_is_killed_also_what_left_its_session() {
    let place = Place::new("investigate-killed");
    let orphan = place.folder.join("orphan");
    let script = format!("setsid sh -c 'echo $$ >{}; exec sleep 600' &", orphan.display());
    let (mut child, pid) = begun(&place, &[], &script);
    let number = || std::fs::read_to_string(&orphan).ok()?.trim().parse::<u32>().ok();
    common::wait_for("the orphan", || number().is_some());
    let orphan = number().unwrap();
    assert!(lives(pid) && lives(orphan));
    child.kill().unwrap();
    child.wait().unwrap();
    common::wait_for("the end of the command", || !lives(pid));
    common::wait_for("the end of what it started", || !lives(orphan));
}

#[test]
fn a_sysctl_that_a_killed_investigation_has_changed_is_put_back_by_undo() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: sysctls are root's");
        return;
    }
    let place = Place::new("investigate-undo");
    let (name, path) =
        ("sysctl.net.ipv4.tcp_notsent_lowat", "/proc/sys/net/ipv4/tcp_notsent_lowat");
    place.write(
        "always.toml",
        &format!(
            "id = \"always\"\ntitle = \"x\"\nkind = \"limits\"\nneeds = []\nwhen = \"true\"\nevidence = \"x\"\n\
             remedy = \"x\"\nsource = \"x\"\n[force]\nfactor = \"{name}\"\nlevels = [\"keep\", \"123456\"]\nfree = \"keep\"\n"
        ),
    );
    // In a network namespace of its own, which lives as long as this process.
    let mut holder =
        std::process::Command::new("unshare").args(["-n", "sleep", "600"]).spawn().unwrap();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let at = format!("/proc/{}/ns/net", holder.id());
    common::wait_for("a namespace", || std::fs::read_link(&at).is_ok_and(|link| link != own));
    let inside = |command: &std::process::Command| {
        let mut entered = std::process::Command::new("nsenter");
        entered.arg(format!("--net={at}")).arg(command.get_program()).args(command.get_args());
        entered.env("XDG_RUNTIME_DIR", &place.folder);
        entered
    };
    let value = || {
        let output = inside(std::process::Command::new("cat").arg(path)).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let before = value();
    // The changed level stays until it is killed; the others end at once.
    let said = place.folder.join("pid");
    let script = format!(
        "if grep -q 123456 {path}; then echo $$ >{0}.part; mv {0}.part {0}; sleep 600; fi; echo rate=10",
        said.display()
    );
    let folder = place.folder.to_str().unwrap();
    let options =
        ["investigate", "--figure", r"rate=(\d+)", "--runs", "8", "--force", "--causes", folder];
    let mut command = place.command(&options);
    command.arg("--out").arg(place.folder.join("out")).args(["--", "sh", "-c", &script]);
    let mut command = inside(&command);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    common::wait_for("the forced run", || said.exists());
    assert_eq!(value(), "123456");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(value(), "123456");
    let undo = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.arg("undo");
        inside(&command).output().unwrap()
    };
    let output = undo();
    assert!(output.status.success() && words(&output).contains(path), "{}", words(&output));
    assert_eq!(value(), before);
    assert!(words(&undo()).contains("nothing to undo"));
    holder.kill().unwrap();
    holder.wait().unwrap();
}
