//! Small real runs through the command: both stacks, both workloads, every
//! kind of link.

mod exported;
mod places;
mod routed;

use std::process::Output;

use millstream_record::{RunRecord, keys};

use crate::common::{Place, hosts_possible, words};

const TINY: &[&str] = &["--repeats", "1", "--duration", "0.3", "--warmup", "0.1"];

/// Makes the runs, and again where other tests had the CPUs for all of a window.
fn run(place: &Place, arguments: &[&str]) -> Vec<RunRecord> {
    let all: Vec<&str> = ["run"].iter().chain(arguments).chain(TINY).copied().collect();
    let made = || place.command(&all).output().unwrap();
    let was_starved = |output: &Output| words(output).contains("inside the measured window");
    let mut output = made();
    for _ in 0..4 {
        if output.status.success() || !was_starved(&output) {
            break;
        }
        output = made();
    }
    assert!(output.status.success(), "{}", words(&output));
    place.runs()
}

fn check(runs: &[RunRecord]) {
    for run in runs {
        let label = format!("{} {}", run.stack, run.configuration());
        assert!(run.validity.valid, "{label}: {:?}", run.validity);
        let path = run.path.as_ref().unwrap();
        assert!(path.agrees && path.counted_bytes >= path.reported_bytes, "{label}: {path:?}");
        let main = if run.workload == "tcp_rr" { keys::TRANSACTIONS } else { keys::THROUGHPUT };
        assert!(run.result(main).unwrap() > 0.0, "{label}");
        assert!(run.intervals.series[main].len() >= 2, "{label}");
        assert!(run.window.end_s > run.window.start_s && run.duration_s > run.window.end_s);
        match &run.probes.cpu_distance_ns {
            Some(seen) => assert_eq!(seen.len() + 1, run.probes.times_s.len(), "{label}"),
            None => assert!(!run.probes.absent["cpu_distance"].is_empty(), "{label}"),
        }
        assert!(run.probes.tcp_info.iter().any(|info| info.stack == run.stack), "{label}");
    }
}

#[test]
fn first_look_runs_on_both_stacks_and_writes_table_json_and_page() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("first-look");
    let json = place.folder.join("runs.json");
    let named = ["first-look", "--name", "mine", "--json", json.to_str().unwrap()];
    let runs = run(&place, &named);
    assert_eq!(runs.len(), 6);
    check(&runs);
    let lines = std::fs::read_to_string(json).unwrap();
    let read: Vec<RunRecord> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(read, runs);
    let id = runs[0].experiment_id.clone();
    let page = place.folder.join("out").join(format!("{id}.html"));
    assert!(std::fs::read_to_string(page).unwrap().contains("</html>"));
    for arguments in [&["list"][..], &["show", &id], &["report", "mine"]] {
        let output = place.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
        assert!(words(&output).contains("first-look"), "{arguments:?}");
    }
    let report = place.command(&["report", &id, "--json", "-"]).output().unwrap();
    let lines = String::from_utf8(report.stdout).unwrap();
    let read: Vec<RunRecord> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(read, runs, "JSON alone");
    exported::ask_with_duckdb(&place, runs.len());
    let once = place.command(&["show", &id]).output().unwrap().stdout;
    let twice = place.command(&["show", &id, "mine"]).output().unwrap().stdout;
    assert_eq!(once, twice, "the same experiment twice counts once");
    let refused = place.command(&["show", &id, "--matrix"]).output().unwrap();
    assert!(!refused.status.success() && words(&refused).contains("leave --matrix away"));
}

#[test]
fn several_streams_both_ways_over_ipv6_without_offload() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("several");
    let file = place.write(
        "several.toml",
        "name = \"several\"\nworkload = \"tcp_stream\"\n[factors]\ndirection = \"both\"\n\
         streams = 3\nip = \"v6\"\noffload = \"off\"\nmtu = 1400\nmessage_bytes = 5000\n",
    );
    let runs = run(&place, &[file.to_str().unwrap()]);
    assert_eq!(runs.len(), 2);
    check(&runs);
    for run in &runs {
        assert_eq!(run.factors["ip"], "v6");
        assert!(run.result("throughput_send_bits_per_s").unwrap() > 0.0);
        assert!(run.result("throughput_recv_bits_per_s").unwrap() > 0.0);
    }
}

