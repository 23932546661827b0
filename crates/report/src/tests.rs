//! The forms of the report against each other and against what a page may be.

mod many;

use millstream_record::{ExperimentRecord, Timestamp, keys};

use super::*;
use crate::made_up;

fn page_of(experiment: &ExperimentRecord, runs: &[RunRecord]) -> String {
    let page = Report::new(experiment, runs).html().unwrap();
    // For looking at it: MILLSTREAM_TEST_PAGE=FILE keeps the page.
    if let Some(path) = std::env::var_os("MILLSTREAM_TEST_PAGE") {
        std::fs::write(path, &page).unwrap();
    }
    page
}

/// The cells of the first result of the first case.
fn cells<'r>(report: &'r Report<'_>) -> &'r [model::Cell] {
    let case = &report.model.cases[0];
    case.cells(&case.tables[0])
}

#[test]
fn every_run_is_a_point_in_every_plot_of_its_case() {
    let (experiment, runs) = fixture::experiment();
    let page = page_of(&experiment, &runs);
    let report = Report::new(&experiment, &runs);
    for case in &report.model.cases {
        for table in case.tables.iter().filter(|table| table.metric.headline) {
            for row in &case.rows {
                for sample in row.group.samples(&table.metric.key) {
                    let valid = sample.run.validity.valid;
                    let title = format!(
                        "<title>{}: {}, run {}, block {}{}</title>",
                        row.label,
                        table.scale.with_unit(sample.value),
                        sample.run.order,
                        sample.run.block,
                        if valid { "" } else { ", does not count" }
                    );
                    assert!(page.contains(&title), "{title}");
                }
            }
        }
    }
    let marks = page.matches("class=\"pt s").count();
    // Two results per stream run, four per request/response run, and the cross of the legend.
    assert_eq!(marks, 20 * 2 + 10 * 4 + 1);
    assert_eq!(
        page.matches(" bad\" d=").count(),
        2 + 1,
        "the invalid run is a cross in both of its plots"
    );
}

#[test]
fn the_cpu_time_of_each_end_is_told_where_it_was_measured() {
    let (experiment, mut runs) = fixture::experiment();
    let [near, far] = ["near", "far"].map(|end| format!("CPU per KB, {end} worker"));
    let text = Report::new(&experiment, &runs).text();
    assert!(!text.contains(&near) && !text.contains(&far), "{text}");
    for run in runs.iter_mut().filter(|run| run.results.contains_key(keys::PAYLOAD)) {
        run.set(keys::NEAR_CPU_PER_KB, 0.125);
        run.set(keys::FAR_CPU_PER_KB, 0.375);
    }
    let (text, page) = (Report::new(&experiment, &runs).text(), page_of(&experiment, &runs));
    for (name, value) in [(near, "0.125 µs/KB"), (far, "0.375 µs/KB")] {
        let line = text.lines().find(|line| line.contains(&name));
        assert!(line.is_some_and(|line| line.contains(value)), "{text}");
        let number = value.split(' ').next().unwrap();
        assert!(page.contains(&name) && page.contains(number), "{name}");
    }
}

