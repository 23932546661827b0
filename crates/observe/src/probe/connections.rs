//! The TCP connections of a load, end by end, and who opens how many.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use millstream_netlink::{InetSocket, TcpCounters};
use millstream_record::{Column, Key, Kind, SharedAddress, Table};

use super::limits;
use crate::bpf::Opener;

/// Columns of an end.
const WIDTH: usize = 9;
const COLUMNS: [Column; WIDTH] = [
    Column::new("sent", "bytes", Kind::Counter, "Bytes that the other end has acknowledged."),
    Column::new("received", "bytes", Kind::Counter, "Bytes that came in order."),
    Column::new("round_trip", "us", Kind::Level, "Smoothed round trip, as last seen."),
    Column::new("congestion_window", "bytes", Kind::Level, "Bytes that it may have on their way."),
    Column::new("peer_window", "bytes", Kind::Level, "Bytes that the other end offers to take."),
    Column::new("sent_again", "segments", Kind::Trouble, "Segments that were sent once more."),
    Column::new("busy", "us", Kind::Counter, "Time with something on its way."),
    Column::new(
        "peer_limits",
        "us",
        Kind::Counter,
        "The part in which the peer's window had no room.",
    ),
    Column::new(
        "buffer_limits",
        "us",
        Kind::Counter,
        "The part in which the send buffer had no room.",
    ),
];
/// Columns of which the rest together has a sum; of the others it has the mean.
const SUMMED: [usize; 3] = [0, 1, 5];

/// The ends that were seen, by their addresses.
#[derive(Default)]
pub(super) struct Connections {
    seen: BTreeMap<(SocketAddr, SocketAddr), Seen>,
    looks: usize,
    more: usize,
}

/// An end: its process, and its counters when it was seen first and last.
struct Seen {
    process: Option<u32>,
    first: TcpCounters,
    last: TcpCounters,
}

impl Connections {
    /// Begins a look. An end that the first look sees may have been there before.
    pub(super) fn begin(&mut self) {
        self.looks += 1;
    }

    /// Takes what is seen of an end. One that is closing has no counters any more, and keeps those
    /// that it had.
    pub(super) fn take(&mut self, socket: &InetSocket, process: Option<u32>) {
        let Some(now) = socket.tcp.filter(|_| socket.remote.port() != 0) else { return };
        let first = if self.looks == 1 { now } else { TcpCounters::default() };
        let ends = (socket.local, socket.remote);
        if let Some(seen) = self.seen.get_mut(&ends) {
            seen.last = now;
            seen.process = seen.process.or(process);
        } else if self.seen.len() < limits::FLOWS_SEEN {
            self.seen.insert(ends, Seen { process, first, last: now });
        } else {
            self.more += 1;
        }
    }

    /// Returns the table of those that an end of which `is_meant` has, most bytes first, and the
    /// rest together. `named` gives the name of a process with its role.
    pub(super) fn table(
        &self,
        is_meant: impl Fn(u32) -> bool,
        named: impl Fn(u32) -> String,
    ) -> Option<Table> {
        let process =
            |ends: &(SocketAddr, SocketAddr)| self.seen.get(ends).and_then(|one| one.process);
        let mut rows: Vec<(String, [f64; WIDTH])> = Vec::new();
        for (&(local, remote), seen) in &self.seen {
            let both = [process(&(local, remote)), process(&(remote, local))];
            if both.iter().flatten().any(|one| is_meant(*one)) {
                let end = |(process, address): (Option<u32>, SocketAddr)| match process {
                    Some(process) => format!("{} {address}", named(process)),
                    None => address.to_string(),
                };
                let [near, far] = [(both[0], local), (both[1], remote)].map(end);
                rows.push((format!("{near} → {far}"), seen.values()));
            }
        }
        let moved = |values: &[f64]| values[0] + values[1];
        rows.sort_by(|a, b| moved(&b.1).total_cmp(&moved(&a.1)));
        let rest = rows.split_off(rows.len().min(limits::CONNECTIONS));
        if !rest.is_empty() {
            let value = |at: usize| {
                let sum: f64 = rest.iter().map(|(_, values)| values[at]).sum();
                if SUMMED.contains(&at) { sum } else { sum / rest.len() as f64 }
            };
            rows.push((
                format!("{} more ends", rest.len() + self.more),
                std::array::from_fn(value),
            ));
        }
        let rows: Vec<_> = rows.into_iter().map(|(key, values)| (key, values.to_vec())).collect();
        let columns = COLUMNS.to_vec();
        (!rows.is_empty()).then_some(Table { key: Key::Connection, columns, rows })
    }
}

impl Seen {
    fn values(&self) -> [f64; WIDTH] {
        let Self { first, last, .. } = self;
        let rise = |of: fn(&TcpCounters) -> u64| of(last).saturating_sub(of(first)) as f64;
        [
            rise(|one| one.acked_bytes),
            rise(|one| one.received_bytes),
            f64::from(last.srtt_us),
            last.congestion_window_bytes as f64,
            // A kernel before 5.4 tells it of no end, and a column without any value is left out.
            last.peer_window_bytes.map_or(0.0, f64::from),
            rise(|one| one.retransmits.into()),
            rise(|one| one.busy_us[0]),
            rise(|one| one.busy_us[1]),
            rise(|one| one.busy_us[2]),
        ]
    }
}