/// A shell gives 1,024 descriptors as a rule; a connection takes one.
#[test]
fn there_may_be_more_streams_than_a_shell_gives_files() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("many");
    let set = ["--stack", "kernel", "--set", "streams=200", "--set", "direction=send"];
    let run = place.command(&[&["run", "first-look"], &set[..], TINY].concat());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 150; exec \"$@\"", "sh"]).arg(run.get_program());
    let output = command.args(run.get_args()).env("XDG_RUNTIME_DIR", &place.folder).output();
    let text = words(&output.unwrap());
    let streams = place.runs().into_iter().find(|run| run.workload == "tcp_stream").unwrap();
    assert!(streams.probes.tcp_info.len() > 1 && !text.contains("cannot connect"), "{text}");
}

#[test]
fn both_ends_in_memory_need_no_privilege() {
    let place = Place::new("memory");
    let memory = ["first-look", "--stack", "millstream", "--set", "link=memory"];
    // As by default: the CPUs are waited for, or a run is done again, for as long as that is
    // allowed.
    let runs = run(&place, &[&memory[..], &["--steady-cpus", "true"]].concat());
    assert_eq!(runs.len(), 3);
    check(&runs);
    assert!(runs.iter().all(|run| run.environment.get("setting.link") == Some("memory")));
}

#[test]
fn the_newest_is_shown_where_none_is_named() {
    let place = Place::new("newest");
    let shown = |command: &str| {
        let output = place.command(&[command]).output().unwrap();
        (output.status.success(), words(&output))
    };
    let (ok, text) = shown("show");
    assert!(!ok && text.contains("no store here"), "{text}");
    for _ in 0..2 {
        run(&place, &["first-look", "--stack", "millstream", "--set", "link=memory"]);
        let newest = place.runs()[0].experiment_id.clone();
        for command in ["show", "report"] {
            let (ok, text) = shown(command);
            assert!(ok && text.contains(&newest), "{newest}: {text}");
        }
    }
}

const NOBODY: u32 = 65534;

/// `run first-look` as an ordinary user, whose the place is from now on.
fn as_an_ordinary_user(place: &Place, more: &[&str]) -> Option<std::process::Output> {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    if !hosts_possible() || !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become an ordinary user");
        return None;
    }
    let program = place.folder.join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_millstream"), &program).unwrap();
    for (path, mode) in [(&place.folder, 0o755), (&program, 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let output = std::process::Command::new(&program)
        .args(["run", "first-look", "--steady-cpus", "false"])
        .args(TINY)
        .args(more)
        .arg("--db")
        .arg(place.database())
        .arg("--out")
        .arg(place.folder.join("out"))
        .env("XDG_RUNTIME_DIR", &place.folder)
        .current_dir(&place.folder)
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    Some(output.unwrap())
}

#[test]
fn an_ordinary_user_has_hosts_of_his_own() {
    use std::os::unix::process::CommandExt;
    let place = Place::new("ordinary");
    let Some(output) = as_an_ordinary_user(&place, &[]) else { return };
    assert!(output.status.success(), "{}", words(&output));
    let allowed = std::process::Command::new("unshare")
        .args(["-Urn", "true"])
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .is_ok_and(|status| status.success());
    let runs = place.runs();
    check(&runs);
    if allowed {
        assert!(words(&output).contains("Not root"), "{}", words(&output));
        assert_eq!(runs.len(), 6);
    } else {
        assert!(words(&output).contains("in-memory link"), "{}", words(&output));
        assert_eq!(runs.len(), 3);
    }
}

/// His ssh takes his keys and his name, in the first check and in each run.
#[test]
fn what_leads_to_the_far_end_is_the_ordinary_users_own() {
    let place = Place::new("ordinary-far");
    let ids = place.folder.join("ids");
    let by = format!("sh -c 'id -u >>{}; exec \"$@\"' --", ids.display());
    let more = ["--far", "127.0.0.1", "--far-by", &by];
    let Some(output) = as_an_ordinary_user(&place, &more) else { return };
    let ids = std::fs::read_to_string(ids).unwrap();
    assert!(ids.lines().count() > place.runs().len(), "{ids}{}", words(&output));
    assert!(ids.lines().all(|id| id == NOBODY.to_string()), "{ids}");
}

#[test]
fn what_is_refused_is_one_line_with_what_is_allowed() {
    let place = Place::new("refused");
    let wrong = place.write("wrong.toml", "name = \"x\"\nworkload = \"tcp_stream\"\nrepeat = 3\n");
    let cases: [(&[&str], &str); 5] = [
        (&["run", "no-such"], "first-look"),
        (&["run", wrong.to_str().unwrap()], "unknown key 'repeat'"),
        (&["run", "first-look", "--set", "direction=up"], "send, recv, both"),
        (&["run", "first-look", "--stack", "lwip"], "kernel, millstream"),
        (&["run", "missing.toml"], "missing.toml"),
    ];
    for (arguments, expected) in cases {
        let output = place.command(arguments).output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(error.starts_with("millstream: ") && error.contains(expected), "{error}");
    }
    let output = place.command(&["show", "x"]).output().unwrap();
    assert!(!output.status.success() && words(&output).contains("millstream: "));
}

#[test]
fn the_engine_in_its_own_thread_runs_every_workload() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("threaded");
    let file = place.write(
        "threaded.toml",
        "name = \"threaded\"\nworkload = [\"tcp_stream\", \"tcp_rr\"]\n[factors]\nstack = \"millstream\"\n\
         engine = \"net\"\n[factors.tcp_stream]\nstreams = [1, 4]\ndirection = [\"send\", \"recv\"]\n",
    );
    let runs = run(&place, &[file.to_str().unwrap()]);
    assert_eq!(runs.len(), 5);
    check(&runs);
}