#[test]
fn text_and_page_show_the_same_numbers() {
    let (experiment, runs) = fixture::experiment();
    let report = Report::new(&experiment, &runs);
    let (text, page) = (report.text(), report.html().unwrap());
    let mut compared = 0;
    for case in &report.model.cases {
        assert!(text.contains(&case.label) && page.contains(&case.label));
        for table in case.tables.iter().filter(|table| table.metric.headline) {
            for cell in case.cells(table) {
                let summary = cell.summary.unwrap();
                let median = table.scale.number(summary.median);
                let interval = text::interval_text(&summary, &table.scale);
                assert!(text.contains(&median) && page.contains(&median), "{median}");
                assert!(text.contains(&interval) && page.contains(&interval), "{interval}");
                if let Some(comparison) = &cell.comparison {
                    let ratio = verdict::ratio_with_interval(comparison);
                    assert!(text.contains(&ratio) && page.contains(&ratio), "{ratio}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 2 + 2 + 4);
    assert!(text.contains(&report.verdict()) && page.contains(&report.verdict()));
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let (experiment, runs) = fixture::experiment();
    let page = page_of(&experiment, &runs);
    for outside in ["http://", "https://", "<link", "<img", "<iframe", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    let scripts: Vec<_> = page.match_indices("<script").collect();
    assert_eq!(scripts.len(), 1, "the data, which is no code");
    assert!(page.contains("<script type=\"application/json\" id=\"data\">"));
    assert!(page.len() < 2_000_000, "{}", page.len());
}

#[test]
fn the_page_is_well_formed_and_can_be_heard() {
    let (experiment, runs) = fixture::experiment();
    let page = page_of(&experiment, &runs);
    for element in [
        "section", "article", "figure", "table", "svg", "details", "tr", "dl", "div", "text",
        "tbody",
    ] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    for svg in page.split("<svg ").skip(1) {
        let head = &svg[..svg.find('>').unwrap()];
        assert!(head.contains("aria-label") || head.contains("aria-hidden"), "{head}");
    }
    assert_eq!(page.matches("<table").count(), page.matches("<caption").count());
    for anchor in page.split("href=\"#").skip(1) {
        let id = anchor.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    assert!(
        page.contains("<odd &amp;") || page.contains("&lt;odd &amp;"),
        "the environment is text"
    );
    assert!(!page.contains("NaN"));
    for cell in
        ["<th scope=\"col\">resource</th>", "title=\"Time in which a task at least waited.\""]
    {
        assert!(page.contains(cell), "a table of the probe: {cell}");
    }
    assert!(page.contains("<td>cpu</td><td class=\"r\">20.0 %</td>"));
    assert!(page.contains(">softnet</th>") && page.contains("<td class=\"r\">30</td>"));
}

#[test]
fn the_data_in_the_page_are_the_records() {
    let (experiment, runs) = fixture::experiment();
    let page = page_of(&experiment, &runs);
    let from = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = &page[from..from + page[from..].find("</script>").unwrap()];
    assert!(!data.contains('<'));
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let inside: Vec<RunRecord> = serde_json::from_value(data["runs"].clone()).unwrap();
    assert!(inside == runs);
    let own: ExperimentRecord = serde_json::from_value(data["experiment"].clone()).unwrap();
    assert!(own == experiment);
    assert_eq!(data["omitted"], serde_json::json!([]));
}

#[test]
fn a_large_experiment_still_makes_a_small_page() {
    let (mut experiment, few) = fixture::experiment();
    let mut runs = Vec::new();
    for order in 0..120u32 {
        let mut run = few[order as usize % few.len()].clone();
        run.id = experiment.run_id(order);
        run.order = order;
        run.block = order / 6;
        let cpu = run.probes.cpu.as_mut().unwrap();
        for number in 2..40 {
            let mut more = cpu.cpus[0].clone();
            more.cpu = number;
            cpu.cpus.push(more);
        }
        runs.push(run);
    }
    experiment.planned_runs = 120;
    let page = page_of(&experiment, &runs);
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("more runs are not drawn"));
    assert!(page.contains("\"omitted\":[\"runs[].probes.hosts series\""));
}

#[test]
fn what_differs_between_the_sides_is_said() {
    let (experiment, runs) = fixture::experiment();
    let report = Report::new(&experiment, &runs);
    let (text, page) = (report.text(), report.html().unwrap());
    assert!(text.contains("congestion control – kernel: cubic; millstream: NewReno"));
    assert!(!text.contains("peer –"), "what is the same is no difference");
    assert!(page.contains("congestion control") && page.contains("NewReno"));
    assert!(page.contains("<th scope=\"row\">setting.link</th><td>veth</td><td>tap</td>"));
    assert!(!page.contains("<th scope=\"row\">setting.mtu_bytes</th>"));
}

#[test]
fn notes_stand_before_the_numbers_in_text_and_page() {
    let (mut experiment, mut runs) = fixture::experiment();
    let report = Report::new(&experiment, &runs);
    assert!(!report.text().contains("keep in mind"), "nothing to say, nothing said");
    assert!(!report.html().unwrap().contains("class=\"caution\""));
    experiment.notes = vec!["No TAP device can be made here (<why>)".into()];
    for run in &mut runs[..3] {
        run.notes = vec!["plain frames on ms0".into(), "plain frames on ms0".into()];
    }
    let report = Report::new(&experiment, &runs);
    let (text, page) = (report.text(), report.html().unwrap());
    let own = text.find("  ! No TAP device can be made here (<why>)\n").expect("in the text");
    let of_runs = text.find("  ! plain frames on ms0 (3 of 30 runs)\n").expect("once");
    assert!(own < of_runs && of_runs < text.find("median").unwrap(), "{text}");
    assert_eq!(text.matches("plain frames").count(), 1);
    let own = page.find("<li>No TAP device can be made here (&lt;why&gt;)").expect("in the page");
    let of_runs = page.find("<li>plain frames on ms0 (3 of 30 runs)").unwrap();
    assert!(page.find("class=\"verdict\"").unwrap() < own, "right after the answer");
    assert!(own < of_runs && of_runs < page.find("id=\"results\"").unwrap());
}

#[test]
fn json_is_one_record_per_line() {
    let (_, runs) = fixture::experiment();
    let text = json_lines(&runs);
    let back: Vec<RunRecord> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(back == runs);
}

#[test]
fn nothing_and_one_run_and_one_stack_are_reported_too() {
    let (experiment, runs) = fixture::experiment();
    let nothing = Report::new(&experiment, &[]);
    assert!(nothing.verdict().contains("No valid run"));
    assert!(nothing.text().contains("Only 0 of 30 planned runs"));
    assert!(nothing.html().unwrap().contains("No valid run"));

    let one = Report::new(&experiment, &runs[..1]);
    assert!(one.text().contains("The kernel had"), "{}", one.text());
    assert!(one.html().is_ok());

    let kernel: Vec<RunRecord> = runs.iter().filter(|run| run.stack == "kernel").cloned().collect();
    let kernel = Report::new(&experiment, &kernel);
    assert!(!kernel.html().unwrap().contains("class=\"forest\""));

    let other: Vec<RunRecord> =
        runs.iter().filter(|run| run.stack == "millstream").cloned().collect();
    let other = Report::new(&experiment, &other);
    assert!(!other.text().contains("1.00"), "without its base nothing is a ratio");
}

#[test]
fn bare_records_of_another_program_are_reported() {
    let experiment = ExperimentRecord::new("x", 1, Timestamp::from_unix_ms(0));
    let mut run = RunRecord::new("r");
    run.workload = "w".into();
    run.stack = "other".into();
    run.results.insert("events".into(), 3.0);
    run.results.insert("odd_bytes".into(), f64::NAN);
    run.validity.valid = false;
    let runs = [run];
    let report = Report::new(&experiment, &runs);
    assert!(report.text().contains("no reason given"));
    assert!(report.html().unwrap().contains("no: no reason given"));
}

#[test]
fn factors_that_do_not_vary_are_said_once_and_those_of_one_stack_make_rows() {
    let (experiment, mut runs) = fixture::experiment();
    for run in runs.iter_mut().filter(|run| run.stack == "millstream") {
        let engine = if run.block % 2 == 0 { "local" } else { "net" };
        run.factors.insert("engine".into(), engine.into());
        run.factors.insert("stack".into(), "millstream".into());
    }
    let report = Report::new(&experiment, &runs);
    let labels: Vec<&str> = report.model.cases.iter().map(|case| case.label.as_str()).collect();
    assert_eq!(labels, ["tcp_stream direction=send", "tcp_stream direction=recv", "tcp_rr"]);
    let rows: Vec<&str> = report.model.cases[0].rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(rows, ["kernel", "millstream engine=local", "millstream engine=net"]);
    assert!(report.text().contains("tcp_rr everywhere with ip=v4 message_bytes=131072"));
    assert!(cells(&report)[2].comparison.is_some());
}

/// Offloads on and off on one stack: what a setting changes has a ratio as much as what a stack
/// does.
#[test]
fn levels_of_any_factor_are_compared_with_the_first() {
    let (mut experiment, runs) = fixture::experiment();
    experiment.factors.insert("offload".into(), ["on", "off"].map(str::to_owned).into());
    let of = |stack: &str, blocks: u32| {
        let mut all = Vec::new();
        for (level, share) in [("off", 0.5), ("on", 1.0)] {
            let own = |run: &&RunRecord| {
                run.workload == "tcp_rr" && (stack.is_empty() || run.stack == stack)
            };
            for run in runs.iter().filter(own).filter(|run| run.block < blocks) {
                let mut run = run.clone();
                run.id = format!("{level}-{}", run.id);
                run.factors.insert("offload".into(), level.into());
                *run.results.get_mut(keys::TRANSACTIONS).unwrap() *= share;
                all.push(run);
            }
        }
        all
    };
    let one = of("millstream", 5);
    let report = Report::new(&experiment, &one);
    let (text, page) = (report.text(), report.html().unwrap());
    let line = "tcp_rr, offload=off against on, millstream: ";
    let told = text.split(line).nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(told.starts_with("transactions 0.50 (0."), "{told}");
    assert!(told.lines().next().unwrap().contains(") worse, "), "{told}");
    assert!(page.contains(line), "on the page, too");
    // One stack, one factor: the table's own column has it.
    let column =
        text.lines().filter(|line| line.contains(" 0.50 (0.") && !line.contains("against"));
    assert_eq!(column.count(), 1, "{text}");
    let both = of("", 5);
    let text = Report::new(&experiment, &both).text();
    for stack in ["kernel", "millstream"] {
        assert!(text.contains(&format!("offload=off against on, {stack}: ")), "{text}");
    }
    let few = of("millstream", 3);
    let text = Report::new(&experiment, &few).text();
    assert!(text.contains(&format!("{line}fewer than 4 runs a side, no ratio is told")), "{text}");
    assert!(!text.contains("0.50"), "{text}");
}

/// Texts of a class in a plot: where the line is, and its letters.
fn texts<'a>(plot: &'a str, class: &str) -> Vec<(&'a str, String)> {
    let begun = plot.split("<text ").filter(|text| text.starts_with(&format!("class=\"{class}")));
    let read = |text: &'a str| {
        let y = text.split_once(" y=\"")?.1.split_once('"')?.0;
        let inside = text.split_once('>')?.1.split_once("</text>")?.0;
        let bare =
            inside.split('<').map(|part| part.split_once('>').map_or(part, |(_, rest)| rest));
        Some((y, bare.collect()))
    };
    begun.filter_map(read).collect()
}

#[test]
fn the_name_and_the_numbers_of_a_row_do_not_lie_on_each_other() {
    let (experiment, mut runs) = fixture::experiment();
    runs.iter_mut().for_each(|run| run.validity.valid = true);
    for run in runs.iter_mut().filter(|run| run.stack == "millstream") {
        let long = [("engine", "net"), ("engine_cpu", "near"), ("link", "memory"), ("x", "<&>")];
        for (name, level) in long.into_iter().take(run.block as usize) {
            run.factors.insert(name.into(), level.into());
        }
    }
    let page = page_of(&experiment, &runs);
    let mut side_by_side = 0;
    for plot in page.split("<svg class=\"dots\"").skip(1) {
        let plot = plot.split_once("</svg>").unwrap().0;
        let (names, numbers) = (texts(plot, "name"), texts(plot, "num"));
        assert!(names.len() > 1 && names.len() == numbers.len(), "{names:?} {numbers:?}");
        for ((line, name), (other, number)) in names.iter().zip(&numbers) {
            let letters = name.chars().count() + number.chars().count();
            assert!(line != other || letters < 66, "{name} {number}");
            side_by_side += usize::from(line == other);
        }
    }
    assert!(side_by_side == 0, "in every plot one name is too long");
    let (experiment, runs) = fixture::experiment();
    let page = page_of(&experiment, &runs);
    let plot = page.split("<svg class=\"dots\"").nth(1).unwrap();
    assert_eq!(texts(plot, "name")[0].0, texts(plot, "num")[0].0, "short names stay beside them");
}

#[test]
fn more_stacks_than_colours_are_all_there() {
    let (mut experiment, runs) = fixture::experiment();
    let names = ["kernel", "a", "b", "c", "d", "millstream"];
    experiment.stacks = names.iter().map(|name| (*name).to_owned()).collect();
    let mut all = Vec::new();
    for name in names {
        for mut run in runs.iter().filter(|run| run.stack == "millstream").cloned() {
            run.id = format!("{name}-{}", run.id);
            run.stack = name.into();
            all.push(run);
        }
    }
    let report = Report::new(&experiment, &all);
    let rows: Vec<&str> = report.model.cases[0].rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(rows, names);
    let page = report.html().unwrap();
    assert!(names.iter().all(|name| page.contains(&format!(">{name}</th>"))));
}

#[test]
fn a_sweep_is_told_in_a_sentence_and_the_engines_time_in_a_line() {
    let (experiment, mut runs) = fixture::experiment();
    runs.retain(|run| run.workload == "tcp_stream" && run.validity.valid);
    let template = runs.iter().find(|run| run.stack == "millstream").unwrap().clone();
    let levels =
        [(65536, 20e9, 900.0), (131072, 39e9, 500.0), (262144, 40e9, 500.0), (524288, 30e9, 700.0)];
    let mut sweep = Vec::new();
    for (at, (level, throughput, calls)) in levels.into_iter().cycle().take(16).enumerate() {
        let mut run = template.clone();
        run.id = format!("sweep-{at}");
        // All of one round, but for the last.
        run.block = (at as u32 % 4) * (at as u32 / 4);
        run.factors.insert("socket_buffer_bytes".into(), level.to_string());
        run.results.insert(keys::THROUGHPUT.into(), throughput);
        run.results.insert(keys::XCAL_PER_GB.into(), calls);
        run.results.insert("engine_share_transmit".into(), 0.75);
        run.results.insert("engine_share_timers".into(), 0.001);
        sweep.push(run);
    }
    let report = Report::new(&experiment, &sweep);
    let sentence = "millstream: best 40.0 Gbit/s at 262,144, knee at 131,072, from there on never below 0.750 \
                    of the best (at 524,288); fewer than 4 whole rounds do not show whether a level is below the \
                    others; cross-calls per GB 500 at the knee, 700 at the end.";
    let text = report.text();
    assert!(text.contains(sentence), "{text}");
    let from = sentence.find("knee").unwrap();
    assert!(report.html().unwrap().contains(&sentence[from..]));
    assert!(text.contains("millstream (4 runs): transmit 75 %\n"), "{text}");
    // With one run a level nothing is the best.
    let text = Report::new(&experiment, &sweep[..4]).text();
    assert!(text.contains("millstream: fewer than 4 runs of a level, no best one"), "{text}");
    assert!(!text.contains("knee at") && text.contains("(1 run): transmit"), "{text}");
}

/// Runs of Millstream with four buffers, in `rounds` blocks; the last has `last` of what the others
/// have.
fn swept(rounds: u32, last: f64) -> (ExperimentRecord, Vec<RunRecord>) {
    let (experiment, runs) = fixture::experiment();
    let of_stack = |run: &RunRecord| {
        run.workload == "tcp_stream" && run.stack == "millstream" && run.validity.valid
    };
    let template = runs.into_iter().find(of_stack).unwrap();
    let mut sweep = Vec::new();
    for block in 0..rounds {
        for (at, level) in [65_536_u32, 131_072, 262_144, 524_288].into_iter().enumerate() {
            let mut run = template.clone();
            run.id = format!("sweep-{block}-{at}");
            (run.block, run.order) = (block, 4 * block + at as u32);
            run.factors.insert("socket_buffer_bytes".into(), level.to_string());
            let noise = f64::from((block * 7 + at as u32 * 5) % 11) / 100.0;
            let share = if at == 3 { last } else { 1.0 };
            run.results.insert(keys::THROUGHPUT.into(), 40e9 * share * (1.0 + noise));
            sweep.push(run);
        }
    }
    (experiment, sweep)
}

#[test]
fn a_sweep_says_whether_a_level_is_below_the_others() {
    let (experiment, runs) = swept(12, 0.7);
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains("524,288 is shown to be below the others (p = 0.00"), "{text}");
    assert!(text.contains("; least share of 12 rounds 0.69"), "{text}");
    let (experiment, runs) = swept(12, 1.0);
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains("no level is shown to be below the others (p = "), "{text}");
    // A round that lacks a level is left out.
    let (experiment, mut runs) = swept(12, 0.7);
    runs.remove(2);
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains("; least share of 11 rounds 0."), "{text}");
}

/// Where the result rises to the last level there is none behind the knee to be compared with it.
#[test]
fn a_sweep_whose_knee_is_its_last_level_says_that() {
    let (experiment, mut runs) = swept(12, 1.0);
    for run in &mut runs {
        let level: f64 = run.factors["socket_buffer_bytes"].parse().unwrap();
        run.results.insert(keys::THROUGHPUT.into(), level * 1e5);
    }
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains("knee at 524,288, from there on"), "{text}");
    assert!(
        text.contains("(at 524,288); the knee is the last level, none comes after it"),
        "{text}"
    );
    assert!(!text.contains("whole rounds"), "{text}");
}

