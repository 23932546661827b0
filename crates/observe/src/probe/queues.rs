//! Bytes in the queues of all TCP sockets of each host, and the fullest of them, at the end of each
//! step, by netlink (sock_diag).

use std::collections::BTreeMap;

use millstream_netlink::{Protocol, State, each_inet_socket};
use millstream_record::{Probes, QueueSeries};

use super::fullest::Fullest;
use super::host::inside;
use super::{Absent, Host, Kind, Probe, Turn};

pub(super) const KIND: Kind =
    Kind { name: "queues", open: |config| Ok(Box::new(Queues::open(&config.hosts)?)) };

/// The sockets of each host.
pub(super) struct Queues {
    hosts: Vec<(Host, QueueSeries)>,
    fullest: Fullest,
}

impl Queues {
    fn open(hosts: &[Host]) -> Result<Self, Absent> {
        if hosts.is_empty() {
            return Err(Absent("no host was named".to_owned()));
        }
        let hosts = hosts.iter().map(|host| (host.clone(), QueueSeries::default()));
        Ok(Self { hosts: hosts.collect(), fullest: Fullest::default() })
    }
}

/// Bytes received, bytes sent and memory held of all connections in the namespace of the calling
/// thread; and of each its ports and receive queue.
fn all_here() -> Result<([u64; 3], Vec<Receiving>), Absent> {
    let (mut sum, mut receiving) = ([0; 3], Vec::new());
    let mut read = |v6| {
        each_inet_socket(Protocol::Tcp, v6, |socket| {
            // The queues of a listener are of connections.
            if socket.state == State::LISTEN {
                return;
            }
            let memory = |of: Option<(u32, u32)>| of.map_or(0, |(held, _)| u64::from(held));
            sum[0] += u64::from(socket.receive_queue);
            sum[1] += u64::from(socket.send_queue);
            sum[2] += memory(socket.receive_memory) + memory(socket.send_memory);
            if let (Some((held, limit)), Some(tcp)) = (socket.receive_memory, socket.tcp) {
                let bytes = u64::from(socket.receive_queue);
                let read = tcp.received_bytes.saturating_sub(bytes);
                let ports = (socket.local.port(), socket.remote.port());
                receiving.push((ports, [bytes, held.into(), limit.into(), read]));
            }
        })
    };
    read(false).map_err(|error| Absent(format!("sock_diag: {error}")))?;
    // Without IPv6 there are none of it.
    let _ = read(true);
    Ok((sum, receiving))
}

/// The ports of a connection, and what is in its receive queue.
type Receiving = ((u16, u16), [u64; 4]);

impl Probe for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        if turn == Turn::First {
            return Ok(());
        }
        for (host, series) in &mut self.hosts {
            match (inside(&host.net, all_here), turn) {
                (Ok((seen, receiving)), _) => {
                    series.push(Some(seen));
                    for (ports, queue) in receiving {
                        self.fullest.take(&host.name, ports, queue);
                    }
                }
                // A process in a namespace of its own has ended with it.
                (Err(_), Turn::Last) => series.push(None),
                (Err(why), _) => return Err(why),
            }
        }
        self.fullest.end_step();
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let used = self.hosts.into_iter().filter(|(_, series)| series.is_of_something());
        let all: BTreeMap<_, _> = used.map(|(host, series)| (host.name, series)).collect();
        into.queues = Some(all);
        into.fullest_queues = self.fullest.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::super::NetSource;
    use super::*;

    #[test]
    fn what_nobody_has_read_is_seen_at_the_end_of_a_step() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        let hosts = [Host { name: "here".into(), net: NetSource::Own }];
        let mut queues = Box::new(Queues::open(&hosts).unwrap());
        queues.sample(Turn::First).unwrap();
        near.write_all(&[7; 5_000]).unwrap();
        queues.sample(Turn::Middle).unwrap();
        let mut probes = Probes::default();
        queues.finish(&mut probes);
        let here = &probes.queues.unwrap()["here"];
        assert_eq!(here.received_bytes.len(), 1);
        assert!(here.received_bytes[0].unwrap() >= 5_000, "{here:?}");
        assert!(here.held_bytes[0].unwrap() > 5_000, "{here:?}");
        let fullest = &probes.fullest_queues["here"];
        assert!(fullest.held_bytes[0].unwrap() > 5_000, "{fullest:?}");
        assert!(Queues::open(&[]).is_err());
    }
}
