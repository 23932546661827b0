//! How a conversation begins: as an active or a passive open, from the SYN queue or by a cookie,
//! early or not, and in which state.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use millstream_packet::{Instant, Packet, Pool};
use millstream_tcp::{
    Config, CongestionKind, Connection, FourTuple, HalfOpen, Keepalive, PayloadSource, SynCookies,
    TransmitLimits, reset_for,
};
use millstream_wire::tcp::{FastOpenCookie, SeqNumber, TcpFlags, TcpHeader};

use super::{ISN, PEER_ISN, Peer, Visits, Way, any_header};
use crate::{Input, pattern_bytes};

impl<'a> Peer<'a> {
    /// Makes the connection, and leads it where the input says.
    pub(super) fn new(input: &mut Input<'_>, pool: &'a Pool, way: Way) -> Self {
        let (flags, size, more) = (input.byte(), input.byte(), input.byte());
        let config = config(flags, size, more);
        let addresses = |port| match more & 8 {
            0 => SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)),
            _ => SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        };
        let tuple = FourTuple { local: addresses(80), remote: addresses(5000) };
        let limits = TransmitLimits {
            super_segment_bytes: if more & 16 == 0 { 0 } else { 65_000 },
            segments: if more & 16 == 0 { 1 } else { 45 },
            payload: match more & 32 {
                0 => PayloadSource::View,
                _ => PayloadSource::Frames { headroom: 128 },
            },
        };
        let now = Instant::from_nanos(1_000_000_000);
        let syn = TcpHeader { seq: PEER_ISN, flags: TcpFlags::SYN, ..any_header(input) };
        let active = flags & 64 != 0;
        // One in four begins elsewhere than its handshake leads.
        let begin = if more & 192 == 64 { input.byte() % 9 } else { 0 };
        let mut visits = Visits::default();
        let syn = match begin {
            8 if !active => listen(&mut visits, syn, input),
            _ => syn,
        };
        let connection = match active {
            true => Connection::connect(config, tuple, ISN, 77, now),
            false if way == Way::Queue => from_queue(config, tuple, &syn, now, input),
            false => Connection::accept(config, tuple, ISN, 77, &syn, now),
        };
        let (rcv_nxt, snd_nxt) = (PEER_ISN + 1, ISN + 1);
        let stream = (!active).then_some(rcv_nxt);
        let (stamp, written, read) = (0, 0, 0);
        // what was promised is kept within twice the limit
        let buffers_bytes = 2 * (8192 << (size >> 5)) + (8192 << (size >> 3 & 7));
        let mut peer = Self {
            pool,
            connection,
            now,
            limits,
            rcv_nxt,
            stream,
            snd_nxt,
            stamp,
            written,
            read,
            buffers_bytes,
            visits,
        };
        peer.open_fast(way, active, input);
        peer.transmit();
        if flags & 128 == 0 {
            // Most runs are past the handshake at once.
            if active {
                let flags = TcpFlags::SYN_ACK;
                peer.segment(TcpHeader { flags, ack: ISN + 1, ..syn }, &[]);
            } else {
                let ack = TcpHeader { seq: peer.rcv_nxt, ack: ISN + 1, ..syn };
                peer.segment(TcpHeader { flags: TcpFlags::ACK, ..ack }, &[]);
            }
        }
        peer.lead(begin, &syn);
        peer
    }

    /// Fast Open, where `way` says so: right after the connection was made.
    fn open_fast(&mut self, way: Way, active: bool, input: &mut Input<'_>) {
        match (way, active) {
            (Way::Queue, true) => self.connection.offer_fast_open(self.now, None),
            (Way::Early, true) => {
                let known = FastOpenCookie::new(&[1; 8]).map(|cookie| (cookie, input.short()));
                self.connection.offer_fast_open(self.now, known);
                self.write(input);
            }
            (Way::Early, false) => {
                if input.byte() & 1 == 0
                    && let Some(cookie) = FastOpenCookie::new(&[2; 8])
                {
                    self.connection.give_cookie(cookie);
                }
                let data = pattern_bytes(0, input.length(1400));
                let packet = (!data.is_empty()).then(|| Packet::from_slice(self.pool, 0, &data));
                let packet = packet.and_then(Result::ok);
                self.connection.open_early(self.now, packet, self.pool);
            }
            _ => {}
        }
    }

    /// Leads an open connection to another state: 1 FIN-WAIT-1, 2 FIN-WAIT-2, 3 CLOSE-WAIT, 4
    /// CLOSING, 5 LAST-ACK, 6 TIME-WAIT, 7 CLOSED.
    fn lead(&mut self, begin: u8, syn: &TcpHeader) {
        let (ours, theirs) = match begin {
            1 => ("F", ""),
            2 => ("F", "A"),
            3 => ("", "F"),
            4 => ("F", "F"),
            5 => ("", "Fc"),
            6 => ("F", "AF"),
            7 => ("R", ""),
            _ => return,
        };
        match ours {
            "F" => self.connection.shutdown_write(),
            "R" => self.connection.abort(),
            _ => {}
        }
        self.transmit();
        for step in theirs.chars() {
            let flags = if step == 'F' { TcpFlags::FIN | TcpFlags::ACK } else { TcpFlags::ACK };
            // a FIN that crosses ours does not acknowledge it
            let ack = if theirs == "F" { ISN + 1 } else { self.snd_nxt };
            let header = TcpHeader { flags, seq: self.rcv_nxt, ack, ..*syn };
            match step {
                'c' => self.connection.shutdown_write(),
                _ => self.segment(header, &[]),
            }
            self.transmit();
        }
    }
}