/// The lowest level by all runs may have its low ones in rounds that are not whole.
#[test]
fn the_level_that_is_named_is_the_one_that_was_tested() {
    let (experiment, mut runs) = swept(12, 0.7);
    // More low runs of another level, in rounds of their own.
    for block in 100..130 {
        let mut run = runs[1].clone();
        run.id = format!("low-{block}");
        (run.block, run.order) = (block, block);
        run.factors.insert("socket_buffer_bytes".into(), "262144".into());
        run.results.insert(keys::THROUGHPUT.into(), 20e9);
        runs.push(run);
    }
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains("of the best (at 262,144)"), "{text}");
    assert!(text.contains("524,288 is shown to be below the others (p = 0.00"), "{text}");
}

/// `peer = ["millstream", "kernel"]`: what is listed first is the base, whatever its name.
#[test]
fn levels_among_rows_stand_as_the_design_lists_them() {
    let (mut experiment, runs) = fixture::experiment();
    let listed = ["none", "millstream", "kernel"];
    experiment.factors.insert("rival".into(), listed.map(str::to_owned).into());
    let mut all = Vec::new();
    for level in ["kernel", "millstream", "none"] {
        for mut run in runs.iter().filter(|run| run.stack == "millstream").cloned() {
            run.id = format!("{level}-{}", run.id);
            run.factors.insert("rival".into(), level.into());
            all.push(run);
        }
    }
    experiment.stacks = vec!["millstream".into()];
    let report = Report::new(&experiment, &all);
    let rows: Vec<&str> = report.model.cases[0].rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(rows, listed.map(|level| format!("millstream rival={level}")));
}

