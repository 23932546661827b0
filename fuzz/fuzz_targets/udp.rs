//! Any bytes as a UDP datagram. What is read comes out again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_wire::udp::UdpHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, len)) = UdpHeader::parse(bytes, bytes.len()) {
        assert!(len + header.payload_len <= bytes.len());
        let mut again = vec![0; len];
        header.emit(&mut again);
        assert_eq!(again, bytes[..len]);
    }
});
