//! Checks which runs of a command count, and what of them is kept.

use super::*;
use millstream_load::ready::Ready;

/// Keeps the runs in memory.
#[derive(Default)]
struct Kept(Vec<RunRecord>);

impl CommandRuns for Kept {
    fn begin(&mut self, _: &ExperimentRecord, _: usize) -> Result<(), Error> {
        Ok(())
    }
    fn run_ended(&mut self, run: &RunRecord) -> Result<(), Error> {
        self.0.push(run.clone());
        Ok(())
    }
    fn end(&mut self, _: &ExperimentRecord) -> Result<(), Error> {
        Ok(())
    }
}

fn subject<'a>(command: &[&str], keep: &'a mut Kept) -> CommandSubject<'a> {
    CommandSubject {
        name: "command".to_owned(),
        question: String::new(),
        command: command.iter().map(OsString::from).collect(),
        server: None,
        watch: None,
        figure: Figure::parse(r"figure (\S+)", true).unwrap(),
        timeout: Duration::from_secs(60),
        may_force: false,
        seed: 1,
        interrupt: Interrupt::default(),
        state: StateDir::at(
            std::env::temp_dir().join(format!("ms-command-{}", std::process::id())),
        )
        .unwrap(),
        guard: None,
        keep,
        experiments: vec![],
        quotas: BTreeSet::new(),
        namespaces: Namespaces::default(),
        first: None,
        builds: Default::default(),
        spoken: BTreeSet::new(),
    }
}

fn other_end(words: &[&str], ready: Ready) -> OtherEnd {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    OtherEnd::new(words, ready, None).unwrap()
}

#[test]
fn each_run_is_a_new_process_with_its_figure_and_its_probes() {
    let mut kept = Kept::default();
    let mut subject = subject(&["sh", "-c", "echo figure $$"], &mut kept);
    let runs = subject.observe(2).unwrap();
    let figures: Vec<f64> = runs.iter().filter_map(|run| run.result("figure")).collect();
    assert!(figures.len() == 2 && figures[0] != figures[1], "{figures:?}");
    assert!(runs.iter().all(|run| run.validity.valid && run.probes.cpu.is_some()));
    assert_eq!(kept.0, runs);
}

#[test]
fn a_command_that_fails_or_has_no_figure_does_not_count_and_says_why() {
    let mut kept = Kept::default();
    let mut ended = |words: &[&str]| {
        let error = subject(words, &mut kept).observe(24).unwrap_err().to_string();
        (error, kept.0.split_off(0).len())
    };
    let (why, runs) = ended(&["sh", "-c", "exit 3"]);
    assert!(why.contains("the first 3 runs failed") && why.contains("exit status: 3"), "{why}");
    assert_eq!(runs, 3);
    assert!(ended(&["sh", "-c", "exit 139"]).0.contains("139, which is that of SIGSEGV"));
    // No later run will have a figure either.
    let (why, runs) = ended(&["true"]);
    assert!(why.contains("the first run tells nothing") && why.contains("--figure"), "{why}");
    assert_eq!(runs, 1);
}

/// Whichever of them is run first.
#[test]
fn of_two_commands_one_without_a_figure_ends_all_at_its_first_run() {
    for seed in 1..=8 {
        let mut kept = Kept::default();
        let mut both = subject(&["echo", "figure 5"], &mut kept);
        both.seed = seed;
        let why = both.in_turns(&["true".into()], 6).unwrap_err().to_string();
        assert!(why.contains("the first run of B tells nothing"), "{why}");
        assert!(kept.0.len() <= 2, "{} runs, seed {seed}", kept.0.len());
    }
}

