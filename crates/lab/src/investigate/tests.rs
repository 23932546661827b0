//! Investigations of machines whose runs are made up here.

use millstream_diagnose::causes::built_in;

use super::*;
use millstream_diagnose::stats::Rng;
use millstream_record::{
    BudgetRow, Column, Key, Kind as TableKind, Probes, Table, ThreadBudget, ThreadState,
    WorkerActivity, keys,
};

/// A machine on which sharing a CPU makes transactions five times as fast, or does not,
/// whatever goes with it.
struct Machine {
    rng: Rng,
    is_the_cause: bool,
    runs: u32,
}

impl Machine {
    fn run(&mut self, level: &str) -> RunRecord {
        self.runs += 1;
        let by_chance = self.rng.below(3) == 0;
        let same = match level {
            "same" => true,
            "split" => false,
            _ => by_chance,
        };
        // Where placement is not the cause something else makes the groups, and moves the ends
        // with it.
        let fast = if self.is_the_cause { same } else { by_chance };
        let rate = if fast { 50_000.0 } else { 10_000.0 } * (1.0 + 0.05 * self.rng.unit());
        let shown = if level == "free" { fast } else { same };
        let on = |cpu| WorkerActivity { seen_on_cpu: [(cpu, 9)].into(), ..Default::default() };
        let far = if shown { 0 } else { 1 };
        let workers = [("near".to_owned(), on(0)), ("far".to_owned(), on(far))];
        let mut run = RunRecord::new(format!("r{}", self.runs));
        run.factors.insert("placement".into(), level.into());
        run.results.insert(keys::TRANSACTIONS.into(), rate);
        run.probes = Probes {
            times_s: vec![0.0, 1.0],
            workers: Some(workers.into()),
            context_switches: Some(vec![self.rng.below(1000) as u64]),
            ..Probes::default()
        };
        run
    }
}

impl Subject for Machine {
    fn name(&self) -> String {
        "tcp_rr".into()
    }
    fn result(&self) -> (String, bool) {
        (keys::TRANSACTIONS.into(), true)
    }
    fn observe(&mut self, runs: u32) -> Result<Vec<RunRecord>, Error> {
        Ok((0..runs).map(|_| self.run("free")).collect())
    }
    fn may_force(&self, force: &Force) -> Result<(), String> {
        if force.factor == "placement" { Ok(()) } else { Err("no such factor".into()) }
    }
    fn force(&mut self, force: &Force, runs: u32) -> Result<Vec<RunRecord>, Error> {
        let each = (0..runs).flat_map(|_| force.levels.clone()).collect::<Vec<_>>();
        Ok(each.iter().map(|level| self.run(level)).collect())
    }
    fn experiments(&self) -> Vec<String> {
        vec!["e".into()]
    }
}

pub(super) fn investigated(is_the_cause: bool) -> Investigation {
    let mut machine = Machine { rng: Rng::new(5), is_the_cause, runs: 0 };
    let options = Options { causes: 1, ..Options::default() };
    investigate(&mut machine, &built_in(), &options, &mut |_| {}).unwrap()
}

/// Two causes are forced: with two of one kind before all of the other, half of the answer
/// would be missing.
#[test]
fn suspects_of_both_kinds_are_forced_in_turn() {
    let suspects = || -> Vec<Suspect> {
        let suspect = |cause: Cause| {
            let (evidence, rank) = (String::new(), Rank::default());
            Suspect::from(Fit { cause, evidence, counter: None, rank })
        };
        built_in().into_iter().map(suspect).collect()
    };
    let of = |kind: Kind| -> Vec<String> {
        let all = suspects().into_iter().filter(|one| one.cause.kind == kind);
        all.map(|one| one.cause.id).collect()
    };
    let (separates, limits) = (of(Kind::Separates), of(Kind::Limits));
    let ids = |limits_first| -> Vec<String> {
        in_turn(suspects(), limits_first).into_iter().map(|one| one.cause.id).collect()
    };
    assert_eq!(ids(false)[..3], [&separates[0], &limits[0], &separates[1]].map(String::clone));
    assert_eq!(ids(true)[..3], [&limits[0], &separates[0], &limits[1]].map(String::clone));
    assert_eq!(ids(true).len(), suspects().len(), "none is lost");
}

