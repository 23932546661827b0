//! Any bytes as an ARP packet. What is read comes out again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_wire::arp::{ArpPacket, PACKET_LEN};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = ArpPacket::parse(bytes) {
        let mut again = [0; PACKET_LEN];
        packet.emit(&mut again);
        assert_eq!(again, bytes[..PACKET_LEN]);
    }
});