#[test]
fn a_level_that_is_no_number_is_compared_with_the_best_of_a_sweep() {
    let (experiment, mut runs) = swept(12, 1.0);
    let text = Report::new(&experiment, &runs).text();
    assert!(!text.contains("auto"), "{text}");
    for block in 0..12 {
        let mut run = runs[0].clone();
        run.id = format!("sweep-{block}-auto");
        (run.block, run.order) = (block, 100 + block);
        run.factors.insert("socket_buffer_bytes".into(), "auto".into());
        run.results.insert(keys::THROUGHPUT.into(), 21e9);
        runs.push(run);
    }
    let text = Report::new(&experiment, &runs).text();
    let told = text.split("; auto has ").nth(1).unwrap_or_else(|| panic!("{text}"));
    let share: f64 = told.split_once(" of the best (0.").unwrap().0.parse().unwrap();
    // The best is at 40 to 44.
    assert!((0.477..=0.525).contains(&share), "{told}");
}

/// Runs of `tcp_rr` over the kernel: five with CPUs that sleep, five with CPUs kept awake, in
/// `latencies` µs.
fn forced(latencies: (f64, f64), in_force: (&str, &str)) -> (ExperimentRecord, Vec<RunRecord>) {
    let (experiment, runs) = fixture::experiment();
    let kernel = |run: &&RunRecord| run.workload == "tcp_rr" && run.stack == "kernel";
    let template = runs.iter().find(kernel).unwrap();
    let sides = [("auto", latencies.0, in_force.0), ("0", latencies.1, in_force.1)];
    let mut all = Vec::new();
    for block in 0..5 {
        for (at, (level, latency, in_force)) in sides.into_iter().enumerate() {
            let mut run = template.clone();
            run.id = format!("forced-{block}-{at}");
            (run.block, run.order) = (block, 2 * block + at as u32);
            run.factors.insert("idle_latency_us".into(), level.into());
            run.environment.set("idle_latency.in_force_us", in_force);
            let noise = 1.0 + f64::from((block * 3 + at as u32) % 5) / 50.0;
            run.results.insert(keys::LATENCY_P50.into(), latency * noise);
            all.push(run);
        }
    }
    (experiment, all)
}