#[test]
fn a_cause_that_makes_the_groups_is_found_forced_and_confirmed() {
    let found = investigated(true);
    assert_eq!((found.modes.len(), found.observed.len()), (2, 24));
    let first = &found.suspects[0];
    assert_eq!((first.cause.id.as_str(), first.verdict()), ("shared-cpu", Verdict::Confirmed));
    assert_eq!(first.forced.iter().map(|(_, runs)| runs.len()).collect::<Vec<_>>(), [10, 10]);
    assert!(found.text().contains("confirmed"), "{}", found.text());
    assert!(found.html().contains("confirmed"));
    let why = "ot measured, because no run looked at the kernel";
    assert_eq!((found.text().matches(why).count(), found.html().matches(why).count()), (3, 4));
    let rate = met::Rate { who: "udp_<recv>".into(), per_s: 2.0, ..Default::default() };
    let met = Met { waiters: vec![rate], ..Met::default() };
    let page = Investigation { met, ..found.clone() }.html();
    assert!(page.contains("udp_&lt;recv&gt;") && page.contains("<p>None.</p>"), "{page}");
    // Causes of which nothing was measured are named, not passed over.
    let not_judged: BTreeMap<_, _> = found.not_judged.iter().cloned().collect();
    assert_eq!(not_judged["steal"], ["steal_share"]);
}

#[test]
fn tables_of_probes_are_in_text_page_and_json() {
    let mut machine = Machine { rng: Rng::new(5), is_the_cause: true, runs: 0 };
    let mut runs = machine.observe(12).unwrap();
    let columns = vec![
        Column::new("dropped", "packets", TableKind::Trouble, "Packets that were dropped."),
        Column::new("taken", "packets", TableKind::Counter, ""),
    ];
    for run in &mut runs {
        let rows = vec![("0".to_owned(), vec![3.0, 50.0]), ("1".to_owned(), vec![4.0, 0.0])];
        let table = Table { key: Key::Cpu, columns: columns.clone(), rows };
        run.probes.tables.insert("backlog".to_owned(), table);
    }
    let options = Options::default();
    let found = look(&machine, &runs, None, &[], &options).unwrap();
    let text = found.text();
    assert!(text.contains("counted:\n  group 1: backlog dropped 7.00/s\n  group 2: "), "{text}");
    let page = found.html();
    let head = "title=\"Packets that were dropped.\">dropped [packets]</th>";
    assert!(page.contains(head) && page.contains("<th scope=\"row\">group 2</th><td>1</td>"));
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["tables"][1]["backlog"]["rows"][2], serde_json::json!(["all", [7.0, 50.0]]));
}

#[test]
fn a_run_with_a_budget_tells_of_it_and_does_not_count() {
    let mut machine = Machine { rng: Rng::new(5), is_the_cause: true, runs: 0 };
    let mut runs = machine.observe(13).unwrap();
    let last = &mut runs[12];
    last.validity.reject(crate::limits::BUDGETED);
    let state = ThreadState::OwnCode;
    let row = BudgetRow { state, what: "work".into(), s: 1.0, ..BudgetRow::default() };
    let (thread, process, rows) = (7, 7, vec![row]);
    let thread = ThreadBudget { thread, process, alive_s: 1.0, rows, ..Default::default() };
    let names = [(7, "near".to_owned())].into();
    let (width_s, threads) = (1.0, vec![thread]);
    last.probes.budget = Some(Budget { width_s, threads, names, ..Budget::default() });
    last.probes.workers.as_mut().unwrap().get_mut("near").unwrap().pid = 7;
    let found = look(&machine, &runs, None, &[], &Options::default()).unwrap();
    assert_eq!((found.observed.len(), found.left_out.len()), (12, 0));
    assert_eq!(found.budget.as_ref().unwrap().clients, [7]);
    let said = " (100 %): near/7 is in its own code (work 100 %).";
    let text = found.text();
    let goes = "Where the time goes, of 1.00 s";
    assert!(text.contains(&format!("{goes}:\n  Of each transaction (")), "{text}");
    // It is above everything else, and a segment of the bar is as long as its share.
    let page = found.html().replace("&#x2f;", "/");
    let [first, second] = ["<p class=\"verdict\">", "Runs form"].map(|one| page.find(one).unwrap());
    assert!(first < second && page[first..second].contains(said) && text.contains(said));
    assert!(text.find(goes) < text.find("Runs form"), "{text}");
    let segment = "<rect class=\"k-usr\" x=\"230.0\" y=\"0.0\" width=\"890.0\" height=\"24\">\
                   <title>in its own code: work 100.0 %</title></rect>";
    assert!(page.contains(segment) && page.contains("<h4>near/7, 1.00 s</h4>"), "{page}");
}

