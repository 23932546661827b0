//! Any bytes as a message of neighbour discovery, from several senders to several
//! receivers. What is read is read again the same from what is written.
#![no_main]

use std::net::Ipv6Addr;

use libfuzzer_sys::fuzz_target;
use millstream_wire::ndp::{Envelope, HOP_LIMIT, NdpMessage, solicited_node};

fuzz_target!(|bytes: &[u8]| {
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    for src in [link_local, global, Ipv6Addr::UNSPECIFIED] {
        for dst in [global, solicited_node(global), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)] {
            let envelope = Envelope { src, dst, hop_limit: HOP_LIMIT };
            let Ok(message) = NdpMessage::parse(bytes, &envelope) else { continue };
            let mut again = vec![0xaa; message.emit_len()];
            assert_eq!(message.emit(&mut again), again.len());
            assert_eq!(NdpMessage::parse(&again, &envelope), Ok(message));
        }
    }
});
