//! Any bytes as an IP packet of either version, whole and with a contiguous head
//! of any length. What is read, without its options, is read again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_wire::Malformed;
use millstream_wire::ip::{self, IpHeader, Version};

/// IPv4 header checksums are mended first: the fuzzer cannot guess them.
fn mend(bytes: &mut [u8]) {
    let Some(first) = bytes.first() else { return };
    let len = usize::from(first & 0xf) * 4;
    if first >> 4 == 4 && (20..=bytes.len()).contains(&len) {
        bytes[10..12].fill(0);
        let field =
            millstream_wire::checksum::finish(millstream_wire::checksum::sum(&bytes[..len]));
        bytes[10..12].copy_from_slice(&field);
    }
}

fn check(ip: IpHeader) {
    let mut header = vec![0; ip.emit_len()];
    ip.emit(&mut header);
    let again = ip::parse(&header, ip.emit_len() + ip.payload_len);
    let ip = IpHeader { header_len: ip.emit_len(), ..ip };
    // In a fragment the walk stops before whatever comes next; without, it has
    // passed all extension headers.
    assert_eq!(again, Ok(ip));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    mend(&mut bytes);
    let whole = ip::parse(&bytes, bytes.len());
    let head = ip::parse(&bytes[..usize::from(cut).min(bytes.len())], bytes.len());
    match (whole, head) {
        (Ok(ip), head) => {
            assert!(head == Ok(ip) || head == Err(Malformed::Truncated));
            assert!(ip.packet_len() <= bytes.len());
            check(ip);
        }
        (Err(whole), head) => assert!(head == Err(whole) || head == Err(Malformed::Truncated)),
    }
    if let Some(problem) = ip::problem(&bytes) {
        assert!((problem.pointer as usize) < bytes.len());
    }
    if let Ok(ip) = ip::parse_quoted(&bytes) {
        assert!(ip.header_len <= bytes.len());
        assert!(ip.version() == Version::V4 || ip.header_len >= 40);
    }
});