#[test]
fn who_a_cause_is_stands_behind_its_evidence() {
    let mut machine = Machine { rng: Rng::new(5), is_the_cause: true, runs: 0 };
    let mut runs = machine.observe(13).unwrap();
    let last = &mut runs[12];
    last.validity.reject(crate::limits::BUDGETED);
    last.probes.budget = Some(Budget { width_s: 1.0, ..Budget::default() });
    let rows = [("a/1", 64.0), ("b/2", 2.0), ("c/3", 1.0), ("d/4", 1.0)];
    let rows = rows.map(|(key, count)| (key.to_owned(), vec![count])).to_vec();
    let columns = vec![Column::new("sockets", "", TableKind::Level, "")];
    let table = Table { key: Key::Attached, columns, rows };
    last.probes.tables.insert("captures".to_owned(), table);
    let text = "id = \"x\"\ntitle = \"x\"\nkind = \"limits\"\nneeds = []\nwhen = \"true\"\n\
                evidence = \"It was there.\"\nwho = \"captures\"\nremedy = \"x\"\nsource = \"x\"";
    let cause = Cause::parse("x", text).unwrap();
    let found = look(&machine, &runs, None, &[cause], &Options::default()).unwrap();
    let said = "It was there. Seen: a/1 (64 sockets); b/2 (2 sockets); c/3; 1 more.";
    assert_eq!(found.suspects[0].evidence, said);
}

#[test]
fn what_the_user_has_tried_is_forced_and_judged_beside_the_causes() {
    let mut machine = Machine { rng: Rng::new(5), is_the_cause: true, runs: 0 };
    let tried = vec![tried("placement=same").unwrap()];
    let options = Options { causes: 0, tried, ..Options::default() };
    let found = investigate(&mut machine, &built_in(), &options, &mut |_| {}).unwrap();
    let judged = found.suspects.iter().filter(|one| one.judgement.is_some());
    let judged: Vec<&str> = judged.map(|one| one.cause.id.as_str()).collect();
    assert_eq!(judged, ["tried-placement"]);
    assert!(found.text().contains("You had it tried."), "{}", found.text());
    let options = Options { tried: vec![super::tried("mtu.x=1").unwrap()], ..options };
    let before = machine.runs;
    let refused = investigate(&mut machine, &built_in(), &options, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("--try mtu.x: no such factor"), "{refused}");
    assert_eq!(machine.runs, before, "nothing was run for it");
}

#[test]
fn what_only_goes_with_the_groups_is_not_confirmed() {
    let found = investigated(false);
    let suspect = found.suspects.iter().find(|one| one.cause.id == "shared-cpu").unwrap();
    assert_ne!(suspect.verdict(), Verdict::Confirmed, "{suspect:?}");
    assert!(!found.text().contains("confirmed:"), "{}", found.text());
}

/// A receiver whose window limits it: of the system's default, or of a size that it sets
/// itself, in every run or in every third.
struct Receiver {
    rng: Rng,
    sets_its_own: bool,
    noise: f64,
    runs_at_times: Option<u32>,
}

