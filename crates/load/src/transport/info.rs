//! Millstream's view of connections and links in the terms of the laboratory.

use std::io;

use millstream::link::{Link, LinkStats};
use millstream::tcp::{Config, TcpInfo};
use millstream::{EngineStats, LinkInfo};
use millstream_record::{EngineRecord, LinkRecord, StageRecord};

use super::{ConnInfo, LinkBytes};

/// Names as for the kernel's sockets, where both have the same quantity.
pub(super) fn conn_info(info: &TcpInfo) -> ConnInfo {
    // A field that has no value yet, or no limit, is absent.
    let pacing = (info.pacing_rate_bytes_per_s > 0)
        .then_some(("pacing_rate_bits_per_s", info.pacing_rate_bytes_per_s as f64 * 8.0));
    let ssthresh = info.ssthresh_bytes.map(|bytes| ("ssthresh_bytes", bytes as f64));
    let all = path(info).into_iter().chain(queues(info)).chain(traffic(info)).chain(loss(info));
    let fields = all.chain(pacing).chain(ssthresh);
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).collect();
    ConnInfo { congestion: Some(info.congestion.to_owned()), fields }
}

/// Returns the number of whole segments of so many bytes; the last one begun counts.
fn segments(info: &TcpInfo, bytes: u64) -> f64 {
    bytes.div_ceil(u64::from(info.snd_mss_bytes.max(1))) as f64
}

