//! Sockets that take copies of the hosts' packets, and XDP programs, filters of tc(8), programs at
//! tcx hooks and those of control groups that look at them, each with who has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;

use millstream_foreign::{read, read_name};
use millstream_netlink::{Classifier, Interface, Netlink};
use millstream_record::{Column, Key, Kind as ColumnKind, Probes, Table};

use super::host::{in_namespace, inside};
use super::owners::{descriptors_of, socket};
use super::{Absent, Host, Kind, Probe, ProcFile, Turn, limits};
use crate::bpf::{LoadedProgram, packet_programs, tcx_programs};

pub(super) const KIND: Kind = Kind {
    name: "attached",
    open: |config| {
        let hosts = config.hosts.iter().map(OneHost::open).collect::<Result<_, _>>()?;
        Ok(Box::new(Attached { hosts, captures: BTreeMap::new(), classifiers: BTreeMap::new() }))
    },
};

static CAPTURES: Column = Column::new(
    "sockets",
    "",
    ColumnKind::Level,
    "Packet sockets of it, each of which takes a copy of each packet (proc(5), /proc/net/packet).",
);
static CLASSIFIERS: Column = Column::new(
    "filters",
    "",
    ColumnKind::Level,
    "Filters of the kind, or programs, that are there.",
);

/// It looks once, at the end: the files and sockets by which it does stay open till then.
struct Attached {
    hosts: Vec<OneHost>,
    captures: BTreeMap<String, usize>,
    classifiers: BTreeMap<String, usize>,
}

struct OneHost {
    name: String,
    packet_sockets: ProcFile,
    netlink: Netlink,
    /// Its network namespace.
    namespace: File,
}

impl OneHost {
    fn open(host: &Host) -> Result<Self, Absent> {
        inside(&host.net, || {
            let namespace = File::open("/proc/thread-self/ns/net");
            Ok(Self {
                name: host.name.clone(),
                packet_sockets: ProcFile::open("/proc/thread-self/net/packet")?,
                netlink: Netlink::route().map_err(|error| of_netlink(&error))?,
                namespace: namespace.map_err(|error| Absent(format!("namespace: {error}")))?,
            })
        })
    }

    /// Returns the programs at tcx hooks, of which rtnetlink does not tell: the place and the
    /// number of each. None where its namespace may not be entered.
    fn at_hooks(&mut self) -> Result<Vec<(String, u32)>, Absent> {
        let interfaces = self.netlink.interfaces().map_err(|error| of_netlink(&error))?;
        let (name, path) = (&self.name, format!("/proc/self/fd/{}", self.namespace.as_raw_fd()));
        let programs = in_namespace(path.as_ref(), || {
            let at = |Interface { name: interface, .. }| {
                let found = tcx_programs(&interface).into_iter();
                found.map(move |(hook, one)| (format!("tcx {hook} at {name}/{interface}"), one))
            };
            Ok(interfaces.into_iter().flat_map(at).collect())
        });
        Ok(programs.unwrap_or_default())
    }
}

fn of_netlink(error: &std::io::Error) -> Absent {
    Absent(format!("rtnetlink: {error}"))
}

/// The processes that have packet sockets and BPF programs.
#[derive(Default)]
struct Holders {
    sockets: BTreeMap<u32, u32>,
    programs: BTreeMap<u32, BTreeSet<u32>>,
    /// Programs that are linked to an interface and that rtnetlink does not tell of.
    linked: BTreeMap<u32, String>,
}

impl Holders {
    /// Looks at all processes that may be looked at.
    fn look() -> Self {
        let mut found = Self::default();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|one| one.file_name().to_str()?.parse().ok());
        for process in all.filter(|process| *process != std::process::id()) {
            for (descriptor, link) in descriptors_of(process, limits::DESCRIPTORS) {
                if let Some(inode) = socket(&link) {
                    found.sockets.entry(inode).or_insert(process);
                } else if link.starts_with("anon_inode:bpf") {
                    // It may have been closed.
                    if let Ok(text) = read(format!("/proc/{process}/fdinfo/{descriptor}")) {
                        found.add(process, &text);
                    }
                }
            }
        }
        found
    }

    /// Adds what the fdinfo of a descriptor of `process` says, which is of a program or of a link.
    fn add(&mut self, process: u32, text: &str) {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            line.split_ascii_whitespace().next()
        };
        let Some(program) = value("prog_id").and_then(|number| number.parse().ok()) else { return };
        self.programs.entry(program).or_default().insert(process);
        let is_netkit = value("link_type") == Some("netkit");
        if let Some(interface) = value("ifindex").filter(|_| is_netkit) {
            self.linked.insert(program, format!("netkit at interface number {interface}"));
        }
    }

    /// Returns a program by its name and number, and who holds it.
    fn say(&self, program: u32, loaded: &[LoadedProgram]) -> String {
        let known = loaded.iter().find(|one| one.number == program);
        let name = known.map_or("", |one| one.name.as_str());
        let held = self.programs.get(&program).into_iter().flatten().map(|one| named(*one));
        let held: Vec<String> = held.take(limits::HOLDERS).collect();
        let by = match held.is_empty() {
            true => String::new(),
            false => format!(", held by {}", held.join(" and ")),
        };
        format!("program {program} {name}").trim_end().to_owned() + &by
    }
}

