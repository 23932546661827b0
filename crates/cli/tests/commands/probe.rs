//! `millstream probe`, as its user meets it.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_millstream");

fn file(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("millstream-probe-{}-{name}", std::process::id()))
}

#[test]
fn each_interval_has_a_table_of_every_cpu_and_the_end_is_told() {
    let json = file("tables");
    let done = Command::new(PROGRAM)
        .args(["probe", "--interval", "0.05", "--count", "2", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{err}");
    assert_eq!(out.lines().filter(|line| line.starts_with("CPU ")).count(), 2, "{out}");
    assert!(out.contains("What looking costs: "), "{out}");
    assert!(out.contains("under 3 % of this machine: "), "{out}");
    let text = fs::read_to_string(&json).unwrap();
    fs::remove_file(&json).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0]["width_s"].as_f64().unwrap() >= 0.05);
    let cpus = lines[0]["cpus"].as_array().unwrap();
    assert!(!cpus.is_empty() && cpus.iter().all(|cpu| cpu["cpu"].is_u64()));
    // The table names each column that could not be measured, and shows no zero for it. System
    // calls are counted in windows, of which an interval as short as this need not have one.
    for (column, why) in [
        ("minf", "not measured, because"),
        ("csw", "not measured, because"),
        ("syscl", ""),
        ("smtx", "not measured, because"),
        ("intr", "not measured, because"),
    ] {
        let there = cpus[0].get(column).is_some();
        assert!(there || err.contains(&format!("{column}: {why}")), "{column}: {err}");
    }
    assert!(lines[2]["probes"]["own_cpu_s"].is_number());
}

#[test]
fn a_budget_is_told_of_the_command_or_why_there_is_none() {
    let work = "n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; sleep 0.1";
    let done = Command::new(PROGRAM)
        .args(["probe", "--no-bpf", "--budget", "--interval", "60", "--", "sh", "-c", work])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{err}");
    if err.contains("budget: not measured, because ") {
        return println!("NOT RUN: {err}");
    }
    assert!(out.contains("Where the time goes, of "), "{out}");
    // The shell waits for the program that it starts.
    assert!(out.contains("asleep") && out.contains("wait4") && out.contains("\n  sum  "), "{out}");
}

#[test]
fn it_ends_with_the_command_and_with_its_status() {
    let done = Command::new(PROGRAM)
        .args(["probe", "--no-bpf", "--interval", "60", "--", "sh", "-c", "echo here; exit 7"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("here\n"));
    let done = Command::new(PROGRAM)
        .args(["probe", "--no-bpf", "--interval", "60", "--", "sh", "-c", "kill -SEGV $$"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(128 + 11));
    let refused = Command::new(PROGRAM).args(["probe", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let refused = Command::new(PROGRAM).args(["probe", "--uprobe", "malloc"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

/// Returns true while the process runs: it is neither gone nor a zombie.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn the_command_ends_with_a_probe_that_is_killed_and_one_that_has_ended_leaves_its_children() {
    let said = file("pid");
    let script = "sleep 600 & echo $! $$ >$0.part; mv $0.part $0; [ $1 = end ] || wait";
    let begun = |how: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["probe", "--no-bpf", "--interval", "60", "--", "sh", "-c", script]);
        command.arg(&said).arg(how).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let until = |what: &dyn Fn() -> bool| {
        (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            what()
        })
    };
    let pids = || {
        assert!(until(&|| said.exists()));
        let pids = fs::read_to_string(&said).unwrap();
        fs::remove_file(&said).unwrap();
        pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut killed = begun("wait");
    let started = pids();
    assert!(started.iter().all(|pid| runs(pid)));
    // Its watchdog, which is started after the command.
    let children = format!("/proc/{0}/task/{0}/children", killed.id());
    let count = || fs::read_to_string(&children).unwrap_or_default().split_whitespace().count();
    assert!(until(&|| count() == 2));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(until(&|| !started.iter().any(|pid| runs(pid))), "{started:?}");
    let mut ended = begun("end");
    let started = pids();
    assert!(ended.wait().unwrap().success());
    assert!(runs(&started[0]), "a service that was started stays");
    Command::new("kill").arg(&started[0]).status().unwrap();
}

/// Numbers of the BPF programs that a process holds.
fn programs_of(pid: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let number = |text: String| -> Option<u32> {
        let line =
            text.lines().find_map(|line| line.strip_prefix("prog_id:").map(str::to_owned))?;
        line.trim().parse().ok()
    };
    entries.filter_map(|entry| number(fs::read_to_string(entry.path()).ok()?)).collect()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn no_program_stays_in_the_kernel_after_a_kill() {
    let mut child = Command::new(PROGRAM)
        .args(["probe", "--interval", "0.05"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut held = BTreeSet::new();
    for _ in 0..600 {
        held = programs_of(child.id());
        if held.len() >= 10 || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if held.is_empty() {
        return println!("NOT RUN: no program could be loaded");
    }
    // The kernel takes them away after a grace period.
    let left = || -> BTreeSet<u32> {
        aya::programs::loaded_programs().flatten().map(|one| one.id()).collect()
    };
    let mut still = 0;
    for _ in 0..600 {
        still = held.intersection(&left()).count();
        if still == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{still} of {} programs are still there", held.len());
}
