//! The kernel's settings of TCP in the hosts: those of the namespace in which the program was
//! started, so that what a user has set is what is measured. A new namespace has the settings of
//! the machine's first one, which may be others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use millstream_observe::environment;

/// The folder in which the kernel shows the settings of the calling thread's namespace.
const ROOT: &str = "/proc/sys/net";

/// Settings besides those of TCP that decide over its sockets, where namespaces have their own.
const OTHERS: &[&str] = &["core/optmem_max", "core/somaxconn"];

/// Settings by their path below `/proc/sys/net`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, String>);

/// The settings of a host after those of the user were written to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Had {
    /// Values in force, as `sysctl.net.ipv4.tcp_rmem`.
    pub facts: Vec<(String, String)>,
    /// Settings that the host did not take, with the value that it has instead, each as the end of
    /// a sentence.
    pub refused: Vec<String>,
}

impl Settings {
    /// Returns the settings of the calling thread's namespace that can be set in another.
    pub fn here() -> Self {
        Self::of(Path::new(ROOT))
    }

    fn of(root: &Path) -> Self {
        let tcp = fs::read_dir(root.join("ipv4")).into_iter().flatten().flatten();
        let tcp = tcp.map(|entry| millstream_foreign::shown(entry.file_name().as_encoded_bytes()));
        let tcp = tcp.filter(|name| name.starts_with("tcp_")).map(|name| format!("ipv4/{name}"));
        let names = tcp.chain(OTHERS.iter().map(|&name| name.to_owned()));
        let set = names.filter_map(|name| {
            let path = root.join(&name);
            // A file that nobody may write is no setting; a key that nobody may read is nobody's to
            // copy.
            let mode = path.metadata().ok()?.permissions().mode();
            (mode & 0o222 != 0 && mode & 0o044 != 0).then_some(())?;
            Some((name, value(&path)?))
        });
        Self(set.collect())
    }

    /// Makes them those of the calling thread's namespace.
    pub fn apply(&self) -> Had {
        self.apply_to(Path::new(ROOT))
    }

    fn apply_to(&self, root: &Path) -> Had {
        let mut had = Had::default();
        for (name, wanted) in &self.0 {
            let path = root.join(name);
            // A setting that the namespace does not show is one for all namespaces.
            let Some(found) = value(&path).filter(|found| found != wanted) else { continue };
            let written = fs::write(&path, wanted);
            let Some(now) = value(&path).filter(|now| now != wanted) else { continue };
            let why =
                written.err().map_or_else(|| "not taken".to_owned(), |error| error.to_string());
            let now = if now == found { now } else { format!("{now} (was {found})") };
            had.refused
                .push(format!("net.{} is {now}, not {wanted} as outside ({why})", dotted(name)));
        }
        for name in environment::network_settings() {
            let path = root.join(name.trim_start_matches("net.").replace('.', "/"));
            had.facts.extend(value(&path).map(|value| (format!("sysctl.{name}"), value)));
        }
        had
    }
}

fn dotted(name: &str) -> String {
    name.replace('/', ".")
}

/// The value of a setting, one blank between its words.
fn value(path: &Path) -> Option<String> {
    let text = millstream_foreign::read(path).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::privilege;

    #[test]
    fn what_cannot_be_had_is_named_with_both_values() {
        let root = std::env::temp_dir().join(format!("ms-settings-{}", std::process::id()));
        let (here, host) = (root.join("here"), root.join("host"));
        let write = |root: &Path, name: &str, text: &str| {
            fs::create_dir_all(root.join("ipv4")).unwrap();
            fs::write(root.join("ipv4").join(name), text).unwrap();
        };
        write(&here, "tcp_rmem", "4096\t8192\t16384\n");
        write(&here, "tcp_odd", "7\n");
        write(&here, "ip_forward", "1\n");
        write(&host, "tcp_rmem", "4096\t131072\t6291456\n");
        // One that refuses whatever is written: a device that reads as nothing.
        std::os::unix::fs::symlink("/dev/null", host.join("ipv4/tcp_odd")).unwrap();
        let had = Settings::of(&here).apply_to(&host);
        assert_eq!(value(&host.join("ipv4/tcp_rmem")).unwrap(), "4096 8192 16384");
        assert_eq!(
            had.facts,
            [("sysctl.net.ipv4.tcp_rmem".to_owned(), "4096 8192 16384".to_owned())]
        );
        assert_eq!(had.refused, ["net.ipv4.tcp_odd is , not 7 as outside (not taken)"]);
        fs::remove_dir_all(root).unwrap();
    }

    /// A user's settings, of a namespace that is not the machine's first.
    #[test]
    fn a_host_has_the_settings_of_who_started_it_and_not_of_the_first_namespace() {
        if !privilege::may_make_namespaces() {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        }
        let users = Namespace::create("ms-test-user").unwrap();
        let set = users.run(|| {
            fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 8192 16384").unwrap();
            fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap();
            fs::write("/proc/sys/net/ipv4/tcp_sack", "0").unwrap();
            Settings::here()
        });
        let host = Namespace::create("ms-test-host").unwrap();
        let had = host.run(move || set.apply());
        assert_eq!(had.refused, Vec::<String>::new());
        let fact = |name: &str| had.facts.iter().find(|(fact, _)| fact == name).unwrap().1.as_str();
        assert_eq!(fact("sysctl.net.ipv4.tcp_rmem"), "4096 8192 16384");
        assert_eq!(fact("sysctl.net.ipv4.tcp_congestion_control"), "reno");
        let sack = host.run(|| fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").unwrap());
        assert_eq!(sack.trim(), "0");
    }
}