impl Probe for Attached {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        if turn != Turn::Last {
            return Ok(());
        }
        let holders = Holders::look();
        let loaded = packet_programs();
        let mut inodes = BTreeSet::new();
        for host in &mut self.hosts {
            for inode in host.packet_sockets.parse(|text| Ok(capturing(text)))? {
                if inodes.insert(inode) {
                    let who = holders.sockets.get(&inode).map_or_else(unseen, |one| named(*one));
                    *self.captures.entry(who).or_default() += 1;
                }
            }
            let found = host.netlink.classifiers();
            let found = found.map_err(|error| of_netlink(&error))?;
            for (Classifier { interface, kind, program }, count) in found {
                let place = format!("{kind} at {}/{interface}", host.name);
                let key = match program {
                    Some(program) => format!("{place}: {}", holders.say(program, &loaded)),
                    None => place,
                };
                self.classifiers.insert(key, count);
            }
            for (place, program) in host.at_hooks()? {
                self.classifiers.insert(format!("{place}: {}", holders.say(program, &loaded)), 1);
            }
        }
        for one in &loaded {
            let place = match holders.linked.get(&one.number) {
                Some(place) => place,
                None if one.is_of_control_groups => "control groups",
                None => continue,
            };
            self.classifiers.insert(format!("{place}: {}", holders.say(one.number, &loaded)), 1);
        }
        Ok(())
    }

    fn join(&mut self, host: &Host) -> Result<(), Absent> {
        self.hosts.push(OneHost::open(host)?);
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        for (name, column, found) in [
            ("captures", &CAPTURES, self.captures),
            ("classifiers", &CLASSIFIERS, self.classifiers),
        ] {
            let mut rows: Vec<_> =
                found.into_iter().map(|(key, count)| (key, vec![count as f64])).collect();
            rows.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]));
            if !rows.is_empty() {
                let table = Table { key: Key::Attached, columns: vec![column.clone()], rows };
                into.tables.insert(name.to_owned(), table);
            }
        }
    }
}

fn named(process: u32) -> String {
    let name = read_name(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("{name}/{process}")
}

fn unseen() -> String {
    "a process that cannot be seen".to_owned()
}

/// Returns the inodes of the sockets of `/proc/net/packet` that are given packets, as they have a
/// protocol.
fn capturing(text: &str) -> Vec<u32> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let protocol = u16::from_str_radix(fields.get(3)?, 16).ok()?;
        fields.get(8)?.parse().ok().filter(|_| protocol != 0)
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_without_a_protocol_take_no_packets() {
        let text = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                    0000000000000000 3      3    0003   0     1 0      0      41\n\
                    0000000000000000 3      3    0000   2     0 0      0      42\n";
        assert_eq!(capturing(text), [41]);
    }

    #[test]
    fn a_program_is_told_by_its_name_and_by_who_holds_it() {
        let mut holders = Holders::default();
        let own = std::process::id();
        let of_link = "pos:\t0\nlink_type:\tnetkit\nlink_id:\t3\nprog_id:\t12\nifindex:\t2\n";
        holders.add(own, of_link);
        holders.add(own, "pos:\t0\nprog_type:\t6\nprog_id:\t14\n");
        holders.add(own, "pos:\t0\nmap_type:\t2\n");
        assert_eq!(holders.linked, [(12, "netkit at interface number 2".to_owned())].into());
        let one = |number, name: &str| LoadedProgram {
            number,
            name: name.to_owned(),
            is_of_control_groups: false,
        };
        let loaded = [one(12, "drop_some"), one(13, "")];
        let by = named(own);
        assert_eq!(holders.say(12, &loaded), format!("program 12 drop_some, held by {by}"));
        assert_eq!(holders.say(13, &loaded), "program 13");
        assert_eq!(holders.say(14, &loaded), format!("program 14, held by {by}"));
    }
}
