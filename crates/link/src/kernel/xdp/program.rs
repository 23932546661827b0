//! The XDP program, assembled here: which packets go to the socket and which stay with the kernel.
//!
//! Registers: r6 the context, r2 and r3 start and end of the packet, r5 the destination port (or
//! [`NO_PORT`]), r7 the IPv4 header's length, r8 a word of the destination address, r9 the
//! protocol. Every access to the packet comes after a compare with its end.

use std::net::IpAddr;

use millstream_wire::ip::Protocol;

use crate::LinkError;
use crate::limits::XDP_FLOWS;

/// One kind of traffic for the socket. What is `None` may be anything; ports are looked at in
/// unfragmented TCP and UDP without IPv6 extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowMatch {
    /// Destination address. Without a port, ARP for it and neighbour solicitations of it belong
    /// to it: the whole address is the stack's.
    pub address: Option<IpAddr>,
    /// Destination port of this protocol.
    pub port: Option<(Protocol, u16)>,
}

/// Which packets the socket gets. Everything else stays with the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Steer {
    /// Every packet that the interface receives.
    #[default]
    All,
    /// The packets that one of these matches.
    Flows(Vec<FlowMatch>),
}

impl Steer {
    /// Refuses what makes no program.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        let Self::Flows(flows) = self else { return Ok(()) };
        let refuse = |what: &str| Err(LinkError::Invalid(what.to_owned()));
        if flows.is_empty() {
            return refuse("no flow to steer to the AF_XDP socket");
        }
        if flows.len() > XDP_FLOWS {
            return refuse("too many flows to steer to the AF_XDP socket");
        }
        if flows.iter().any(|flow| flow.address.is_none() && flow.port.is_none()) {
            return refuse("a flow without address and port would be all: steer all");
        }
        let has_ports = |protocol| [Protocol::TCP, Protocol::UDP].contains(&protocol);
        match flows.iter().filter_map(|flow| flow.port).any(|(protocol, _)| !has_ports(protocol)) {
            true => refuse("a flow's port is one of TCP or of UDP"),
            false => Ok(()),
        }
    }
}

/// One instruction of eBPF, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD: u8 = 0x0f;
const ADD_VALUE: u8 = 0x07;
const AND_VALUE: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const SHIFT_RIGHT: u8 = 0x77;
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_WIDE: u8 = 0x18;
const JUMP: u8 = 0x05;
const JUMP_ABOVE: u8 = 0x2d;
const JUMP_IF: u8 = 0x16;
const JUMP_UNLESS: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const PSEUDO_MAP: u8 = 1;
const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
const NO_PORT: i32 = -1;
/// A type of ICMPv6 (RFC 4861 section 4.3).
const NEIGHBOR_SOLICITATION: i32 = 135;

/// Offsets in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

/// Instructions, and jumps whose targets are not known yet.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    places: Vec<Option<usize>>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    fn value(&mut self, code: u8, to: u8, immediate: i32) {
        self.put(code, to, 0, 0, immediate);
    }

    fn load(&mut self, code: u8, to: u8, from: u8, offset: i16) {
        self.put(code, to, from, offset, 0);
    }

    fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    fn jump(&mut self, code: u8, to: u8, from: u8, immediate: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(code, to, from, 0, immediate);
    }

    /// Goes to `label` unless `bytes` bytes are there from the start.
    fn need(&mut self, bytes: i32, label: Label) {
        self.put(MOVE, 4, 2, 0, 0);
        self.value(ADD_VALUE, 4, bytes);
        self.jump(JUMP_ABOVE, 4, 3, 0, label);
    }

    fn finish(self) -> Vec<Instruction> {
        let Self { mut code, jumps, places } = self;
        for (at, label) in jumps {
            // Every label was placed, and programs are far shorter than 2^15.
            let target = places[label.0].unwrap_or(code.len());
            code[at].offset = (target as i32 - at as i32 - 1) as i16;
        }
        code
    }
}

