//! Network counters of a host, read inside its namespace: interfaces over time, protocols at the
//! ends.

use std::collections::BTreeMap;
use std::path::Path;

use millstream_netlink::{Netlink, features_off};
use millstream_record::{HostCounters, InterfaceCounters, Probes};

use super::{Absent, Host, Kind, NetSource, Probe, ProcFile, Turn};
use crate::proc::net_dev::{self, Counters};

type Interfaces = BTreeMap<String, Counters>;
type Protocols = BTreeMap<String, i64>;
type ProtocolParser = fn(&str) -> Result<Protocols, String>;

pub(super) const KIND: Kind =
    Kind { name: "hosts", open: |config| Ok(Box::new(Hosts::open(&config.hosts)?)) };

/// All hosts of an experiment; one that cannot be read ends the probe, for a comparison with half
/// of the counters misleads.
pub(super) struct Hosts {
    hosts: Vec<OneHost>,
}

/// Offloads without which each segment passes the stack by itself (ethtool).
const SEGMENTATION: &[&str] = &["tx-tcp-segmentation", "tx-generic-segmentation"];

struct OneHost {
    name: String,
    net: NetSource,
    dev: ProcFile,
    protocols: Vec<(ProcFile, ProtocolParser)>,
    mtus: BTreeMap<String, u32>,
    first: Interfaces,
    last: Interfaces,
    series: BTreeMap<String, (Vec<u64>, Vec<u64>)>,
    protocols_first: Protocols,
    protocols_last: Protocols,
    /// The interface that sent most, and whether [`SEGMENTATION`] is off there.
    segmentation_off: Option<(String, bool)>,
}

impl Hosts {
    pub(super) fn open(hosts: &[Host]) -> Result<Self, Absent> {
        if hosts.is_empty() {
            return Err(Absent("no host was named".into()));
        }
        let hosts: Result<_, _> = hosts.iter().map(OneHost::open).collect();
        Ok(Self { hosts: hosts? })
    }
}

impl Probe for Hosts {
    fn name(&self) -> &'static str {
        "hosts"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        self.hosts.iter_mut().try_for_each(|host| host.sample(turn))
    }

    fn join(&mut self, host: &Host) -> Result<(), Absent> {
        let mut one = OneHost::open(host)?;
        one.sample(Turn::First)?;
        // Steps before it was found: the load moved nothing there.
        let steps = self.hosts[0].series.values().map(|(rx, _)| rx.len()).max().unwrap_or(0);
        one.series.values_mut().for_each(|(rx, tx)| {
            rx.resize(steps, 0);
            tx.resize(steps, 0);
        });
        self.hosts.push(one);
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let hosts = self.hosts.into_iter().map(|host| (host.name.clone(), host.finish()));
        into.hosts = Some(hosts.collect());
    }
}

impl OneHost {
    fn open(host: &Host) -> Result<Self, Absent> {
        let at = |base: &str| Self::open_at(host, Path::new(base));
        let of_process;
        let inside = match &host.net {
            NetSource::Own => return Ok(Self { mtus: mtus(), ..at("/proc/thread-self/net")? }),
            NetSource::Process(pid) => {
                of_process = std::path::PathBuf::from(format!("/proc/{pid}/ns/net"));
                &of_process
            }
            NetSource::Namespace(path) => path,
        };
        let mtus = in_namespace(inside, || Ok(mtus())).unwrap_or_default();
        let opened = match &host.net {
            NetSource::Process(pid) => at(&format!("/proc/{pid}/net")),
            _ => in_namespace(inside, || at("/proc/thread-self/net")),
        }?;
        Ok(Self { mtus, ..opened })
    }

