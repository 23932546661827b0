//! The sockets of the kernel, those of now and those in a snapshot, and whose they are.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use millstream_foreign::lines;
use millstream_live::{Fields, Record};
use millstream_observe::probe::{OwnedSocket, owned_sockets};
use millstream_record::error::Error;

use crate::output::say;

/// The fields that say whose a socket is, and whose the other end.
pub const OWNERS: [&str; 2] = ["processes", "other_end"];

/// Returns the kernel's sockets of now, with the processes that have them or without.
pub fn sockets(with_owners: bool) -> Result<Vec<Record>, Error> {
    let all = owned_sockets(with_owners).map_err(|why| Error::Refused(why.to_string()))?;
    let mut names = Names::default();
    Ok(all.iter().map(|one| of_kernel(one, &mut names)).collect())
}

/// Names of processes, each read once.
#[derive(Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// Returns the name of a process.
    pub fn of(&mut self, process: u32) -> &str {
        self.0.entry(process).or_insert_with(|| {
            let name = millstream_foreign::read_name(format!("/proc/{process}/comm"));
            name.unwrap_or_else(|_| "-".to_owned())
        })
    }
}

/// Returns a socket of the kernel with the names that those of engines have.
fn of_kernel(one: &OwnedSocket, names: &mut Names) -> Record {
    let socket = &one.socket;
    let mut fields: Vec<(&str, String)> = vec![
        ("id", format!("{}:{}", socket.protocol.name(), socket.inode)),
        ("state", socket.state.name().to_owned()),
        ("local", socket.local.to_string()),
    ];
    if socket.remote.port() != 0 {
        fields.push(("remote", socket.remote.to_string()));
    }
    fields.push(("recv_q", socket.receive_queue.to_string()));
    fields.push(("send_q", socket.send_queue.to_string()));
    let (receive, send) = (socket.receive_memory, socket.send_memory);
    let held = [receive, send].into_iter().flatten().map(|(held, _)| held).reduce(|a, b| a + b);
    let numbers = [
        ("held_bytes", held.map(u64::from)),
        ("recv_limit_bytes", receive.map(|(_, limit)| limit.into())),
        ("send_limit_bytes", send.map(|(_, limit)| limit.into())),
        ("drops", socket.drops.map(u64::from)),
        ("srtt_us", socket.tcp.map(|tcp| tcp.srtt_us.into())),
        ("cwnd_bytes", socket.tcp.map(|tcp| tcp.congestion_window_bytes)),
        ("bytes_acked", socket.tcp.map(|tcp| tcp.acked_bytes)),
        ("bytes_received", socket.tcp.map(|tcp| tcp.received_bytes)),
        ("retransmits", socket.tcp.map(|tcp| tcp.retransmits.into())),
        ("namespace", Some(one.namespace)),
    ];
    let numbers = numbers.into_iter().filter_map(|(key, value)| Some((key, value?.to_string())));
    fields.extend(numbers);
    let owner = |(process, fd): &(u32, u32)| format!("{}({process},fd={fd})", names.of(*process));
    let owners: Vec<String> = one.owners.iter().map(owner).collect();
    fields.extend((!owners.is_empty()).then(|| (OWNERS[0], owners.join(" "))));
    let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Record { kind: "socket".to_owned(), fields }
}

/// The kind of a line with a socket of the kernel, which readers of engines pass over.
const KERNEL: &str = "kernel";

/// Adds the kernel's sockets, with the processes that have them.
pub fn keep(text: &mut Vec<u8>) {
    let sockets = sockets(true).unwrap_or_else(|why| {
        say(format_args!("note: the kernel's sockets are not in it: {why}"));
        Vec::new()
    });
    let mut lines = String::new();
    for socket in sockets {
        let mut line = Fields::begin(&mut lines, KERNEL);
        for (key, value) in &socket.fields {
            line.put(key, value);
        }
        line.end();
    }
    text.extend(lines.bytes());
}

/// Returns the kernel's sockets that a snapshot has.
pub fn kept(file: &Path) -> Result<Vec<Record>, Error> {
    let text = fs::read(file).map_err(Error::file(file.display().to_string()))?;
    let text = lines(&text);
    let records = text.lines().filter(|line| line.starts_with(KERNEL)).map(Record::parse);
    let sockets = records.filter(|record| record.kind == KERNEL);
    Ok(sockets.map(|record| Record { kind: "socket".to_owned(), ..record }).collect())
}
