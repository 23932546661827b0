//! Pages of very many runs and cases, and runs that are read in part.

use std::collections::HashSet;

use millstream_record::for_tables;

use super::*;

/// So many runs of one configuration on two stacks, each of another throughput and with its own
/// records.
fn many(count: u32) -> (ExperimentRecord, Vec<RunRecord>) {
    let (mut experiment, few) = fixture::experiment();
    let of_kind = |run: &&RunRecord| run.workload == "tcp_stream" && run.validity.valid;
    let few: Vec<RunRecord> = few
        .iter()
        .filter(of_kind)
        .filter(|run| run.factors["direction"] == "send")
        .cloned()
        .collect();
    let run = |order: u32| {
        let mut run = few[order as usize % few.len()].clone();
        run.id = experiment.run_id(order);
        (run.order, run.block) = (order, order / 2);
        run.results.insert(keys::THROUGHPUT.into(), 20e9 + f64::from(order * 7919 % count) * 1e5);
        run.environment.set("cpus.distance_before_ns", (order % 977).to_string());
        if order % 1000 == 13 {
            run.validity.reject("a test");
        }
        run
    };
    let runs = (0..count).map(run).collect();
    experiment.planned_runs = count;
    (experiment, runs)
}

/// As the store reads them for tables.
fn in_part(runs: &[RunRecord]) -> Vec<RunRecord> {
    runs.iter().map(|run| for_tables(&serde_json::to_string(run).unwrap()).unwrap()).collect()
}

#[test]
fn a_page_of_ten_thousand_runs_is_small_and_says_what_it_leaves_out() {
    const RUNS: u32 = 10_000;
    let (experiment, runs) = many(RUNS);
    let report = Report::new(&experiment, &runs);
    let page = report.html().unwrap();
    assert!(page.len() < 2_000_000, "{}", page.len());
    let marks = page.matches("class=\"pt s").count();
    assert!((2_500..=3_001).contains(&marks), "{marks} points");
    assert_eq!(page.matches("of 20,000 points are drawn").count(), 0);
    assert_eq!(page.matches(" of 10,000 points are drawn: of each row").count(), 2, "two results");
    assert!(page.contains("Of 10,000 runs "), "those looked at one by one");
    assert!(page.contains("more runs are not drawn"), "over time");
    let listed = page.split("of 10000 runs, some of which do not count</summary>").next().unwrap();
    let listed: usize = listed.rsplit('>').next().unwrap().trim().parse().unwrap();
    assert!((250..=500).contains(&listed), "{listed}");
    assert_eq!(page.matches("no: a test").count(), 10, "those that do not count are listed");
    assert!(page.contains("\"runs\"]}"), "no record is in it, which it says");
    // Both ends of each stack, whose numbers are of all its runs.
    for row in &report.model.cases[0].rows {
        let by_value = |a: &&&RunRecord, b: &&&RunRecord| {
            a.results[keys::THROUGHPUT].total_cmp(&b.results[keys::THROUGHPUT])
        };
        let ends =
            [row.group.valid.iter().min_by(by_value), row.group.valid.iter().max_by(by_value)];
        for run in ends.into_iter().flatten() {
            let title = format!(", run {}, block {}</title>", run.order, run.block);
            assert!(page.contains(&title), "{title}");
        }
        assert!(page.contains(&format!("<td class=\"r\">{}</td>", row.group.valid.len())));
    }
    // One setting has 977 values.
    assert!(page.contains(" more</td>") && !page.contains("\"cpus.distance_before_ns\""));
}

