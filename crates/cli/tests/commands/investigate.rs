//! `millstream investigate` of an outside command: its groups, its page and record, and what cannot
//! be meant.

use std::process::Output;

use millstream_record::store::Store;

use crate::common::{self, Place, words};

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
    assert_eq!((kept.name.as_str(), kept.id.starts_with("sh-")), ("sh", true));
    let runs = store.runs(&kept.id).unwrap();
    let (budgets, others): (Vec<_>, Vec<_>) =
        runs.iter().partition(|run| run.probes.budget.is_some());
    // One more has a budget, where programs may be loaded into the kernel.
    assert_eq!((others.len(), budgets.len()), (12, usize::from(found["budget"].is_object())));
    assert_eq!(text.contains("Where the time goes, of"), !budgets.is_empty(), "{text}");
}

#[test]
fn why_no_run_counts_is_told_in_the_words_of_the_command() {
    let place = Place::new("investigate-words");
    for (script, expected) in [
        ("echo rate=1; echo no way there >&2; exit 3", "exit status: 3; it said: no way there"),
        (r#"echo '{"start": {}, "error": "it is busy"}'"#, "(--figure); it said: it is busy"),
        ("echo one; echo two", "(--figure); it said: two"),
        ("true", "(--figure); it said nothing"),
    ] {
        let output = investigate(&place, &["--figure", r"rate=(\d+)", "--runs", "8"], script);
        let text = words(&output);
        assert!(!output.status.success() && text.contains(expected), "{script}: {text}");
    }
}

/// The other end of a command is started where the words of `--far-by` start it: here by env(1).
#[test]
fn the_other_end_is_started_by_a_command_of_the_users() {
    let place = Place::new("investigate-far");
    let pid = place.folder.join("pid").display().to_string();
    let server = format!("sh -c 'sleep 0.4; echo $$ >{pid}; echo is up; exec sleep 600'");
    let options =
        ["--figure", r"rate=(\d+)", "--runs", "8", "--no-bpf", "--far-by", "env", "--server"];
    let options = [&options[..], &[&server, "--ready", "up$"]].concat();
    let output = investigate(&place, &options, &format!("echo rate=$(cat {pid}); rm {pid}"));
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    let store = Store::open_existing(&place.database()).unwrap();
    let kept = store.latest(None).unwrap().unwrap();
    let runs = store.runs(&kept.id).unwrap();
    assert!(runs.iter().all(|run| run.validity.valid && run.far_probes.is_some()), "{text}");
    let last = runs.last().unwrap().result("figure").unwrap() as u32;
    assert!(!lives(last), "nothing of the far end stays");
    let refused = investigate(&place, &["--figure", "(x)", "--far-by", "env"], "true");
    assert!(words(&refused).contains("Say it with --server"), "{}", words(&refused));
}

/// Its first process ends at once, as netserver's does: what that has left is the other end.
#[test]
fn an_other_end_in_the_background_is_there_for_the_command_and_ends_after_it() {
    let place = Place::new("investigate-background");
    let pid = place.folder.join("pid").display().to_string();
    let server = format!(
        "sh -c 'setsid sh -c \"echo \\$\\$ >{pid}; sleep 0.2; echo is up; exec sleep 600\" &'"
    );
    let script = format!("kill -0 $(cat {pid}) && echo rate=$(cat {pid}); rm {pid}");
    let options = ["--figure", r"rate=(\d+)", "--runs", "8", "--no-bpf", "--server", &server];
    let options = [&options[..], &["--ready", "up$"]].concat();
    for by in [&[] as &[&str], &["--far-by", "env"]] {
        let output = investigate(&place, &[&options[..], by].concat(), &script);
        assert!(output.status.success(), "{}", words(&output));
        let store = Store::open_existing(&place.database()).unwrap();
        let kept = store.latest(None).unwrap().unwrap();
        let runs = store.runs(&kept.id).unwrap();
        assert!(runs.iter().all(|run| run.validity.valid), "{}", words(&output));
        for run in &runs {
            let pid = run.result("figure").unwrap() as u32;
            common::wait_for("its end", || !lives(pid));
        }
    }
}

/// Ratios of a figure that may be 0 or less mean nothing; what is said of it is no number that is
/// none.
#[test]
fn a_figure_below_0_is_told_as_it_is() {
    let place = Place::new("investigate-negative");
    let count = place.folder.join("count");
    let script = format!("echo >>{0}; echo rate=$(($(wc -l <{0}) - 6))", count.display());
    let output =
        investigate(&place, &["--figure", r"rate=(\S+)", "--runs", "8", "--no-bpf"], &script);
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("a difference of") && text.contains("not all are above 0"), "{text}");
    assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    let page = std::fs::read_dir(place.folder.join("out")).unwrap().next().unwrap().unwrap();
    let html = std::fs::read_to_string(page.path()).unwrap();
    assert!(!html.contains("inf %") && !html.contains("NaN") && !html.contains("show a change"));
}

