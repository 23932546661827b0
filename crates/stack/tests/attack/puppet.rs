//! A peer that opened a connection in earnest and plays with it from then on.

use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use super::crowd::clock;
use super::net::Net;
use crate::common::frames::{self, Ends};

/// The attacker's end of a connection of its own to the far host.
pub struct Puppet {
    pub ends: Ends,
    /// Its next number.
    pub seq: SeqNumber,
    /// The first number it has not acknowledged.
    pub ack: SeqNumber,
    /// End of what the far host was seen to send.
    pub seen: SeqNumber,
    /// The number up to which the far host acknowledged.
    pub acked: SeqNumber,
    /// The far host's clock, as last seen.
    echo: u32,
    pub sent: u64,
}

impl Puppet {
    /// Opens a connection to `port` of the far host, from `own_port`.
    pub fn open(net: &mut Net, v6: bool, port: u16, own_port: u16) -> Puppet {
        let mut puppet = Self::knock(net, v6, port, own_port);
        puppet.send(net, |_| {}, &[]);
        net.step();
        puppet
    }

    /// Sends the SYN and takes the answer; the last step of the handshake is yet to come.
    pub fn knock(net: &mut Net, v6: bool, port: u16, own_port: u16) -> Puppet {
        let ends = Ends { from: Net::attacker(v6, own_port), to: Net::far_addr(v6, port) };
        let isn = SeqNumber(0x7fff_0000);
        net.inject(true, &syn(ends, isn, clock(net.now)));
        net.step();
        let (answer, _) = net.take_heard(ends).expect("a SYN-ACK");
        assert!(answer.flags.syn() && answer.flags.ack());
        let echo = answer.options.timestamps.expect("it agrees to timestamps").value;
        let begin = answer.seq + 1;
        let seq = isn + 1;
        Puppet { ends, seq, ack: begin, seen: begin, acked: seq, echo, sent: 0 }
    }

    /// Sends a segment: an ACK of what it acknowledged so far, with right timestamps, unless
    /// `change` makes it another.
    pub fn send(&mut self, net: &mut Net, change: impl FnOnce(&mut TcpHeader), payload: &[u8]) {
        let timestamps = Some(Timestamps { value: clock(net.now), echo: self.echo });
        let mut header = TcpHeader {
            seq: self.seq,
            ack: self.ack,
            flags: TcpFlags::ACK,
            window: 512,
            options: TcpOptions { timestamps, ..TcpOptions::NONE },
            ..TcpHeader::default()
        };
        change(&mut header);
        self.sent += 1;
        net.inject(true, &frames::segment(self.ends, header, payload));
    }

    /// Takes note of what the far host sent.
    pub fn listen(&mut self, net: &mut Net) {
        for packet in std::mem::take(&mut net.heard) {
            let Some((ends, header, len)) = frames::read(&packet) else { continue };
            if ends == self.ends.back() {
                self.echo = header.options.timestamps.map_or(self.echo, |stamps| stamps.value);
                self.seen = self.seen.max(header.seq + header.sequence_len(len));
                self.acked = self.acked.max(header.ack);
            }
        }
    }
}

/// The SYN of an attacker that offers SACK, a scaled window and, at this time of its clock,
/// timestamps.
pub fn syn(ends: Ends, isn: SeqNumber, value: u32) -> Vec<u8> {
    let options = TcpOptions {
        mss: Some(1400),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value, echo: 0 }),
        ..TcpOptions::NONE
    };
    let (flags, window) = (TcpFlags::SYN, 65_535);
    frames::segment(
        ends,
        TcpHeader { seq: isn, flags, window, options, ..TcpHeader::default() },
        &[],
    )
}
