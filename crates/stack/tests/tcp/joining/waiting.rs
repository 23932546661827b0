//! Events between segments while a read waits: each takes effect in its turn, as if nobody waited.

use std::net::IpAddr;

use millstream::packet::Pool;
use millstream::tcp::State;
use millstream::{Error, SocketId};
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::tcp::{SeqNumber, TcpFlags};
use millstream_wire::udp::UdpHeader;

use super::host::{Host, ISN, MSS, bytes, one_hop_less};
use crate::common;
use crate::common::frames;

const ACK: TcpFlags = TcpFlags::ACK;
const UDP_PORT: u16 = 53;
/// Bytes of the host's own that the segments before acknowledge, and those that it has sent.
const ACKED: usize = 2 * MSS;
const SENT: usize = 3 * MSS;

/// Comes behind two segments and before two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// Nothing: the four follow each other.
    Nothing,
    /// A packet is too big that the segments before have acknowledged: no news (RFC 5927 4.1).
    TooBig,
    /// One is too big that is still outstanding: the path has carried full segments, so it waits
    /// (RFC 5927 7.2).
    TooBigOutstanding,
    /// A port is closed, about what is outstanding: soft in an open connection (RFC 5461).
    Unreachable,
    /// A datagram for another socket.
    Datagram,
    /// A segment of a flow that nobody knows.
    Stranger,
    /// An ACK without data, after which the window is shut for a moment.
    Ack,
    /// The first of the two again.
    Again,
    /// The two before it again, as one segment and a little of the next.
    Overlap,
    /// The next, by another way.
    OtherWay,
    /// The end of the stream, which what follows does not lie before.
    Fin,
    /// A reset, of exactly the next number (RFC 9293 3.10.7.4): it would be none after what
    /// follows, which is answered by another (3.10.7.1).
    Reset,
}

const ALL: [Between; 12] = [
    Between::Nothing,
    Between::TooBig,
    Between::TooBigOutstanding,
    Between::Unreachable,
    Between::Datagram,
    Between::Stranger,
    Between::Ack,
    Between::Again,
    Between::Overlap,
    Between::OtherWay,
    Between::Fin,
    Between::Reset,
];

impl Between {
    fn packet(self, host: &Host, at: usize) -> Option<Vec<u8>> {
        let router: IpAddr = host.ends.from.ip();
        let about = |offset: usize, error| {
            let seq = host.begin + offset;
            frames::icmp_error(router, host.ends.back(), seq.0, error)
        };
        let answer =
            |flags, at, window, data: &[u8]| host.answering(at, ACKED, window, flags, data);
        Some(match self {
            Between::Nothing => return None,
            Between::TooBig => about(0, Icmp::PacketTooBig { mtu: 700 }),
            Between::TooBigOutstanding => about(ACKED, Icmp::PacketTooBig { mtu: 700 }),
            Between::Unreachable => about(ACKED, Icmp::Unreachable(Unreachable::Port)),
            Between::Datagram => datagram(host),
            Between::Stranger => {
                let mut other = host.ends;
                other.from.set_port(4001);
                let header = millstream_wire::tcp::TcpHeader { flags: ACK, ..Default::default() };
                frames::segment(other, header, b"who is there?")
            }
            Between::Ack => answer(ACK, at, 0, &[]),
            Between::Again => answer(ACK, at - 2 * MSS, 512, &bytes(at - 2 * MSS, MSS)),
            Between::Overlap => answer(ACK, at - 2 * MSS, 512, &bytes(at - 2 * MSS, 2 * MSS + 7)),
            Between::OtherWay => one_hop_less(answer(ACK, at, 512, &bytes(at, MSS))),
            Between::Fin => answer(ACK | TcpFlags::FIN, at, 512, &[]),
            Between::Reset => answer(TcpFlags::RST | ACK, at, 512, &[]),
        })
    }

    /// Bytes of the stream that come with it.
    fn len(self) -> usize {
        if self == Between::OtherWay { MSS } else { 0 }
    }
}

/// Three bytes for the host's UDP socket.
fn datagram(host: &Host) -> Vec<u8> {
    let (src, dst) = (host.ends.from.ip(), host.ends.to.ip());
    let header = UdpHeader::new(999, UDP_PORT, 3);
    let mut body = vec![0; 8];
    header.emit(&mut body);
    body.extend(b"abc");
    let sum = millstream_wire::ip::pseudo_header_sum(src, dst, Protocol::UDP, body.len())
        + millstream_wire::checksum::sum(&body);
    body[6..8].copy_from_slice(&millstream_wire::checksum::finish(sum));
    let ip = IpHeader::new(src, dst, Protocol::UDP, body.len());
    let mut packet = vec![0; ip.emit_len()];
    ip.emit(&mut packet);
    packet.extend(body);
    packet
}