#[test]
fn a_cause_that_was_forced_is_said_to_be_proved_or_not() {
    let cases = [
        ((60.0, 30.0), ("none", "0"), ": proved, the wake-up of idle CPUs is 50"),
        ((60.0, 60.0), ("none", "0"), ": not proved, no difference is shown"),
        ((30.0, 60.0), ("none", "0"), ": refuted: it is worse"),
        (
            (60.0, 30.0),
            ("none", "none"),
            "nothing is proved, the request was not in force in 5 of 5",
        ),
        ((60.0, 30.0), ("0", "0"), "nothing is proved, with auto another program's request was in"),
    ];
    for (latencies, in_force, expected) in cases {
        let (experiment, runs) = forced(latencies, in_force);
        let report = Report::new(&experiment, &runs);
        let text = report.text();
        assert!(text.contains("tcp_rr idle_latency_us=0, kernel: latency, median "), "{text}");
        assert!(text.contains(expected), "{expected} is not in {text}");
        let page = report.html().unwrap();
        assert!(page.contains("<h3>Causes forced</h3>"), "{expected}");
    }
    let (experiment, mut runs) = forced((60.0, 30.0), ("none", "0"));
    runs.truncate(6);
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains("nothing is proved, fewer than 4 runs a side"), "{text}");
    let (experiment, runs) = fixture::experiment();
    assert!(!Report::new(&experiment, &runs).text().contains("Causes forced"));
}

