//! Features from the queueing discipline in which most waits: how long, and whose packets.

use millstream_record::{Probes, TcpInfoRecord};

use super::{Seen, distance, flows};

/// Kinds that give each flow a queue of its own, or are the sum of several: what waits there keeps
/// nobody else waiting.
const NOT_SHARED: [&str; 6] = ["cake", "fq", "fq_codel", "mq", "mqprio", "sfq"];

/// Bytes of a segment beside its payload: Ethernet, IPv4, TCP with time stamps.
const HEADERS: f64 = 66.0;

pub(super) fn way(seen: &mut Seen, probes: &Probes) {
    let own = sent_by_run(probes, |_| Some(1.0)).filter(|own| *own > 0.0);
    let looped = sent_by_run(probes, |one| one.fields.get("over_loopback_share").copied());
    let over_loopback = own.zip(looped).map(|(own, looped)| looped / own);
    if let Some(share) = over_loopback {
        seen.put("over_loopback_share", share, distance::PROTOCOL);
    }
    let Some((sent, waiting)) = fullest(probes) else { return };
    if sent <= 0.0 {
        return;
    }
    // Of a queue on another way the wait is no part of the round trip: it may be a multiple of it.
    let wait_us = waiting / sent * seen.span * 1e6;
    if let Some((round_trip_us, _)) = seen.values.get("round_trip_us").copied() {
        seen.put("queue_wait_share", wait_us / round_trip_us, distance::PROTOCOL);
    }
    // A loopback has no queue. At most so much of this one is the run's.
    let is_known = over_loopback.is_some_and(|share| share < 0.5) && flows::are_all_seen(probes);
    if let Some(own) = own.filter(|_| is_known) {
        seen.put("queue_others_share", (1.0 - own / sent).max(0.0), distance::PROTOCOL);
    }
}

/// Returns the bytes that passed the queueing discipline with most that waits, of those with one
/// queue for all, and the bytes that waited in it.
fn fullest(probes: &Probes) -> Option<(f64, f64)> {
    let table = probes.tables.get("qdiscs")?;
    let bytes = table.column("sent_bytes")?.zip(table.column("waiting_bytes")?);
    let is_shared =
        |key: &str| !key.split(' ').nth(1).is_some_and(|kind| NOT_SHARED.contains(&kind));
    bytes
        .filter(|((key, _), _)| is_shared(key))
        .map(|(sent, waiting)| (sent.1, waiting.1))
        .max_by(|one, other| one.1.total_cmp(&other.1))
}

/// Returns the bytes on the wire, in both directions, of this part of each connection of the run
/// that was seen.
fn sent_by_run(probes: &Probes, part: impl Fn(&TcpInfoRecord) -> Option<f64>) -> Option<f64> {
    let bytes = |one: &TcpInfoRecord| {
        let sent = one.fields.get("bytes_sent")? + HEADERS * one.fields.get("segments_sent")?;
        Some(sent * part(one)?)
    };
    probes.tcp_info.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use millstream_record::{
        Column, HostCounters, Key, Kind, Probes, RunRecord, Table, TcpInfoRecord,
    };

    /// A run of one connection, whose ends sent 1 MB and nothing in 1,000 segments, with an average
    /// round trip of 20 ms; beside it a queue, of which 4 MB/s passed in two seconds and 60 kB
    /// waited, and one in which each flow has its own.
    fn run() -> RunRecord {
        let mut run = RunRecord::new("x");
        let end = |sent: f64| TcpInfoRecord {
            fields: [
                ("watched_s", 2.0),
                ("watched_bytes_acked", sent),
                ("bytes_sent", sent),
                ("segments_sent", 500.0),
                ("srtt_us", 20_000.0),
                ("over_loopback_share", 0.0),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            ..TcpInfoRecord::default()
        };
        let mut host = HostCounters::default();
        for name in ["Tcp.ActiveOpens", "Tcp.PassiveOpens"] {
            host.protocols.insert(name.to_owned(), 1);
        }
        let column = |name: &'static str| Column::new(name, "bytes", Kind::Counter, "");
        let queues = Table {
            key: Key::Qdisc,
            columns: vec![column("sent_bytes"), column("waiting_bytes")],
            rows: [("a/eth0 tbf 1:", [8e6, 6e4]), ("a/eth1 fq 2:", [9e9, 1e6])]
                .map(|(name, values)| (name.to_owned(), values.to_vec()))
                .into(),
        };
        run.probes = Probes {
            times_s: vec![0.0, 2.0],
            tcp_info: vec![end(1e6), end(0.0)],
            hosts: Some([("a".to_owned(), host)].into()),
            ..Probes::default()
        };
        run.probes.tables.insert("qdiscs".to_owned(), queues);
        run
    }

    fn of(run: &RunRecord, name: &str) -> Option<f64> {
        let found = features(&[run]).into_iter().find(|one| one.name == name)?.values[0];
        found.map(|value| (value * 1e4).round() / 1e4)
    }

    #[test]
    fn a_queue_has_a_wait_of_the_round_trip_and_a_share_of_others() {
        let run = run();
        assert_eq!(of(&run, "queue_wait_share"), Some(0.75), "15 of 20 ms");
        assert_eq!(of(&run, "queue_others_share"), Some(0.8668), "all but 1.066 of 8 MB");
    }

    #[test]
    fn whose_packets_wait_is_not_told_where_some_connections_were_not_seen() {
        let mut many = run();
        let hosts = many.probes.hosts.as_mut().unwrap();
        hosts.get_mut("a").unwrap().protocols.insert("Tcp.PassiveOpens".to_owned(), 2);
        assert_eq!(of(&many, "queue_others_share"), None);
        let mut looped = run();
        for one in &mut looped.probes.tcp_info {
            one.fields.insert("over_loopback_share".to_owned(), 1.0);
        }
        assert_eq!(of(&looped, "queue_others_share"), None);
        assert_eq!(of(&looped, "over_loopback_share"), Some(1.0));
        assert_eq!(of(&run(), "over_loopback_share"), Some(0.0));
        let mut none = run();
        none.probes.tcp_info.clear();
        assert_eq!(of(&none, "queue_others_share"), None);
        assert_eq!(of(&none, "queue_wait_share"), None, "no round trip is known");
        let mut older = run();
        older.probes.tables.get_mut("qdiscs").unwrap().columns.truncate(1);
        assert_eq!(of(&older, "queue_others_share"), None, "no bytes that wait were kept");
    }
}
