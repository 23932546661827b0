//! Several packet sockets that share an interface's packets (PACKET_FANOUT of packet(7)).
//!
//! The kernel asks a classic BPF program for a number and gives the packet to the socket of that
//! number, modulo their count, in the order in which they joined. The program does what
//! [`Spread`] does, so that next to nothing has to be handed over: TCP and UDP by port or by a hash
//! of addresses and ports, other IP by addresses, the rest to the first. Fragments of IPv4 are put
//! together before.
//!
//! A socket of a group sees every packet while it is bound and has not joined yet, so it opens with
//! a filter that takes nothing, which goes when all have joined. The kernel chooses a group number
//! that nobody uses in the namespace, and forgets the group with its last socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::socket::{get, set};
use crate::limits::SHARED_PORTS_FIRST;
use crate::share::Spread;
use crate::sys::check;

/// Where the network header starts, for loads.
const NET: u32 = 0xfff0_0000;
/// The packet's protocol, for loads.
const PROTOCOL: u32 = 0xffff_f000;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_AT_X: u16 = 0x48;
const LOAD_KEPT: u16 = 0x60;
const LOAD_X_KEPT: u16 = 0x61;
const KEEP: u16 = 0x02;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ABOVE_OR_EQUAL: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const SHIFT_RIGHT: u16 = 0x74;
const MULTIPLY: u16 = 0x24;
const XOR_X: u16 = 0xac;
const TO_X: u16 = 0x07;
const SET_X: u16 = 0x01;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;

/// A group that sockets join.
pub(super) struct Group {
    id: u16,
    flags: u32,
}

impl Group {
    /// A new group with `socket` as its first member, spread by `spread`.
    pub fn found(socket: &OwnedFd, spread: &Spread) -> io::Result<Self> {
        let fd = socket.as_raw_fd();
        let plain = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_DEFRAG;
        // Kernels that do not know it have sockets that see what this host sends.
        let quiet = plain | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let mut refused = None;
        for flags in [quiet, plain] {
            let value = (flags | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16;
            match set(fd, libc::PACKET_FANOUT, &value) {
                Ok(()) => {
                    let mut joined = 0_u32;
                    get(fd, libc::PACKET_FANOUT, &mut joined)?;
                    load(fd, spread)?;
                    return Ok(Self { id: joined as u16, flags });
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
    }

    /// Its number.
    #[cfg(test)]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Makes `socket` the next member.
    pub fn join(&self, socket: &OwnedFd) -> io::Result<()> {
        let value = u32::from(self.id) | self.flags << 16;
        set(socket.as_raw_fd(), libc::PACKET_FANOUT, &value)
    }
}

/// Has `fd` receive nothing, until [`open`].
pub(super) fn close(fd: RawFd) -> io::Result<()> {
    attach(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut [statement(RETURN, 0)])
}

/// Ends what [`close`] began.
pub(super) fn open(fd: RawFd) -> io::Result<()> {
    let (unused, size) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the pointer is to a live int.
    let result = unsafe {
        let value = (&raw const unused).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, value, size)
    };
    check(result).map(|_| ())
}

fn load(fd: RawFd, spread: &Spread) -> io::Result<()> {
    attach(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &mut program(spread))
}

fn attach(
    fd: RawFd,
    level: libc::c_int,
    option: libc::c_int,
    code: &mut [libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the pointer is to a live program, which points at so many live instructions; the
    // kernel only reads them.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const program).cast(), size) })
        .map(|_| ())
}

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Jumps over `yes` instructions if the comparison with `k` holds, over `no` if not.
fn jump(code: u16, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: yes, jf: no, k }
}

/// The program: M0 keeps the folded addresses, X is where the ports are.
fn program(spread: &Spread) -> Vec<libc::sock_filter> {
    let mut v6 = fold(&[8, 12, 16, 20, 24, 28, 32, 36]);
    v6.extend([
        statement(SET_X, 40),
        statement(LOAD_BYTE, NET + 6),
        // TCP or UDP: to the ports, else to the hash.
        jump(JUMP_EQUAL, 6, 2, 0),
        jump(JUMP_EQUAL, 17, 1, 0),
        statement(JUMP, PORTS.len() as u32),
    ]);
    let mut v4 = fold(&[12, 16]);
    v4.extend([
        statement(LOAD_BYTE, NET),
        statement(AND, 0x0f),
        statement(SHIFT_LEFT, 2),
        statement(TO_X, 0),
        statement(LOAD_HALF, NET + 6),
        // A fragment: to the hash.
        jump(JUMP_SET, 0x3fff, 3, 0),
        statement(LOAD_BYTE, NET + 9),
        jump(JUMP_EQUAL, 6, 2, 0),
        jump(JUMP_EQUAL, 17, 1, 0),
        statement(JUMP, (1 + v6.len() + PORTS.len()) as u32),
        statement(JUMP, v6.len() as u32),
    ]);
    let mut all = vec![
        statement(LOAD_WORD, PROTOCOL),
        jump(JUMP_EQUAL, 0x0800, 2, 0),
        jump(JUMP_EQUAL, 0x86dd, v4.len() as u8 + 1, 0),
        statement(RETURN, 0),
    ];
    all.extend(v4);
    all.extend(v6);
    all.extend(PORTS.map(|(code, k, yes, no)| jump(code, k, yes, no)));
    all.extend([
        statement(LOAD_KEPT, 0),
        statement(MULTIPLY, spread.key()),
        statement(SHIFT_RIGHT, 16),
        statement(RETURN_A, 0),
    ]);
    all
}

/// Our port itself if it has one owner; else both ports are added to what M0 keeps.
const PORTS: [(u16, u32, u8, u8); 10] = [
    (LOAD_HALF_AT_X, NET + 2, 0, 0),
    (JUMP_ABOVE_OR_EQUAL, SHARED_PORTS_FIRST as u32, 0, 1),
    (RETURN_A, 0, 0, 0),
    (KEEP, 1, 0, 0),
    (LOAD_HALF_AT_X, NET, 0, 0),
    (LOAD_X_KEPT, 1, 0, 0),
    (XOR_X, 0, 0, 0),
    (LOAD_X_KEPT, 0, 0, 0),
    (XOR_X, 0, 0, 0),
    (KEEP, 0, 0, 0),
];

/// The words at these places of the network header, folded into M0.
fn fold(places: &[u32]) -> Vec<libc::sock_filter> {
    let mut code = Vec::new();
    for (i, place) in places.iter().enumerate() {
        code.push(statement(LOAD_WORD, NET + place));
        if i > 0 {
            code.extend([statement(LOAD_X_KEPT, 0), statement(XOR_X, 0)]);
        }
        code.push(statement(KEEP, 0));
    }
    code
}
