//! The kernel's way, over a virtual pair: its other end, in the same namespace, drops what is for
//! another station.
//!
//! | stage | a call that comes back right behind it |
//! |---|---|
//! | call | to port 0 (`EINVAL`): the system call, the socket, the address copied in |
//! | copy in | with `MSG_MORE`, which waits for more: the route is found, headers' room and data lie in a buffer |
//! | wire | none: it has crossed the pair and is dropped there |

use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use millstream::link::netdev::Namespace;
use nix::sys::socket::{MsgFlags, SockaddrIn, send, sendto};

use super::{Case, Failure, ONE_PREFIX, PAYLOAD, cost, peers, prefixes};

/// `MSG_MORE`.
const MORE: MsgFlags = MsgFlags::from_bits_retain(0x8000);
/// Calls in a round.
const CALLS: usize = 64 * 512;
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
pub struct Kernel {
    namespace: Namespace,
}

/// Returns the names of the figures.
pub fn names(connected: bool) -> &'static [&'static str] {
    match connected {
        true => &["copy in", "wire"],
        false => &["call", "route and copy in", "wire"],
    }
}

impl Kernel {
    /// The namespace, with so many routes.
    pub fn open(routes: usize, spread: usize) -> Result<Self, Failure> {
        let namespace = Namespace::create()?;
        let mut batch = String::from(SET_UP);
        match routes {
            1 => batch += &format!("route add {ONE_PREFIX} via 10.70.0.2\n"),
            _ => {
                for addr in prefixes(spread) {
                    batch += &format!("route add {addr}/24 via 10.70.0.2\n");
                }
            }
        }
        let file = std::env::temp_dir().join(format!("udp-path-{}", std::process::id()));
        std::fs::write(&file, batch)?;
        let status = namespace
            .run(|| Command::new("ip").arg("-batch").arg(&file).stdout(Stdio::null()).status());
        std::fs::remove_file(&file)?;
        match status??.success() {
            true => Ok(Self { namespace }),
            false => Err("ip has set up no interface or routes".into()),
        }
    }

    fn socket(&self, to: Option<SocketAddrV4>) -> Result<UdpSocket, Failure> {
        let socket = self.namespace.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        if let Some(to) = to {
            socket.connect(to)?;
        }
        Ok(socket)
    }

    /// Cumulative nanoseconds of each stage.
    pub fn measure(
        &self,
        case: &Case,
        spread: usize,
        barrier: &Barrier,
    ) -> Result<Vec<f64>, Failure> {
        let peers = peers(spread);
        let peer = case.connected.then(|| peers[0]);
        let socket = self.socket(peer)?;
        let fd = socket.as_raw_fd();
        let to = |at: usize| peers[at % peers.len()];
        let go = |fd, at, data: &[u8], flags| match case.connected {
            true => send(fd, data, flags),
            false => sendto(fd, data, &SockaddrIn::from(to(at)), flags),
        };
        let mut found = Vec::new();
        barrier.wait();
        if !case.connected {
            found.push(cost(CALLS, |calls| {
                for at in 0..calls {
                    let nowhere = SockaddrIn::from(SocketAddrV4::new(*to(at).ip(), 0));
                    assert!(sendto(fd, &PAYLOAD, &nowhere, MsgFlags::empty()).is_err());
                }
            }));
            barrier.wait();
        }
        found.push(self.held(peer, &go)?);
        barrier.wait();
        found.push(cost(CALLS, |calls| {
            for at in 0..calls {
                assert_eq!(go(fd, at, &PAYLOAD, MsgFlags::empty()), Ok(PAYLOAD.len()));
            }
        }));
        Ok(found)
    }

    /// Returns the cost of a datagram that waits for more. It is discarded off the clock.
    fn held(
        &self,
        peer: Option<SocketAddrV4>,
        go: &impl Fn(i32, usize, &[u8], MsgFlags) -> nix::Result<usize>,
    ) -> Result<f64, Failure> {
        let holders: Vec<UdpSocket> =
            (0..HOLDERS).map(|_| self.socket(peer)).collect::<Result<_, _>>()?;
        let (mut rounds, mut at) = (Vec::new(), 0);
        for _ in 0..CALLS / HOLDERS {
            let begun = Instant::now();
            for socket in &holders {
                go(socket.as_raw_fd(), at, &PAYLOAD, MORE)?;
                at += 1;
            }
            rounds.push(begun.elapsed());
            for socket in &holders {
                go(socket.as_raw_fd(), at, &[], MsgFlags::empty())?;
            }
        }
        rounds.sort_unstable();
        let middle: Duration = rounds[rounds.len() / 2];
        Ok(middle.as_secs_f64() * 1e9 / HOLDERS as f64)
    }
}