#[test]
fn what_cannot_be_meant_is_refused_in_a_line_before_anything_runs() {
    let place = Place::new("investigate-refused");
    let bad = place.write("bad.toml", "id = \"x\"");
    let folder = bad.parent().unwrap().to_str().unwrap().to_owned();
    let cases: [(&[&str], &str); 9] = [
        (&[], "where is the figure of sh? Say it with --figure"),
        (&["--figure", "rate"], "it has no group around the number"),
        (&["--figure", "(x)", "--runs", "3"], "--runs 3: 8 at least"),
        (&["--figure", "(x)", "--causes", &folder], "bad.toml: missing field"),
        (&["--figure", "(x)", "--server", "a 'b"], "a quote is open"),
        (&["--figure", "(x)", "--server", "/no/such --x"], "/no/such: there is no such program"),
        (&["--figure", "(x)", "--watch", "4294967295"], "--watch 4294967295: there is no such"),
        (&["--figure", "(x)", "--timeout", "0"], "--timeout 0.0: write seconds above 0"),
        (&["--figure", "(x)", "--timeout", "1e300"], "--timeout 1e300: write seconds"),
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

/// An interrupt, as a full disk, ends it before there is a finding: what was measured is kept and
/// said, and can be looked into.
#[test]
fn what_was_measured_until_an_interrupt_is_said_and_explained() {
    let place = Place::new("investigate-interrupted");
    let (count, waits) = (place.folder.join("count"), place.folder.join("waits"));
    let script = format!(
        "echo >>{0}; [ $(wc -l <{0}) = 11 ] && {{ echo >{1}; sleep 600; }}; echo rate=10",
        count.display(),
        waits.display()
    );
    let mut command = place.command(&["investigate", "--figure", r"rate=(\d+)", "--runs", "12"]);
    command.arg("--out").arg(place.folder.join("out")).args(["--", "sh", "-c", &script]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    common::wait_for("the eleventh run", || waits.exists());
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = words(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    let store = Store::open_existing(&place.database()).unwrap();
    let kept = store.latest(None).unwrap().expect("it is kept");
    assert_eq!(store.runs(&kept.id).unwrap().len(), 10);
    let said = format!("Kept: {} in {}", kept.id, place.database().display());
    assert!(text.contains(&said) && text.contains(&format!("explain {}`", kept.id)), "{text}");
    let output = place.command(&["explain", &kept.id]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
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

/// A network namespace with a view of its own of `/sys`, which lives as long as this.
struct Namespace {
    holder: std::process::Child,
    folder: std::path::PathBuf,
}

impl Namespace {
    /// `None` where none can be made.
    fn new(place: &Place) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: settings are root's");
            return None;
        }
        // The control groups stay where they are in the new view.
        let (aside, ready) = (place.folder.join("groups"), place.folder.join("ready"));
        std::fs::create_dir(&aside).unwrap();
        let script = format!(
            "mount --rbind /sys/fs/cgroup {0} && mount -t sysfs none /sys && mount --rbind {0} /sys/fs/cgroup || exit 1; \
             ip link set lo up; ip link add ms-a type veth peer name ms-b; ip link set ms-a up; \
             echo >{1}; exec sleep 600",
            aside.display(),
            ready.display()
        );
        let words = ["-n", "-m", "sh", "-c", &script];
        let mut holder = std::process::Command::new("unshare").args(words).spawn().unwrap();
        let mut has_ended = false;
        common::wait_for("a namespace", || {
            has_ended = holder.try_wait().unwrap().is_some();
            has_ended || ready.exists()
        });
        if has_ended {
            eprintln!("skipped: no namespace with a view of /sys can be made");
            return None;
        }
        Some(Self { holder, folder: place.folder.clone() })
    }

    fn inside(&self, command: &std::process::Command) -> std::process::Command {
        let mut entered = std::process::Command::new("nsenter");
        let at = format!("/proc/{}/ns", self.holder.id());
        entered.args([format!("--net={at}/net"), format!("--mount={at}/mnt")]);
        entered.arg(command.get_program()).args(command.get_args());
        entered.env("XDG_RUNTIME_DIR", &self.folder);
        entered
    }

    /// Runs a line of a shell in the namespaces. Returns its output, or `None` if it failed.
    fn shell(&self, line: &str) -> Option<String> {
        let output = self.inside(std::process::Command::new("sh").args(["-c", line])).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    }

    fn undo(&self) -> Output {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_millstream"));
        self.inside(&common::isolated(&self.folder, command.arg("undo"))).output().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A setting that is forced: the factor and its level, the line that reads it, what that says then,
/// what runs do before.
struct Forced<'a> {
    factor: &'a str,
    level: &'a str,
    read: &'a str,
    then: &'a str,
    before: &'a str,
}

/// Has a setting forced, sees it changed for a run, back for the next, and put back by `undo` after
/// a kill.
fn is_forced_and_put_back(place: &Place, at: &Namespace, forced: &Forced<'_>) {
    let Forced { factor, level, read, then, before } = forced;
    place.write(
        "always.toml",
        &format!(
            "id = \"always\"\ntitle = \"x\"\nkind = \"limits\"\nneeds = []\nwhen = \"true\"\nevidence = \"x\"\n\
             remedy = \"x\"\nsource = \"x\"\n[[force]]\nfactor = \"{factor}\"\nlevels = [\"keep\", \"{level}\"]\nfree = \"keep\"\n"
        ),
    );
    let own = at.shell(read).unwrap();
    assert_ne!(own, *then, "{factor}");
    // The third time that it is changed it stays so until the kill: a run that keeps it lies
    // between that and the first.
    let (said, seen) = (place.folder.join("pid"), place.folder.join("seen"));
    let script = format!(
        "{before}\nnow=$({read}); echo \"$now\" >>{1}\n\
         if [ \"$now\" = '{then}' ] && [ $(grep -cxe '{then}' {1}) = 3 ]; then\n\
         echo $$ >{0}.part; mv {0}.part {0}; sleep 600; fi\necho rate=10",
        said.display(),
        seen.display()
    );
    let folder = place.folder.to_str().unwrap();
    let mut command = place.command(&["investigate", "--figure", r"rate=(\d+)", "--no-bpf"]);
    command.args(["--runs", "8", "--forced-runs", "3", "--force", "--causes", folder]);
    command.arg("--out").arg(place.folder.join("out")).args(["--", "sh", "-c", &script]);
    let mut command = at.inside(&command);
    let log = std::fs::File::create(place.folder.join("log")).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = command.spawn().unwrap();
    let mut ended = None;
    common::wait_for("the forced run", || {
        ended = child.try_wait().unwrap();
        ended.is_some() || said.exists()
    });
    let log = std::fs::read_to_string(place.folder.join("log")).unwrap();
    assert_eq!(ended, None, "{factor} was not forced: {log}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(at.shell(read).unwrap(), *then, "{factor}");
    let seen = std::fs::read_to_string(&seen).unwrap();
    let first = seen.lines().position(|line| line == *then).unwrap();
    assert!(first >= 8 && seen.lines().skip(first).any(|line| line == own), "{factor}: {seen}");
    let output = at.undo();
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(at.shell(read).unwrap(), own, "{factor}: {}", words(&output));
    assert!(words(&at.undo()).contains("nothing to undo"));
}

#[test]
fn a_sysctl_is_forced_and_put_back_also_after_a_kill() {
    let place = Place::new("investigate-undo");
    let Some(at) = Namespace::new(&place) else { return };
    let forced = Forced {
        factor: "sysctl.net.ipv4.tcp_notsent_lowat",
        level: "123456",
        read: "cat /proc/sys/net/ipv4/tcp_notsent_lowat",
        then: "123456",
        before: "",
    };
    is_forced_and_put_back(&place, &at, &forced);
}

/// A namespace that `ip netns add` made stays, with what was set in it and nobody in it.
#[test]
fn settings_of_a_namespace_that_a_mount_holds_are_put_back_after_a_kill() {
    let place = Place::new("investigate-netns");
    let name = format!("mst-undo-{}", std::process::id());
    let ip = |words: &[&str]| {
        let output = std::process::Command::new("ip").args(words).output();
        output.ok().filter(|output| output.status.success())
    };
    if !nix::unistd::geteuid().is_root() || ip(&["netns", "add", &name]).is_none() {
        return eprintln!("skipped: no namespace with a name can be made");
    }
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let read = "cat /proc/sys/net/ipv4/tcp_notsent_lowat";
        let said = || {
            let output = ip(&["netns", "exec", &name, "sh", "-c", read]).unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let own = said();
        assert_ne!(own, "123456");
        let pid = place.folder.join("pid");
        let script = format!(
            "[ $({read}) = 123456 ] && {{ echo >{}; sleep 600; }}; echo rate=10",
            pid.display()
        );
        let command = place.command(&[
            "investigate",
            "--figure",
            r"rate=(\d+)",
            "--no-bpf",
            "--runs",
            "8",
            "--force",
            "--causes-forced",
            "0",
            "--try",
            "sysctl.net.ipv4.tcp_notsent_lowat=123456",
        ]);
        let mut entered = std::process::Command::new("ip");
        entered.args(["netns", "exec", &name]).arg(command.get_program()).args(command.get_args());
        entered.arg("--out").arg(place.folder.join("out")).args(["--", "sh", "-c", &script]);
        entered.env("XDG_RUNTIME_DIR", &place.folder);
        let log = std::fs::File::create(place.folder.join("log")).unwrap();
        let mut child = entered.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut ended = None;
        common::wait_for("the forced run", || {
            ended = child.try_wait().unwrap();
            ended.is_some() || pid.exists()
        });
        let log = std::fs::read_to_string(place.folder.join("log")).unwrap();
        assert_eq!(ended, None, "{log}");
        child.kill().unwrap();
        child.wait().unwrap();
        let nobody = || {
            let output = ip(&["netns", "pids", &name]).unwrap();
            output.stdout.trim_ascii().is_empty()
        };
        common::wait_for("the end of all that was in it", nobody);
        assert_eq!(said(), "123456");
        let undo = |before: &[&str]| {
            let words = [before, &[env!("CARGO_BIN_EXE_millstream"), "undo"]].concat();
            let mut command = std::process::Command::new(words[0]);
            common::isolated(&place.folder, command.args(&words[1..])).output().unwrap()
        };
        // From outside it is said where; again, as it stays to be done.
        for _ in 0..2 {
            let output = undo(&[]);
            let text = words(&output);
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.contains(&format!("ip netns exec {name} millstream undo")), "{text}");
        }
        assert!(undo(&["ip", "netns", "exec", &name]).status.success());
        assert_eq!(said(), own);
        assert!(words(&undo(&[])).contains("nothing to undo"));
    }));
    assert!(ip(&["netns", "delete", &name]).is_some());
    done.unwrap_or_else(|why| std::panic::resume_unwind(why));
}

#[test]
fn a_steering_mask_is_forced_and_put_back_also_after_a_kill() {
    let place = Place::new("investigate-rps");
    let Some(at) = Namespace::new(&place) else { return };
    let mask = "/sys/class/net/lo/queues/rx-0/rps_cpus";
    if at.shell(&format!("echo 1 >{mask}")).is_none() {
        return eprintln!("skipped: this kernel does not steer");
    }
    // However many CPUs the mask is written for.
    let read = format!("tr -d 0,'\\n' <{mask}");
    let forced = Forced { factor: "rps", level: "off", read: &read, then: "", before: "" };
    is_forced_and_put_back(&place, &at, &forced);
}

#[test]
fn offloads_are_forced_and_put_back_also_after_a_kill() {
    let place = Place::new("investigate-offload");
    let Some(at) = Namespace::new(&place) else { return };
    if at.shell("ethtool -K ms-a tso off").is_none() {
        return eprintln!("skipped: no ethtool, or no veth to set");
    }
    let forced = Forced {
        factor: "offload",
        level: "on",
        read: "ethtool -k ms-a | grep '^tcp-segmentation-offload' | cut -d' ' -f2",
        then: "on",
        before: "",
    };
    is_forced_and_put_back(&place, &at, &forced);
}

#[test]
fn an_mtu_is_forced_and_put_back_also_after_a_kill() {
    let place = Place::new("investigate-mtu");
    let Some(at) = Namespace::new(&place) else { return };
    let read = "cat /sys/class/net/ms-a/mtu";
    if at.shell(read).is_none() {
        return eprintln!("skipped: no virtual pair here");
    }
    let forced = Forced { factor: "mtu.ms-a", level: "9000", read, then: "9000", before: "" };
    is_forced_and_put_back(&place, &at, &forced);
}

/// The command's figure is the MTU itself, so that a larger MTU is better.
#[test]
fn what_is_tried_is_judged_and_what_cannot_be_tried_is_refused_at_once() {
    let place = Place::new("investigate-try");
    let Some(at) = Namespace::new(&place) else { return };
    if at.shell("cat /sys/class/net/ms-a/mtu").is_none() {
        return eprintln!("skipped: no virtual pair here");
    }
    let run = |tried: &str| {
        let options = ["investigate", "--figure", r"rate=(\d+)", "--no-bpf", "--runs", "8"];
        let mut command = place.command(&options);
        command.args(["--forced-runs", "4", "--causes-forced", "0", "--force", "--try", tried]);
        command.arg("--out").arg(place.folder.join("out"));
        command.args(["--", "sh", "-c", "echo rate=$(cat /sys/class/net/ms-a/mtu)"]);
        at.inside(&command).output().unwrap()
    };
    let output = run("mtu.ms-a=9000");
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("confirmed: what mtu.ms-a is set to"), "{text}");
    assert!(text.contains("mtu.ms-a=9000: 9,000"), "{text}");
    for (tried, why) in [
        ("mtu.ms-c=9000", "--try mtu.ms-c: /sys/class/net/ms-c/mtu"),
        ("rings.ms-a=most", "--try rings.ms-a: rings of ms-a"),
        ("interrupts.ms-a=0", "--try interrupts.ms-a: ms-a has no interrupts of its own"),
        // The first network namespace alone has these.
        ("rfs=on", "--try rfs: /proc/sys/net/core/rps_sock_flow_entries"),
        ("busy_poll=50", "--try busy_poll: /proc/sys/net/core/busy_poll"),
        ("colour=red", "--try colour: colour is not set for an outside command"),
        ("mtu.ms-a", "it is FACTOR=LEVEL"),
    ] {
        let output = run(tried);
        let text = words(&output);
        assert_eq!(output.status.code(), Some(2), "{tried}: {text}");
        assert!(text.contains(why) && !text.contains("Observing"), "{tried}: {text}");
    }
}

/// Its runs take a third of a second each, for the quota has to hold them back.
#[test]
fn a_cpu_quota_is_forced_and_put_back_also_after_a_kill() {
    let place = Place::new("investigate-quota");
    let Some(at) = Namespace::new(&place) else { return };
    let name = format!("mst-test-{}", std::process::id());
    // A tenth of a CPU, by version 1 and by version 2.
    let one = format!("/sys/fs/cgroup/cpu/{name}");
    let two = format!("/sys/fs/cgroup/{name}");
    let made = [
        (&one, format!("echo 10000 >{one}/cpu.cfs_period_us && echo 1000 >{one}/cpu.cfs_quota_us")),
        (&two, format!("echo 1000 10000 >{two}/cpu.max")),
    ];
    let is_made = |(folder, line): &&(&String, String)| {
        at.shell(&format!("mkdir {folder} && {{ {line}; }} || {{ rmdir {folder}; false; }}"))
            .is_some()
    };
    let Some((folder, _)) = made.iter().find(is_made) else {
        return eprintln!("skipped: no control group with a CPU quota can be made");
    };
    let (file, then) = match **folder == one {
        true => ("cpu.cfs_quota_us", "-1"),
        false => ("cpu.max", "max"),
    };
    let read = format!("cut -d' ' -f1 {folder}/{file}");
    let before = format!(
        "echo $$ >{folder}/cgroup.procs; n=0; while [ $n -lt 20000 ]; do n=$((n + 1)); done"
    );
    let forced = Forced { factor: "cpu_quota", level: "none", read: &read, then, before: &before };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        is_forced_and_put_back(&place, &at, &forced);
    }));
    common::wait_for("an empty group", || at.shell(&format!("rmdir {folder}")).is_some());
    done.unwrap_or_else(|why| std::panic::resume_unwind(why));
}

