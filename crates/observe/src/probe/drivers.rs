//! Counters that the drivers of the hosts' interfaces have beside those of every interface
//! (`ethtool -S`): by queue, and by reason of a drop.

use std::collections::BTreeMap;

use millstream_link::netdev::DriverStatistics;
use millstream_netlink::Netlink;
use millstream_record::{Measured, Probes};

use super::host::inside;
use super::{Absent, Config, Host, Kind, Probe, Turn, rise};

const NAME: &str = "drivers";

pub(super) const KIND: Kind =
    Kind { name: NAME, open: |config: &Config| Ok(Box::new(Drivers::open(&config.hosts)?)) };

struct Drivers {
    interfaces: Vec<Interface>,
    absent: BTreeMap<String, String>,
}

struct Interface {
    /// Host and interface.
    name: String,
    statistics: DriverStatistics,
    first: Vec<u64>,
    last: Vec<u64>,
}

/// The interfaces of the calling thread's namespace, each with its counters or why there are none.
type Found = Vec<(String, Result<DriverStatistics, String>)>;

impl Drivers {
    fn open(hosts: &[Host]) -> Result<Self, Absent> {
        let (mut interfaces, mut absent) = (Vec::new(), BTreeMap::new());
        for host in hosts {
            for (interface, statistics) in inside(&host.net, find)? {
                let name = format!("{}/{interface}", host.name);
                match statistics {
                    Ok(statistics) => {
                        let (first, last) = (Vec::new(), Vec::new());
                        interfaces.push(Interface { name, statistics, first, last });
                    }
                    Err(why) => drop(absent.insert(format!("{NAME} of {name}"), why)),
                }
            }
        }
        match interfaces.is_empty() {
            true => Err(Absent("no interface has a driver that counts on its own".to_owned())),
            false => Ok(Self { interfaces, absent }),
        }
    }
}

/// Without the loopback, which has no driver.
fn find() -> Result<Found, Absent> {
    let refused = |error: std::io::Error| Absent(format!("rtnetlink: {error}"));
    let listed = Netlink::route().and_then(|mut netlink| netlink.interfaces()).map_err(refused)?;
    let names = listed.into_iter().map(|one| one.name).filter(|name| name != "lo");
    let open = |name: String| {
        let statistics = DriverStatistics::open(&name).map_err(|error| error.to_string());
        (name, statistics)
    };
    Ok(names.map(open).collect())
}

impl Probe for Drivers {
    fn name(&self) -> &'static str {
        NAME
    }

    /// An interface that goes away is told of, and the others go on.
    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        if turn == Turn::Middle {
            return Ok(());
        }
        let absent = &mut self.absent;
        self.interfaces.retain_mut(|one| match one.statistics.read() {
            Ok(values) => {
                let place = if turn == Turn::First { &mut one.first } else { &mut one.last };
                *place = values.to_vec();
                true
            }
            Err(error) => {
                absent.insert(format!("{NAME} of {}", one.name), error.to_string());
                false
            }
        });
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let mut measured = BTreeMap::new();
        let mut busiest: Option<(u64, String, f64)> = None;
        for one in &self.interfaces {
            let (counts, queues) = risen(one.statistics.names(), &one.first, &one.last);
            let key = |name: &str| format!("{}/{name}", one.name);
            measured.extend(counts.into_iter().map(|(name, value)| (key(&name), value)));
            if let Some((packets, share)) = queues
                && busiest.as_ref().is_none_or(|(most, ..)| packets > *most)
            {
                busiest = Some((packets, key("busiest_receive_queue_share"), share));
            }
        }
        // An interface on which hardly anything comes has it all in one queue.
        if let Some((_, name, share)) = busiest {
            measured.insert(name, Measured::Level(share));
        }
        into.measured.insert(NAME.to_owned(), measured);
        into.absent.extend(self.absent);
    }
}

/// Returns the counters that rose, by name; with several receive queues their packets, and the
/// share of the busiest one.
fn risen(
    names: &[String],
    first: &[u64],
    last: &[u64],
) -> (BTreeMap<String, Measured>, Option<(u64, f64)>) {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for ((name, first), last) in names.iter().zip(first).zip(last) {
        *sums.entry(name).or_default() += rise(*first, *last);
    }
    let queues = sums.iter().filter(|(name, _)| is_packets_of_a_receive_queue(name));
    let queues: Vec<u64> = queues.map(|(_, count)| *count).collect();
    let all: u64 = queues.iter().sum();
    let busiest = queues.iter().max().filter(|_| queues.len() > 1 && all > 0);
    let busiest = busiest.map(|most| (all, *most as f64 / all as f64));
    let counts = sums.into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(name, count)| (name.to_owned(), Measured::Count(count as f64)));
    (counts.collect(), busiest)
}

/// Drivers call them `rx_queue_3_packets`, `rx3_packets`, `rx-3.packets`.
fn is_packets_of_a_receive_queue(name: &str) -> bool {
    let rest = name.strip_prefix("rx").and_then(|rest| rest.strip_suffix("packets"));
    let rest = rest.map(|rest| rest.replace("queue", ""));
    rest.is_some_and(|rest| {
        let number = rest.trim_matches(['_', '-', '.', ' ', '[', ']']);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::NetSource;

    #[test]
    fn what_rose_is_kept_and_the_share_of_the_busiest_queue() {
        let names =
            ["rx_queue_0_packets", "rx_queue_1_packets", "rx_drops", "tx_timeout", "rx_drops"];
        let names = names.map(str::to_owned);
        let found = risen(&names, &[10, 20, 1, 7, 2], &[40, 30, 3, 7, 3]);
        let expected = [
            ("rx_drops", Measured::Count(3.0)),
            ("rx_queue_0_packets", Measured::Count(30.0)),
            ("rx_queue_1_packets", Measured::Count(10.0)),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(found, (expected, Some((40, 0.75))));
        assert_eq!(risen(&names[..1], &[1], &[9]).1, None, "one queue has no share");
    }

    #[test]
    fn queues_are_known_by_the_names_that_drivers_give_them() {
        for name in
            ["rx_queue_0_packets", "rx12_packets", "rx-3.packets", "rx_4_packets", "rx[7]packets"]
        {
            assert!(is_packets_of_a_receive_queue(name), "{name}");
        }
        for name in
            ["rx_packets", "rx_queue_0_xdp_packets", "tx_queue_0_packets", "rx_csum_packets"]
        {
            assert!(!is_packets_of_a_receive_queue(name), "{name}");
        }
    }

    #[test]
    fn the_own_namespace_is_read_or_says_why_not() {
        let here = [Host { name: "here".into(), net: NetSource::Own }];
        let mut probe = match Drivers::open(&here) {
            Ok(probe) => Box::new(probe),
            Err(why) => return assert!(why.0.contains("no interface has a driver"), "{why}"),
        };
        probe.sample(Turn::First).unwrap();
        probe.sample(Turn::Last).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        assert!(probes.measured[NAME].keys().all(|name| name.starts_with("here/")), "{probes:?}");
    }
}
