//! Each clog and its cure for a moment: the runs themselves look whether the bytes are those that
//! were sent, and what was done is counted. Nothing here depends on how fast that is.

use super::*;
use crate::made_up;

/// Returns the results and counters of a run of `name` at a level.
fn run(name: &str, level: u64, clogged: bool) -> BTreeMap<String, f64> {
    let setup = Setup { clogged, level, time: Duration::from_millis(60), round: 0 };
    let seen = (find(name).unwrap().run)(&setup).unwrap();
    let counts = seen.counts.iter().map(|(key, count)| (*key, *count as f64));
    let packets = [("packets", seen.packets.or(seen.payload).unwrap_or(0.0))];
    let all = counts.chain(packets).chain(seen.results);
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

#[test]
fn a_pull_up_maps_once_for_each_read_and_the_cure_never() {
    let clogged = run("pullup", 256 << 10, true);
    assert!(clogged["reads"] > 0.0 && clogged["mappings"] == clogged["reads"], "{clogged:?}");
    assert!(clogged["joined_bytes"] >= clogged["packets"], "{clogged:?}");
    let cured = run("pullup", 256 << 10, false);
    assert!(cured["reads"] > 0.0 && cured["mappings"] == 0.0, "{cured:?}");
}

#[test]
fn a_put_back_walks_only_in_the_clog() {
    let clogged = run("putback-walk", 50_000, true);
    assert!(clogged["links_walked"] > 0.0 && clogged["coalesced_bytes"] == 0.0, "{clogged:?}");
    let cured = run("putback-walk", 50_000, false);
    assert!(cured["reads"] > 0.0 && cured["links_walked"] == 0.0, "{cured:?}");
}

/// Where the kernel may not be the load, another engine is.
#[test]
fn each_clog_lives_clogged_and_cured_until_its_time_is_over() {
    for (clog, clogged) in CLOGS.into_iter().flat_map(|clog| [(clog, true), (clog, false)]) {
        if clog.name == "colliding-placement" && threads::cpus().len() < 2 {
            continue;
        }
        let told = std::cell::RefCell::new(Vec::new());
        let living = Living {
            clogged,
            time: Duration::from_millis(300),
            is_interrupted: &|| false,
            say: &|line| told.borrow_mut().push(line.to_owned()),
        };
        let (figure, rate) = clog.live(&living).unwrap();
        assert!(figure.ends_with("_per_second") && rate >= 0.0, "{clog:?}: {figure}={rate}");
        assert!(told.borrow().len() == 2, "{clog:?}: {told:?}");
    }
}

#[test]
fn a_frame_of_the_heap_is_allocated_for_each_packet() {
    let clogged = run("heap-per-packet", 0, true);
    assert!(
        clogged["packets"] > 0.0 && clogged["allocations"] >= clogged["packets"],
        "{clogged:?}"
    );
    let cured = run("heap-per-packet", 256, false);
    assert!(cured["packets"] > 0.0 && cured["allocations"] == 0.0, "{cured:?}");
}

#[test]
fn a_lock_is_taken_twice_for_each_datagram_and_in_the_cure_never() {
    let clogged = run("route-lock", 2, true);
    assert!(clogged["locks_taken"] > 0.0, "{clogged:?}");
    let cured = run("route-lock", 2, false);
    assert!(cured["packets"] > 0.0 && cured["locks_taken"] == 0.0, "{cured:?}");
}

#[test]
fn a_placement_is_drawn_from_all_four_or_chosen_apart() {
    let mut drawn: Vec<_> = (0..4).map(|round| placement::place(true, round)).collect();
    let Some(first) = drawn.pop().and_then(Result::ok) else {
        return assert!(
            threads::cpus().len() < 2,
            "a machine with one CPU cannot place two threads"
        );
    };
    let mut all: Vec<[usize; 2]> = drawn.into_iter().map(Result::unwrap).chain([first]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4);
    assert!((0..8).all(|round| placement::place(false, round).is_ok_and(|[a, b]| a != b)));
}

#[test]
fn both_variants_take_turns_and_their_causes_are_in_the_catalogue() {
    let known: Vec<String> =
        millstream_diagnose::causes::built_in().into_iter().map(|cause| cause.id).collect();
    for clog in CLOGS {
        assert!(clog.causes.iter().all(|cause| known.contains(&(*cause).to_owned())), "{clog:?}");
        let plan = clog.plan(4);
        assert!(plan.chunks(2).all(|pair| pair[0].clogged != pair[1].clogged), "{clog:?}");
        assert!(plan.chunks(2).all(|pair| pair[0].level == pair[1].level), "{clog:?}");
        let seconds = clog.plan(clog.rounds).len() as f64 * clog.seconds;
        assert!(seconds < 100.0, "{}: {seconds} s", clog.name);
    }
    assert!(find("nothing").unwrap_err().to_string().contains("pullup, putback-walk"));
}

/// Runs whose features are made up: what is named is what they show, and nothing where they show
/// nothing.
#[test]
fn the_diagnosis_names_what_was_measured_and_nothing_of_the_cure() {
    let clog = find("putback-walk").unwrap();
    let runs = |variant: &str, long: bool| -> Vec<RunRecord> {
        (0..8_u32)
            .map(|at| {
                let mut run = RunRecord::new(format!("{variant}-{at}"));
                run.factors.insert("variant".to_owned(), variant.to_owned());
                run.factors.insert("level".to_owned(), "1".to_owned());
                run.probes.times_s = vec![0.0, 1.0];
                run.results.insert(keys::PACKETS.to_owned(), 1000.0 + f64::from(at));
                run.results.insert(keys::QUEUE_LIMIT.to_owned(), 1e6);
                let entries: Vec<f64> = (0..12).map(|at| 100.0 * 2.0_f64.powi(at)).collect();
                let rates = entries.iter().map(|entries| 2e8 / entries).collect();
                let held = entries.iter().map(|entries| 2112.0 * entries).collect();
                let series = match long {
                    true => [entries, rates, held],
                    false => [vec![3.0; 12], vec![1e6; 12], vec![6e3; 12]],
                };
                let names =
                    [keys::QUEUE_ENTRIES, keys::PACKETS, keys::QUEUE_HELD].map(str::to_owned);
                run.intervals.series = names.into_iter().zip(series).collect();
                run
            })
            .collect()
    };
    let found = Diagnosis::of(clog, 1, &runs("clogged", true));
    assert!(found.names_it, "{found:?}");
    let named: Vec<&str> = found.causes.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(named, ["work-grows-with-the-queue", "limit-counts-payload"]);
    let found = Diagnosis::of(clog, 1, &runs("cured", false));
    assert!(!found.names_it && found.causes.is_empty(), "{found:?}");
}

/// Made up likewise: a look-up that takes longer with two threads, and one that takes as long as
/// with one.
#[test]
fn the_diagnosis_compares_numbers_of_threads() {
    let clog = find("route-lock").unwrap();
    let runs = |variant: &str, many| -> Vec<RunRecord> {
        let factors = |(threads, mut run): (u32, RunRecord)| {
            run.factors.insert("variant".to_owned(), variant.to_owned());
            run.factors.insert("level".to_owned(), threads.to_string());
            run
        };
        made_up::set("look_up", many).into_iter().map(factors).collect()
    };
    let found = Diagnosis::of(clog, 2, &runs("clogged", (120_000.0, 80)));
    let causes: Vec<&str> = found.causes.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((found.names_it, &causes[..]), (true, &["shared-between-threads"][..]));
    assert!(found.causes[0].evidence.contains("in look_up ("), "{found:?}");
    let found = Diagnosis::of(clog, 2, &runs("cured", (198_000.0, 11)));
    assert!(!found.names_it && found.causes.is_empty(), "{found:?}");
    // Where numbers of threads cannot be compared, that is said.
    let mut unseen = runs("clogged", (120_000.0, 80));
    unseen.iter_mut().for_each(|run| run.probes.kernel = None);
    let found = Diagnosis::of(clog, 2, &unseen);
    assert!(found.not_measured.iter().any(|one| one.starts_with("what threads cost")), "{found:?}");
}