/// Time there and back, and what the path carries.
fn path(info: &TcpInfo) -> [(&'static str, f64); 14] {
    [
        ("backoff", f64::from(info.backoff)),
        ("rto_us", info.rto_us as f64),
        ("srtt_us", info.srtt_us as f64),
        ("rttvar_us", info.rttvar_us as f64),
        ("min_rtt_us", info.min_rtt_us as f64),
        ("rcv_rtt_us", info.rcv_rtt_us as f64),
        ("mss_bytes", f64::from(info.snd_mss_bytes)),
        ("rcv_mss_bytes", f64::from(info.rcv_mss_bytes)),
        ("adv_mss_bytes", f64::from(info.adv_mss_bytes)),
        ("pmtu_bytes", f64::from(info.path_mtu_bytes)),
        ("mtu_probes", f64::from(info.mtu_probes)),
        ("mtu_probes_lost", f64::from(info.mtu_probes_lost)),
        ("black_holes", f64::from(info.black_holes)),
        ("delivery_rate_bits_per_s", info.delivery_rate_bytes_per_s as f64 * 8.0),
    ]
}

/// Windows, and what lies in queues.
fn queues(info: &TcpInfo) -> [(&'static str, f64); 22] {
    let segments = |bytes| segments(info, bytes);
    [
        ("cwnd_bytes", info.cwnd_bytes as f64),
        ("unacked_segments", segments(info.unacked_bytes)),
        ("sacked_segments", segments(info.sacked_bytes)),
        ("lost_segments", segments(info.lost_bytes)),
        ("retrans_segments", segments(info.resent_bytes)),
        ("snd_wnd_bytes", info.snd_wnd_bytes as f64),
        ("rcv_wnd_bytes", info.rcv_wnd_bytes as f64),
        ("rcv_wnd_limit_bytes", info.rcv_wnd_limit_bytes as f64),
        ("rcv_space_bytes", info.rcv_space_bytes as f64),
        ("notsent_bytes", info.notsent_bytes as f64),
        ("send_queue_bytes", info.send_queue_bytes as f64),
        ("recv_queue_bytes", info.recv_queue_bytes as f64),
        ("send_memory_bytes", info.send_queue_held_bytes as f64),
        ("recv_memory_bytes", info.recv_queue_held_bytes as f64),
        ("send_queue_high_water_bytes", info.send_queue_high_water_bytes as f64),
        ("recv_queue_high_water_bytes", info.recv_queue_high_water_bytes as f64),
        ("send_limit_bytes", info.send_limit_bytes as f64),
        ("recv_limit_bytes", info.recv_limit_bytes as f64),
        ("out_of_order_bytes", info.out_of_order_bytes as f64),
        ("busy_s", info.busy_us as f64 / 1e6),
        ("rwnd_limited_s", info.rwnd_limited_us as f64 / 1e6),
        ("sndbuf_limited_s", info.sndbuf_limited_us as f64 / 1e6),
    ]
}

/// Returns the counters of bytes and segments sent and received.
fn traffic(info: &TcpInfo) -> [(&'static str, f64); 25] {
    let segments = |bytes| segments(info, bytes);
    [
        ("bytes_sent", info.bytes_sent as f64),
        ("bytes_retransmitted", info.bytes_retransmitted as f64),
        ("bytes_acked", info.bytes_acked as f64),
        ("bytes_received", info.bytes_received as f64),
        ("segments_sent", info.segments_out as f64),
        ("segments_received", info.segments_in as f64),
        ("data_segments_sent", info.data_segments_out as f64),
        ("data_segments_received", info.data_segments_in as f64),
        ("delivered_segments", segments(info.delivered_bytes)),
        ("delivered_ce_segments", segments(info.delivered_ce_bytes)),
        ("ce_segments_received", f64::from(info.ce_segments_in)),
        ("delayed_acks", f64::from(info.delayed_acks)),
        ("duplicate_acks", f64::from(info.duplicate_acks_in)),
        ("challenge_acks", f64::from(info.challenge_acks)),
        ("window_probes", f64::from(info.window_probes)),
        ("keepalives", f64::from(info.keepalives)),
        ("paws_rejected", f64::from(info.paws_rejected)),
        ("without_timestamp", f64::from(info.without_timestamp)),
        ("challenged_resets", f64::from(info.challenged_resets)),
        ("challenged_syns", f64::from(info.challenged_syns)),
        ("without_ack", f64::from(info.without_ack)),
        ("unacceptable_acks", f64::from(info.unacceptable_acks)),
        ("out_of_window", f64::from(info.out_of_window)),
        ("icmp_not_outstanding", f64::from(info.icmp_not_outstanding)),
        ("memory_drops", f64::from(info.memory_drops)),
    ]
}

/// Losses, and what was done about them.
fn loss(info: &TcpInfo) -> [(&'static str, f64); 12] {
    [
        ("retransmits", f64::from(info.retransmits)),
        ("fast_recoveries", f64::from(info.fast_recoveries)),
        ("spurious_recoveries", f64::from(info.spurious_recoveries)),
        ("ecn_reductions", f64::from(info.ecn_reductions)),
        ("loss_probes", f64::from(info.loss_probes)),
        ("total_rto", f64::from(info.timeouts)),
        ("total_rto_recoveries", f64::from(info.timeout_recoveries)),
        ("total_rto_time_s", info.timed_out_us as f64 / 1e6),
        ("dsack_dups", f64::from(info.dsacks_in)),
        ("reord_seen", f64::from(info.reorderings)),
        ("reordering_segments", info.reordering_segments as f64),
        ("out_of_order_packets", f64::from(info.out_of_order_segments)),
    ]
}

/// Returns the record of an engine: its counters, the sizes of its batches, the time of its stages,
/// and the state of its links.
pub(crate) fn engine_record(
    stats: &EngineStats,
    links: impl IntoIterator<Item = LinkInfo>,
) -> EngineRecord {
    let counters = [
        ("turns", stats.turns),
        ("idle_turns", stats.idle_turns),
        ("sleeps", stats.sleeps),
        ("rx_packets", stats.rx_packets),
        ("rx_bytes", stats.rx_bytes),
        ("tx_packets", stats.tx_packets),
        ("tx_bytes", stats.tx_bytes),
        ("tcp_rx_direct_bytes", stats.tcp_rx_direct_bytes),
        ("tcp_rx_direct_missed", stats.tcp_rx_direct_missed),
        // As records have them since there are any.
        ("tcp_tx_lent_bytes", stats.tcp_tx_zero_copy_bytes),
        ("tcp_tx_lent_copied_bytes", stats.tcp_tx_zero_copy_copied_bytes),
        ("tcp_tx_pure", stats.tcp_tx_pure),
        ("write_grants", stats.write_grants),
        ("write_starvations", stats.write_starvations),
        ("timers_fired", stats.timers_fired),
        ("dropped", stats.dropped_total()),
    ];
    let stages = stats.stages.seen().map(|(stage, time)| {
        let record = StageRecord {
            ns: time.ns,
            max_ns: time.max_ns,
            visits: time.visits,
            units: time.units,
        };
        (stage.name().to_owned(), record)
    });
    let batches = stats.batches.named();
    let drops = stats.drops_by_name().map(|(reason, n)| (format!("dropped_{reason}"), n));
    EngineRecord {
        role: String::new(),
        counters: counters.map(|(name, n)| (name.to_owned(), n)).into_iter().chain(drops).collect(),
        timed_turns: stats.stages.timed_turns(),
        stages: stages.collect(),
        batches: batches.map(|(name, sizes)| (name.to_owned(), sizes.counts().collect())).into(),
        links: links.into_iter().map(link_record).collect(),
    }
}

fn link_record(link: LinkInfo) -> LinkRecord {
    LinkRecord {
        state: link.state().to_owned(),
        mtu_bytes: link.mtu as u64,
        name: link.name,
        notes: link.notes,
        ..counted_by(link.stats, link.details)
    }
}

/// Returns the record of a link that no engine has.
pub(crate) fn bare_link_record(link: &dyn Link) -> LinkRecord {
    LinkRecord {
        name: link.name().to_owned(),
        state: if link.is_down() { "down" } else { "up" }.to_owned(),
        mtu_bytes: link.capabilities().mtu as u64,
        notes: link.notes().to_vec(),
        ..counted_by(link.stats(), link.details())
    }
}

/// The numbers of a link, and nothing else.
fn counted_by(stats: LinkStats, details: Vec<(&'static str, u64)>) -> LinkRecord {
    let counted = |(name, n): (&str, u64)| (n != 0).then(|| (name.to_owned(), n));
    LinkRecord {
        counters: stats.counters().into_iter().chain(details).filter_map(counted).collect(),
        drops: stats.drops_by_name().filter_map(counted).collect(),
        ..LinkRecord::default()
    }
}

/// Returns the bytes and packets that a link has carried.
pub(super) fn link_bytes(stats: &LinkStats) -> LinkBytes {
    LinkBytes {
        rx_bytes: stats.rx_bytes,
        rx_packets: stats.rx_packets,
        tx_bytes: stats.tx_bytes,
        tx_packets: stats.tx_packets,
    }
}

/// Fixes the buffers of connections, or leaves them to the stack.
pub(super) fn with_buffers(config: &mut Config, bytes: Option<usize>) {
    if let Some(bytes) = bytes {
        config.recv_buffer_bytes = bytes;
        config.send_buffer_bytes = bytes;
        (config.recv_auto_tune, config.send_auto_tune) = (false, false);
    }
}

/// Chooses the congestion control by the name it has on Linux.
pub(super) fn with_congestion(config: &mut Config, name: &str) -> io::Result<()> {
    config.congestion = millstream_control::named(name).ok_or(io::ErrorKind::Unsupported)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream::packet::Instant;
    use millstream::tcp::FourTuple;
    use millstream_tcp::Connection;
    use millstream_wire::tcp::SeqNumber;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    #[test]
    fn a_record_tells_what_a_link_dropped_and_noted_and_of_one_without_fault_nothing() {
        let mut engine = millstream::Engine::new(millstream::EngineConfig::default()).unwrap();
        let (near, far) = millstream::link::pair(Default::default()).unwrap();
        let id = engine.add_link(Box::new(near)).unwrap();
        engine.add_address(id, "10.9.0.1/24".parse().unwrap()).unwrap();
        let record = |engine: &millstream::Engine| EngineRecord {
            role: "near".into(),
            ..engine_record(engine.stats(), engine.inspect().links())
        };
        assert!(record(&engine).remarks().is_empty());
        // Nobody hears it.
        drop(far);
        let _ = engine.sockets().tcp_connect("10.9.0.2:9".parse().unwrap());
        engine.refresh_time();
        let now = engine.now();
        engine.turn(now);
        let mut record = record(&engine);
        let link = &mut record.links[0];
        assert_eq!(
            (link.name.as_str(), link.state.as_str(), link.mtu_bytes),
            ("pair0", "up", 1500)
        );
        assert!(link.drops["closed"] > 0 && !link.counters.contains_key("rx_packets"), "{link:?}");
        (link.state, link.notes) = ("down".into(), vec!["pair0: a note".into()]);
        let says = |what| format!("near: Millstream's link pair0 {what}");
        let expected =
            [says("was down at the end"), says("dropped packets (closed)"), "pair0: a note".into()];
        assert_eq!(record.remarks(), expected);
        let read: EngineRecord =
            serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(read, record);
    }

    #[test]
    fn what_the_kernel_says_of_a_connection_we_say_under_the_same_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let sockets = millstream_netlink::tcp_sockets(false).unwrap();
        let theirs = sockets.iter().find(|socket| socket.local_port == port).expect("the client");

        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let ends = FourTuple { local: end(1), remote: end(2) };
        let config = Config::default().pacing(true);
        let connection = Connection::connect(config, ends, SeqNumber(1), 0, Instant::ZERO);
        let ours = conn_info(&connection.info()).fields;
        // Neither has a value before anything was lost or paced.
        let optional = ["ssthresh_bytes", "pacing_rate_bits_per_s"];
        for name in theirs.fields.keys().filter(|name| !optional.contains(&name.as_str())) {
            assert!(ours.contains_key(name), "{name} is the kernel's alone");
        }
        assert!(theirs.fields.len() > 25 && ours.len() >= 65, "{ours:?}");
    }
}
