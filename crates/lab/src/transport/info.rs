//! Millstream's view of connections and links in the terms of the laboratory.

use std::collections::BTreeMap;
use std::io;

use millstream::EngineStats;
use millstream::link::LinkStats;
use millstream::tcp::{Config, CongestionKind, TcpInfo};

use super::ConnInfo;
use crate::record::{EngineRecord, StageRecord};
use crate::worker::LinkBytes;

/// Names as for the kernel's sockets, where both have the same quantity.
pub(super) fn conn_info(info: &TcpInfo) -> ConnInfo {
    let table = [
        ("rto_us", info.rto_us as f64),
        ("srtt_us", info.srtt_us as f64),
        ("rttvar_us", info.rttvar_us as f64),
        ("min_rtt_us", info.min_rtt_us as f64),
        ("mss_bytes", f64::from(info.snd_mss_bytes)),
        ("cwnd_bytes", info.cwnd_bytes as f64),
        ("snd_wnd_bytes", info.snd_wnd_bytes as f64),
        ("rcv_wnd_bytes", info.rcv_wnd_bytes as f64),
        ("notsent_bytes", info.notsent_bytes as f64),
        ("send_queue_bytes", info.send_queue_bytes as f64),
        ("recv_queue_bytes", info.recv_queue_bytes as f64),
        ("send_limit_bytes", info.send_limit_bytes as f64),
        ("recv_limit_bytes", info.recv_limit_bytes as f64),
        ("bytes_sent", info.bytes_sent as f64),
        ("bytes_retransmitted", info.bytes_retransmitted as f64),
        ("bytes_acked", info.bytes_acked as f64),
        ("bytes_received", info.bytes_received as f64),
        ("segments_sent", info.segments_out as f64),
        ("segments_received", info.segments_in as f64),
        ("retransmits", f64::from(info.retransmits)),
        ("data_segments_sent", info.data_segments_out as f64),
        ("dsack_dups", f64::from(info.dsacks_in)),
        ("spurious_recoveries", f64::from(info.spurious_recoveries)),
        ("loss_probes", f64::from(info.loss_probes)),
        ("reorderings", f64::from(info.reorderings)),
        ("timeouts", f64::from(info.timeouts)),
        ("fast_recoveries", f64::from(info.fast_recoveries)),
        ("delayed_acks", f64::from(info.delayed_acks)),
        ("duplicate_acks", f64::from(info.duplicate_acks_in)),
        ("out_of_order_packets", f64::from(info.out_of_order_segments)),
        ("memory_drops", f64::from(info.memory_drops)),
        ("busy_s", info.busy_us as f64 / 1e6),
        ("rwnd_limited_s", info.rwnd_limited_us as f64 / 1e6),
        ("sndbuf_limited_s", info.sndbuf_limited_us as f64 / 1e6),
    ];
    let mut fields: BTreeMap<String, f64> =
        table.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if info.ssthresh_bytes != u64::MAX {
        fields.insert("ssthresh_bytes".to_owned(), info.ssthresh_bytes as f64);
    }
    ConnInfo { congestion: Some(info.congestion.to_owned()), fields }
}

/// What an engine counted, how large its batches were and where its time went.
pub(super) fn engine_record(stats: &EngineStats) -> EngineRecord {
    let counters = [
        ("turns", stats.turns),
        ("idle_turns", stats.idle_turns),
        ("sleeps", stats.sleeps),
        ("rx_packets", stats.rx_packets),
        ("rx_bytes", stats.rx_bytes),
        ("tx_packets", stats.tx_packets),
        ("tx_bytes", stats.tx_bytes),
        ("tcp_rx_merged", stats.tcp_rx_merged),
        ("tcp_rx_direct_bytes", stats.tcp_rx_direct_bytes),
        ("tcp_tx_pure", stats.tcp_tx_pure),
        ("write_grants", stats.write_grants),
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
    EngineRecord {
        role: String::new(),
        counters: counters.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        timed_turns: stats.stages.timed_turns(),
        stages: stages.collect(),
        batches: batches.map(|(name, sizes)| (name.to_owned(), sizes.counts().collect())).into(),
    }
}

/// What a link has carried.
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
        config.auto_tune = false;
    }
}

/// Chooses the congestion control by the name it has on Linux.
pub(super) fn with_congestion(config: &mut Config, name: &str) -> io::Result<()> {
    use CongestionKind::{Bbr, Bbr1, Cubic, NewReno};
    let kind = [Cubic, NewReno, Bbr, Bbr1].into_iter().find(|kind| kind.name() == name);
    config.congestion = kind.ok_or(io::ErrorKind::Unsupported)?;
    Ok(())
}