impl Receiver {
    fn run(&mut self, level: &str) -> RunRecord {
        let limited = match &mut self.runs_at_times {
            Some(runs) => {
                *runs += 1;
                runs.is_multiple_of(3) && (self.sets_its_own || level == "keep")
            }
            None => self.sets_its_own || level == "keep",
        };
        let mut run = RunRecord::new("run");
        let rate = if limited { 1e9 } else { 5e9 } * (1.0 + self.noise * self.rng.unit());
        run.results.insert(keys::THROUGHPUT.into(), rate);
        run.factors.insert("sysctl.net.ipv4.tcp_rmem".into(), level.into());
        let waited = if limited { 0.9 } else { 0.0 };
        let fields = [("busy_s", 1.0), ("rwnd_limited_s", waited), ("sndbuf_limited_s", 0.1)];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        run.probes = Probes {
            times_s: vec![0.0, 1.0],
            tcp_info: vec![millstream_record::TcpInfoRecord {
                fields: fields.into(),
                ..Default::default()
            }],
            ..Probes::default()
        };
        run
    }
}

impl Subject for Receiver {
    fn name(&self) -> String {
        "receiver".into()
    }
    fn result(&self) -> (String, bool) {
        (keys::THROUGHPUT.into(), true)
    }
    fn observe(&mut self, runs: u32) -> Result<Vec<RunRecord>, Error> {
        Ok((0..runs).map(|_| self.run("keep")).collect())
    }
    fn may_force(&self, force: &Force) -> Result<(), String> {
        let known = force.factor.starts_with("sysctl.net.ipv4.tcp_rmem");
        known.then_some(()).ok_or("no such factor".into())
    }
    fn force(&mut self, force: &Force, runs: u32) -> Result<Vec<RunRecord>, Error> {
        let each = (0..runs).flat_map(|_| force.levels.clone()).collect::<Vec<_>>();
        Ok(each.iter().map(|level| self.run(level)).collect())
    }
    fn experiments(&self) -> Vec<String> {
        vec![]
    }
}

#[test]
fn a_limit_that_was_not_taken_away_is_not_refuted() {
    let verdict = |sets_its_own| {
        let mut receiver =
            Receiver { rng: Rng::new(7), sets_its_own, noise: 0.02, runs_at_times: None };
        let found =
            investigate(&mut receiver, &built_in(), &Options::default(), &mut |_| {}).unwrap();
        let suspect = found.suspects.iter().find(|one| one.cause.id == "receive-window");
        (suspect.unwrap().verdict(), found.text())
    };
    assert_eq!(verdict(false).0, Verdict::Confirmed);
    let (own, text) = verdict(true);
    assert_eq!(own, Verdict::AssociatedOnly);
    assert!(text.contains("That decides nothing: setting sysctl.net.ipv4.tcp_rmem"), "{text}");
}

#[test]
fn a_cause_that_gains_less_than_the_budgets_first_row_takes_is_one_of_the_limits() {
    let mut receiver =
        Receiver { rng: Rng::new(7), sets_its_own: false, noise: 0.02, runs_at_times: None };
    let mut found =
        investigate(&mut receiver, &built_in(), &Options::default(), &mut |_| {}).unwrap();
    let mut told = |work_s: f64| {
        let row = |state, s| BudgetRow { state, s, what: "it".into(), ..Default::default() };
        let rows = vec![row(ThreadState::OwnCode, work_s), row(ThreadState::Kernel, 1.0)];
        let thread = ThreadBudget { thread: 7, process: 7, rows, ..Default::default() };
        let budget = Budget { threads: vec![thread], ..Budget::default() };
        found.budget =
            Some(Spent { budget, clients: vec![7], result: None, tables: Tables::default() });
        (found.verdict(), found.text())
    };
    // The window gains a factor of 5, as a row of 80 % does.
    let (verdict, text) = told(3.0);
    assert!(verdict.starts_with("The limit is the receiver's window (confirmed; "), "{verdict}");
    assert!(text.contains("Of each megabyte (") && text.contains("at most 4.99 times"), "{text}");
    let (verdict, text) = told(19.0);
    assert!(verdict.starts_with("One of the limits is the receiver's window (c"), "{verdict}");
    assert!(text.contains("95 % of the time thread/7 is in its own code"), "{text}");
    assert!(text.contains("at most 20.00 times as much."), "{text}");
}

