//! Features from the TCP connections of a run: what the sender waited for, and what lay in the
//! queues.

use millstream_record::{Probes, TcpInfoRecord};

use super::{Seen, distance};

/// Share of the bytes in one direction from which on there are no answers to speak of.
const ONE_WAY: f64 = 0.9;

/// A connection that moves less than this part of what the busiest one moves is beside the load, as
/// that of its control is.
const OF_THE_LOAD: f64 = 0.01;

/// Bytes below which what a receiver had says nothing of how it reads.
const BYTES_LEAST: f64 = 4096.0;

pub(super) fn flows(seen: &mut Seen, probes: &Probes) {
    let all = &probes.tcp_info;
    limited_by(seen, all);
    let again = all.iter().map(|one| one.fields.get("retransmits")).sum::<Option<f64>>();
    if let Some(again) = again.filter(|_| are_all_seen(probes)) {
        seen.put("own_retransmissions", again, distance::PROTOCOL);
    }
    // Connections of which two samples tell what came between.
    let watched = || all.iter().filter(|one| one.fields.get("watched_s").is_some_and(|s| *s > 0.0));
    let senders: Vec<&TcpInfoRecord> =
        watched().filter(|one| field(one, "watched_bytes_acked") > 0.0).collect();
    let receivers: Vec<&TcpInfoRecord> =
        watched().filter(|one| field(one, "watched_bytes_received") >= BYTES_LEAST).collect();
    from_senders(seen, &senders);
    let by_received = |one: &TcpInfoRecord| field(one, "watched_bytes_received");
    if let Some(unread) = mean(&receivers, "unread_share", by_received) {
        seen.put("unread_share", unread, distance::PROTOCOL);
    }
    // The window that a receiver would have offered with an empty queue. The sender's view is of
    // another moment: it may be that of a closed window beside a queue that is read.
    let windows = |name| mean(&receivers, name, by_received);
    if let (Some(window), Some(queue)) = (windows("rcv_wnd_bytes"), windows("recv_queue_bytes")) {
        seen.put("whole_window_bytes", window + queue, distance::PROTOCOL);
    }
}

/// Segments that were sent, where connections have requests and answers: of a command nothing else
/// says how many there were.
pub(super) fn segments(probes: &Probes) -> Option<f64> {
    let senders = || probes.tcp_info.iter().filter(|one| field(one, "bytes_acked") > 0.0);
    let sum = |name: &str| senders().map(|one| field(one, name)).sum::<f64>();
    let (out, back) = (sum("bytes_acked"), sum("bytes_received"));
    let sent = probes.hosts.as_ref()?.values().filter_map(|host| host.protocols.get("Tcp.OutSegs"));
    let sent = sent.map(|&rise| rise as f64).sum::<f64>();
    (out > 0.0 && out < ONE_WAY * (out + back) && sent > 0.0).then_some(sent)
}

/// Returns the 10^6 bytes that all connections have had acknowledged, if any.
pub(super) fn acked(probes: &Probes) -> Option<f64> {
    let acked: f64 = probes.tcp_info.iter().map(|one| field(one, "bytes_acked")).sum();
    (acked > 0.0).then_some(acked / super::UNIT_BYTES)
}

/// Returns true where each end of a connection that was opened in the run is among those that were
/// looked at, and there is one.
pub(super) fn are_all_seen(probes: &Probes) -> bool {
    let of_host = |host: &millstream_record::HostCounters| {
        let opened = ["Tcp.ActiveOpens", "Tcp.PassiveOpens"];
        opened.map(|name| host.protocols.get(name).copied().unwrap_or(0)).iter().sum::<i64>()
    };
    let opened: Option<i64> = probes.hosts.as_ref().map(|all| all.values().map(of_host).sum());
    let seen = probes.tcp_info.len();
    seen > 0 && opened.is_some_and(|opened| opened <= seen as i64)
}

fn field(one: &TcpInfoRecord, name: &str) -> f64 {
    one.fields.get(name).copied().unwrap_or(0.0)
}

/// The mean of a field over connections that have it, weighted by what each has moved.
fn mean(of: &[&TcpInfoRecord], name: &str, weight: impl Fn(&TcpInfoRecord) -> f64) -> Option<f64> {
    let known = of.iter().filter_map(|one| Some((one.fields.get(name)?, weight(one))));
    let (sum, weights) =
        known.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + value * weight, all + weight));
    (weights > 0.0).then(|| sum / weights)
}

