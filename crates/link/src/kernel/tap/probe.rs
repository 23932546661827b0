//! The self-check at opening: does a super-segment with a partial checksum pass whole, both
//! ways? Of datagrams only to the kernel: where it does not give them whole, it cuts them, and that
//! is no more than slower.
//!
//! A packet socket on the kernel's side of the device sends one and looks for the one we send, for
//! IPv4 and IPv6. The packets are addressed to nobody: on Ethernet to a link address that no
//! interface has, and on IP to the loopback address, which no outside packet may use (RFC 1122
//! section 3.2.1.3, RFC 4291 section 2.5.3); every host drops them.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use millstream_packet::{Checksum, Meta, Segmentation, SegmentationKind, sum};

use crate::Medium;
use crate::kernel::big_tcp::Jumbo;
use crate::kernel::raw::socket;
use crate::limits::{PROBE_ATTEMPTS, PROBE_WAIT_MS};
use crate::offload::vnet;
use crate::sys::{PollEntry, poll};

const SEGMENT_BYTES: u16 = 1000;
const PAYLOAD_BYTES: usize = 3000;
/// Bytes of the longest packet headers of a probe.
const HEADERS_BYTES: usize = 100;

/// A transport of super-segments, and what of its header a probe needs to know.
#[derive(Clone, Copy)]
struct Transport {
    protocol: u8,
    header_bytes: usize,
    checksum_at: usize,
    kinds: [SegmentationKind; 2],
}

const TCP: Transport = Transport {
    protocol: 6,
    header_bytes: 20,
    checksum_at: 16,
    kinds: [SegmentationKind::TcpV4, SegmentationKind::TcpV6],
};

const UDP: Transport =
    Transport { protocol: 17, header_bytes: 8, checksum_at: 6, kinds: [SegmentationKind::Udp; 2] };

/// The outcome of the self-check.
pub(super) struct Checked {
    /// The kernel took our super-segments whole.
    pub sends_whole: bool,
    /// The same of those of datagrams; true where that was not asked.
    pub sends_datagrams_whole: bool,
    /// The kernel gave its super-segments whole.
    pub receives_whole: bool,
    pub notes: Vec<String>,
}

/// Sends the probes through the device `name`, which is up and whose other end is `tap`; those of
/// datagrams too, if `udp`. Control path: takes a few system calls, and a tenth of a second for
/// each probe that does not arrive.
pub(super) fn run(tap: RawFd, name: &str, medium: Medium, udp: bool) -> Checked {
    let mut checked = Checked {
        sends_whole: true,
        sends_datagrams_whole: true,
        receives_whole: true,
        notes: Vec::new(),
    };
    let socket = match socket::open(name) {
        Ok(socket) => socket,
        Err(error) => {
            checked.notes.push(format!("offloads of {name} accepted but not checked: {error}"));
            return checked;
        }
    };
    let kernel = socket.as_raw_fd();
    for (family, is_v6) in [("IPv4", false), ("IPv6", true)] {
        let probe = Probe::new(medium, is_v6, TCP, PAYLOAD_BYTES);
        if !probe.passes(tap, kernel) {
            checked.sends_whole = false;
            checked.notes.push(format!(
                "{name}: the kernel did not take an {family} super-segment: cut in software"
            ));
        }
        // Twice: a device that was up before it was opened gets its queue only when the kernel has
        // noticed that there is a carrier now, and drops until then.
        if !(probe.passes(kernel, tap) || probe.passes(kernel, tap)) {
            checked.receives_whole = false;
            checked.notes.push(format!(
                "{name}: the kernel did not give an {family} super-segment whole: plain frames"
            ));
        }
        if udp
            && checked.sends_whole
            && !Probe::new(medium, is_v6, UDP, PAYLOAD_BYTES).passes(tap, kernel)
        {
            checked.sends_datagrams_whole = false;
            checked.notes.push(format!(
                "{name}: the kernel did not take an {family} super-segment of UDP: cut in software"
            ));
        }
    }
    checked
}

/// Returns whether the device takes an IPv4 or IPv6 super-segment of `bytes`, or that cannot be
/// found out. As [`run`].
pub(super) fn takes_big(tap: RawFd, name: &str, medium: Medium, is_v6: bool, bytes: u32) -> bool {
    let Ok(socket) = socket::open(name) else { return true };
    let probe = Probe::new(medium, is_v6, TCP, bytes as usize - HEADERS_BYTES);
    let passes = || probe.passes(tap, socket.as_raw_fd());
    // Twice: the kernel may have had no memory in such pieces just then.
    passes() || passes()
}

/// A super-segment to look for.
struct Probe {
    /// The virtio-net header and the packet.
    bytes: Vec<u8>,
    header: vnet::Header,
}