#[test]
fn a_run_that_failed_is_made_again() {
    let folder = std::env::temp_dir().join(format!("ms-again-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let count = folder.join("count").display().to_string();
    let script =
        format!("echo >>{count}; case $(wc -l <{count}) in 2|5) exit 1;; *) echo figure 7;; esac");
    let mut kept = Kept::default();
    let runs = subject(&["sh", "-c", &script], &mut kept).observe(6).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let counts: Vec<bool> = runs.iter().map(|run| run.validity.valid).collect();
    assert_eq!(counts, [true, false, true, true, false, true, true, true]);
    assert_eq!(kept.0, runs);
}

#[test]
fn a_run_whose_other_end_has_failed_does_not_count() {
    let mut kept = Kept::default();
    let mut alone = subject(&["echo", "figure 5"], &mut kept);
    let server = |script: &str| Some(other_end(&["sh", "-c", script], Ready::Listens));
    alone.server = server("echo the port is taken >&2; exit 3");
    let reason = alone.observe(2).unwrap_err().to_string();
    assert!(
        reason.contains("(--server) ended with exit status: 3; it said: the port is taken"),
        "{reason}"
    );
    // One that has put itself into the background has not.
    alone.server = server("sleep 600 & exit 0");
    assert_eq!(alone.observe(1).unwrap()[0].result("figure"), Some(5.0));
}

/// The command looks for what the other end writes late.
#[test]
fn the_other_end_is_waited_for_until_it_is_ready() {
    let folder = std::env::temp_dir().join(format!("ms-ready-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let late = folder.join("late").display().to_string();
    let mut kept = Kept::default();
    let mut alone = subject(&["sh", "-c", &format!("echo figure $(cat {late})")], &mut kept);
    let script = format!("sleep 0.6; echo 5 >{late}; echo this is ready; exec sleep 600");
    alone.server = Some(other_end(&["sh", "-c", &script], Ready::Says("is ready$".into())));
    assert_eq!(alone.observe(1).unwrap()[0].result("figure"), Some(5.0));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Its port says nothing of what else it begins with.
#[test]
fn who_listens_at_once_has_some_time_all_the_same() {
    let script = "use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0); bind($s, sockaddr_in(0, INADDR_LOOPBACK)); \
                  listen($s, 1); sleep 600";
    let mut kept = Kept::default();
    let mut alone = subject(&["echo", "figure 5"], &mut kept);
    alone.server = Some(other_end(&["perl", "-e", script], Ready::Listens));
    match alone.observe(1) {
        Ok(runs) => assert!(runs[0].window.start_s >= 0.3, "{:?}", runs[0].window),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

#[test]
fn what_cannot_be_started_or_watched_is_refused_before_anything_is_kept() {
    for word in ["/no/such/program", "no-such-program", "/", ""] {
        let mut kept = Kept::default();
        let refused = subject(&[word], &mut kept).observe(1).unwrap_err();
        assert!(matches!(refused, Error::Refused(why) if why.starts_with(word)));
        let mut server = subject(&["true"], &mut kept);
        server.server = Some(other_end(&[word], Ready::Listens));
        assert!(matches!(server.observe(1), Err(Error::Refused(_))), "{word}");
        assert!(server.experiments.is_empty());
    }
    let mut kept = Kept::default();
    for pid in [0, u32::MAX] {
        let mut watching = subject(&["true"], &mut kept);
        watching.watch = Some(pid);
        let refused = watching.observe(1).unwrap_err().to_string();
        assert!(refused.contains(&format!("--watch {pid}: there is no such process")));
        assert!(watching.experiments.is_empty());
    }
}

fn figures(script: &str, runs: u32) -> (Vec<f64>, Vec<String>) {
    let mut kept = Kept::default();
    // One that tells nothing at all is an error, and kept all the same.
    let _ = subject(&["sh", "-c", script], &mut kept).observe(runs);
    let runs = kept.0;
    let reasons = runs.iter().flat_map(|run| run.validity.reasons.clone()).collect();
    (runs.iter().filter_map(|run| run.result("figure")).collect(), reasons)
}

#[test]
fn a_figure_behind_a_long_output_is_read_and_none_in_its_middle() {
    let long = "head -c 12000000 /dev/zero | tr '\\0' '\\n'";
    assert_eq!(figures(&format!("{long}; printf '\\377figure 5'"), 1), (vec![5.0], vec![]));
    let (none, reasons) = figures(&format!("{long}; echo figure 5; {long}"), 1);
    assert!(none.is_empty() && reasons[0].contains("the first 8 MiB and the last"), "{reasons:?}");
}

/// One who is no child of the command has its output open, and writes no more.
#[test]
fn who_holds_an_output_open_is_not_waited_for() {
    let folder = std::env::temp_dir().join(format!("ms-held-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (pid, held) = (folder.join("pid"), folder.join("held"));
    let script = format!(
        "echo $$ >{0}.part; mv {0}.part {0}; echo figure 5; until [ -e {1} ]; do sleep 0.01; done",
        pid.display(),
        held.display()
    );
    let holder = std::thread::spawn(move || {
        let number = loop {
            match std::fs::read_to_string(&pid) {
                Ok(number) => break number,
                Err(_) => std::thread::sleep(LOOK),
            }
        };
        let output = format!("/proc/{}/fd/1", number.trim());
        let output = std::fs::File::options().write(true).open(output).unwrap();
        std::fs::write(held, "").unwrap();
        output
    });
    let found = figures(&script, 1);
    let _output = holder.join().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found, (vec![5.0], vec![]));
}

#[test]
fn a_figure_in_another_unit_than_the_first_does_not_count() {
    let folder = std::env::temp_dir().join(format!("ms-unit-{}", std::process::id()));
    for (unit, other, why) in [
        (" Mbits/sec", " Kbits/sec", "in Kbits/sec, that of the first run in Mbits/sec"),
        (" k", "", "in plain numbers, that of the first run in k"),
    ] {
        std::fs::create_dir_all(&folder).unwrap();
        let count = folder.join("count").display().to_string();
        let script = format!(
            "echo >>{count}; case $(wc -l <{count}) in 2) echo 'figure 900{other}';; *) echo 'figure 1.1{unit}';; esac"
        );
        let (values, reasons) = figures(&script, 3);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(values, [1.1, 1.1, 1.1]);
        assert!(reasons.len() == 1 && reasons[0].contains(why), "{reasons:?}");
    }
}

#[test]
fn a_run_whose_requests_failed_does_not_count_and_is_made_again() {
    let folder = std::env::temp_dir().join(format!("ms-requests-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let count = folder.join("count").display().to_string();
    let script = format!(
        "echo >>{count}; echo '  71488 requests in 1.00m, 31.52MB read'; \
         test $(wc -l <{count}) != 1 || echo '  Non-2xx or 3xx responses: 65066'; \
         echo 'Requests/sec:   1191.42'"
    );
    let mut kept = Kept::default();
    let mut subject = subject(&["sh", "-c", &script], &mut kept);
    subject.figure = Figure::parse("wrk", true).unwrap();
    let runs = subject.observe(2).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(runs[0].validity.reasons, ["65066 of its requests failed, more than 1 %"]);
    let figures: Vec<_> = runs.iter().map(|run| run.result("requests_per_s")).collect();
    assert_eq!(figures[..3], [None, Some(1191.42), Some(1191.42)]);
}

#[test]
fn a_known_program_may_write_its_figure_to_standard_error() {
    let mut kept = Kept::default();
    let script =
        "echo starting; echo 'All done 20 calls (plus 0 warmup) 2.298 ms avg, 740.7 qps' >&2";
    let mut subject = subject(&["sh", "-c", script], &mut kept);
    subject.figure = Figure::parse("fortio", true).unwrap();
    let runs = subject.observe(1).unwrap();
    assert_eq!(runs[0].result("requests_per_s"), Some(740.7));
}

#[test]
fn a_forced_placement_is_where_both_ends_run() {
    let mut kept = Kept::default();
    let show = "echo figure $(grep Cpus_allowed_list /proc/self/status | tr -dc '0-9')";
    let mut forced = subject(&["sh", "-c", show], &mut kept);
    let force = Force {
        factor: "placement".into(),
        levels: vec!["same".into(), "free".into()],
        free: None,
    };
    assert!(forced.may_force(&force).unwrap_err().contains("--force"));
    forced.may_force = true;
    assert!(forced.may_force(&force).unwrap_err().contains("--server"));
    let Ok(Placement::On(cpu, _)) = placement("same") else { panic!("a CPU") };
    let runs = forced.force(&force, 2).unwrap();
    assert_eq!(runs.len(), 4);
    let same = runs.iter().filter(|run| run.factors["placement"] == "same");
    let figures: Vec<_> = same.map(|run| run.result("figure")).collect();
    assert_eq!(figures, [Some(cpu as f64); 2]);
}
