//! Many peers that open connections in earnest, with right numbers and timestamps, and then do what
//! fills a table.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use super::net::Net;
use crate::common::frames::{self, Ends};

/// The behaviour of a peer once its connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Says nothing, and answers nothing.
    Silent,
    /// Sends so much at once and is silent then.
    Says(&'static [u8]),
    /// Sends a byte twice a second.
    Drips,
    /// Asks, and acknowledges nothing of the answer.
    Asks,
    /// Asks, and acknowledges a byte of the answer about twice a second.
    Trickles,
    /// Asks, acknowledges the answer and its end, and never ends itself.
    Stays,
    /// Asks behind a window of zero, which it confirms at each probe.
    Shut,
    /// Asks and ends, and acknowledges nothing.
    Ends,
    /// Asks, and ends without acknowledging the other's end.
    Crosses,
    /// Asks, acknowledges and ends as it should.
    Closes,
}

const QUESTION: &[u8] = b"GET /";

/// The pause between two actions of a peer that does something now and then.
const NOW_AND_THEN: Duration = Duration::from_millis(500);

/// One end of a connection.
struct Peer {
    seq: SeqNumber,
    ack: SeqNumber,
    echo: u32,
    is_open: bool,
    has_ended: bool,
    /// When it last did what it does now and then.
    acted: Instant,
}

/// The peers, by their ends.
pub struct Crowd {
    v6: bool,
    port: u16,
    habit: Habit,
    sources: u16,
    peers: HashMap<Ends, Peer>,
    begun: u32,
    pub opened: u32,
    /// Segments that reset one of them.
    pub resets: u32,
}

impl Crowd {
    /// Nobody yet; they are going to come from so many `sources`, to `port` of the far host.
    pub fn new(v6: bool, port: u16, habit: Habit, sources: u16) -> Crowd {
        let peers = HashMap::new();
        Crowd { v6, port, habit, sources, peers, begun: 0, opened: 0, resets: 0 }
    }

    fn ends(&self, number: u32) -> Ends {
        let source = (number % u32::from(self.sources)) as u16;
        let port = 1024 + (number / u32::from(self.sources) % 60_000) as u16;
        let from: SocketAddr = Net::attacker_at(self.v6, source, port);
        Ends { from, to: Net::far_addr(self.v6, self.port) }
    }

    /// Another one sends its SYN.
    pub fn knock(&mut self, net: &mut Net) {
        let ends = self.ends(self.begun);
        self.begun += 1;
        let isn = SeqNumber(0x7fff_0000 ^ self.begun.wrapping_mul(0x9e37_79b9));
        let options = TcpOptions {
            mss: Some(1400),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: clock(net.now), echo: 0 }),
            ..TcpOptions::NONE
        };
        let window = if self.habit == Habit::Shut { 0 } else { 65_535 };
        let (seq, flags) = (isn, TcpFlags::SYN);
        let syn = TcpHeader { seq, flags, window, options, ..TcpHeader::default() };
        net.inject(true, &frames::segment(ends, syn, &[]));
        let (seq, ack, acted) = (isn + 1, SeqNumber(0), net.now);
        let peer = Peer { seq, ack, echo: 0, is_open: false, has_ended: false, acted };
        self.peers.insert(ends, peer);
    }

    /// They take what has come for them, and do as they do.
    pub fn attend(&mut self, net: &mut Net) {
        for packet in std::mem::take(&mut net.heard) {
            let Some((ends, header, len)) = frames::read(&packet) else { continue };
            let ends = ends.back();
            let Some(peer) = self.peers.get_mut(&ends) else { continue };
            if header.flags.rst() {
                self.resets += 1;
                self.peers.remove(&ends);
                continue;
            }
            if let Some(timestamps) = header.options.timestamps {
                peer.echo = timestamps.value;
            }
            let end = header.seq + header.sequence_len(len);
            if header.flags.syn() && !peer.is_open {
                (peer.is_open, peer.ack) = (true, end);
                self.opened += 1;
                peer.open(net, ends, self.habit);
            } else if !header.flags.syn() {
                peer.answer(net, ends, self.habit, &header, end);
            }
        }
        if self.habit == Habit::Drips {
            let is_due = |peer: &Peer| peer.is_open && peer.acted + NOW_AND_THEN <= net.now;
            let mut due: Vec<_> = self.peers.iter_mut().filter(|(_, peer)| is_due(peer)).collect();
            due.sort_by_key(|(ends, _)| ends.from);
            for (ends, peer) in due {
                peer.acted = net.now;
                peer.send(net, *ends, (TcpFlags::ACK, 512), b"f");
            }
        }
    }
}

impl Peer {
    fn send(
        &mut self,
        net: &mut Net,
        ends: Ends,
        (flags, window): (TcpFlags, u16),
        payload: &[u8],
    ) {
        let timestamps = Some(Timestamps { value: clock(net.now), echo: self.echo });
        let options = TcpOptions { timestamps, ..TcpOptions::NONE };
        let (seq, ack) = (self.seq, self.ack);
        let header = TcpHeader { seq, ack, flags, window, options, ..TcpHeader::default() };
        net.inject(true, &frames::segment(ends, header, payload));
        self.seq = self.seq + payload.len() + usize::from(flags.fin());
    }

    fn open(&mut self, net: &mut Net, ends: Ends, habit: Habit) {
        let (ack, end) = (TcpFlags::ACK, TcpFlags::ACK | TcpFlags::FIN);
        match habit {
            Habit::Silent => self.send(net, ends, (ack, 512), &[]),
            Habit::Drips => self.send(net, ends, (ack, 512), b"f"),
            Habit::Says(bytes) => self.send(net, ends, (ack, 512), bytes),
            Habit::Shut => self.send(net, ends, (ack, 0), QUESTION),
            Habit::Ends => self.send(net, ends, (end, 512), QUESTION),
            Habit::Asks | Habit::Trickles | Habit::Stays | Habit::Crosses | Habit::Closes => {
                self.send(net, ends, (ack, 512), QUESTION);
            }
        }
    }

    fn answer(
        &mut self,
        net: &mut Net,
        ends: Ends,
        habit: Habit,
        header: &TcpHeader,
        end: SeqNumber,
    ) {
        let is_new = end.gt(self.ack);
        match habit {
            Habit::Silent | Habit::Says(_) | Habit::Drips | Habit::Asks | Habit::Ends => {}
            Habit::Trickles if self.acted + NOW_AND_THEN <= net.now => {
                (self.ack, self.acted) = (self.ack + 1, net.now);
                self.send(net, ends, (TcpFlags::ACK, 512), &[]);
            }
            Habit::Shut => self.send(net, ends, (TcpFlags::ACK, 0), &[]),
            Habit::Stays if is_new => {
                self.ack = end;
                self.send(net, ends, (TcpFlags::ACK, 512), &[]);
            }
            Habit::Crosses if header.flags.fin() && !self.has_ended => {
                self.has_ended = true;
                self.send(net, ends, (TcpFlags::ACK | TcpFlags::FIN, 512), &[]);
            }
            Habit::Closes if is_new => {
                self.ack = end;
                let fin = header.flags.fin() && !std::mem::replace(&mut self.has_ended, true);
                let flags = if fin { TcpFlags::ACK | TcpFlags::FIN } else { TcpFlags::ACK };
                self.has_ended = fin;
                self.send(net, ends, (flags, 512), &[]);
            }
            Habit::Trickles | Habit::Stays | Habit::Crosses | Habit::Closes => {}
        }
    }
}

/// The peers' clock, in milliseconds.
pub fn clock(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}