/// Adds the shares of the senders' busy time in which window, buffer or network limited them, since
/// their connections began.
fn limited_by(seen: &mut Seen, all: &[TcpInfoRecord]) {
    let sum = |name: &str| -> Option<f64> {
        let known: Vec<f64> = all.iter().filter_map(|one| one.fields.get(name)).copied().collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let Some(busy) = sum("busy_s").filter(|busy| *busy > 0.0) else { return };
    let limited = ["rwnd_limited_s", "sndbuf_limited_s"].map(sum);
    for (name, limited) in ["rwnd_limited_share", "sndbuf_limited_share"].iter().zip(limited) {
        if let Some(limited) = limited {
            seen.put(*name, limited / busy, distance::PROTOCOL);
        }
    }
    if let [Some(window), Some(buffer)] = limited {
        let rest = (busy - window - buffer).max(0.0) / busy;
        seen.put("network_limited_share", rest, distance::PROTOCOL);
    }
}

fn from_senders(seen: &mut Seen, senders: &[&TcpInfoRecord]) {
    let sent = |one: &TcpInfoRecord| field(one, "watched_bytes_acked");
    let most = senders.iter().map(|one| sent(one)).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    // The ends of a connection that also receives much wait for each other.
    let out = senders.iter().map(|one| sent(one)).sum::<f64>();
    let back = senders.iter().map(|one| field(one, "watched_bytes_received")).sum::<f64>();
    seen.put("one_way_share", out / (out + back), distance::PROTOCOL);
    let is_of_load = |one: &&&TcpInfoRecord| sent(one) >= OF_THE_LOAD * most;
    let senders: Vec<&TcpInfoRecord> = senders.iter().filter(is_of_load).copied().collect();
    let sum = |of: &dyn Fn(&TcpInfoRecord) -> f64| senders.iter().map(|one| of(one)).sum::<f64>();
    let by_time = |one: &TcpInfoRecord| field(one, "watched_s");
    let time = sum(&by_time);
    let busy = (sum(&|one| field(one, "watched_busy_s")) / time).min(1.0);
    seen.put("sender_busy_share", busy, distance::PROTOCOL);
    let restarts = sum(&|one| field(one, "window_restarts"));
    seen.put("window_restarts_per_s", restarts / time, distance::PROTOCOL);
    // Kernels before 6.7 do not tell.
    let timed_out: Vec<f64> = (senders.iter())
        .filter_map(|one| one.fields.get("watched_total_rto_time_s").copied())
        .collect();
    if !timed_out.is_empty() {
        let share = (timed_out.iter().sum::<f64>() / time).min(1.0);
        seen.put("timed_out_share", share, distance::PROTOCOL);
    }
    for name in [
        "held_share",
        "send_buffer_full_share",
        "send_buffer_limits_share",
        "congestion_window_used_share",
        "queueing_share",
    ] {
        if let Some(mean) = mean(&senders, name, by_time) {
            seen.put(name, mean, distance::PROTOCOL);
        }
    }
    // Segments with data in the time of one round trip: about 1 where each waits for the one
    // before.
    let in_flight = |one: &TcpInfoRecord| {
        field(one, "watched_data_segments_sent") * field(one, "min_rtt_us") / 1e6
    };
    seen.put("segments_in_a_round_trip", sum(&in_flight) / time, distance::PROTOCOL);
    for (name, feature) in [("min_rtt_us", "least_round_trip_us"), ("srtt_us", "round_trip_us")] {
        if let Some(mean) = mean(&senders, name, sent) {
            seen.put(feature, mean, distance::PROTOCOL);
        }
    }
    // One without a limit uses none of it.
    let of_limit = |one: &TcpInfoRecord| match field(one, "max_pacing_rate_bits_per_s") {
        limit if limit > 0.0 => sent(one) * 8.0 / limit,
        _ => 0.0,
    };
    // Of the time in which there was something to send.
    seen.put("pacing_limit_used_share", sum(&of_limit) / (busy * time), distance::PROTOCOL);
    let segments = sum(&|one| field(one, "watched_data_segments_sent"));
    if segments > 0.0 {
        seen.put("segment_bytes", sum(&sent) / segments, distance::PROTOCOL);
    }
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use millstream_record::{HostCounters, RunRecord, TcpInfoRecord};

    fn of(connections: &[&[(&str, f64)]], name: &str) -> Option<f64> {
        let mut run = RunRecord::new("x");
        run.probes.times_s = vec![0.0, 2.0];
        let record = |fields: &&[(&str, f64)]| TcpInfoRecord {
            fields: fields.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..TcpInfoRecord::default()
        };
        run.probes.tcp_info = connections.iter().map(record).collect();
        let found = features(&[&run]);
        found.iter().find(|one| one.name == name).and_then(|one| one.values[0])
    }

    #[test]
    fn a_sender_that_is_seldom_busy_is_told_from_one_that_waits_for_a_window() {
        let idle = [
            ("busy_s", 0.2),
            ("rwnd_limited_s", 0.0),
            ("sndbuf_limited_s", 0.0),
            ("watched_s", 2.0),
            ("watched_busy_s", 0.2),
            ("watched_bytes_acked", 1e6),
            ("watched_data_segments_sent", 100.0),
            ("mss_bytes", 20_000.0),
            ("window_restarts", 3.0),
            ("min_rtt_us", 1000.0),
            ("retransmits", 2.0),
        ];
        let of_idle = |name| of(&[&idle], name);
        assert_eq!(of_idle("sender_busy_share"), Some(0.1));
        assert_eq!(of_idle("network_limited_share"), Some(1.0));
        assert_eq!(of_idle("one_way_share"), Some(1.0));
        assert_eq!(of_idle("window_restarts_per_s"), Some(1.5));
        assert_eq!(of_idle("segments_in_a_round_trip"), Some(0.05));
        assert_eq!(of_idle("segment_bytes"), Some(10_000.0));
        assert_eq!(of_idle("pacing_limit_used_share"), Some(0.0));
        let paced: Vec<_> = idle.into_iter().chain([("max_pacing_rate_bits_per_s", 5e7)]).collect();
        let used = of(&[&paced], "pacing_limit_used_share").unwrap();
        assert!(
            (used - 0.8).abs() < 1e-9,
            "{used}: 40 of 50 Mbit/s while it had something to send"
        );
        assert_eq!(of_idle("unread_share"), None, "was not measured");
        assert_eq!(of_idle("timed_out_share"), None, "was not measured");
        let waits = [("busy_s", 1.0), ("rwnd_limited_s", 0.7), ("sndbuf_limited_s", 0.1)];
        let of_waits = |name| of(&[&waits], name).map(|value| (value * 1e6).round() / 1e6);
        assert_eq!(of_waits("rwnd_limited_share"), Some(0.7));
        assert_eq!(of_waits("network_limited_share"), Some(0.2));
        assert_eq!(of_waits("sender_busy_share"), None, "two samples tell that");
    }

    #[test]
    fn a_connection_beside_the_load_says_nothing_of_how_busy_that_is() {
        let end = |acked, busy_s, used| {
            [
                ("watched_s", 2.0),
                ("watched_bytes_acked", acked),
                ("watched_busy_s", busy_s),
                ("congestion_window_used_share", used),
                ("watched_data_segments_sent", acked / 1000.0),
                ("min_rtt_us", 2000.0),
            ]
        };
        let (data, control) = (end(1e7, 2.0, 0.9), end(1000.0, 0.01, 0.0));
        let of_both = |name| of(&[&data, &control], name);
        for (name, value) in [
            ("sender_busy_share", 1.0),
            ("congestion_window_used_share", 0.9),
            ("segments_in_a_round_trip", 10.0),
            ("segment_bytes", 1000.0),
        ] {
            assert_eq!(of_both(name), Some(value), "{name}");
        }
        // One of two that moves a tenth is of the load.
        let slow = end(1e6, 0.2, 0.0);
        assert_eq!(of(&[&data, &slow], "sender_busy_share"), Some(0.55));
    }

    #[test]
    fn of_a_command_with_requests_and_answers_counts_are_by_segment() {
        let sleeps = |received: f64| {
            let mut run = RunRecord::new("x");
            run.probes.times_s = vec![0.0, 2.0];
            let fields = [("bytes_acked", 1000.0), ("bytes_received", received)];
            run.probes.tcp_info = vec![TcpInfoRecord {
                fields: fields.map(|(name, value)| (name.to_owned(), value)).into(),
                ..TcpInfoRecord::default()
            }];
            let mut host = HostCounters::default();
            host.protocols.insert("Tcp.OutSegs".to_owned(), 400);
            run.probes.hosts = Some([("here".to_owned(), host)].into());
            run.probes.context_switches = Some(vec![300, 100]);
            let found = features(&[&run]);
            let one = found.iter().find(|one| one.name == "context_switches_per_unit");
            one.and_then(|one| one.values[0])
        };
        assert_eq!(sleeps(1000.0), Some(1.0));
        assert_eq!(sleeps(10.0), None, "of a stream segments are no messages");
    }

    #[test]
    fn what_is_unread_counts_by_what_each_receiver_had() {
        let of_end = |received, unread| {
            [("watched_s", 1.0), ("watched_bytes_received", received), ("unread_share", unread)]
        };
        let (large, small, idle) =
            (of_end(30_000.0, 0.8), of_end(10_000.0, 0.0), of_end(10.0, 1.0));
        let found = of(&[&large, &small, &idle], "unread_share").unwrap();
        assert!((found - 0.6).abs() < 1e-9, "{found}");
    }

    #[test]
    fn what_is_sent_again_is_the_ends_own_where_all_connections_were_seen() {
        let run = |opened: i64| {
            let mut run = RunRecord::new("x");
            run.probes.times_s = vec![0.0, 2.0];
            let fields = [("retransmits".to_owned(), 2.0), ("bytes_acked".to_owned(), 3e7)];
            let end = TcpInfoRecord { fields: fields.into(), ..TcpInfoRecord::default() };
            run.probes.tcp_info = vec![end; 2];
            let mut host = HostCounters::default();
            host.protocols.insert("Tcp.ActiveOpens".to_owned(), opened);
            run.probes.hosts = Some([("here".to_owned(), host)].into());
            let found = features(&[&run]);
            found.iter().find(|one| one.name == "own_retransmissions").and_then(|one| one.values[0])
        };
        assert_eq!(run(2), Some(4.0));
        assert_eq!(run(3), None, "one was not seen");
    }
}