#[test]
fn a_page_of_many_cases_is_small_and_says_what_it_leaves_out() {
    let (experiment, few) = fixture::experiment();
    let of = |stack: &str| few.iter().find(|run| run.stack == stack && run.validity.valid).unwrap();
    let templates = [of("kernel"), of("millstream")];
    let runs: Vec<RunRecord> = (0..1200)
        .map(|order: u32| {
            let mut run = templates[order as usize % 2].clone();
            run.id = experiment.run_id(order);
            (run.order, run.block) = (order, order % 4 / 2);
            run.factors.insert("loss_percent".into(), (order / 4).to_string());
            run.notes = vec![format!("a note of run {order}")];
            for more in 0..40 {
                run.results.insert(format!("another_{more}_bytes"), f64::from(more));
            }
            run
        })
        .collect();
    let page = Report::new(&experiment, &runs).html().unwrap();
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("Of 300 cases the first "), "cases");
    assert!(
        page.contains("all their results in numbers, and tables of the machine"),
        "less of others"
    );
    assert!(page.contains("more lines, which are left out."), "notes");
    let few = &runs[..40];
    let page = Report::new(&experiment, few).html().unwrap();
    for said in
        ["cases the first", "all their results in numbers", "are left out", "points are drawn"]
    {
        assert!(!page.contains(said), "{said}");
    }
}

/// `show` reads a part of each record and prints the same text as from whole records.
#[test]
fn text_of_runs_that_are_read_in_part_is_that_of_all_they_have() {
    let mut sets = vec![fixture::experiment(), many(50)];
    sets.push(forced((60.0, 30.0), ("none", "0")));
    let (experiment, mut runs) = fixture::experiment();
    for run in &mut runs {
        run.environment.set("idle_latency.asked_us", "0");
        run.probes.cpu.as_mut().unwrap().cpus[1].nice_s.fill(0.05);
        run.results.insert(keys::CPU_DISTANCE.into(), if run.block > 2 { 487.0 } else { 120.0 });
        run.results.insert("overrun_near_queue_packets".into(), 7.0);
        run.results.insert(keys::LOST.into(), 1.0);
        run.results.insert("engine_share_transmit".into(), 0.75);
        run.notes = vec!["plain frames on ms0".into()];
    }
    sets.push((experiment, runs));
    let level = |(threads, mut run): (u32, RunRecord)| {
        run.factors.insert("threads".into(), threads.to_string());
        run
    };
    let threaded = made_up::set("look_up", (120_000.0, 80)).into_iter().map(level).collect();
    sets.push((ExperimentRecord::new("udp-path", 1, Timestamp::default()), threaded));
    let (experiment, mut runs) = fixture::experiment();
    for run in &mut runs {
        run.results.insert(keys::CHECKED_BYTES.into(), 3e12);
        let worker = run.probes.workers.as_mut().unwrap().get_mut("near").unwrap();
        worker.resident_bytes = vec![Some(5_000_000); 35];
    }
    sets.push((experiment, runs));
    let (experiment, runs) = swept(12, 0.7);
    sets.push((experiment, runs));
    let mut all = String::new();
    for (experiment, runs) in sets {
        let (full, part) = (runs.clone(), in_part(&runs));
        let (full, part) = (Report::new(&experiment, &full), Report::new(&experiment, &part));
        assert_eq!(part.text(), full.text());
        assert_eq!(part.matrix(), full.matrix());
        all += &part.text();
    }
    // They have everything that text may tell.
    for heading in [
        "Sweeps",
        "Levels against",
        "Causes forced",
        "Where datagrams",
        "Where the engine's",
        "What more threads",
        "Where the host kept",
        "Where idle CPUs",
        "Soak of",
        "resident memory",
        "Runs that do not",
        "Other programs used",
        "To keep in mind",
    ] {
        assert!(all.contains(heading), "{heading}: {all}");
    }
}

/// A page is the same whether all runs were read in full, or those alone that it looks at one by
/// one.
#[test]
fn a_page_looks_at_no_more_of_a_run_than_was_read() {
    let (experiment, runs) = many(1_500);
    let mut part = in_part(&runs);
    let chosen = in_detail(&part);
    assert!(chosen.len() < runs.len() && chosen == in_detail(&runs));
    for &at in &chosen {
        part[at].complete(runs[at].clone());
    }
    let full = Report::new(&experiment, &runs).html().unwrap();
    assert!(full == Report::new(&experiment, &part).html().unwrap());
    let chosen: HashSet<usize> = chosen.into_iter().collect();
    assert!(runs.iter().enumerate().all(|(at, run)| (part[at] == *run) == chosen.contains(&at)));
}
