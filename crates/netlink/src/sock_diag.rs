//! TCP_INFO of the connections of a namespace, over netlink (sock_diag(7)).

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::Netlink;
use crate::bytes::{find, text};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
pub(super) const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
pub(super) const MESSAGE_BYTES: usize = 72;
const INET_DIAG_SKMEMINFO: u16 = 7;
const REQUEST_BYTES: usize = 56;

/// One connection of the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpSocket {
    /// Local port.
    pub local_port: u16,
    /// Port of the peer.
    pub remote_port: u16,
    /// Inode number of the socket, by which a process's descriptor names it; 0 where none has it.
    pub inode: u32,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Names as in `struct tcp_info`, the unit at the end.
    pub fields: BTreeMap<String, f64>,
}

/// Returns every established TCP connection of the current namespace, and those that one end has
/// closed, as long as the kernel keeps their state: of one that waits for the other end's FIN it
/// does not.
///
/// # Errors
/// When the kernel does not answer.
pub fn tcp_sockets(v6: bool) -> io::Result<Vec<TcpSocket>> {
    let mut netlink = Netlink::open(NETLINK_SOCK_DIAG)?;
    // States ESTABLISHED to CLOSE-WAIT of include/net/tcp_states.h: 1, 4, 5, 8.
    let states: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;
    let wanted = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO];
    let request = Diag::request(v6, libc::IPPROTO_TCP, states, &wanted);
    let answers = netlink.request(request, NLM_F_DUMP)?;
    Ok(answers.iter().filter_map(|answer| socket(&answer.body)).collect())
}

/// Reads one `struct inet_diag_msg` with its attributes.
fn socket(body: &[u8]) -> Option<TcpSocket> {
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let attributes = body.get(MESSAGE_BYTES..)?;
    let u32_at =
        |at: usize| Some(f64::from(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?)));
    let mut all = fields(find(attributes, INET_DIAG_INFO)?);
    all.extend(find(attributes, INET_DIAG_SKMEMINFO).map(memory).unwrap_or_default());
    // Bytes that nobody has read, and bytes that are not acknowledged.
    for (name, value) in [("recv_queue_bytes", u32_at(56)), ("send_queue_bytes", u32_at(60))] {
        all.extend(value.map(|value| (name.to_owned(), value)));
    }
    Some(TcpSocket {
        local_port: port(4)?,
        remote_port: port(6)?,
        inode: u32::from_ne_bytes(body.get(68..72)?.try_into().ok()?),
        congestion: find(attributes, INET_DIAG_CONG).map(text),
        fields: all,
    })
}

/// Memory of a socket by the places of `SK_MEMINFO_*` (include/uapi/linux/sock_diag.h).
fn memory(values: &[u8]) -> BTreeMap<String, f64> {
    let place =
        |at: usize| Some(u32::from_ne_bytes(values.get(4 * at..4 * at + 4)?.try_into().ok()?));
    let table = [
        ("recv_memory_bytes", 0),
        ("recv_limit_bytes", 1),
        ("send_limit_bytes", 3),
        ("send_memory_bytes", 5),
    ];
    let known = |(name, at): (&str, usize)| Some((name.to_owned(), f64::from(place(at)?)));
    table.into_iter().filter_map(known).collect()
}