#[test]
fn where_idle_cpus_were_is_told_where_a_run_asked_for_their_wake_up_time() {
    let (experiment, mut runs) = fixture::experiment();
    let states = "CPU 0 POLL 2 % (1,000/s), C1 20 % (3,000/s)";
    let page = page_of(&experiment, &runs);
    assert!(page.contains("POLL 2 % (1,000"), "always on the page");
    let text = Report::new(&experiment, &runs).text();
    assert!(!text.contains("Where idle CPUs were"), "not asked for by any run");
    for run in &mut runs {
        let rr = run.workload == "tcp_rr";
        run.environment.set("idle_latency.asked_us", if rr { "0" } else { "nothing" });
        run.environment.set("idle_latency.in_force_us", if rr { "0" } else { "none" });
    }
    let text = Report::new(&experiment, &runs).text();
    assert!(text.contains(&format!(", kernel (5 runs): 0 µs in force; {states}")), "{text}");
    assert!(text.contains(&format!(", kernel (5 runs): no limit in force; {states}")), "{text}");
}

#[test]
fn what_runs_with_cpus_apart_had_is_told_beside_the_others() {
    let (experiment, mut runs) = fixture::experiment();
    runs.retain(|run| run.workload == "tcp_stream" && run.validity.valid);
    let template = runs.iter().find(|run| run.stack == "millstream").unwrap().clone();
    let run = |throughput: f64, ns: f64| {
        let mut run = template.clone();
        run.id = format!("at-{ns}");
        run.results.insert(keys::THROUGHPUT.into(), throughput);
        run.results.insert(keys::CPU_DISTANCE.into(), ns);
        run
    };
    let near = [run(60e9, 105.0), run(62e9, 101.0), run(61e9, 132.0)];
    let report = Report::new(&experiment, &near).text();
    assert!(!report.contains("Where the host kept the CPUs"), "{report}");
    let both = [&near[..], &[run(16e9, 480.0), run(15e9, 526.0)]].concat();
    let report = Report::new(&experiment, &both);
    let line = "61.0 Gbit/s with CPUs 101 to 132 ns apart (3 runs); 15.5 Gbit/s with 480 to 526 ns apart \
                (2 runs); no ratio of fewer than 4 runs a side";
    let text = report.text();
    assert!(text.contains(line), "{text}");
    let from = line.find("with CPUs 101").unwrap();
    let to = line.find("; 15.5").unwrap();
    assert!(report.html().unwrap().contains(&line[from..to]));
    let one = [&near[..], &[run(16e9, 480.0)]].concat();
    let text = Report::new(&experiment, &one).text();
    assert!(text.contains("with 480 ns apart (1 run); no ratio of fewer"), "{text}");
    assert!(!text.contains(" of it"), "{text}");
    let mut many: Vec<RunRecord> = both.iter().chain(&both).cloned().collect();
    many.iter_mut().enumerate().for_each(|(at, run)| run.id = format!("at-{at}"));
    let text = Report::new(&experiment, &many).text();
    assert!(text.contains("apart (4 runs); 0.25 (0.24 to 0.27) of it"), "{text}");
}

