//! Several packet sockets that share an interface's packets (PACKET_FANOUT of packet(7)).
//!
//! The kernel asks a classic BPF program for a number and gives the packet to the socket of that
//! number, modulo their count, in the order in which they joined. The program does what [`Spread`]
//! does, so that next to nothing has to be handed over: TCP and UDP by port or by a hash of
//! addresses and ports, other IP by addresses, solicitations and the rest to the first. Fragments
//! of IPv4 are put together before.
//!
//! A socket of a group sees every packet while it is bound and has not joined yet, so it opens with
//! a filter that takes nothing, which goes when all have joined. The kernel chooses a group number
//! that nobody uses in the namespace, and forgets the group with its last socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::socket::{RETURN, attach, get, set, statement};
use crate::flow::{MIXING_FACTOR, MIXING_SHIFT, Spread};
use crate::limits::SHARED_PORTS_FIRST;

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
const ADD_X: u16 = 0x0c;
const XOR_X: u16 = 0xac;
const FROM_X: u16 = 0x87;
const TO_X: u16 = 0x07;
const SET_X: u16 = 0x01;
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

fn load(fd: RawFd, spread: &Spread) -> io::Result<()> {
    attach(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &mut program(spread))
}

/// Jumps over `yes` instructions if the comparison with `k` holds, over `no` if not.
fn jump(code: u16, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: yes, jf: no, k }
}

/// The program: X adds up the addresses, then M0 keeps that and X is where the ports are.
fn program(spread: &Spread) -> Vec<libc::sock_filter> {
    let ports = ports(spread);
    let mut v6 = add_up(spread, 8..40);
    v6.extend([
        statement(SET_X, 40),
        statement(LOAD_BYTE, NET + 6),
        // The option of a long super-segment, and nothing else, is passed over: before TCP to the
        // ports.
        jump(JUMP_EQUAL, 0, 0, 7),
        statement(LOAD_BYTE, NET + 41),
        jump(JUMP_EQUAL, 0, 0, 11),
        statement(LOAD_BYTE, NET + 42),
        jump(JUMP_EQUAL, 0xc2, 0, 9),
        statement(LOAD_BYTE, NET + 40),
        statement(SET_X, 48),
        jump(JUMP_EQUAL, 6, 8, 6),
        // TCP or UDP: to the ports.
        jump(JUMP_EQUAL, 6, 7, 0),
        jump(JUMP_EQUAL, 17, 6, 0),
        // Router and neighbour solicitations: to the first. All others: to the hash.
        jump(JUMP_EQUAL, 58, 0, 3),
        statement(LOAD_BYTE, NET + 40),
        jump(JUMP_EQUAL, 133, 2, 0),
        jump(JUMP_EQUAL, 135, 1, 0),
        statement(JUMP, 1 + ports.len() as u32),
        statement(RETURN, 0),
    ]);
    let mut v4 = add_up(spread, 12..20);
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
        statement(JUMP, (1 + v6.len() + ports.len()) as u32),
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
    all.extend(ports);
    all.extend([
        statement(LOAD_KEPT, 0),
        statement(SHIFT_RIGHT, 16),
        statement(TO_X, 0),
        statement(SHIFT_RIGHT, MIXING_SHIFT),
        statement(XOR_X, 0),
        statement(MULTIPLY, MIXING_FACTOR),
        statement(SHIFT_RIGHT, 16),
        statement(RETURN_A, 0),
    ]);
    all
}

/// Our port itself if it has one owner; else both ports are added to what M0 keeps.
fn ports(spread: &Spread) -> [libc::sock_filter; 12] {
    [
        statement(LOAD_HALF_AT_X, NET + 2),
        jump(JUMP_ABOVE_OR_EQUAL, SHARED_PORTS_FIRST.into(), 0, 1),
        statement(RETURN_A, 0),
        statement(MULTIPLY, spread.our_port_key),
        statement(KEEP, 1),
        statement(LOAD_HALF_AT_X, NET),
        statement(MULTIPLY, spread.their_port_key),
        statement(LOAD_X_KEPT, 1),
        statement(ADD_X, 0),
        statement(LOAD_X_KEPT, 0),
        statement(ADD_X, 0),
        statement(KEEP, 0),
    ]
}

