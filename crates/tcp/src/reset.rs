//! The answer to a segment that belongs to no connection.

use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

/// The reset that answers a segment without a connection (RFC 9293 3.10.7.1), or none for a reset:
/// ports swapped, no window, no options. `payload_len` in bytes.
pub fn reset_for(segment: &TcpHeader, payload_len: usize) -> Option<TcpHeader> {
    if segment.flags.rst() {
        return None;
    }
    let mut reset = TcpHeader {
        src_port: segment.dst_port,
        dst_port: segment.src_port,
        ..TcpHeader::default()
    };
    if segment.flags.ack() {
        reset.seq = segment.ack;
        reset.flags = TcpFlags::RST;
    } else {
        reset.seq = SeqNumber(0);
        reset.ack = segment.seq + segment.sequence_len(payload_len);
        reset.flags = TcpFlags::RST | TcpFlags::ACK;
    }
    Some(reset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_two_forms_and_never_answers_a_reset() {
        let mut segment =
            TcpHeader { src_port: 1, dst_port: 2, seq: SeqNumber(100), ..TcpHeader::default() };
        segment.flags = TcpFlags::SYN;
        let reset = reset_for(&segment, 0).expect("a reset");
        assert_eq!((reset.src_port, reset.dst_port, reset.seq.0, reset.ack.0), (2, 1, 0, 101));
        assert_eq!(reset.flags, TcpFlags::RST | TcpFlags::ACK);
        segment.flags = TcpFlags::ACK;
        segment.ack = SeqNumber(77);
        let reset = reset_for(&segment, 10).expect("a reset");
        assert_eq!((reset.seq.0, reset.flags), (77, TcpFlags::RST));
        segment.flags = TcpFlags::RST;
        assert_eq!(reset_for(&segment, 0), None);
    }
}