/// `struct tcp_info` of include/uapi/linux/tcp.h by offset; an older kernel's
/// shorter structure has fewer fields.
fn fields(info: &[u8]) -> BTreeMap<String, f64> {
    let u32_at =
        |at: usize| Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?) as f64);
    let u64_at =
        |at: usize| Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?) as f64);
    let u16_at =
        |at: usize| Some(f64::from(u16::from_ne_bytes(info.get(at..at + 2)?.try_into().ok()?)));
    let mss = u32_at(16).unwrap_or(0.0);
    let table = [
        ("backoff", info.get(4).map(|&n| f64::from(n))),
        ("rto_us", u32_at(8)),
        ("mss_bytes", Some(mss)),
        ("rcv_mss_bytes", u32_at(20)),
        ("unacked_segments", u32_at(24)),
        ("sacked_segments", u32_at(28)),
        ("lost_segments", u32_at(32)),
        ("retrans_segments", u32_at(36)),
        ("pmtu_bytes", u32_at(60)),
        ("srtt_us", u32_at(68)),
        ("rttvar_us", u32_at(72)),
        // The largest number stands for "none yet".
        ("ssthresh_bytes", u32_at(76).filter(|&n| n < 2_147_483_647.0).map(|n| n * mss)),
        ("cwnd_bytes", u32_at(80).map(|n| n * mss)),
        ("adv_mss_bytes", u32_at(84)),
        ("reordering_segments", u32_at(88)),
        ("rcv_rtt_us", u32_at(92)),
        ("rcv_space_bytes", u32_at(96)),
        ("retransmits", u32_at(100)),
        // The largest number stands for "not paced".
        ("pacing_rate_bits_per_s", u64_at(104).filter(|&n| n < 1e18).map(|n| n * 8.0)),
        ("max_pacing_rate_bits_per_s", u64_at(112).filter(|&n| n < 1e18).map(|n| n * 8.0)),
        ("bytes_acked", u64_at(120)),
        ("bytes_received", u64_at(128)),
        ("segments_sent", u32_at(136)),
        ("segments_received", u32_at(140)),
        ("notsent_bytes", u32_at(144)),
        ("min_rtt_us", u32_at(148)),
        ("delivery_rate_bits_per_s", u64_at(160).map(|n| n * 8.0)),
        ("busy_s", u64_at(168).map(|n| n / 1e6)),
        ("rwnd_limited_s", u64_at(176).map(|n| n / 1e6)),
        ("sndbuf_limited_s", u64_at(184).map(|n| n / 1e6)),
        ("data_segments_received", u32_at(152)),
        ("data_segments_sent", u32_at(156)),
        ("delivered_segments", u32_at(192)),
        ("delivered_ce_segments", u32_at(196)),
        ("bytes_sent", u64_at(200)),
        ("bytes_retransmitted", u64_at(208)),
        ("dsack_dups", u32_at(216)),
        ("reord_seen", u32_at(220)),
        ("out_of_order_packets", u32_at(224)),
        ("snd_wnd_bytes", u32_at(228)),
        ("rcv_wnd_bytes", u32_at(232)),
        ("total_rto", u16_at(240)),
        ("total_rto_recoveries", u16_at(242)),
        ("total_rto_time_s", u32_at(244).map(|n| n / 1e3)),
    ];
    table.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(super) struct Diag {
    pub(super) body: Vec<u8>,
}

impl Diag {
    /// A `struct inet_diag_req_v2`: every socket of a family and protocol in one of `states`, with
    /// these attributes.
    pub(super) fn request(v6: bool, protocol: i32, states: u32, attributes: &[u16]) -> Self {
        let mut body = vec![0; REQUEST_BYTES];
        body[0] = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
        body[1] = protocol as u8;
        body[2] = attributes.iter().fold(0, |bits, attribute| bits | 1 << (attribute - 1));
        body[4..8].copy_from_slice(&states.to_ne_bytes());
        Self { body }
    }
}

impl NetlinkSerializable for Diag {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.body.len()].copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for Diag {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { body: payload.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::attribute;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_without_its_state_is_none() {
        // As the kernel tells of one that was closed, and of which it keeps the ports alone.
        let mut answer = vec![0; MESSAGE_BYTES];
        assert_eq!(socket(&answer), None);
        attribute(&mut answer, INET_DIAG_INFO, &[1]);
        assert!(socket(&answer).is_some());
    }

    #[test]
    fn a_connection_is_found_with_what_it_has_moved() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        let port = client.local_addr().unwrap().port();
        let sockets = tcp_sockets(false).unwrap();
        let found = sockets.iter().find(|s| s.remote_port == port).unwrap();
        assert_eq!(found.fields["bytes_received"], 5000.0);
        assert_eq!(found.fields["recv_queue_bytes"], 0.0, "it was read");
        assert!(found.fields["recv_limit_bytes"] > 0.0 && found.fields["send_limit_bytes"] > 0.0);
        client.write_all(&[1; 700]).unwrap();
        while server.peek(&mut [0; 700]).unwrap() < 700 {}
        let found = tcp_sockets(false).unwrap();
        let found = found.iter().find(|s| s.remote_port == port).unwrap();
        assert_eq!(found.fields["recv_queue_bytes"], 700.0);
        assert!(found.fields["recv_memory_bytes"] >= 700.0);
        assert!(found.congestion.as_ref().is_some_and(|name| !name.is_empty()));
        assert!(found.fields["mss_bytes"] > 0.0);
    }
}
