//! Any bytes as an Ethernet frame. What is read comes out again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_wire::ethernet::EthernetHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, len)) = EthernetHeader::parse(bytes) {
        let mut again = vec![0; header.header_len()];
        assert_eq!(header.emit(&mut again), len);
        assert_eq!(again, bytes[..len]);
    }
});