#[test]
fn socket_buffers_and_placement_are_factors() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("factors");
    let runs = run(
        &place,
        &["first-look", "--set", "socket_buffer_bytes=65536", "--set", "placement=same"],
    );
    assert_eq!(runs.len(), 6);
    check(&runs);
    for run in &runs {
        assert_eq!(run.environment.get("placement.far_cpu"), Some("0"));
        assert_eq!(run.probes.absent["cpu_distance"], "both hosts have CPU 0");
        for (role, worker) in run.probes.workers.as_ref().unwrap() {
            assert!(worker.seen_on_cpu.contains_key(&0), "{role}: {:?}", worker.seen_on_cpu);
        }
    }
}

/// A user without any right: not even a user namespace of his own.
#[test]
fn where_everything_is_forbidden_both_ends_are_in_memory_and_that_is_said() {
    let place = Place::new("forbidden");
    let inner = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all \
         --inh-caps=-all {} run first-look --steady-cpus false --repeats 1 --duration 0.3 --warmup 0.1 \
         --db {} --out {}",
        env!("CARGO_BIN_EXE_millstream"),
        place.database().display(),
        place.folder.join("out").display(),
    );
    let begin = |script: &str| {
        std::process::Command::new("unshare")
            .args(["-Ur", "sh", "-c", script])
            .env("XDG_RUNTIME_DIR", &place.folder)
            .output()
            .ok()
    };
    let Some(output) = begin("exec setpriv --bounding-set=-all true")
        .filter(|output| output.status.success())
        .and_then(|_| begin(&inner))
    else {
        eprintln!("skipped: unshare(1) or setpriv(1) is missing or not permitted");
        return;
    };
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains("in-memory link"), "{}", words(&output));
    let runs = place.runs();
    check(&runs);
    assert_eq!(runs.len(), 3, "the kernel's runs are left out");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    use std::process::Stdio;
    let place = Place::new("pipe");
    let mut child = place.command(&["list"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

/// As lax as it can be, so that the machine stays as it is.
#[test]
fn a_wake_up_time_is_asked_for_whatever_the_stack_and_recorded_with_what_came_of_it() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("idle");
    let levels = "idle_latency_us=auto,2000000000";
    let runs = run(&place, &["idle-latency", "--set", levels]);
    assert_eq!(runs.len(), 4);
    check(&runs);
    for run in &runs {
        let level = run.factors["idle_latency_us"].as_str();
        let asked = if level == "auto" { "nothing" } else { "none" };
        assert_eq!(run.environment.get("idle_latency.asked_us"), Some(asked));
        let fact = "idle_latency.in_force_us";
        let told =
            run.environment.get(fact).or(run.environment.absent.get(fact).map(String::as_str));
        assert!(told.is_some_and(|told| !told.is_empty()));
        assert!(run.probes.absent["cpu_distance"].contains("idle_latency_us"));
        let idle = &run.probes.idle_states;
        assert!(idle.is_some() || run.probes.absent.contains_key("idle_states"));
        assert_eq!(idle.is_some(), run.result(keys::HALTS).is_some());
    }
}
