//! The names and the order of results.

use std::collections::{BTreeMap, BTreeSet};

use millstream_record::{RunRecord, keys};

/// The better direction of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
    Neither,
}

/// One result as shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) key: String,
    pub(super) label: String,
    pub(super) better: Better,
    /// Drawn and put into the verdict table; the others are listed.
    pub(super) headline: bool,
}

/// Known results in the order of showing: key, label, better, headline.
const KNOWN: &[(&str, &str, Better, bool)] = &[
    (keys::THROUGHPUT, "throughput", Better::Higher, true),
    (keys::PACKETS, "datagrams", Better::Higher, true),
    (keys::TRANSACTIONS, "transactions", Better::Higher, true),
    // Outside commands; it is not known which way a figure is better.
    ("figure", "figure", Better::Neither, true),
    ("requests_per_s", "requests", Better::Higher, true),
    ("latency_us", "latency", Better::Lower, true),
    (keys::LOST, "datagrams lost", Better::Lower, true),
    (keys::WRONG_BYTES, "wrong bytes", Better::Lower, true),
    (keys::WRONG_BOUND, "wrong bytes: share not passed (95 %)", Better::Lower, false),
    (keys::LAST_OVER_FIRST, "rate, last quarter over first", Better::Higher, true),
    (keys::CPU_PER_GB, "CPU per GB, whole machine", Better::Lower, true),
    (keys::NEAR_CPU_PER_KB, "CPU per KB, near worker", Better::Lower, false),
    (keys::FAR_CPU_PER_KB, "CPU per KB, far worker", Better::Lower, false),
    (keys::CPU_PER_PACKET, "CPU per datagram, whole machine", Better::Lower, true),
    (keys::CPU_PER_TRANSACTION, "CPU per transaction, whole machine", Better::Lower, true),
    (keys::LEAST_SHARE, "least share of a stream (fair is 1)", Better::Higher, true),
    (keys::MEDIAN_SHARE, "median share of a stream (fair is 1)", Better::Neither, false),
    (keys::STREAM_JAIN, "Jain's index of the streams", Better::Higher, false),
    (keys::CPU_DISTANCE, "distance of the hosts' CPUs", Better::Neither, false),
    (keys::HALTS, "halts of idle CPUs, whole machine", Better::Neither, false),
    (keys::XCAL_PER_GB, "cross-calls per GB", Better::Lower, false),
    (keys::LATENCY_P50, "latency, median", Better::Lower, true),
    (keys::RETRANSMITTED, "retransmitted", Better::Lower, true),
    (keys::SPURIOUS, "retransmitted, in vain", Better::Lower, true),
    (keys::SHARE, "share beside the rival", Better::Neither, true),
    (keys::JAIN, "fairness, Jain's index", Better::Higher, true),
    (keys::LATENCY_P90, "latency, 90 %", Better::Lower, false),
    (keys::LATENCY_P99, "latency, 99 %", Better::Lower, true),
    (keys::LATENCY_P999, "latency, 99.9 %", Better::Lower, false),
    ("latency_mean_us", "latency, mean", Better::Lower, false),
    (keys::LATENCY_MAX, "latency, largest", Better::Lower, false),
    ("throughput_send_bits_per_s", "throughput, sent", Better::Higher, false),
    ("throughput_recv_bits_per_s", "throughput, received", Better::Higher, false),
    ("near_process_cpu_s", "CPU time, near worker", Better::Neither, false),
    ("far_process_cpu_s", "CPU time, far worker", Better::Neither, false),
    ("steal_s", "stolen time, whole machine", Better::Neither, false),
    (keys::CPU_SECONDS, "CPU time, whole machine", Better::Neither, false),
    (keys::PAYLOAD, "payload", Better::Neither, false),
    (keys::TRANSACTION_COUNT, "transactions counted", Better::Neither, false),
];

/// Results that say the same as another one of the same run and are not worth a plot beside it: the
/// bits of a request/response workload follow from its transactions, those of a router from its
/// datagrams.
const IMPLIED: &[(&str, &str)] = &[
    (keys::THROUGHPUT, keys::TRANSACTIONS),
    (keys::CPU_PER_GB, keys::TRANSACTIONS),
    (keys::THROUGHPUT, keys::CPU_PER_PACKET),
    (keys::CPU_PER_GB, keys::CPU_PER_PACKET),
];

/// The results that these runs have, known ones first.
pub(super) fn of_runs<'a>(runs: impl Iterator<Item = &'a RunRecord>) -> Vec<Metric> {
    let mut present: BTreeSet<&str> = BTreeSet::new();
    let mut before: Option<&BTreeMap<String, f64>> = None;
    for run in runs {
        // Nearly all runs have the results of the one before.
        if !before.is_some_and(|before| before.keys().eq(run.results.keys())) {
            present.extend(run.results.keys().map(String::as_str));
        }
        before = Some(&run.results);
    }
    let implied = |key: &str| IMPLIED.iter().any(|(one, by)| *one == key && present.contains(by));
    let known = KNOWN.iter().filter(|(key, ..)| present.contains(key)).map(
        |(key, label, better, headline)| Metric {
            key: (*key).into(),
            label: (*label).into(),
            better: *better,
            headline: *headline && !implied(key),
        },
    );
    let others = present.iter().filter(|key| !KNOWN.iter().any(|(known, ..)| known == *key));
    let others = others.map(|key| Metric {
        key: (*key).into(),
        label: spoken(key),
        better: Better::Neither,
        headline: false,
    });
    known.chain(others).collect()
}

/// `near_cpu_s` is "near cpu": the unit is written with the number.
fn spoken(key: &str) -> String {
    let ends = ["_bits_per_s", "_bytes_per_s", "_per_s", "_bytes", "_ns", "_us", "_ms", "_s"];
    let bare = ends.iter().find_map(|end| key.strip_suffix(end)).unwrap_or(key);
    bare.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(results: &[&str]) -> Vec<Metric> {
        let mut run = RunRecord::new("x");
        run.results = results.iter().map(|key| ((*key).to_owned(), 1.0)).collect();
        of_runs([run].iter())
    }

    #[test]
    fn known_results_come_first_and_unknown_ones_are_listed() {
        let metrics = metrics(&["near_cpu_s", "cpu_s_per_gb", "throughput_bits_per_s"]);
        let keys: Vec<_> = metrics.iter().map(|metric| metric.key.as_str()).collect();
        assert_eq!(keys, ["throughput_bits_per_s", "cpu_s_per_gb", "near_cpu_s"]);
        assert_eq!((metrics[2].label.as_str(), metrics[2].headline), ("near cpu", false));
    }

    #[test]
    fn the_figure_of_a_command_is_a_headline() {
        for key in ["figure", "requests_per_s", "latency_us"] {
            assert!(metrics(&[key])[0].headline, "{key}");
        }
    }

    #[test]
    fn the_bits_of_a_request_response_workload_are_no_headline() {
        let metrics = metrics(&["transactions_per_s", "throughput_bits_per_s"]);
        assert!(!metrics[0].headline && metrics[1].headline);
    }
}