    fn open_at(host: &Host, base: &Path) -> Result<Self, Absent> {
        let mut protocols: Vec<(ProcFile, ProtocolParser)> = Vec::new();
        protocols.push((ProcFile::open(base.join("snmp"))?, parse_paired));
        protocols.push((ProcFile::open(base.join("netstat"))?, parse_paired));
        // Absent when IPv6 is switched off at boot; the other protocols still count.
        if let Ok(file) = ProcFile::open(base.join("snmp6")) {
            protocols.push((file, parse_listed));
        }
        // Absent where connections are not tracked.
        if let Ok(file) = ProcFile::open(base.join("stat/nf_conntrack")) {
            protocols.push((file, parse_by_cpu));
        }
        Ok(Self {
            name: host.name.clone(),
            net: host.net.clone(),
            dev: ProcFile::open(base.join("dev"))?,
            protocols,
            mtus: BTreeMap::new(),
            first: Interfaces::new(),
            last: Interfaces::new(),
            series: BTreeMap::new(),
            protocols_first: Protocols::new(),
            protocols_last: Protocols::new(),
            segmentation_off: None,
        })
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        let now = self.dev.parse(net_dev::parse)?;
        if turn == Turn::First {
            self.series = now.keys().map(|name| (name.clone(), Default::default())).collect();
            self.first = now.clone();
        } else {
            for (name, (rx, tx)) in &mut self.series {
                // A removed interface has no line: nothing rises any more.
                let before = self.last.get(name).copied().unwrap_or_default();
                let now = now.get(name).copied().unwrap_or(before);
                let risen = now.since(&before);
                rx.push(risen.rx.bytes);
                tx.push(risen.tx.bytes);
            }
        }
        self.last.extend(now);
        if turn == Turn::Last {
            self.segmentation_off = self.segmentation();
        }
        if turn != Turn::Middle {
            let mut all = Protocols::new();
            for (file, parser) in &mut self.protocols {
                all.extend(file.parse(parser)?);
            }
            let place = if turn == Turn::First {
                &mut self.protocols_first
            } else {
                &mut self.protocols_last
            };
            *place = all;
        }
        Ok(())
    }

    /// Asks now, as a command may set it before it moves anything.
    fn segmentation(&self) -> Option<(String, bool)> {
        let sent = |(name, now): &(&String, &Counters)| {
            now.since(&self.first.get(*name).copied().unwrap_or_default()).tx.bytes
        };
        let most = self.last.iter().max_by_key(sent)?.0.clone();
        let ask = || features_off(&most, SEGMENTATION).map_err(|error| Absent(error.to_string()));
        let off = inside(&self.net, ask).ok()?;
        Some((most, !off.is_empty()))
    }

    fn finish(self) -> HostCounters {
        let Self {
            name: _,
            net: _,
            dev: _,
            protocols: _,
            mtus,
            first,
            last,
            mut series,
            protocols_first,
            protocols_last,
            segmentation_off,
        } = self;
        let interfaces = last.into_iter().map(|(name, now)| {
            let before = first.get(&name).copied().unwrap_or_default();
            let risen = now.since(&before);
            let (rx_bytes_series, tx_bytes_series) = series.remove(&name).unwrap_or_default();
            let mtu_bytes = mtus.get(&name).copied().unwrap_or(0);
            let counters = interface(risen, rx_bytes_series, tx_bytes_series);
            let segmentation_off =
                segmentation_off.as_ref().filter(|(of, _)| *of == name).map(|(_, is_off)| *is_off);
            (name, InterfaceCounters { mtu_bytes, segmentation_off, ..counters })
        });
        let changed = protocols_last.into_iter().filter_map(|(name, now)| {
            let change = now.wrapping_sub(protocols_first.get(&name).copied().unwrap_or(0));
            (change != 0).then_some((name, change))
        });
        HostCounters { interfaces: interfaces.collect(), protocols: changed.collect() }
    }
}

fn interface(
    risen: Counters,
    rx_bytes_series: Vec<u64>,
    tx_bytes_series: Vec<u64>,
) -> InterfaceCounters {
    let Counters { rx, tx } = risen;
    InterfaceCounters {
        rx_bytes: rx.bytes,
        rx_packets: rx.packets,
        rx_errors: rx.errors,
        rx_dropped: rx.dropped,
        rx_fifo: rx.fifo,
        tx_bytes: tx.bytes,
        tx_packets: tx.packets,
        tx_errors: tx.errors,
        tx_dropped: tx.dropped,
        tx_fifo: tx.fifo,
        mtu_bytes: 0,
        segmentation_off: None,
        rx_bytes_series,
        tx_bytes_series,
    }
}

