//! The moment from which the other end of a command can be used.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The sign that a command can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// One of its processes has a socket that waits for others.
    #[default]
    Listens,
    /// It has written what this regular expression matches.
    Says(String),
}

/// Time that one which listens, or whose sockets are not seen, has to begin: a second port, data
/// that it reads.
pub const LEAD: Duration = Duration::from_millis(300);

/// The state of a command that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outlook {
    /// It is waited for.
    NotYet,
    /// It can be used, or has ended as it should.
    Usable,
    /// The patience is over, and the sign was not there.
    Unseen,
    /// It has failed, for this reason.
    Failed(String),
}

/// Returns whether one of these processes has a socket that others can reach: one of TCP or of the
/// host that listens, or one of UDP that is joined to no peer.
pub(crate) fn listens(pids: &[u32]) -> bool {
    // Field of the state or the flags, what it is there, and the field of the socket's number.
    let tables = [
        ("tcp", 3, "0A", 9),
        ("tcp6", 3, "0A", 9),
        ("udp", 3, "07", 9),
        ("udp6", 3, "07", 9),
        ("unix", 3, "00010000", 6),
    ];
    let has_one = |pid: &u32, own: HashSet<String>| {
        tables.iter().any(|(table, state, open, number)| {
            let text = millstream_foreign::read(format!("/proc/{pid}/net/{table}"));
            text.unwrap_or_default().lines().skip(1).any(|line| {
                let fields: Vec<&str> = line.split_ascii_whitespace().collect();
                fields.get(*state) == Some(open)
                    && fields.get(*number).is_some_and(|number| own.contains(*number))
            })
        })
    };
    pids.iter().any(|pid| has_one(pid, sockets(*pid)))
}

/// Returns the numbers of the sockets that a process has open.
fn sockets(pid: u32) -> HashSet<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let number = |path: std::path::PathBuf| {
        let name = path.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(name.to_owned())
    };
    files.filter_map(|file| number(fs::read_link(file.path()).ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::{Command, Stdio};

    /// The sockets are those of a child that has them as its standard input: this process has
    /// those of other tests, too.
    #[test]
    fn who_listens_is_seen_and_who_only_connects_is_not() {
        let with = |socket: Stdio| {
            let mut child = Command::new("sleep").arg("60").stdin(socket).spawn().unwrap();
            let found = listens(&[child.id()]);
            child.kill().unwrap();
            child.wait().unwrap();
            found
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let joined = UdpSocket::bind("127.0.0.1:0").unwrap();
        joined.connect(datagrams.local_addr().unwrap()).unwrap();
        let given = |socket: std::os::fd::OwnedFd| with(Stdio::from(socket));
        assert!(given(listener.into()) && given(datagrams.into()));
        assert!(!given(client.into()) && !given(joined.into()) && !with(Stdio::null()));
        assert!(!listens(&[]) && !listens(&[u32::MAX]));
    }
}
