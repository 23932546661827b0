//! The kernel's way, over a virtual pair: its other end, in the same namespace, drops what is for
//! another station.
//!
//! | stage | a call that comes back right behind it |
//! |---|---|
//! | call | to port 0 (`EINVAL`): the system call, the socket, the address copied in |
//! | route | an empty one with `MSG_PROBE` and `MSG_CONFIRM`: the route is found, and its neighbour |
//! | allocation | an empty one with `MSG_MORE`, which waits for more: a buffer with room for headers |
//! | copy | one with data and `MSG_MORE` |
//! | link | none: headers are written, it has crossed the pair and is dropped there |

use std::io::Write;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use millstream_record::error::Error;
use millstream_testbed::namespace::Namespace;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrIn, send, sendto};

use super::{Case, ONE_PREFIX, PAYLOAD, Sender, Stage, cost, failed, middle, prefixes};

/// Stages in the order in which a datagram comes to them.
pub(super) const STAGES: [Stage; 5] =
    [Stage::Call, Stage::Route, Stage::Allocation, Stage::Copy, Stage::Link];
/// `MSG_MORE`; `MSG_PROBE` and `MSG_CONFIRM`.
const MORE: MsgFlags = MsgFlags::from_bits_retain(0x8000);
const PROBE: MsgFlags = MsgFlags::from_bits_retain(0x10 | 0x800);
/// Calls of this stack to one of the kernel's.
const FEWER: usize = 8;
/// The interface. Nobody has the gateway's station, and nobody is asked for it.
const SET_UP: &str = "link set lo up
link add d0 type veth peer name d1
link set d0 up
link set d1 up
address add 10.70.0.1/24 dev d0
neighbor add 10.70.0.2 lladdr 02:00:00:00:00:09 dev d0 nud permanent
";
/// Sockets that each hold a datagram that waits for more.
const HOLDERS: usize = 64;

/// A network namespace with the interface and the routes.
pub(super) struct Kernel {
    namespace: Namespace,
}

impl Kernel {
    /// Returns the namespace, with so many routes.
    pub(super) fn open(routes: usize, spread: usize) -> Result<Self, Error> {
        let namespace = Namespace::create("udp-path")?;
        let mut batch = String::from(SET_UP);
        match routes {
            1 => batch += &format!("route add {ONE_PREFIX} via 10.70.0.2\n"),
            _ => prefixes(spread)
                .for_each(|addr| batch += &format!("route add {addr}/24 via 10.70.0.2\n")),
        }
        let done = namespace.run(move || {
            let mut ip = Command::new("ip");
            ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut ip = ip.stderr(Stdio::null()).spawn()?;
            if let Some(mut input) = ip.stdin.take() {
                input.write_all(batch.as_bytes())?;
            }
            ip.wait()
        });
        match done.map_err(Error::host("run ip"))?.success() {
            true => Ok(Self { namespace }),
            false => Err(failed("ip has set up no interface or routes")),
        }
    }

    /// Returns a socket that sends as the case says.
    pub(super) fn sender(&self, case: &Case) -> Result<Theirs, Error> {
        let peers = case.peers();
        let to = case.connected.then(|| peers[0]);
        let socket = || {
            let socket = self.namespace.run(|| UdpSocket::bind("0.0.0.0:0"));
            let socket = socket.and_then(|socket| match to {
                Some(to) => socket.connect(to).map(|()| socket),
                None => Ok(socket),
            });
            socket.map_err(failed)
        };
        let holders = (0..HOLDERS).map(|_| socket()).collect::<Result<_, _>>()?;
        Ok(Theirs { socket: socket()?, holders, peers, case: *case })
    }
}

/// A socket, others that each hold a datagram, and where datagrams go.
pub(super) struct Theirs {
    socket: UdpSocket,
    holders: Vec<UdpSocket>,
    peers: Vec<SocketAddrV4>,
    case: Case,
}

impl Theirs {
    fn calls(&self) -> usize {
        (self.case.calls / FEWER).max(HOLDERS)
    }

    fn go(
        &self,
        socket: &UdpSocket,
        at: usize,
        data: &[u8],
        flags: MsgFlags,
    ) -> nix::Result<usize> {
        let to = SockaddrIn::from(self.peers[at % self.peers.len()]);
        match self.case.connected {
            true => send(socket.as_raw_fd(), data, flags),
            false => sendto(socket.as_raw_fd(), data, &to, flags),
        }
    }

    /// Returns the cost of a datagram that waits for more. It leaves off the clock.
    fn held(&self, data: &[u8]) -> Result<f64, Error> {
        let (mut rounds, mut at) = (Vec::new(), 0);
        for _ in 0..self.calls() / HOLDERS {
            let begun = Instant::now();
            for socket in &self.holders {
                self.go(socket, at, data, MORE).map_err(failed)?;
                at += 1;
            }
            rounds.push(begun.elapsed().as_secs_f64() * 1e9 / HOLDERS as f64);
            for socket in &self.holders {
                self.go(socket, at, &[], MsgFlags::empty()).map_err(failed)?;
            }
        }
        Ok(middle(rounds))
    }
}

impl Sender for Theirs {
    fn until(&mut self, stage: Stage) -> Result<f64, Error> {
        let each = |expected: nix::Result<usize>, call: &dyn Fn(usize) -> nix::Result<usize>| {
            cost(self.calls(), |calls| match (0..calls).map(call).find(|sent| *sent != expected) {
                None => Ok(()),
                Some(other) => Err(failed(format_args!("{other:?} in place of {expected:?}"))),
            })
        };
        match stage {
            Stage::Call => each(Err(Errno::EINVAL), &|at| {
                let peer = self.peers[at % self.peers.len()];
                let nowhere = SockaddrIn::from(SocketAddrV4::new(*peer.ip(), 0));
                sendto(self.socket.as_raw_fd(), &PAYLOAD, &nowhere, MsgFlags::empty())
            }),
            Stage::Route => each(Ok(0), &|at| self.go(&self.socket, at, &[], PROBE)),
            Stage::Allocation => self.held(&[]),
            Stage::Copy => self.held(&PAYLOAD),
            Stage::Headers | Stage::Link => each(Ok(PAYLOAD.len()), &|at| {
                self.go(&self.socket, at, &PAYLOAD, MsgFlags::empty())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ROUNDS;
    use super::*;
    use millstream_testbed::privilege;

    /// A stage comes back where it says: a call that is refused or only looks up sends no datagram,
    /// and each of the others sends one.
    #[test]
    fn each_stage_comes_back_behind_itself() {
        if !privilege::may_make_namespaces() {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        }
        let kernel = Kernel::open(2, 2).unwrap();
        let left = || {
            let text =
                kernel.namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
            let text = text.unwrap();
            let line = text.lines().filter(|line| line.starts_with("Udp: ")).nth(1).unwrap();
            // OutDatagrams.
            line.split_whitespace().nth(4).unwrap().parse::<usize>().unwrap()
        };
        for connected in [true, false] {
            let case = Case { routes: 2, spread: 2, connected, calls: FEWER * HOLDERS };
            let mut theirs = kernel.sender(&case).unwrap();
            for stage in STAGES {
                let before = left();
                assert!(theirs.until(stage).unwrap() > 0.0, "{stage:?}");
                let count = match stage {
                    Stage::Call | Stage::Route => 0,
                    Stage::Allocation | Stage::Copy => HOLDERS,
                    Stage::Headers | Stage::Link => ROUNDS * HOLDERS,
                };
                assert_eq!(left() - before, count, "{stage:?}, {connected}");
            }
        }
    }
}
