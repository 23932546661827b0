//! Writing pcap-ng (draft-ietf-opsawg-pcapng): one section, one interface, enhanced packet blocks.
//!
//! The library's writer takes three allocations and two copies for a packet. This one appends to a
//! buffer that is kept.

use millstream_link::Medium;
use pcap_parser::{BOM_MAGIC, EPB_MAGIC, IDB_MAGIC, Linktype, OptionCode, SHB_MAGIC};

/// Which way a captured packet went, seen from the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Appends the section header and the one interface's description.
pub(crate) fn put_start(out: &mut Vec<u8>, medium: Medium, name: &str, snap_bytes: u32) {
    put_block(out, SHB_MAGIC, |out| {
        // Version 1.0, and a section of unknown length.
        put_words(out, &[BOM_MAGIC, 1, u32::MAX, u32::MAX]);
    });
    let link_type = match medium {
        Medium::Ethernet => Linktype::ETHERNET,
        Medium::Ip => Linktype::RAW,
    };
    put_block(out, IDB_MAGIC, |out| {
        put_words(out, &[link_type.0.cast_unsigned(), snap_bytes]);
        put_option(out, OptionCode::IfName, name.as_bytes());
        // Time stamps in units of 10^-9 s.
        put_option(out, OptionCode::IfTsresol, &[9]);
        put_option(out, OptionCode::EndOfOpt, &[]);
    });
}

/// Appends one packet block, of a packet of `original_len` bytes. `fill` is given the space for the
/// first `filled_len` of them; the first `captured_len` are kept.
pub(crate) fn put_packet(
    out: &mut Vec<u8>,
    nanos: u64,
    direction: Direction,
    [captured_len, filled_len, original_len]: [usize; 3],
    fill: impl FnOnce(&mut [u8]),
) {
    let flags: u32 = match direction {
        Direction::In => 1,
        Direction::Out => 2,
    };
    put_block(out, EPB_MAGIC, |out| {
        let [captured, original] = [captured_len, original_len].map(|len| len as u32);
        put_words(out, &[0, (nanos >> 32) as u32, nanos as u32, captured, original]);
        let at = out.len();
        out.resize(at + filled_len, 0);
        fill(&mut out[at..]);
        out.truncate(at + captured_len);
        pad(out, at);
        put_option(out, OptionCode(2), &flags.to_le_bytes());
        put_option(out, OptionCode::EndOfOpt, &[]);
    });
}

fn put_words(out: &mut Vec<u8>, words: &[u32]) {
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

fn put_option(out: &mut Vec<u8>, code: OptionCode, value: &[u8]) {
    // Values are names of links and shorter: below 2^16.
    put_words(out, &[u32::from(code.0) | (value.len() as u32) << 16]);
    let at = out.len();
    out.extend_from_slice(value);
    pad(out, at);
}

/// Appends zeros to what begins at `at`, up to whole words.
fn pad(out: &mut Vec<u8>, at: usize) {
    out.resize(at + (out.len() - at).next_multiple_of(4), 0);
}

/// Appends a whole block: type, length, the body that `put` appends in whole words, length again.
fn put_block(out: &mut Vec<u8>, kind: u32, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_words(out, &[kind, 0]);
    put(out);
    // Lengths are those of packets: far below 2^32.
    let total = (out.len() - start + 4) as u32;
    put_words(out, &[total]);
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
}