#[test]
fn runs_with_cpus_apart_are_set_aside_where_enough_others_are() {
    let (mut experiment, mut runs) = fixture::experiment();
    experiment.steady_cpus = true;
    runs.retain(|run| run.workload == "tcp_rr");
    let told = "set aside, as the host kept";
    let before = Report::new(&experiment, &runs);
    assert!(!before.text().contains(told));
    let median = |report: &Report<'_>| cells(report)[1].summary.unwrap().median;
    let as_it_was = median(&before);
    for run in &mut runs {
        let apart = run.stack == "millstream" && run.block > 2;
        run.results.insert(keys::CPU_DISTANCE.into(), if apart { 487.0 } else { 120.0 });
        if apart {
            run.results.insert(keys::TRANSACTIONS.into(), 1.0);
        }
    }
    let report = Report::new(&experiment, &runs);
    let verdict = report.verdict();
    assert!(
        verdict.contains("2 of 10 runs are set aside, as the host kept their CPUs apart."),
        "{verdict}"
    );
    let cell = cells(&report)[1].summary.unwrap();
    assert!(cell.n == 3 && (0.9..1.1).contains(&(cell.median / as_it_was)), "{cell:?}");
    let page = report.html().unwrap();
    assert_eq!(page.matches("no: its CPUs were apart").count(), 2);
    assert!(page.contains(told) && page.contains(", does not count</title>"));
    assert!(report.text().contains("with 487 ns apart (2 runs)"), "they are told all the same");
    experiment.steady_cpus = false;
    assert!(!Report::new(&experiment, &runs).text().contains(told), "where it is what is asked");
}