/// MTUs of the interfaces of the namespace that the calling thread is in; none where they cannot be
/// asked for.
fn mtus() -> BTreeMap<String, u32> {
    let listed = Netlink::route().and_then(|mut netlink| netlink.interfaces());
    listed.unwrap_or_default().into_iter().map(|one| (one.name, one.mtu)).collect()
}

/// Runs `work` in the namespace of a host, in a thread of its own where that is another.
pub fn inside<T: Send>(
    net: &NetSource,
    work: impl FnOnce() -> Result<T, Absent> + Send,
) -> Result<T, Absent> {
    match net {
        NetSource::Own => work(),
        NetSource::Process(pid) => in_namespace(format!("/proc/{pid}/ns/net").as_ref(), work),
        NetSource::Namespace(path) => in_namespace(path, work),
    }
}

/// Runs `work` in a thread of its own that has entered the namespace behind `path`; the caller's
/// namespace stays as it is. What is opened there stays bound to that namespace.
pub(crate) fn in_namespace<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, Absent> + Send,
) -> Result<T, Absent> {
    let because = |what: &str| Absent(format!("{}: {what}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| because(&error.to_string()))?;
    let enter = || {
        nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET)
            .map_err(|error| because(&format!("cannot enter: {}", error.desc())))?;
        work()
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(enter);
        thread.join().unwrap_or_else(|_| Err(because("the thread inside it panicked")))
    })
}

/// `/proc/net/snmp` and `netstat`: a line of names and a line of values, both after the protocol.
/// A later kernel's longer line of names without values for all of them counts as far as it goes.
pub(super) fn parse_paired(text: &str) -> Result<Protocols, String> {
    let mut counters = Protocols::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (protocol, names) =
            names.split_once(':').ok_or_else(|| format!("odd line {names:?}"))?;
        let values = values.strip_prefix(protocol).and_then(|rest| rest.strip_prefix(':'));
        let values = values.ok_or_else(|| format!("no values for {protocol}"))?;
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            // Values above the signed range occur in no counter that has been seen; keep the bits.
            let number =
                value.parse::<i64>().or_else(|_| value.parse::<u64>().map(|number| number as i64));
            let number =
                number.map_err(|_| format!("odd number {value:?} for {protocol}.{name}"))?;
            counters.insert(format!("{protocol}.{name}"), number);
        }
    }
    Ok(counters)
}

/// `/proc/net/snmp6`: `Ip6InReceives 1` becomes `Ip6.InReceives`.
pub(super) fn parse_listed(text: &str) -> Result<Protocols, String> {
    let mut counters = Protocols::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            return Err(format!("odd line {line:?}"));
        };
        let value = value.parse::<u64>().map_err(|_| format!("odd number {value:?} for {name}"))?;
        let end = name.find('6').map_or(0, |at| at + 1);
        let name =
            if end == 0 { name.to_owned() } else { format!("{}.{}", &name[..end], &name[end..]) };
        counters.insert(name, value as i64);
    }
    Ok(counters)
}