/// Some 20 runs of a program, each a process that is looked at: 2 to 4 seconds.
#[test]
fn git_bisect_finds_the_commit_that_made_a_program_do_more_work() {
    let place = Place::new("bisect");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/bisect-example");
    let mut command = std::process::Command::new(script);
    command.env("MILLSTREAM", env!("CARGO_BIN_EXE_millstream"));
    command.env("XDG_RUNTIME_DIR", &place.folder).env("TMPDIR", &place.folder);
    let output = command.output().unwrap();
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Found: search from the front"), "{text}");
    // The broken one before it was passed over, and took nothing for worse.
    assert!(text.contains("cannot tell") && text.contains(": worse: ratio"), "{text}");
}

#[test]
fn gate_compares_no_kbits_with_mbits() {
    for (one, other, why) in [
        ("rate=1.5 Mbits/sec", "rate=1500 Kbits/sec", "is in Mbits/sec, the other in Kbits/sec"),
        ("rate=9876", "rate=10.1 k", "is in plain numbers, the other in k"),
    ] {
        let place = Place::new("gate-units");
        let gate = |options: &[&str], said: &str| {
            let all = [&["gate", "good", "--runs", "4", "--figure", r"rate=(\S+)"][..], options];
            let output = place.command(&all.concat()).args(["--", "echo", said]).output().unwrap();
            (output.status.code(), words(&output))
        };
        let (code, text) = gate(&["--standard"], one);
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = gate(&[], other);
        assert_eq!(code, Some(125), "{text}");
        assert!(text.contains(&format!("of good {why}")), "{text}");
        let (code, text) = gate(&[], one);
        assert_eq!(code, Some(0), "{text}");
        // Both kept.
        let mut command = place.command(&["gate", "good", "gate", "--result", "figure"]);
        assert_eq!(command.output().unwrap().status.code(), Some(0));
    }
}