/// Returns the table of who opened connections and asked for names, those with most first.
pub(super) fn opened(counts: &[(Opener, u64)], named: impl Fn(u32) -> String) -> Option<Table> {
    let columns = vec![
        Column::new("connections", "", Kind::Counter, "Connections that it opened."),
        Column::new("look_ups", "", Kind::Counter, "Datagrams with which it asked for names."),
    ];
    let row = |(opener, count): &(Opener, u64)| {
        let Opener { process, port, looks_up } = *opener;
        let protocol = if looks_up { "UDP" } else { "TCP" };
        let mut values = [*count as f64, 0.0];
        values.rotate_right(usize::from(looks_up));
        (format!("{} to {protocol} port {port}", named(process)), values.to_vec())
    };
    let mut counts: Vec<&(Opener, u64)> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest = counts.split_off(counts.len().min(limits::CONNECTIONS));
    let mut rows: Vec<(String, Vec<f64>)> = counts.into_iter().map(row).collect();
    if !rest.is_empty() {
        let sum = |is_of: bool| {
            rest.iter().filter(|one| one.0.looks_up == is_of).map(|one| one.1 as f64).sum()
        };
        rows.push((format!("{} more", rest.len()), vec![sum(false), sum(true)]));
    }
    (!rows.is_empty()).then_some(Table { key: Key::Opener, columns, rows })
}

/// Returns the table of processes that share an address at which they listen.
pub(super) fn workers(shared: &[SharedAddress], named: impl Fn(u32) -> String) -> Option<Table> {
    let column =
        Column::new("connections", "", Kind::Level, "Connections at the port that it had at most.");
    let of_address = |one: &SharedAddress| {
        let row = |(process, count): (&u32, &u32)| {
            (format!("{} at {}", named(*process), one.address), vec![f64::from(*count)])
        };
        one.connections.iter().map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = shared.iter().flat_map(of_address).collect();
    rows.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]));
    (!rows.is_empty()).then_some(Table { key: Key::Attached, columns: vec![column], rows })
}

#[cfg(test)]
mod tests {
    use millstream_netlink::{Protocol, State};

    use super::*;

    fn socket(near: u16, far: u16, tcp: Option<TcpCounters>) -> InetSocket {
        let address = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        InetSocket {
            protocol: Protocol::Tcp,
            state: State(1),
            local: address(near),
            remote: address(far),
            cookie: 0,
            inode: 1,
            receive_queue: 0,
            send_queue: 0,
            receive_memory: None,
            send_memory: None,
            drops: None,
            tcp,
        }
    }

    fn moved(acked_bytes: u64, srtt_us: u32) -> Option<TcpCounters> {
        Some(TcpCounters { acked_bytes, srtt_us, ..TcpCounters::default() })
    }

    #[test]
    fn ends_have_what_rose_while_they_were_looked_at() {
        let mut all = Connections::default();
        all.begin();
        all.take(&socket(1, 80, moved(100, 10)), Some(7));
        all.begin();
        all.take(&socket(1, 80, moved(350, 20)), Some(7));
        all.take(&socket(80, 1, moved(30, 9)), Some(8));
        all.take(&socket(5, 6, moved(900, 1)), Some(9));
        // It closes, and nobody has it any more.
        all.begin();
        all.take(&socket(1, 80, None), None);
        let named = |process: u32| format!("p{process}");
        let table = all.table(|one| one == 7, named).unwrap();
        let keys = ["p7 10.0.0.1:1 → p8 10.0.0.1:80", "p8 10.0.0.1:80 → p7 10.0.0.1:1"];
        assert_eq!(table.rows.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), keys);
        let value = |key, column| table.value(key, column).unwrap();
        assert_eq!((value(keys[0], "sent"), value(keys[0], "round_trip")), (250.0, 20.0));
        assert_eq!(value(keys[1], "sent"), 30.0, "was not there before");
        assert!(all.table(|one| one == 6, named).is_none());
    }

    #[test]
    fn those_of_least_are_told_together() {
        let mut all = Connections::default();
        all.begin();
        all.begin();
        for at in 1..=20 {
            all.take(&socket(at, 80, moved(100 * u64::from(at), 10 * u32::from(at))), Some(7));
        }
        let table = all.table(|_| true, |process| format!("p{process}")).unwrap();
        assert_eq!(table.rows.len(), limits::CONNECTIONS + 1);
        let (key, values) = table.rows.last().unwrap();
        assert_eq!((key.as_str(), values[0], values[2]), ("4 more ends", 1000.0, 25.0));
        let opener = |port| (Opener { process: 7, port, looks_up: port == 53 }, u64::from(port));
        let counts: Vec<_> = (50..70).map(opener).collect();
        let table = opened(&counts, |process| format!("p{process}")).unwrap();
        assert_eq!(table.rows[0], ("p7 to TCP port 69".to_owned(), vec![69.0, 0.0]));
        assert_eq!(table.rows[16], ("4 more".to_owned(), vec![50.0 + 51.0 + 52.0, 53.0]));
    }
}