/// `/proc/net/stat/nf_conntrack`: a line of names and a line of hexadecimal values for each CPU;
/// `drop` becomes `Conntrack.drop`. The number of entries is the same in each line, and no counter.
pub(super) fn parse_by_cpu(text: &str) -> Result<Protocols, String> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().ok_or("empty")?.split_ascii_whitespace().collect();
    let mut counters = Protocols::new();
    for line in lines {
        for (name, word) in names.iter().zip(line.split_ascii_whitespace()) {
            let value =
                u64::from_str_radix(word, 16).map_err(|_| format!("odd number {word:?}"))?;
            let sum = counters.entry(format!("Conntrack.{name}")).or_insert(0);
            *sum = sum.wrapping_add(value as i64);
        }
    }
    counters.remove("Conntrack.entries");
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_pair_names_with_values() {
        let counters = parse_paired(include_str!("samples/snmp.txt")).unwrap();
        assert_eq!(counters["Tcp.MaxConn"], -1);
        assert_eq!(counters["Tcp.RetransSegs"], 12);
        assert_eq!(counters["Ip.ForwDatagrams"], 0);
        assert!(parse_paired("Tcp: A B\nUdp: 1 2\n").is_err());
        assert!(parse_paired("Tcp: A\nTcp: x\n").is_err());
        assert_eq!(parse_paired("Tcp: A B C\nTcp: 1 2\n").unwrap().len(), 2);
        assert_eq!(parse_paired("").unwrap().len(), 0);
    }

    #[test]
    fn counters_by_cpu_are_added_up() {
        let text = "entries  found insert_failed drop\n0000000a 1 2 0000000f\n0000000a 0 1 1\n";
        let counters = parse_by_cpu(text).unwrap();
        let expected = [("found", 1), ("insert_failed", 3), ("drop", 16)];
        let expected = expected.map(|(name, value)| (format!("Conntrack.{name}"), value));
        assert_eq!(counters, expected.into());
        assert!(parse_by_cpu("").is_err() && parse_by_cpu("drop\nx\n").is_err());
    }

    #[test]
    fn listed_counters_get_their_protocol() {
        let text = "Ip6InReceives                   \t1\nIcmp6OutMsgs 7\nUdpLite6InErrors 0\n";
        let counters = parse_listed(text).unwrap();
        assert_eq!((counters["Ip6.InReceives"], counters["Icmp6.OutMsgs"]), (1, 7));
        assert!(parse_listed("Ip6InReceives\n").is_err());
    }

    #[test]
    fn bytes_over_the_loopback_are_seen_in_the_own_namespace() {
        use std::net::UdpSocket;
        let hosts = [Host { name: "here".into(), net: NetSource::Own }];
        let mut probe = Box::new(Hosts::open(&hosts).unwrap());
        probe.sample(Turn::First).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        probe.sample(Turn::Last).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        let here = &probes.hosts.unwrap()["here"];
        assert!(here.interfaces["lo"].tx_bytes >= 1000);
        assert!(here.interfaces["lo"].tx_bytes_series[0] >= 1000);
        assert!(here.protocols["Udp.OutDatagrams"] >= 1);
    }

    #[test]
    fn another_namespace_is_seen_from_outside_and_after_its_process() {
        use std::sync::mpsc;
        let (tell, hear) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let inside = std::thread::spawn(move || {
            let entered = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
            tell.send(entered.map(|()| nix::unistd::gettid())).unwrap();
            let _ = wait.recv();
        });
        let thread = match hear.recv().unwrap() {
            Ok(thread) => thread,
            Err(error) => return eprintln!("skipped: no new network namespace: {}", error.desc()),
        };
        let path = format!("/proc/self/task/{thread}/ns/net");
        let hosts = [Host { name: "there".into(), net: NetSource::Namespace(path.into()) }];
        let mut probe = Box::new(Hosts::open(&hosts).unwrap());
        probe.sample(Turn::First).unwrap();
        drop(end);
        inside.join().unwrap();
        probe.sample(Turn::Last).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        let there = &probes.hosts.unwrap()["there"];
        assert_eq!(there.interfaces["lo"].rx_bytes, 0, "its own loopback, not ours");
        assert!(there.interfaces.keys().all(|name| !name.starts_with("eth")), "no device of ours");
    }

    #[test]
    fn a_namespace_that_is_none_is_absent() {
        let hosts =
            [Host { name: "x".into(), net: NetSource::Namespace("/proc/self/status".into()) }];
        assert!(Hosts::open(&hosts).err().unwrap().0.contains("cannot enter"));
        let hosts = [Host { name: "x".into(), net: NetSource::Process(u32::MAX) }];
        assert!(Hosts::open(&hosts).is_err());
        assert!(Hosts::open(&[]).is_err());
    }
}
