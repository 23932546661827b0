//! The kernel as judge, in small: every pair of stacks over the same bad path. Nothing here is
//! timed, nor does it matter how late a busy machine's path is; what is checked is that transfers
//! complete, that the path carried them, and that repairs are accounted for.

use millstream_record::{RunRecord, keys};

use crate::common::{Place, hosts_possible, words};

fn run(name: &str, factors: &str) -> Vec<RunRecord> {
    let place = Place::new(name);
    let file = place.write(
        "judge.toml",
        &format!(
            "name = \"{name}\"\nworkload = \"tcp_stream\"\nrepeats = 1\nwarmup_s = 0.3\n\
             duration_s = 1\nseed = 5\n[factors]\npath = \"impaired\"\nplacement = \"free\"\n\
             late_percent = 100\n{factors}"
        ),
    );
    let output = place.command(&["run", file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let runs = place.runs();
    for run in &runs {
        let label = format!("{} {}", run.stack, run.configuration());
        assert!(run.validity.valid, "{label}: {:?}", run.validity);
        assert!(run.path.as_ref().unwrap().agrees, "{label}: {:?}", run.path);
        assert!(run.result(keys::THROUGHPUT).unwrap() > 0.0, "{label}");
    }
    runs
}

#[test]
fn every_pair_of_stacks_completes_over_a_bad_path_and_accounts_for_its_repairs() {
    if !hosts_possible() {
        return;
    }
    let runs = run(
        "pairs",
        "stack = [\"kernel\", \"millstream\"]\npeer = [\"kernel\", \"millstream\"]\n\
         congestion = [\"cubic\", \"reno\", \"bbr\"]\nrate_mbit = 50\nrtt_ms = 5\n\
         loss_percent = 3\nreorder_percent = 5\n",
    );
    assert_eq!(runs.len(), 12);
    for run in &runs {
        let label = format!("{} {}", run.stack, run.configuration());
        let of = |key: &str| run.result(key).unwrap();
        let sender = run.probes.tcp_info.iter().find(|info| info.role == "near").unwrap();
        assert_eq!(sender.stack, run.stack, "{label}");
        let wanted = run.factors["congestion"].as_str();
        assert_eq!(sender.congestion.as_deref(), Some(wanted), "{label}");
        let receiver = run.probes.tcp_info.iter().find(|info| info.role == "far").unwrap();
        assert_eq!(receiver.stack, run.factors["peer"], "{label}");
        // Segments that the path swallowed were sent again, but for the tail; those sent in vain
        // are a part of these.
        let swallowed = of("path_to_far_lost_packets") + of("path_to_far_dropped_packets");
        assert!(swallowed > 0.0, "{label}");
        assert!(of("retransmitted_packets") <= of("sent_packets"), "{label}");
        assert!(of("spurious_packets") <= of("retransmitted_packets"), "{label}");
        let least = 0.5 * swallowed - 10.0;
        assert!(of("retransmitted_packets") >= least, "{label}: {:?}", run.results);
        assert!(of("path_to_far_reordered_packets") > 0.0, "{label}");
    }
}

/// A kernel's socket that holds 3 MB, unsent for the most part, needs longer than the 20 s that a
/// silent worker is given.
#[test]
fn a_slow_path_may_take_its_time_to_carry_what_a_socket_holds() {
    if !hosts_possible() {
        return;
    }
    let runs = run("slow", "stack = \"kernel\"\nrate_mbit = 1\nsocket_buffer_bytes = 1500000\n");
    assert_eq!(runs.len(), 1);
}

#[test]
fn a_rival_shares_the_path_and_both_are_seen() {
    if !hosts_possible() {
        return;
    }
    let runs = run(
        "rivals",
        "stack = [\"kernel\", \"millstream\"]\nrival = [\"kernel\", \"millstream\"]\n\
         rate_mbit = 20\nrtt_ms = 5\nip = \"v6\"\n",
    );
    assert_eq!(runs.len(), 4);
    for run in &runs {
        let label = format!("{} {}", run.stack, run.configuration());
        let of = |key: &str| run.result(key).unwrap();
        // Bytes that the applications read in the measured second may have crossed the path before
        // it: those that waited behind a hole, or in a receive buffer. A path that does not limit
        // carries a hundred times as much.
        let together = of(keys::THROUGHPUT) + of("rival_throughput_bits_per_s");
        assert!(together < 2.0 * 20e6, "{label}: more than the path carries, {together}");
        assert!(of("rival_throughput_bits_per_s") > 0.0, "{label}");
        assert!((0.5..=1.0).contains(&of(keys::JAIN)), "{label}");
    }
}