/// Bytes of the packet as the processor would load them.
fn half(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

fn words<const N: usize>(octets: &[u8]) -> [i32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(octets.chunks_exact(4)) {
        *word = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words
}

/// The program that redirects what `steer` says to the socket of the receiving queue in the map
/// with descriptor `map`.
pub(super) fn assemble(steer: &Steer, map: i32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let [pass, redirect, v4, v6, arp] = std::array::from_fn(|_| a.label());
    a.put(MOVE, 6, 1, 0, 0);
    if let Steer::Flows(flows) = steer {
        a.load(LOAD_WORD, 2, 1, CONTEXT_DATA);
        a.load(LOAD_WORD, 3, 1, CONTEXT_END);
        a.need(14, pass);
        a.load(LOAD_HALF, 5, 2, 12);
        a.jump(JUMP_IF, 5, 0, half(0x0800), v4);
        a.jump(JUMP_IF, 5, 0, half(0x86dd), v6);
        a.jump(JUMP_IF, 5, 0, half(0x0806), arp);
        a.jump(JUMP, 0, 0, 0, pass);
        a.place(v4);
        match_v4(&mut a, flows, pass, redirect);
        a.place(v6);
        match_v6(&mut a, flows, pass, redirect);
        a.place(arp);
        match_arp(&mut a, flows, pass, redirect);
    }
    a.place(redirect);
    a.load(LOAD_WORD, 2, 6, CONTEXT_QUEUE);
    a.put(LOAD_WIDE, 1, PSEUDO_MAP, 0, map);
    a.put(0, 0, 0, 0, 0);
    // Without a socket at this queue: the kernel's.
    a.value(MOVE_VALUE, 3, XDP_PASS);
    a.value(CALL, 0, REDIRECT_MAP);
    a.value(EXIT, 0, 0);
    if *steer != Steer::All {
        // The verifier takes no code that is never reached.
        a.place(pass);
        a.value(MOVE_VALUE, 0, XDP_PASS);
        a.value(EXIT, 0, 0);
    }
    a.finish()
}

/// Compares protocol and port if the flow names them.
fn match_port(a: &mut Assembler, flow: &FlowMatch, next: Label) {
    if let Some((protocol, port)) = flow.port {
        a.jump(JUMP_UNLESS, 9, 0, i32::from(protocol.0), next);
        a.jump(JUMP_UNLESS, 5, 0, half(port), next);
    }
}

fn match_v4(a: &mut Assembler, flows: &[FlowMatch], pass: Label, redirect: Label) {
    let [has_port, no_port] = std::array::from_fn(|_| a.label());
    a.need(34, pass);
    a.load(LOAD_BYTE, 7, 2, 14);
    a.put(MOVE, 8, 7, 0, 0);
    a.value(SHIFT_RIGHT, 8, 4);
    a.jump(JUMP_UNLESS, 8, 0, 4, pass);
    a.value(AND_VALUE, 7, 15);
    a.value(SHIFT_LEFT, 7, 2);
    a.load(LOAD_BYTE, 9, 2, 23);
    a.load(LOAD_WORD, 8, 2, 30);
    a.value(MOVE_VALUE, 5, NO_PORT);
    // Later fragments have no ports, and the first must not be parted from them.
    a.load(LOAD_HALF, 4, 2, 20);
    a.value(AND_VALUE, 4, half(0x3fff));
    a.jump(JUMP_UNLESS, 4, 0, 0, no_port);
    a.jump(JUMP_IF, 9, 0, i32::from(Protocol::TCP.0), has_port);
    a.jump(JUMP_UNLESS, 9, 0, i32::from(Protocol::UDP.0), no_port);
    a.place(has_port);
    a.put(MOVE, 4, 2, 0, 0);
    a.put(ADD, 4, 7, 0, 0);
    a.put(MOVE, 0, 4, 0, 0);
    a.value(ADD_VALUE, 0, 18);
    a.jump(JUMP_ABOVE, 0, 3, 0, no_port);
    a.load(LOAD_HALF, 5, 4, 16);
    a.place(no_port);
    for flow in flows {
        let next = a.label();
        match flow.address {
            Some(IpAddr::V4(v4)) => {
                let [word] = words(&v4.octets());
                a.jump(JUMP_UNLESS, 8, 0, word, next);
            }
            Some(IpAddr::V6(_)) => continue,
            None => {}
        }
        match_port(a, flow, next);
        a.jump(JUMP, 0, 0, 0, redirect);
        a.place(next);
    }
    a.jump(JUMP, 0, 0, 0, pass);
}

fn match_v6(a: &mut Assembler, flows: &[FlowMatch], pass: Label, redirect: Label) {
    let [has_port, no_port] = std::array::from_fn(|_| a.label());
    a.need(54, pass);
    a.load(LOAD_BYTE, 9, 2, 20);
    a.value(MOVE_VALUE, 5, NO_PORT);
    a.jump(JUMP_IF, 9, 0, i32::from(Protocol::TCP.0), has_port);
    a.jump(JUMP_UNLESS, 9, 0, i32::from(Protocol::UDP.0), no_port);
    a.place(has_port);
    a.need(58, no_port);
    a.load(LOAD_HALF, 5, 2, 56);
    a.place(no_port);
    for flow in flows {
        let octets = match flow.address {
            Some(IpAddr::V6(v6)) => Some(v6.octets()),
            Some(IpAddr::V4(_)) => continue,
            None => None,
        };
        let next = a.label();
        if let Some(octets) = octets {
            match_address(a, &octets, 38, next);
        }
        match_port(a, flow, next);
        a.jump(JUMP, 0, 0, 0, redirect);
        a.place(next);
        if let (Some(own), None) = (octets, flow.port) {
            match_solicitation(a, &own, redirect);
        }
    }
    a.jump(JUMP, 0, 0, 0, pass);
}

/// Goes to `next` unless the address at `offset` is this one.
fn match_address(a: &mut Assembler, octets: &[u8; 16], offset: i16, next: Label) {
    for (i, word) in words::<4>(octets).into_iter().enumerate() {
        a.load(LOAD_WORD, 8, 2, offset + 4 * i as i16);
        a.jump(JUMP_UNLESS, 8, 0, word, next);
    }
}

/// Redirects neighbour solicitations of the address. The group that they are sent to (RFC 4291
/// section 2.7.1) is that of all addresses with the same last three bytes, the kernel's perhaps
/// among them; the target tells.
fn match_solicitation(a: &mut Assembler, own: &[u8; 16], redirect: Label) {
    let mut group = [0; 16];
    group[..2].copy_from_slice(&[0xff, 0x02]);
    group[11..13].copy_from_slice(&[1, 0xff]);
    group[13..].copy_from_slice(&own[13..]);
    let next = a.label();
    match_address(a, &group, 38, next);
    a.jump(JUMP_UNLESS, 9, 0, i32::from(Protocol::ICMPV6.0), next);
    a.need(78, next);
    a.load(LOAD_BYTE, 8, 2, 54);
    a.jump(JUMP_UNLESS, 8, 0, NEIGHBOR_SOLICITATION, next);
    match_address(a, own, 62, next);
    a.jump(JUMP, 0, 0, 0, redirect);
    a.place(next);
}

fn match_arp(a: &mut Assembler, flows: &[FlowMatch], pass: Label, redirect: Label) {
    a.need(42, pass);
    // The target's protocol address.
    a.load(LOAD_WORD, 8, 2, 38);
    for flow in flows {
        if let (Some(IpAddr::V4(v4)), None) = (flow.address, flow.port) {
            let [word] = words(&v4.octets());
            a.jump(JUMP_IF, 8, 0, word, redirect);
        }
    }
    a.jump(JUMP, 0, 0, 0, pass);
}