/// The visible state of a host after the batch.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Bytes, all of them those that were sent.
    read: usize,
    end: Result<usize, Error>,
    state: State,
    /// Bytes that it acknowledges in the end, and what it tells of selectively then, as what came
    /// twice (RFC 2883).
    acked: Option<(u32, Vec<(u32, u32)>)>,
    segment_bytes: u32,
    /// Where the segments begin that it sends then, which tells its window and their size.
    sends: Vec<u32>,
    datagrams: usize,
    resets: usize,
}

fn open(pool: &Pool, v6: bool) -> (Host, SocketId) {
    let mut host = Host::new(pool, v6);
    let local = (host.ends.to.ip(), UDP_PORT).into();
    let datagrams = host.engine.sockets().udp_bind(local).expect("bind");
    // The flow's headers are known from its first segment on.
    let first = host.segment(0, ACK, &bytes(0, MSS));
    host.step(&[first], true);
    host.engine.tcp(host.socket).write(&[1; SENT]).expect("room");
    host.turn(&[]);
    (host, datagrams)
}

/// The segments and what comes between, at once, to a host whose reader waits with room for
/// `posted` bytes, if any.
fn seen(pool: &Pool, v6: bool, between: Between, posted: usize) -> Seen {
    let (mut host, socket) = open(pool, v6);
    let data = |host: &Host, at| host.answering(at, ACKED, 512, ACK, &bytes(at, MSS));
    let mut packets = vec![data(&host, MSS), data(&host, 2 * MSS)];
    packets.extend(between.packet(&host, 3 * MSS));
    let next = 3 * MSS + between.len();
    packets.extend([data(&host, next), data(&host, next + MSS)]);
    host.posted = posted;
    let answers = host.turn(&packets);
    host.posted = 0;
    let mut buffer = [0; 10 * MSS];
    let end = loop {
        match host.engine.tcp(host.socket).read(&mut buffer) {
            Ok(n @ 1..) => host.got.extend_from_slice(&buffer[..n]),
            end => break end,
        }
    };
    let resets = answers.iter().filter(|header| header.flags.rst()).count();
    let acked = answers.iter().rfind(|header| !header.flags.rst()).map(|header| {
        let offset = |seq: SeqNumber| seq.0.wrapping_sub(ISN + 1);
        let blocks = header.options.sack.iter().map(|block| (offset(block.0), offset(block.1)));
        (offset(header.ack), blocks.collect())
    });
    let state = host.engine.tcp(host.socket).state().expect("a socket");
    let segment_bytes = host.engine.tcp(host.socket).info().expect("a socket").snd_mss_bytes;
    let _ = host.engine.tcp(host.socket).write(&[2; 4 * MSS]);
    let sent = host.turn(&[]);
    let sends = sent.iter().map(|header| header.seq.0.wrapping_sub(host.begin.0)).collect();
    let datagrams = std::iter::from_fn(|| host.engine.udp(socket).recv(&mut buffer).ok()).count();
    let read = host.got.len();
    assert!(host.got == bytes(0, read), "{between:?}: other bytes");
    Seen { read, end, state, acked, segment_bytes, sends, datagrams, resets }
}

#[test]
fn what_comes_between_takes_effect_in_its_turn() {
    let pool = common::pool();
    for (v6, between) in [false, true].into_iter().flat_map(|v6| ALL.map(|between| (v6, between))) {
        let plain = seen(&pool, v6, between, 0);
        for posted in [50_000, 2500] {
            let waiting = seen(&pool, v6, between, posted);
            assert_eq!(waiting, plain, "{between:?}, IPv6: {v6}, room for {posted}");
        }
        // What it is, not only that it is the same.
        let is_over = matches!(between, Between::Fin | Between::Reset);
        let whole = if is_over { 3 * MSS } else { 5 * MSS + between.len() };
        assert_eq!(plain.read, whole, "{between:?}");
        assert_eq!(plain.segment_bytes, MSS as u32, "{between:?}");
        assert_eq!(plain.datagrams, usize::from(between == Between::Datagram));
        let is_refused = matches!(between, Between::Stranger | Between::Reset);
        assert_eq!(plain.resets != 0, is_refused, "{between:?}: {}", plain.resets);
        let (end, state) = match between {
            Between::Fin => (Ok(0), State::CloseWait),
            Between::Reset => (Err(Error::ConnectionReset), State::Closed),
            _ => (Err(Error::WouldBlock), State::Established),
        };
        assert_eq!((plain.end, plain.state), (end, state), "{between:?}");
        assert_eq!(plain.sends.is_empty(), between == Between::Reset, "{between:?}: its window");
    }
}