#[test]
fn a_limit_that_is_there_at_times_is_why_runs_differ() {
    let found = |sets_its_own| {
        let runs_at_times = Some(0);
        let mut receiver = Receiver { rng: Rng::new(7), sets_its_own, noise: 0.02, runs_at_times };
        investigate(&mut receiver, &built_in(), &Options::default(), &mut |_| {}).unwrap()
    };
    let of_system = found(false);
    let text = of_system.text();
    let first = &of_system.suspects[0];
    assert_eq!((first.cause.id.as_str(), first.cause.kind), ("receive-window", Kind::Separates));
    assert_eq!(first.verdict(), Verdict::Confirmed, "{text}");
    assert!(text.contains("Runs differ by the receiver's window (confirmed"), "{text}");
    // Where the program sets it, forcing the system's setting proves nothing.
    let own = found(true);
    assert_eq!(own.suspects[0].verdict(), Verdict::AssociatedOnly, "{}", own.text());
    let said = "What goes with them first is the receiver's window (associated only).";
    assert!(own.verdict().contains(said), "{}", own.verdict());
    assert!(own.text().contains("That decides nothing: setting sysctl"), "{}", own.text());
}

#[test]
fn a_cause_whose_forced_runs_decide_nothing_stays_before_a_lesser_one_that_was_not_forced() {
    let mut receiver =
        Receiver { rng: Rng::new(7), sets_its_own: false, noise: 0.02, runs_at_times: None };
    let options = Options { causes: 1, forced_runs: 3, ..Options::default() };
    let found = investigate(&mut receiver, &built_in(), &options, &mut |_| {}).unwrap();
    let verdicts = found.suspects.iter().map(|one| (one.cause.id.as_str(), one.verdict()));
    let of_buffers: Vec<_> =
        verdicts.filter(|(id, _)| ["receive-window", "send-buffer"].contains(id)).collect();
    let expected =
        [("receive-window", Verdict::CannotTell), ("send-buffer", Verdict::AssociatedOnly)];
    assert_eq!(of_buffers, expected);
}

#[test]
fn the_more_causes_are_forced_the_more_it_takes_to_confirm_one() {
    // Four runs of a level that all are above the four of the other: by chance in one of 35.
    for (causes, verdict) in [(1, Verdict::Confirmed), (2, Verdict::CannotTell)] {
        let mut receiver =
            Receiver { rng: Rng::new(7), sets_its_own: false, noise: 0.02, runs_at_times: None };
        let options = Options { causes, forced_runs: 4, ..Options::default() };
        let found = investigate(&mut receiver, &built_in(), &options, &mut |_| {}).unwrap();
        let window = found.suspects.iter().find(|one| one.cause.id == "receive-window");
        assert_eq!(window.unwrap().verdict(), verdict, "{causes} forced");
    }
}

#[test]
fn too_few_runs_are_refused_before_anything_runs() {
    let mut machine = Machine { rng: Rng::new(1), is_the_cause: true, runs: 0 };
    let options = Options { runs: 5, ..Options::default() };
    let error = investigate(&mut machine, &[], &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Refused(_)) && machine.runs == 0);
}

/// A machine whose runs lack the result that is asked for.
struct Silent(Machine);

impl Subject for Silent {
    fn name(&self) -> String {
        self.0.name()
    }
    fn result(&self) -> (String, bool) {
        ("nothing".into(), true)
    }
    fn observe(&mut self, runs: u32) -> Result<Vec<RunRecord>, Error> {
        self.0.observe(runs)
    }
    fn may_force(&self, force: &Force) -> Result<(), String> {
        self.0.may_force(force)
    }
    fn force(&mut self, force: &Force, runs: u32) -> Result<Vec<RunRecord>, Error> {
        self.0.force(force, runs)
    }
    fn experiments(&self) -> Vec<String> {
        self.0.experiments()
    }
}

#[test]
fn runs_that_do_not_count_are_a_failure_and_no_refusal() {
    let mut silent = Silent(Machine { rng: Rng::new(1), is_the_cause: true, runs: 0 });
    let error = investigate(&mut silent, &[], &Options::default(), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Worker(why) if why.contains("runs count")), "{error}");
    assert!(silent.0.runs > 0);
}

#[test]
fn it_comes_back_from_json() {
    let found = investigated(true);
    let text = serde_json::to_string(&found).unwrap();
    let again: Investigation = serde_json::from_str(&text).unwrap();
    assert_eq!(again.suspects, found.suspects);
    assert_eq!(again.modes, found.modes);
}
