//! `TCP_INFO` of the TCP connections that came while it was looked, of whatever program, by netlink (sock_diag).

use std::collections::{BTreeMap, BTreeSet};

use super::host::in_namespace;
use super::{Absent, Host, NetSource, Probe, Turn, limits};
use crate::netlink::{TcpSocket, tcp_sockets};
use crate::record::{Probes, TcpInfoRecord};

/// A connection of a host: its ports.
type Key = (String, u16, u16);

/// The connections of the hosts. One that was there before is none of the run's.
pub(super) struct Flows {
    hosts: Vec<Host>,
    before: BTreeSet<Key>,
    seen: BTreeMap<Key, TcpSocket>,
    turns: usize,
}

impl Flows {
    pub(super) fn open(hosts: &[Host]) -> Result<Self, Absent> {
        Ok(Self { hosts: hosts.to_vec(), before: BTreeSet::new(), seen: BTreeMap::new(), turns: 0 })
    }

    fn read(&self) -> Result<Vec<(Key, TcpSocket)>, Absent> {
        let mut all = Vec::new();
        for host in &self.hosts {
            let sockets = match &host.net {
                NetSource::Own => both_families(),
                NetSource::Process(pid) => {
                    in_namespace(format!("/proc/{pid}/ns/net").as_ref(), both_families)
                }
                NetSource::Namespace(path) => in_namespace(path, both_families),
            }?;
            let key = |one: &TcpSocket| (host.name.clone(), one.local_port, one.remote_port);
            all.extend(sockets.into_iter().map(|one| (key(&one), one)));
        }
        Ok(all)
    }
}

fn both_families() -> Result<Vec<TcpSocket>, Absent> {
    let refused = |error: std::io::Error| Absent(format!("sock_diag: {error}"));
    let mut all = tcp_sockets(false).map_err(refused)?;
    // Without IPv6 there are none of it.
    all.extend(tcp_sockets(true).unwrap_or_default());
    Ok(all)
}

impl Probe for Flows {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        if turn == Turn::First {
            self.before = self.read()?.into_iter().map(|(key, _)| key).collect();
            return Ok(());
        }
        self.turns += 1;
        // Many connections make the answer long: it is asked for less often.
        if turn == Turn::Middle && !self.turns.is_multiple_of(1 + self.seen.len() / limits::FLOWS) {
            return Ok(());
        }
        let now = match (self.read(), turn) {
            (Ok(now), _) => now,
            // Whoever was in a namespace of its own has ended with it.
            (Err(_), Turn::Last) => return Ok(()),
            (Err(why), _) => return Err(why),
        };
        for (key, socket) in now {
            let has_room = self.seen.len() < limits::FLOWS_SEEN || self.seen.contains_key(&key);
            if has_room && !self.before.contains(&key) {
                self.seen.insert(key, socket);
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let moved = |one: &TcpSocket| {
            let of = |name| one.fields.get(name).copied().unwrap_or(0.0);
            of("bytes_acked") + of("bytes_received")
        };
        let mut all: Vec<(Key, TcpSocket)> = self.seen.into_iter().collect();
        all.sort_by(|(_, a), (_, b)| moved(b).total_cmp(&moved(a)));
        all.truncate(limits::FLOWS);
        let record = |(at, ((role, ..), one)): (usize, (Key, TcpSocket))| TcpInfoRecord {
            role,
            connection: at as u32,
            stack: "kernel".to_owned(),
            congestion: one.congestion,
            fields: one.fields,
        };
        into.tcp_info.extend(all.into_iter().enumerate().map(record));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_of_the_run_are_kept_with_what_they_moved() {
        let here = [Host { name: "here".into(), net: NetSource::Own }];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let _before = pair();
        let mut flows = Box::new(Flows::open(&here).unwrap());
        flows.sample(Turn::First).unwrap();
        let (mut client, mut server) = pair();
        client.write_all(&[1; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        flows.sample(Turn::Middle).unwrap();
        let port = client.local_addr().unwrap().port();
        assert!(flows.seen.keys().any(|(_, local, _)| *local == port));
        assert!(!flows.before.iter().any(|key| flows.seen.contains_key(key)));
        let mut probes = Probes::default();
        flows.finish(&mut probes);
        let received = |info: &TcpInfoRecord| info.fields["bytes_received"] == 5000.0;
        assert!(probes.tcp_info.iter().any(received), "{:?}", probes.tcp_info);
    }
}