#[test]
fn what_more_threads_cost_is_told_where_runs_were_profiled() {
    let texts = |many: (f64, u64), profiled: bool| {
        let level = |(threads, mut run): (u32, RunRecord)| {
            run.factors.insert("threads".into(), threads.to_string());
            run.probes.kernel = run.probes.kernel.filter(|_| profiled);
            run
        };
        let runs: Vec<RunRecord> = made_up::set("look_up", many).into_iter().map(level).collect();
        let experiment = ExperimentRecord::new("udp-path", 1, Timestamp::default());
        (Report::new(&experiment, &runs).text(), page_of(&experiment, &runs))
    };
    let (text, page) = texts((120_000.0, 80), true);
    let line = "udp_pps, kernel: With 2 threads a unit of work takes 1.67 times the CPU time that it takes with 1";
    assert!(text.contains(&format!("What more threads cost:\n  {line}")), "{text}");
    assert!(text.contains(" is in look_up (") && page.contains(line), "{text}");
    let (text, _) = texts((198_000.0, 11), true);
    assert!(text.contains("no cause in what they share is named"), "{text}");
    let (text, page) = texts((120_000.0, 80), false);
    let is_told =
        text.contains("What more threads cost") || page.contains("costs with more threads");
    assert!(!is_told, "{text}");
}