#[test]
fn which_way_a_figure_is_better_is_kept_with_it() {
    let place = Place::new("gate-less");
    for (name, figure) in [("quick", "t=100"), ("slow", "t=150")] {
        let options = ["gate", name, "--standard", "--runs", "4", "--lower-is-better"];
        let mut command = place.command(&[&options[..], &["--figure", r"t=(\S+)"]].concat());
        let output = command.args(["--", "echo", figure]).output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
    }
    for (first, second, expected) in [("quick", "slow", 1), ("slow", "quick", 0)] {
        let output = place.command(&["gate", first, second]).output().unwrap();
        assert_eq!(output.status.code(), Some(expected), "{}", words(&output));
        assert!(words(&output).contains("first set: The figure is 1"), "{}", words(&output));
    }
    let output = place.command(&["gate", "--blocks", "quick", "slow", "quick"]).output().unwrap();
    assert_eq!(output.status.code(), Some(128), "{}", words(&output));
    assert!(words(&output).contains("named twice: quick-"), "{}", words(&output));
}

#[test]
fn gate_counts_runs_that_failed() {
    let place = Place::new("gate-failed");
    let count = place.write("count", "").display().to_string();
    let script = format!("echo >>{count}; test $(wc -l <{count}) -ne 7 || exit 3; echo rate=1");
    let gate = |options: &[&str]| {
        let all = [&["gate", "good", "--runs", "4", "--figure", r"rate=(\S+)"][..], options];
        let output = place.command(&all.concat()).args(["--", "sh", "-c", &script]).output();
        words(&output.unwrap())
    };
    gate(&["--standard"]);
    let text = gate(&[]);
    assert!(text.contains("second set: 1 of 5 runs failed"), "{text}");
    assert!(!text.contains("first set: 1 of"), "{text}");
}

