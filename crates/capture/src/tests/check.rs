//! Frame check sequences behind packets, as captures tell of them.

use millstream_link::{DropCause, Link};
use millstream_packet::{Instant, Packet};

use super::*;

/// A pcap-ng file with these options of its only interface and of its packet, 64 bytes of which so
/// many were captured.
fn optioned(interface: &[u8], packet: &[u8], captured: u32, original: u32) -> Vec<u8> {
    let words = [0, 0, 0, captured, original].map(u32::to_le_bytes).concat();
    let interface = block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0], interface].concat());
    let bytes = vec![1; captured.next_multiple_of(4) as usize];
    let packet = block(6, &[&words[..], &bytes, packet].concat());
    [section(), interface, packet].concat()
}

#[test]
fn a_frame_check_sequence_is_cut_off_where_the_capture_tells_of_it() {
    let told = |link_type: u32| classic_of(link_type, false, 0xa1b2_c3d4, &[(0, 0, &[1; 64])]);
    let flags = |flags: u32| [&[2, 0, 4, 0][..], &flags.to_le_bytes()].concat();
    let by_packet = |word: u32| optioned(&[], &flags(word), 64, 64);
    for (file, len) in [
        (told(1), 64),
        (told(1 | 1 << 26 | 2 << 28), 60),
        // The bit that says so is not set.
        (told(1 | 2 << 28), 64),
        (by_packet(0), 64),
        (by_packet(4 << 5 | 1), 60),
    ] {
        let got = receive(&mut replay(file, FAST).unwrap(), Instant::ZERO);
        assert_eq!(got[0].len(), len);
    }
}

#[test]
fn an_interface_tells_of_check_sequences_in_bits_or_bytes_and_its_packets_know_better() {
    let interface = |told: u8| [13, 0, 1, 0, told, 0, 0, 0];
    let flags = |flags: u32| [&[2, 0, 4, 0][..], &flags.to_le_bytes()].concat();
    // 9 and 33 bits are no whole bytes, and what they are is not known.
    for (told, len) in [(0, 64), (2, 62), (4, 60), (7, 57), (9, 64), (16, 62), (32, 60), (33, 64)] {
        let got = receive(
            &mut replay(optioned(&interface(told), &[], 64, 64), FAST).unwrap(),
            Instant::ZERO,
        );
        assert_eq!(got[0].len(), len, "{told}");
    }
    for (word, len) in [(0, 60), (1, 60), (2 << 5, 62), (6 << 5 | 1, 58)] {
        let file = optioned(&interface(32), &flags(word), 64, 64);
        let got = receive(&mut replay(file, FAST).unwrap(), Instant::ZERO);
        assert_eq!(got[0].len(), len, "{word}");
    }
    // A packet without options of its own.
    let mut file = optioned(&interface(4), &[], 64, 64);
    file.extend(block(3, &[&64_u32.to_le_bytes()[..], &[1; 64]].concat()));
    let got = receive(&mut replay(file, FAST).unwrap(), Instant::ZERO);
    assert_eq!(got.iter().map(Packet::len).collect::<Vec<_>>(), [60, 60]);
}

/// A packet captured in part loses only what there is of the sequence.
#[test]
fn what_was_not_captured_of_a_check_sequence_is_not_cut_off() {
    let interface = [13, 0, 1, 0, 32, 0, 0, 0];
    let classic = |captured: u32, original: u32| {
        let bytes = vec![1; captured as usize];
        let mut file = classic_of(1 | 1 << 26 | 2 << 28, false, 0xa1b2_c3d4, &[(0, 0, &bytes)]);
        file[36..40].copy_from_slice(&original.to_le_bytes());
        file
    };
    for (captured, original, whole) in [
        (64, 64, true),
        (63, 64, true),
        (61, 64, true),
        (60, 64, true),
        (59, 64, false),
        // Its writer has not counted the sequence.
        (64, 60, true),
        (62, 60, true),
    ] {
        for file in [optioned(&interface, &[], captured, original), classic(captured, original)] {
            let mut link = replay(file, FAST).unwrap();
            let got = receive(&mut link, Instant::ZERO);
            let lengths: Vec<usize> = got.iter().map(Packet::len).collect();
            assert_eq!(lengths, if whole { vec![60] } else { vec![] }, "{captured} of {original}");
            assert_eq!(link.stats().dropped(DropCause::Truncated), u64::from(!whole));
        }
    }
    // Nothing is left of one that is shorter than its sequence.
    let mut link = replay(optioned(&interface, &[], 3, 3), FAST).unwrap();
    assert!(receive(&mut link, Instant::ZERO).is_empty() && link.is_finished());
}
