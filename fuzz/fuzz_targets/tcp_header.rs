//! Any bytes as a TCP header with its options. What is read is read again the
//! same from what is written, as far as the options find room.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_wire::tcp::TcpHeader;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, len)) = TcpHeader::parse(bytes) else { return };
    assert!((20..=60).contains(&len) && len <= bytes.len());
    let mut again = vec![0xaa; header.header_len()];
    assert_eq!(header.emit(&mut again), again.len());
    let (mut read, read_len) = TcpHeader::parse(&again).expect("what was written is read");
    assert_eq!(read_len, again.len());
    if read.options.sack != header.options.sack {
        assert!(read.options.sack.len() == header.options.sack_room());
        read.options.sack = header.options.sack;
    }
    assert_eq!(read, header);
});
