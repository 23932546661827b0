//! Interleaved rounds of the cases on all contenders.

use crate::Options;
use crate::cases;
use crate::contender::{self, Contender};
use crate::table::{Held, Row, Table, median};

const WARM_UP: usize = 2;

struct Case {
    name: &'static str,
    what: &'static str,
    operations: usize,
    /// Most that ours may be of DPDK's and of glibc's.
    dpdk: Option<f64>,
    glibc: Option<f64>,
}

const fn case(
    name: &'static str,
    what: &'static str,
    operations: usize,
    dpdk: Option<f64>,
    glibc: Option<f64>,
) -> Case {
    Case { name, what, operations, dpdk, glibc }
}

const CASES: [Case; 7] = [
    case("single1", "allocate, free: single, 1 outstanding", 65_536, Some(1.0), None),
    case("single32", "allocate, free: single, 32 outstanding", 65_536, Some(1.0), None),
    case("single512", "allocate, free: single, 512 outstanding", 65_536, Some(1.0), None),
    case("bulk32", "allocate, free: by 32, 32 outstanding", 65_536, Some(1.0), None),
    case("bulk512", "allocate, free: by 32, 512 outstanding", 65_536, Some(1.0), None),
    case("cross", "one core allocates, another frees", 262_144, Some(1.0), Some(1.0 / 15.0)),
    case("message", "460 KB taken, touched, freed", 10, None, None),
];

/// Names, units and bounds of the figures that a message's answer has after the time.
const MESSAGE_COLUMNS: [(&str, &str, Option<Held>); 3] = [
    ("  page faults of a message", "", Some(Held::Zero)),
    ("  TLB shoot-downs of the machine", "/s", Some(Held::Zero)),
    ("  the other core's work, beside it / alone", "", None),
];

/// Answers by contender, then by round.
type Answers = Vec<Vec<Vec<f64>>>;

pub fn run(options: &Options, table: &mut Table) {
    let cases: Vec<_> =
        CASES.iter().filter(|case| options.wants(case.what) || options.wants(case.name)).collect();
    if cases.is_empty() {
        return;
    }
    let cpus = cases::cpus();
    let mut contenders = contender::all(&cpus, table);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    if load > 0.5 {
        table.note(format!(
            "the machine has other work (load {load:.1}): times on two cores say little beyond \
             their fastest rounds"
        ));
    }
    for case in cases {
        if cpus.len() < 2 && matches!(case.name, "cross" | "message") {
            table.note(format!("{}: left out, wants two CPUs", case.what));
            continue;
        }
        let answers = ask_all(case, options.rounds, &mut contenders, table);
        compare(case, &contenders, &answers, table);
    }
}

fn ask_all(case: &Case, rounds: usize, to: &mut [Contender], table: &mut Table) -> Answers {
    let mut answers: Answers = to.iter().map(|_| Vec::new()).collect();
    let mut failed = vec![false; to.len()];
    for round in 0..rounds + WARM_UP {
        for (i, contender) in to.iter_mut().enumerate() {
            match contender.ask(case.name, case.operations) {
                Ok(answer) if round >= WARM_UP => answers[i].push(answer),
                Ok(_) => {}
                Err(error) if !failed[i] => {
                    failed[i] = true;
                    table.note(format!("{} failed at {}: {error}", contender.name, case.name));
                }
                Err(_) => {}
            }
        }
    }
    answers
}

fn column(answers: &[Vec<f64>], n: usize) -> Vec<f64> {
    answers.iter().filter_map(|answer| answer.get(n).copied()).filter(|x| !x.is_nan()).collect()
}

fn compare(case: &Case, contenders: &[Contender], answers: &Answers, table: &mut Table) {
    let ours = column(&answers[0], 0);
    for (contender, answers) in contenders.iter().zip(answers).skip(1) {
        let theirs = column(answers, 0);
        if theirs.is_empty() || theirs.len() != ours.len() {
            continue;
        }
        let limit = match contender.name {
            "dpdk" => case.dpdk,
            "glibc" => case.glibc,
            _ => None,
        };
        table.rows.push(Row {
            what: case.what.to_owned(),
            ours: median(&ours),
            unit: "ns",
            versus: contender.name.to_owned(),
            theirs: median(&theirs),
            ratios: ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect(),
            held_to: limit.map(Held::AtMost),
        });
    }
    if case.name == "cross" {
        let fastest =
            |answers: &[Vec<f64>]| column(answers, 0).into_iter().fold(f64::NAN, f64::min);
        let rates: Vec<_> = contenders
            .iter()
            .zip(answers)
            .map(|(c, a)| format!("{} {:.1}", c.name, 1000.0 / fastest(a)))
            .collect();
        table.note(format!("{}, million a second, fastest round: {}", case.what, rates.join(", ")));
    }
    if case.name != "message" {
        return;
    }
    for (n, (what, unit, held_to)) in MESSAGE_COLUMNS.iter().enumerate() {
        let ours = median(&column(&answers[0], n + 1));
        for (contender, answers) in contenders.iter().zip(answers).skip(1) {
            let theirs = median(&column(answers, n + 1));
            if theirs.is_nan() {
                continue;
            }
            table.rows.push(Row {
                what: (*what).to_owned(),
                ours,
                unit,
                versus: contender.name.to_owned(),
                theirs,
                ratios: Vec::new(),
                held_to: held_to.filter(|_| contender.name == "glibc"),
            });
        }
    }
}
