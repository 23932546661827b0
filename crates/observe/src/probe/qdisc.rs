//! Counters of the hosts' queueing disciplines, by netlink.

use std::collections::BTreeMap;

use millstream_netlink::{Netlink, Qdisc};
use millstream_record::Kind::{Counter, Level, Share, Trouble};
use millstream_record::{Column, Key, Probes, Table};

use super::host::inside;
use super::{Absent, Host, Kind, Probe, Turn, rise32};

pub(super) const KIND: Kind =
    Kind { name: "qdiscs", open: |config| Ok(Box::new(Qdiscs::open(&config.hosts)?)) };

static COLUMNS: [Column; 7] = [
    Column::new("sent", "packets", Counter, "Packets that it let through."),
    Column::part("dropped", "packets", Trouble, "sent", "Packets that it dropped."),
    Column::new(
        "overlimits",
        "",
        Trouble,
        "Times that a packet had to wait for its turn by a rate.",
    ),
    Column::new("requeues", "packets", Trouble, "Packets that the device gave back."),
    Column::part(
        "waiting",
        "",
        Share,
        "overlimits",
        "Share of the samples in which packets waited.",
    ),
    Column::new("sent_bytes", "bytes", Counter, "Bytes that it let through, with headers."),
    Column::new("waiting_bytes", "bytes", Level, "Bytes that waited, the mean of the samples."),
];

/// The hosts with a connection to the kernel in the namespace of each.
pub(super) struct Qdiscs {
    hosts: Vec<(String, Netlink)>,
    first: BTreeMap<String, Qdisc>,
    last: BTreeMap<String, Qdisc>,
    samples: usize,
    /// Samples in which packets waited, and the bytes that waited in all samples.
    waiting: BTreeMap<String, (usize, f64)>,
}

impl Qdiscs {
    pub(super) fn open(hosts: &[Host]) -> Result<Self, Absent> {
        let refused = |error: std::io::Error| Absent(format!("rtnetlink: {error}"));
        let open = || Netlink::route().map_err(refused);
        let opened = hosts.iter().map(|host| Ok((host.name.clone(), inside(&host.net, open)?)));
        Ok(Self {
            hosts: opened.collect::<Result<_, Absent>>()?,
            first: BTreeMap::new(),
            last: BTreeMap::new(),
            samples: 0,
            waiting: BTreeMap::new(),
        })
    }

    fn read(&mut self) -> Result<BTreeMap<String, Qdisc>, Absent> {
        let mut all = BTreeMap::new();
        for (host, netlink) in &mut self.hosts {
            let found = netlink.qdiscs().map_err(|error| Absent(format!("rtnetlink: {error}")))?;
            all.extend(found.into_iter().map(|(name, one)| (format!("{host}/{name}"), one)));
        }
        Ok(all)
    }
}

impl Probe for Qdiscs {
    fn name(&self) -> &'static str {
        "qdiscs"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        let now = self.read()?;
        if turn == Turn::First {
            self.first = now;
            return Ok(());
        }
        self.samples += 1;
        for (name, one) in now.iter().filter(|(_, one)| one.waiting_packets > 0) {
            let (samples, bytes) = self.waiting.entry(name.clone()).or_default();
            *samples += 1;
            *bytes += f64::from(one.waiting_bytes);
        }
        self.last.extend(now);
        Ok(())
    }

    fn join(&mut self, host: &Host) -> Result<(), Absent> {
        let mut joined = Self::open(std::slice::from_ref(host))?;
        joined.sample(Turn::First)?;
        self.first.extend(joined.first);
        self.hosts.append(&mut joined.hosts);
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { hosts: _, first, last, samples, waiting } = *self;
        let row = |(name, now): (String, Qdisc)| {
            let before = first.get(&name).copied().unwrap_or_default();
            let counts = |of: &Qdisc| [of.sent_packets, of.drops, of.overlimits, of.requeues];
            let risen = counts(&before).into_iter().zip(counts(&now));
            let risen = risen.map(|(before, now)| rise32(before.into(), now.into()) as f64);
            let (waited, bytes) = waiting.get(&name).copied().unwrap_or_default();
            let [waited, bytes] = [waited as f64, bytes].map(|sum| sum / samples.max(1) as f64);
            let sent = now.sent_bytes.saturating_sub(before.sent_bytes) as f64;
            (name, risen.chain([waited, sent, bytes]).collect())
        };
        let rows = last.into_iter().map(row).collect();
        let table = Table { key: Key::Qdisc, columns: COLUMNS.to_vec(), rows };
        into.tables.insert("qdiscs".to_owned(), table);
    }
}

#[cfg(test)]
mod tests {
    use super::super::NetSource;
    use super::*;

    #[test]
    fn what_rose_is_kept_by_discipline_with_how_often_packets_waited() {
        let of = |sent_packets, sent_bytes, overlimits| Qdisc {
            sent_packets,
            sent_bytes,
            overlimits,
            ..Qdisc::default()
        };
        let named = |one| [("a/eth0 tbf 1:".to_owned(), one)].into();
        let probe = Qdiscs {
            hosts: vec![],
            first: named(of(u32::MAX, 100, 5)),
            last: named(of(9, 5100, 7)),
            samples: 4,
            waiting: [("a/eth0 tbf 1:".to_owned(), (3, 8000.0))].into(),
        };
        let mut probes = Probes::default();
        Box::new(probe).finish(&mut probes);
        let found = &probes.tables["qdiscs"].rows[0].1;
        assert_eq!(
            found[..],
            [10.0, 0.0, 2.0, 0.0, 0.75, 5000.0, 2000.0],
            "counters of 32 bits wrap"
        );
    }

    #[test]
    fn the_own_namespace_is_read() {
        let here = [Host { name: "here".into(), net: NetSource::Own }];
        let mut probe = Qdiscs::open(&here).unwrap();
        probe.sample(Turn::First).unwrap();
        probe.sample(Turn::Last).unwrap();
        assert!(probe.last.keys().all(|name| name.starts_with("here/")), "{:?}", probe.last);
    }
}