/// What the bytes of the input that say so make of a connection's parameters.
fn config(flags: u8, size: u8, more: u8) -> Config {
    Config::default()
        .mss(if size & 1 == 0 { 1460 } else { 100 + u16::from(size) * 30 })
        .recv_buffer_bytes(8192 << (size >> 5))
        .send_buffer_bytes(8192 << (size >> 3 & 7))
        .recv_auto_tune(flags & 1 != 0)
        .send_auto_tune((flags & 1 != 0) != (more & 8 != 0))
        .nagle(flags & 2 != 0)
        .delayed_ack_ms(u16::from(flags & 4) * 10)
        .window_scale(flags & 8 == 0)
        .timestamps(flags & 16 == 0)
        .sack(flags & 32 == 0)
        .keepalive((more & 1 != 0).then_some(Keepalive { idle_s: 10, interval_s: 1, probes: 3 }))
        .congestion(if more & 2 == 0 { CongestionKind::CUBIC } else { CongestionKind::NEW_RENO })
        .user_timeout_ms((more & 4 != 0).then_some(30_000))
}

/// A connection from an entry of the SYN queue, whose SYN-ACK was sent some times.
fn from_queue(
    config: Config,
    tuple: FourTuple,
    syn: &TcpHeader,
    now: Instant,
    input: &mut Input<'_>,
) -> Connection {
    let config = Arc::new(config);
    let mut entry = HalfOpen::new(syn, ISN, now);
    let choice = input.byte();
    for _ in 0..choice & 3 {
        assert!(entry.deadline() > now);
        let _ = entry.on_timer(&config);
    }
    if choice & 4 != 0 {
        let flags = TcpFlags::SYN;
        assert!(entry.is_same_syn(&TcpHeader { flags, ..*syn }), "the SYN again");
    }
    let answer = entry.syn_ack(&config, tuple, 77, now);
    assert!(answer.flags.syn() && answer.flags.ack() && answer.ack == PEER_ISN + 1);
    entry.connection(config, tuple, 77, now)
}

/// A listener hears segments until a SYN comes that it takes; when none does, `syn`.
fn listen(visits: &mut Visits, syn: TcpHeader, input: &mut Input<'_>) -> TcpHeader {
    let cookies = SynCookies::new([7; 16]);
    let ends = FourTuple {
        local: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 80)),
        remote: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 5000)),
    };
    let (config, now) = (Arc::new(Config::default()), Instant::from_nanos(1_000_000_000));
    for _ in 0..8 {
        visits[0] += 1;
        let header = TcpHeader { seq: PEER_ISN, ack: SeqNumber(input.word()), ..any_header(input) };
        let flags = header.flags;
        if flags.syn() && !flags.ack() && !flags.rst() {
            let answer = cookies.answer(&config, ends, 77, &header, now);
            assert!(answer.flags.syn() && answer.flags.ack() && answer.ack == header.seq + 1);
            return TcpHeader { flags: TcpFlags::SYN, ..header };
        }
        let opened = cookies.accept(config.clone(), ends, 77, &header, now);
        let reset = reset_for(&header, 0);
        assert!(opened.is_none() || flags.ack(), "a cookie without an ACK");
        assert_eq!(reset.is_none(), flags.rst(), "a reset is never answered");
    }
    syn
}