#[test]
fn what_gate_refuses_ends_a_bisection_and_judges_no_commit() {
    let place = Place::new("gate-refused");
    let cases: [(&[&str], &str); 6] = [
        (&["good"], "<SECOND>"),
        (&["good", "--runs", "3", "--figure", "(x)", "--", "true"], "--runs 3: 4 at least"),
        (&["a b", "--standard", "--figure", "(x)", "--", "true"], "a b: a name of a standard"),
        (&["good", "--figure", "(x)", "--", "true"], "kept.sqlite3"),
        (&["good", "also", "--lower-is-better"], "of which --result?"),
        (&["good", "also", "--figure", "(x)"], "COMMAND"),
    ];
    for (options, expected) in cases {
        // The options of the place go before the command.
        let at = options.iter().position(|word| *word == "--").unwrap_or(options.len());
        let mut command = place.command(&[&["gate"][..], &options[..at]].concat());
        let output = command.args(&options[at..]).output().unwrap();
        let text = words(&output);
        assert_eq!(output.status.code(), Some(128), "{options:?}: {text}");
        assert!(text.contains(expected), "{options:?}: {text}");
    }
}

/// Two commands in turns, of which the second has twice the figure of the first.
#[test]
fn two_commands_in_turns_are_compared_by_their_pairs_and_by_what_they_did() {
    let place = Place::new("compare-ab");
    let count = place.folder.join("count");
    let one = |rate: u32| format!("sh -c 'echo >>{}; echo rate={rate}'", count.display());
    let (a, b) = (one(100), one(200));
    let all = ["compare", "--ab", &a, &b, "--runs", "6", "--figure", r"rate=(\d+)"];
    let output = place.command(&all).output().unwrap();
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("6 and 6 runs") && text.contains("ratio 2.000"), "{text}");
    assert!(text.contains(": changed") && text.contains("other values"), "{text}");
    let lines = std::fs::read_to_string(&count).unwrap();
    assert_eq!(lines.lines().count(), 12);
    // With another end, which is started where the words of --far-by start it.
    let up = place.folder.join("up").display().to_string();
    let server = format!("sh -c 'echo 7 >{up}; echo is up; exec sleep 600'");
    let of = |times: u32| format!("sh -c 'echo rate=$(($(cat {up}) * {times}))'");
    let with = ["--runs", "6", "--figure", r"rate=(\d+)", "--far-by", "env", "--server", &server];
    let gate = ["gate", "--ab", &of(2), &of(1)];
    let all = [&gate[..], &with, &["--ready", "up$"]].concat();
    let output = place.command(&all).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(words(&output).contains("worse: ratio 0.500"), "{}", words(&output));
    let refused = place.command(&["gate", "one", "two", "--server", "true"]).output().unwrap();
    assert!(words(&refused).contains("cannot be used with"), "{}", words(&refused));
    let refused = place.command(&["compare", "--ab", &a, &b, "--runs", "5"]).output().unwrap();
    assert!(words(&refused).contains("6 at least"), "{}", words(&refused));
}
