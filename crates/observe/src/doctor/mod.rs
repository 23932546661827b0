//! Is this host set up for the network load that it has? Files are read, nothing is changed.
//!
//! A check is a function in `network` or `machine` and a line in [`CHECKS`].

mod machine;
mod network;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Absent, in_one_line};

/// The root of the files: `/`, or a folder with made-up ones.
#[derive(Clone, Debug)]
pub struct Root(pub PathBuf);

impl Root {
    fn at(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn text(&self, path: impl AsRef<Path>) -> Result<String, Absent> {
        let path = path.as_ref();
        millstream_foreign::read(self.at(path))
            .map_err(|error| Absent(format!("{}: {}", path.display(), in_one_line(&error))))
    }

    fn number(&self, path: impl AsRef<Path>) -> Result<u64, Absent> {
        let text = self.text(&path)?;
        let odd = || format!("{}: odd number {:?}", path.as_ref().display(), text.trim());
        text.trim().parse().map_err(|_| Absent(odd()))
    }

    /// Returns the names in a folder, sorted; none where it cannot be read.
    fn names(&self, path: impl AsRef<Path>) -> Vec<OsString> {
        let entries = fs::read_dir(self.at(path.as_ref())).into_iter().flatten().flatten();
        let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }
}

/// Something that is wrong, or may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The observation, with numbers.
    pub what: String,
    /// The remedy: a command where there is one.
    pub remedy: String,
}

/// The result of one check.
pub struct Answer {
    /// Its name.
    pub check: &'static str,
    /// Its findings, none where all is well; or the reason why it could not look.
    pub found: Result<Vec<Finding>, Absent>,
}

type Check = fn(&Root) -> Result<Vec<Finding>, Absent>;

/// All checks, in the order in which they are told.
pub const CHECKS: [(&str, Check); 12] = [
    ("backlog", network::backlog),
    ("udp-buffers", network::udp_buffers),
    ("listen-queues", network::listen_queues),
    ("retransmissions", network::retransmissions),
    ("tcp-memory", network::tcp_memory),
    ("interfaces", network::interfaces),
    ("receive-queues", network::receive_queues),
    ("conntrack", network::conntrack),
    ("clock", machine::clock),
    ("frequency", machine::frequency),
    ("steal", machine::steal),
    ("throttling", machine::throttling),
];

/// Does all checks.
pub fn examine(root: &Root) -> Vec<Answer> {
    CHECKS.iter().map(|(check, look)| Answer { check, found: look(root) }).collect()
}

fn finding(what: String, remedy: impl Into<String>) -> Finding {
    Finding { what, remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of made-up files, which is gone with it.
    struct Made(Root);

    impl Made {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder = std::env::temp_dir()
                .join(format!("millstream-doctor-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = folder.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(Root(folder))
        }

        fn found(&self, check: &str) -> Result<Vec<Finding>, Absent> {
            let (_, look) = CHECKS.iter().find(|(name, _)| *name == check).unwrap();
            look(&self.0)
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.0);
        }
    }

    const SNMP: &str = "Tcp: OutSegs RetransSegs\nTcp: 1000000 30000\nUdp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 500 7 0\n";
    const NETSTAT: &str =
        "TcpExt: ListenOverflows ListenDrops PruneCalled TCPMemoryPressures\nTcpExt: 3 5 0 2\n";

    #[test]
    fn each_fault_is_found_with_its_numbers_and_a_remedy() {
        let sick = Made::new(
            "sick",
            &[
                ("proc/net/softnet_stat", "00001000 00000002 00000100 0 0 0 0 0 0 0 0 0 0\n"),
                ("proc/net/snmp", SNMP),
                ("proc/net/netstat", NETSTAT),
                ("proc/sys/net/netfilter/nf_conntrack_count", "95"),
                ("proc/sys/net/netfilter/nf_conntrack_max", "100"),
                (
                    "proc/stat",
                    "cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 100 0 100 700 0 0 0 100 0 0\ncpu1 0 0 0 1 0 0 0 0 0 0\n",
                ),
                ("sys/class/net/eth0/statistics/rx_missed_errors", "9"),
                ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000"),
                ("sys/class/net/eth0/device/vendor", "x"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
                ("sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet tsc\n"),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
                ("proc/self/cgroup", "0::/box\n"),
                (
                    "sys/fs/cgroup/box/cpu.stat",
                    "nr_periods 10\nnr_throttled 4\nthrottled_usec 5000000\n",
                ),
            ],
        );
        for (check, words) in [
            ("backlog", "2 packets"),
            ("udp-buffers", "7 datagrams"),
            ("listen-queues", "3 times"),
            ("retransmissions", "3.0 %"),
            ("tcp-memory", "2 times"),
            ("interfaces", "eth0: rx_missed_errors 9"),
            ("receive-queues", "eth0"),
            ("conntrack", "95 of 100"),
            ("clock", "hpet"),
            ("frequency", "powersave"),
            ("steal", "10.0 %"),
            ("throttling", "4 of 10"),
        ] {
            let found = sick.found(check).unwrap();
            assert!(found.iter().any(|one| one.what.contains(words)), "{check}: {found:?}");
            assert!(found.iter().all(|one| !one.remedy.is_empty()), "{check}");
        }
    }

    #[test]
    fn a_host_without_faults_has_no_findings_and_what_is_not_there_is_said() {
        let well = Made::new(
            "well",
            &[
                ("proc/net/softnet_stat", "00001000 00000000 00000000 0 0 0 0 0 0 0 0 0 0\n"),
                ("proc/net/snmp", &SNMP.replace("30000", "3").replace(" 7 ", " 0 ")),
                ("proc/net/netstat", &NETSTAT.replace("3 5 0 2", "0 0 0 0")),
                ("proc/stat", "cpu  100 0 100 700 0 0 0 0 0 0\ncpu0 1 0 1 7 0 0 0 0 0 0\n"),
                ("sys/class/net/eth0/statistics/rx_missed_errors", "0"),
            ],
        );
        for check in [
            "backlog",
            "udp-buffers",
            "listen-queues",
            "retransmissions",
            "tcp-memory",
            "interfaces",
            "steal",
        ] {
            assert_eq!(well.found(check), Ok(vec![]), "{check}");
        }
        assert!(well.found("conntrack").unwrap_err().0.contains("nf_conntrack"));
        assert!(well.found("clock").is_err());
    }

    #[test]
    fn damaged_files_are_absent_and_never_panic() {
        for text in ["", "x", "0 0\n", "Tcp: a b\nTcp: 1\n", "cpu\ncpu0 x\n", "\u{1F600}\n\n"] {
            let odd = Made::new(
                "odd",
                &[
                    ("proc/net/softnet_stat", text),
                    ("proc/net/snmp", text),
                    ("proc/net/netstat", text),
                    ("proc/stat", text),
                    ("proc/self/cgroup", text),
                    ("proc/sys/net/netfilter/nf_conntrack_count", text),
                    ("proc/sys/net/netfilter/nf_conntrack_max", "0"),
                    ("sys/class/net/eth0/statistics/rx_missed_errors", text),
                    ("sys/class/net/eth0/queues/rx-0/rps_cpus", text),
                ],
            );
            assert_eq!(examine(&odd.0).len(), CHECKS.len());
        }
    }
}