impl Probe {
    fn new(medium: Medium, is_v6: bool, transport: Transport, payload: usize) -> Self {
        let Transport { protocol, header_bytes, checksum_at, kinds } = transport;
        let l3 = medium.header_len();
        let l4 = l3 + if is_v6 { 40 } else { 20 };
        let header_len = l4 + header_bytes;
        let mut packet = vec![0; header_len + payload];
        if medium == Medium::Ethernet {
            packet[..12].copy_from_slice(b"\x02MSprb\x02MSprc");
            packet[12..14].copy_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
        }
        // A length that the field cannot hold is told by 0.
        let field = |len: usize| u16::try_from(len).unwrap_or(0).to_be_bytes();
        let transport_len = header_bytes + payload;
        let addresses = if is_v6 {
            packet[l3] = 0x60;
            packet[l3 + 4..l3 + 6].copy_from_slice(&field(transport_len));
            packet[l3 + 6..l3 + 8].copy_from_slice(&[protocol, 1]);
            // 2001:db8::2 (RFC 3849) to ::1.
            packet[l3 + 8..l3 + 12].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
            packet[l3 + 23] = 2;
            packet[l3 + 39] = 1;
            l3 + 8..l3 + 40
        } else {
            packet[l3] = 0x45;
            packet[l3 + 2..l3 + 4].copy_from_slice(&field(20 + transport_len));
            packet[l3 + 8..l3 + 10].copy_from_slice(&[1, protocol]);
            // 192.0.2.2 (RFC 5737) to 127.0.0.1.
            packet[l3 + 12..l3 + 20].copy_from_slice(&[192, 0, 2, 2, 127, 0, 0, 1]);
            let value = sum::finish(sum::sum(&packet[l3..l4]));
            packet[l3 + 10..l3 + 12].copy_from_slice(&value);
            l3 + 12..l3 + 20
        };
        let [.., beyond, length_high, length_low] = transport_len.to_be_bytes();
        let tail = sum::sum(&[0, protocol, 0, beyond, length_high, length_low]);
        let [high, low] = sum::finish(sum::combine(sum::sum(&packet[addresses]), tail, false));
        packet[l4..l4 + 4].copy_from_slice(&[0, 9, 0, 9]);
        match protocol == UDP.protocol {
            true => packet[l4 + 4..l4 + 6].copy_from_slice(&field(transport_len)),
            false => packet[l4 + 12..l4 + 14].copy_from_slice(&[5 << 4, 0x10]),
        }
        packet[l4 + checksum_at..l4 + checksum_at + 2].copy_from_slice(&[!high, !low]);
        packet[header_len..].fill(0x5a);

        let meta = Meta {
            checksum: Checksum::Partial { start: l4 as u16, offset: checksum_at as u16 },
            segmentation: Some(Segmentation {
                kind: kinds[usize::from(is_v6)],
                ecn: false,
                size: SEGMENT_BYTES,
                header_len: header_len as u16,
            }),
            ..Meta::default()
        };
        let header = vnet::encode(&meta);
        let jumbo = match is_v6 && Jumbo::is_wanted() {
            true => Jumbo::of_start(&header, &packet, packet.len(), medium),
            false => None,
        };
        let (front, skip) = match &jumbo {
            Some(jumbo) => (jumbo.bytes(), jumbo.stands_for()),
            None => (&header[..], 0),
        };
        let bytes = [front, &packet[skip..]].concat();
        let header = *bytes.first_chunk().unwrap_or(&header);
        Self { bytes, header }
    }

    /// Sends the probe into `from` and waits until it comes out of `to` as it was.
    fn passes(&self, from: RawFd, to: RawFd) -> bool {
        // SAFETY: the pointer is to that many readable bytes.
        let n = unsafe { libc::write(from, self.bytes.as_ptr().cast(), self.bytes.len()) };
        if n != self.bytes.len().cast_signed() {
            return false;
        }
        let mut buffer = vec![0; self.bytes.len().max(vnet::HEADER_BYTES + 66_000)];
        for _ in 0..PROBE_ATTEMPTS {
            // SAFETY: the pointer is to that many writable bytes.
            let n = unsafe { libc::read(to, buffer.as_mut_ptr().cast(), buffer.len()) };
            if n > 0 {
                if self.is_in(&buffer[..n.cast_unsigned()]) {
                    return true;
                }
            } else if poll(
                &mut [PollEntry::readable(to)],
                Some(Duration::from_millis(PROBE_WAIT_MS)),
            )
            .is_err()
            {
                return false;
            }
        }
        false
    }

    /// Returns whether `got` is this probe, still a super-segment. Other traffic may be about.
    fn is_in(&self, got: &[u8]) -> bool {
        let at = vnet::HEADER_BYTES;
        got.len() == self.bytes.len()
            && got[1] == self.header[1]
            && got[4..6] == self.header[4..6]
            && got[at..] == self.bytes[at..]
    }
}
