//! Writing pcap-ng (draft-ietf-opsawg-pcapng): one section, one interface, enhanced packet blocks.

use std::io::{self, Write};

use crate::Medium;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const LINKTYPE_RAW: u16 = 101;
const OPTION_END: u16 = 0;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_EPB_FLAGS: u16 = 2;

/// Which way a captured packet went, seen from the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Writes the section header and the one interface's description.
pub(super) fn write_start(
    out: &mut impl Write,
    medium: Medium,
    name: &str,
    snap_bytes: u32,
) -> io::Result<()> {
    let mut section = Vec::with_capacity(16);
    section.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
    section.extend_from_slice(&1_u16.to_le_bytes());
    section.extend_from_slice(&0_u16.to_le_bytes());
    section.extend_from_slice(&u64::MAX.to_le_bytes());
    write_block(out, SECTION_HEADER, &section)?;

    let link_type = match medium {
        Medium::Ethernet => LINKTYPE_ETHERNET,
        Medium::Ip => LINKTYPE_RAW,
    };
    let mut interface = Vec::with_capacity(64);
    interface.extend_from_slice(&link_type.to_le_bytes());
    interface.extend_from_slice(&0_u16.to_le_bytes());
    interface.extend_from_slice(&snap_bytes.to_le_bytes());
    put_option(&mut interface, OPTION_IF_NAME, name.as_bytes());
    // Time stamps in units of 10^-9 s.
    put_option(&mut interface, OPTION_IF_TSRESOL, &[9]);
    put_option(&mut interface, OPTION_END, &[]);
    write_block(out, INTERFACE_DESCRIPTION, &interface)
}

/// Appends one packet block to `out`, its captured bytes written by `fill` into the space given.
pub(super) fn put_packet(
    out: &mut Vec<u8>,
    nanos: u64,
    direction: Direction,
    captured_len: usize,
    original_len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let flags: u32 = match direction {
        Direction::In => 1,
        Direction::Out => 2,
    };
    let padded = captured_len.next_multiple_of(4);
    let total = 12 + 20 + padded + 12;
    // Lengths are those of packets: far below 2^32.
    let word = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&ENHANCED_PACKET.to_le_bytes());
    out.extend_from_slice(&word(total));
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&((nanos >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(nanos as u32).to_le_bytes());
    out.extend_from_slice(&word(captured_len));
    out.extend_from_slice(&word(original_len));
    let at = out.len();
    out.resize(at + padded, 0);
    fill(&mut out[at..at + captured_len]);
    put_option(out, OPTION_EPB_FLAGS, &flags.to_le_bytes());
    put_option(out, OPTION_END, &[]);
    out.extend_from_slice(&word(total));
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A whole block: type, length, body, length again. `body` is padded to four already.
fn write_block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = u32::try_from(body.len() + 12).unwrap_or(u32::MAX).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total)?;
    out.write_all(body)?;
    out.write_all(&total)
}
