//! Checks what a cause says, and that the built-in ones tell the load's own from what others do.

use super::*;
use crate::modes::{Options, modes};
use crate::separate::{Outcome, separate};

/// Features of a machine whose other programs lose packets, work or write; the last would be
/// another number where the ends did.
#[test]
fn what_others_meet_or_costs_nothing_is_no_cause() {
    let lost = ("own_retransmissions", 0.0);
    type Case = (&'static str, &'static [(&'static str, f64)], (&'static str, f64), f64);
    let cases: [Case; 18] = [
        (
            "interface-drops",
            &[("interface_drops_per_s", 12.0), ("sent_packets_per_s", 1500.0)],
            lost,
            3.0,
        ),
        ("qdisc-drops", &[("qdisc_drops_per_s", 20.0), ("qdisc_dropped_share", 0.1)], lost, 3.0),
        (
            "dropped-by-a-rule",
            &[("rule_drops_per_s", 8.0), ("sent_packets_per_s", 4000.0)],
            lost,
            3.0,
        ),
        (
            "backlog-drops",
            &[("softnet_dropped_per_s", 20.0), ("softnet_dropped_share", 0.1)],
            lost,
            3.0,
        ),
        ("conntrack-full", &[("conntrack_drops_per_s", 2.0)], lost, 3.0),
        ("retransmissions", &[("retransmitted_share", 0.005)], lost, 3.0),
        ("cpu-quota", &[("throttled_share", 1.2)], ("waits_for_cpu_share", 0.02), 0.3),
        (
            "disk-writeback",
            &[("disk_busy_share", 0.9), ("disk_written_bytes_per_s", 2e7)],
            ("waits_for_cpu_share", 0.02),
            0.2,
        ),
        (
            "softirq-budget",
            &[("softnet_squeezed_per_s", 2371.0)],
            ("busiest_softirq_time_share", 0.2),
            0.7,
        ),
        (
            "delayed-ack",
            &[("delayed_ack_share", 0.2), ("delayed_acks_per_s", 12.0), ("ends_cpus", 0.1)],
            ("held_share", 0.0),
            0.5,
        ),
        (
            "segments-one-by-one",
            &[
                ("sent_mtus_per_packet", 1.01),
                ("mtu_bytes", 1500.0),
                ("busiest_cpu_share", 0.8),
                ("sent_packets_per_s", 8e5),
            ],
            ("offloads_off", 0.0),
            1.0,
        ),
        (
            "path-rate",
            &[
                ("queueing_share", 0.99),
                ("least_round_trip_us", 20.0),
                ("one_way_share", 1.0),
                ("network_limited_share", 0.8),
                ("busiest_thread_share", 0.6),
                ("waits_for_cpu_share", 0.1),
            ],
            ("over_loopback_share", 1.0),
            0.0,
        ),
        ("full-cpu", &[("busiest_cpu_share", 1.0)], ("busiest_own_cpu_share", 0.3), 1.0),
        (
            "wake-up-of-another-cpu",
            &[("same_cpu_share", 0.1), ("sleeps_per_unit", 1.0), ("busiest_cpu_share", 1.0)],
            ("busiest_own_cpu_share", 1.0),
            0.3,
        ),
        ("shared-lock", &[("program_lock_time_share", 0.2)], ("time_lock_share", 0.0), 0.1),
        (
            "qdisc-rate",
            &[("qdisc_held_share", 1.0), ("qdisc_overlimits_per_s", 20.0)],
            ("queue_wait_share", 5.0),
            0.8,
        ),
        (
            "queue-of-others",
            &[("queue_wait_share", 0.8), ("queue_others_share", 0.9)],
            ("ends_use_udp", 1.0),
            0.0,
        ),
        (
            "work-grows-with-the-queue",
            &[
                ("rate_at_tenfold_queue", 0.5),
                ("rate_at_longest_queue", 0.3),
                ("queue_entries_most", 8000.0),
            ],
            ("busiest_thread_share", 0.2),
            0.6,
        ),
    ];
    let catalogue = built_in();
    for (id, features, (name, others), own) in cases {
        let cause = catalogue.iter().find(|cause| cause.id == id).unwrap();
        let looks = |last: f64| {
            let all = features.iter().copied().chain([(name, last)]);
            let feature = |(name, value): (&str, f64)| Feature {
                name: name.to_owned(),
                distance: 0,
                values: vec![Some(value); 4],
            };
            let all: Vec<Feature> = all.map(feature).collect();
            Scene::new(&all, &[], &Separation::default()).look(cause)
        };
        assert_eq!(looks(others), Look::DoesNotFit, "{id}");
        assert!(matches!(looks(own), Look::Fits { .. }), "{id}");
    }
}

const CAUSE: &str = r#"
    id = "x"
    title = "x"
    kind = "separates"
    needs = ["same_cpu_share"]
    when = "same_cpu_share.shown and same_cpu_share.spread > 0.3"
    evidence = "{{ (same_cpu_share.low * 100) | round | int }} % in the slow runs"
    remedy = "pin"
    source = "here"
    [counter]
    when = "groups > 2"
    text = "there are {{ groups }} groups"
"#;

fn scene(with: impl Fn(usize) -> f64) -> Scene {
    let results: Vec<f64> = (0..20).map(|run| if run % 2 == 0 { 10.0 } else { 50.0 }).collect();
    let found = modes(&results, &Options::default());
    let values = (0..20).map(|run| Some(with(run))).collect();
    let features = [Feature { name: "same_cpu_share".into(), distance: 0, values }];
    let outcome = Outcome { values: &results, blocks: &[0; 20] };
    Scene::new(&features, &found, &separate(outcome, &features, 1))
}

#[test]
fn a_cause_fits_where_its_condition_holds_and_says_its_evidence() {
    let cause = Cause::parse("x", CAUSE).unwrap();
    let apart = scene(|run| if run % 2 == 0 { 0.0 } else { 1.0 });
    let evidence = "0 % in the slow runs".to_owned();
    assert_eq!(apart.look(&cause), Look::Fits { evidence, counter: None });
    // Too small a difference; and one that does not go with the groups.
    assert_eq!(scene(|run| 0.1 * (run % 2) as f64).look(&cause), Look::DoesNotFit);
    assert_eq!(scene(|run| f64::from(u8::from(run < 10))).look(&cause), Look::DoesNotFit);
    let other = Cause { needs: vec!["steal_share".into()], ..cause };
    assert_eq!(apart.look(&other), Look::NotMeasured(vec!["steal_share".into()]));
}

#[test]
fn a_feature_that_few_runs_measured_is_not_measured() {
    let cause = Cause::parse(
        "x.toml",
        &CAUSE.replace(
            "same_cpu_share.shown and same_cpu_share.spread > 0.3",
            "same_cpu_share.median > 0",
        ),
    )
    .unwrap();
    let with = |measured: usize| {
        let values = (0..8).map(|run| (run < measured).then_some(0.5)).collect();
        let features = [Feature { name: "same_cpu_share".into(), distance: 0, values }];
        Scene::new(&features, &[], &Separation::default()).look(&cause)
    };
    assert_eq!(with(3), Look::NotMeasured(vec!["same_cpu_share".into()]));
    assert!(matches!(with(4), Look::Fits { .. }));
}

#[test]
fn what_cannot_be_used_is_told_in_one_line() {
    let bad = |from: &str, to: &str| {
        let error = Cause::parse("mine.toml", &CAUSE.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: ") && error.lines().count() == 1, "{error}");
        error
    };
    assert!(bad("spread > 0.3", "spread >").contains("when = "));
    assert!(bad("remedy", "remedies").contains("remed"));
    assert!(bad("kind = \"separates\"", "kind = \"explains\"").contains("explains"));
    let force = |levels: &str| {
        let text = format!("{CAUSE}\n[[force]]\nfactor = \"placement\"\n{levels}");
        Cause::parse("mine.toml", &text).map_err(|error| error.to_string())
    };
    assert!(force("levels = [\"a\"]").unwrap_err().contains("fewer than two"));
    assert!(force("levels = [\"a\", \"b\"]\nfree = \"c\"").unwrap_err().contains("free"));
    assert_eq!(force("levels = [\"a\", \"b\"]").unwrap().force.len(), 1);
    let cause = Cause::parse("x", &CAUSE.replace("spread > 0.3", "width > 0.3")).unwrap();
    assert!(matches!(scene(|run| (run % 2) as f64).look(&cause), Look::Broken(_)));
}

fn fits(id: &str, features: &[(&str, f64)]) -> bool {
    let of = |(name, value): &(&str, f64)| Feature {
        name: (*name).to_owned(),
        distance: 0,
        values: vec![Some(*value); 8],
    };
    let features: Vec<Feature> = features.iter().map(of).collect();
    let cause = built_in().into_iter().find(|one| one.id == id).unwrap();
    let scene = Scene::new(&features, &[], &Separation::default());
    matches!(scene.look(&cause), Look::Fits { .. })
}

#[test]
fn an_accept_queue_is_the_loads_where_a_process_of_it_accepts() {
    let overflows = ("listen_overflows_per_s", 9.0);
    let of = |ends| fits("listen-overflow", &[overflows, ("accepting_ends", ends)]);
    assert_eq!([of(0.0), of(1.0), fits("listen-overflow", &[overflows])], [false, true, true]);
}

#[test]
fn work_on_one_cpu_is_a_cause_where_another_one_is_idle() {
    let of = |waits, interrupted, busiest, others| {
        let features = [
            ("waits_behind_own_share", waits),
            ("interrupted_time_share", interrupted),
            ("busiest_cpu_share", busiest),
            ("other_cpus_busy_share", others),
        ];
        fits("threads-share-a-cpu", &features)
    };
    assert!(of(0.5, 0.0, 1.0, 0.1) && of(0.0, 0.4, 1.0, 0.1));
    assert!(!of(0.5, 0.4, 1.0, 0.9), "no CPU is idle");
    assert!(!of(0.0, 0.4, 0.7, 0.1), "its CPU is not full");
    assert!(!of(0.1, 0.1, 1.0, 0.1));
}

#[test]
fn the_built_in_causes_are_named_as_their_files_and_can_be_evaluated() {
    let causes = built_in();
    for (cause, (name, _)) in causes.iter().zip(BUILT_IN) {
        assert_eq!(cause.id, *name);
        let features: Vec<Feature> = cause
            .needs
            .iter()
            .map(|need| Feature { name: need.clone(), distance: 0, values: vec![Some(1.0); 8] })
            .collect();
        let scene = Scene::new(&features, &[], &Separation::default());
        let scene = scene.with_threads(&Scaling::default());
        let look = scene.look(cause);
        let share = cause
            .share
            .as_ref()
            .map(|share| environment().compile_expression(share).unwrap().eval(&scene.values));
        let share = share.map(|value| value.and_then(f64::try_from));
        assert!(share.is_none_or(|value| value.is_ok_and(f64::is_finite)), "{name}: its share");
        for other in cause.explains.iter().chain(&cause.says_why) {
            assert!(BUILT_IN.iter().any(|(known, _)| known == other), "{name} explains {other}");
        }
        assert!(!matches!(look, Look::Broken(_) | Look::NotMeasured(_)), "{name}: {look:?}");
        let said = scene.say(&cause.evidence);
        assert!(!said.contains("{{"), "{name}: {said}");
    }
}
