//! Queues, buffers and interfaces. Counters are since the machine was started.

use std::ffi::OsString;
use std::path::Path;

use millstream_foreign::shown;

use super::{Finding, Root, finding};

use crate::Absent;
use crate::proc::stat;

type Found = Result<Vec<Finding>, Absent>;

/// Finds packets that the receive backlog of a CPU had no room for, and budgets that ended before
/// the work did.
pub(super) fn backlog(root: &Root) -> Found {
    let path = "/proc/net/softnet_stat";
    let (mut processed, mut dropped, mut squeezed) = (0u64, 0u64, 0u64);
    for line in root.text(path)?.lines() {
        let mut words = line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16));
        let (Some(Ok(one)), Some(Ok(two)), Some(Ok(three))) =
            (words.next(), words.next(), words.next())
        else {
            return Err(Absent(format!("{path}: odd line {line:?}")));
        };
        processed += one;
        dropped += two;
        squeezed += three;
    }
    let mut found = Vec::new();
    if dropped > 0 {
        found.push(finding(
            format!("{dropped} packets of {processed} found a CPU's receive backlog full"),
            "sysctl -w net.core.netdev_max_backlog=4096; spread the load over more CPUs (RPS, more queues)",
        ));
    }
    // One in a thousand packets: netdata's and Red Hat's advice is to look from the first on; that
    // is seldom harm.
    if squeezed > 0 && squeezed * 1000 > processed {
        found.push(finding(
            format!("the softirq budget ended {squeezed} times before the work did"),
            "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000",
        ));
    }
    Ok(found)
}

/// Returns a counter of `/proc/net/snmp` or `netstat`: a line of names and one of values, each with
/// the protocol before it.
fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

fn counted(root: &Root, path: &str, protocol: &str, name: &str) -> Result<u64, Absent> {
    let text = root.text(path)?;
    counter(&text, protocol, name).ok_or_else(|| Absent(format!("{path}: no {protocol}.{name}")))
}

const SNMP: &str = "/proc/net/snmp";
const NETSTAT: &str = "/proc/net/netstat";

/// A counter that should be 0: its protocol and name, what it counts as a sentence behind the
/// number, and the remedy.
type Trouble = (&'static str, &'static str, &'static str, &'static str);

/// Returns a finding for each of these counters of one file that is not 0.
fn troubles(root: &Root, path: &str, all: &[Trouble]) -> Found {
    let mut found = Vec::new();
    for (protocol, name, what, remedy) in all {
        let count = counted(root, path, protocol, name)?;
        if count > 0 {
            found.push(finding(format!("{count} {what}"), *remedy));
        }
    }
    Ok(found)
}

/// Finds datagrams that found a socket's buffer full.
pub(super) fn udp_buffers(root: &Root) -> Found {
    let received = (
        "Udp",
        "RcvbufErrors",
        "datagrams found the receive buffer of their socket full",
        "let the program ask for more (SO_RCVBUF), after sysctl -w net.core.rmem_max=8388608; read faster, or with more threads (SO_REUSEPORT)",
    );
    let sent = (
        "Udp",
        "SndbufErrors",
        "datagrams found the send buffer of their socket full",
        "let the program ask for more (SO_SNDBUF), after sysctl -w net.core.wmem_max=8388608",
    );
    troubles(root, SNMP, &[received, sent])
}

/// Finds connections that found the queue of a listening socket full.
pub(super) fn listen_queues(root: &Root) -> Found {
    let overflows = counted(root, NETSTAT, "TcpExt", "ListenOverflows")?;
    if overflows == 0 {
        return Ok(vec![]);
    }
    Ok(vec![finding(
        format!("the queue of a listening socket was full {overflows} times"),
        "sysctl -w net.core.somaxconn=4096, and a larger backlog in the program's listen(); accept faster",
    )])
}

/// Finds segments that were sent again.
pub(super) fn retransmissions(root: &Root) -> Found {
    let sent = counted(root, SNMP, "Tcp", "OutSegs")?;
    let again = counted(root, SNMP, "Tcp", "RetransSegs")?;
    // One percent: beyond it loss holds most congestion controls back. Few segments say nothing.
    if sent < 10_000 || again * 100 < sent {
        return Ok(vec![]);
    }
    Ok(vec![finding(
        format!("{:.1} % of the TCP segments were sent again", again as f64 * 100.0 / sent as f64),
        "find where they are lost: the interfaces here, nstat -az 'TcpExt*', ss -ti, the path",
    )])
}

