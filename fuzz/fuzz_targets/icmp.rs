//! Any bytes as an ICMP message of either version, and what follows it as a
//! quoted packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_wire::icmp::{HEADER_LEN, Icmp, Quote};
use millstream_wire::ip::Version;

fuzz_target!(|bytes: &[u8]| {
    for version in [Version::V4, Version::V6] {
        let Ok((message, len)) = Icmp::parse(version, bytes) else { return };
        message.is_error(version);
        let mut again = [0; HEADER_LEN];
        assert_eq!(message.emit(version, &mut again), len);
        assert_eq!(Icmp::parse(version, &again), Ok((message, len)));
        if let Ok(quote) = Quote::parse(version, &bytes[len..]) {
            assert_eq!(quote.ip.version(), version);
            assert!(quote.ip.header_len <= bytes.len() - len);
        }
    }
});