/// The half words of the network header at these places, each times its key, added up into M0.
fn add_up(spread: &Spread, places: std::ops::Range<u32>) -> Vec<libc::sock_filter> {
    let mut code = vec![statement(SET_X, spread.start)];
    for (place, key) in places.step_by(2).zip(spread.address_keys) {
        code.extend([
            statement(LOAD_HALF, NET + place),
            statement(MULTIPLY, key),
            statement(ADD_X, 0),
            statement(TO_X, 0),
        ]);
    }
    code.extend([statement(FROM_X, 0), statement(KEEP, 0)]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Medium;
    use crate::flow::Place;
    use crate::testing::{Shape, bytes, pool};
    use proptest::prelude::*;

    /// Returns what the kernel makes of the program for an Ethernet frame: a load beyond its end
    /// returns 0.
    fn run(program: &[libc::sock_filter], frame: &[u8]) -> u32 {
        let load = |at: u32, len: usize| {
            let at = if at == PROTOCOL { 12 } else { 14 + (at - NET) as usize };
            let bytes = frame.get(at..at + len)?;
            Some(bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
        };
        let (mut a, mut x, mut kept, mut at) = (0_u32, 0_u32, [0_u32; 2], 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let branch = |holds: bool| usize::from(if holds { jt } else { jf });
            let loaded = match code {
                LOAD_WORD => load(k, 2),
                LOAD_HALF => load(k, 2),
                LOAD_BYTE => load(k, 1),
                LOAD_HALF_AT_X => load(k + x, 2),
                LOAD_KEPT => Some(kept[k as usize]),
                MULTIPLY => Some(a.wrapping_mul(k)),
                ADD_X => Some(a.wrapping_add(x)),
                XOR_X => Some(a ^ x),
                AND => Some(a & k),
                SHIFT_LEFT => Some(a << k),
                SHIFT_RIGHT => Some(a >> k),
                FROM_X => Some(x),
                _ => Some(a),
            };
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            match code {
                TO_X => x = a,
                SET_X => x = k,
                LOAD_X_KEPT => x = kept[k as usize],
                KEEP => kept[k as usize] = a,
                JUMP => at += k as usize,
                JUMP_EQUAL => at += branch(a == k),
                JUMP_ABOVE_OR_EQUAL => at += branch(a >= k),
                JUMP_SET => at += branch(a & k != 0),
                RETURN => return k,
                RETURN_A => return a,
                _ => {}
            }
        }
    }

    #[test]
    fn solicitations_are_for_the_first_by_the_program_too() {
        let spread = Spread::new(64);
        let program = program(&spread);
        let mut frame = bytes(&Shape::new(true, true, vec![1; 10]).build(&pool()));
        let mut numbers = std::collections::BTreeSet::new();
        for (last, kind) in (0..=255).flat_map(|last| [(last, 128), (last, 133), (last, 135)]) {
            (frame[20], frame[53], frame[54]) = (58, last, kind);
            let number = run(&program, &frame) as usize % 64;
            assert_eq!(spread.place(&frame, Medium::Ethernet), Place::One(number), "{kind}");
            assert!(kind == 128 || number == 0, "{kind}: {number}");
            numbers.insert(number);
        }
        assert!(numbers.len() > 16, "others by the hash: {numbers:?}");
    }

    proptest! {
        #[test]
        fn the_program_and_we_agree_on_every_flow(
            is_v6: bool,
            is_tcp: bool,
            is_fragment: bool,
            option: bool,
            addresses: [u8; 32],
            ports: [u8; 4],
            count in 1_usize..64,
        ) {
            let mut frame = bytes(&Shape::new(is_v6, is_tcp, vec![1; 10]).build(&pool()));
            let (at, l4) = if is_v6 { (22..54, 54) } else { (26..34, 34) };
            let len = at.len();
            frame[at].copy_from_slice(&addresses[..len]);
            frame[l4..l4 + 4].copy_from_slice(&ports);
            if is_fragment && !is_v6 {
                frame[20] |= 0x20;
            }
            if option && is_v6 {
                // The option is that of a long super-segment, or another.
                let kind = if is_fragment { 5 } else { 0xc2 };
                let next = std::mem::take(&mut frame[20]);
                frame.splice(54..54, [next, 0, kind, 4, 0, 4, 0, 0]);
            }
            let spread = Spread::new(count);
            let number = run(&program(&spread), &frame) as usize;
            prop_assert_eq!(spread.place(&frame, Medium::Ethernet), Place::One(number % count));
        }
    }
}