/// Finds pressure on TCP's memory.
pub(super) fn tcp_memory(root: &Root) -> Found {
    let pressure = (
        "TcpExt",
        "TCPMemoryPressures",
        "times TCP's memory came under pressure",
        "raise net.ipv4.tcp_mem, or have fewer or smaller buffers",
    );
    let pruned = (
        "TcpExt",
        "PruneCalled",
        "times a receive queue had to be shortened for want of buffer",
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'; read faster",
    );
    troubles(root, NETSTAT, &[pressure, pruned])
}

/// Returns a name of an interface or a queue as it is shown.
fn of(name: &OsString) -> String {
    shown(name.as_encoded_bytes())
}

/// Finds packets lost at an interface, and errors.
pub(super) fn interfaces(root: &Root) -> Found {
    let folder = "/sys/class/net";
    let names = root.names(folder);
    if names.is_empty() {
        return Err(Absent(format!("{folder}: no interface")));
    }
    let mut found = Vec::new();
    for own in names.iter().filter(|name| *name != "lo") {
        let (name, statistics) = (of(own), Path::new(folder).join(own).join("statistics"));
        for (counter, remedy) in [
            (
                "rx_missed_errors",
                format!("a longer receive ring: ethtool -g {name}, ethtool -G {name} rx N"),
            ),
            (
                "rx_fifo_errors",
                format!("a longer receive ring: ethtool -g {name}, ethtool -G {name} rx N"),
            ),
            ("rx_crc_errors", "cable, transceiver or port".to_owned()),
            ("tx_carrier_errors", "cable, transceiver or port".to_owned()),
            ("collisions", format!("both ends in full duplex: ethtool {name}")),
        ] {
            if let Ok(count) = root.number(statistics.join(counter))
                && count > 0
            {
                found.push(finding(format!("{name}: {counter} {count}"), remedy));
            }
        }
    }
    Ok(found)
}

/// Finds one receive queue without RPS on a machine of several CPUs.
pub(super) fn receive_queues(root: &Root) -> Found {
    let cpus = stat::parse(&root.text("/proc/stat")?).map_err(Absent)?.len();
    let folder = "/sys/class/net";
    let mut found = Vec::new();
    if cpus < 2 {
        return Ok(found);
    }
    for own in root.names(folder) {
        let (name, at) = (of(&own), Path::new(folder).join(&own));
        // Only devices: bridges, tunnels and veth have their load elsewhere.
        if root.names(at.join("device")).is_empty() {
            continue;
        }
        let queues: Vec<String> = root.names(at.join("queues")).iter().map(of).collect();
        let queues: Vec<&String> = queues.iter().filter(|queue| queue.starts_with("rx-")).collect();
        let [queue] = queues.as_slice() else { continue };
        let mask = root.text(at.join("queues").join(queue).join("rps_cpus"))?;
        if mask.trim().bytes().all(|byte| byte == b'0' || byte == b',') {
            found.push(finding(
                format!("{name} has one receive queue for {cpus} CPUs, and no RPS: one CPU takes all its packets"),
                format!(
                    "more queues (ethtool -l {name}); or, where one CPU is full, RPS: echo MASK > {folder}/{name}/queues/{queue}/rps_cpus"
                ),
            ));
        }
    }
    Ok(found)
}

/// Finds a table of connection tracking that is nearly full.
pub(super) fn conntrack(root: &Root) -> Found {
    let count = root.number("/proc/sys/net/netfilter/nf_conntrack_count")?;
    let most = root.number("/proc/sys/net/netfilter/nf_conntrack_max")?;
    // 85 %: netdata's alarm.
    if most == 0 || count * 100 < most * 85 {
        return Ok(vec![]);
    }
    Ok(vec![finding(
        format!("{count} of {most} entries of connection tracking are in use"),
        "sysctl -w net.netfilter.nf_conntrack_max=N, or no tracking for this traffic (notrack)",
    )])
}
