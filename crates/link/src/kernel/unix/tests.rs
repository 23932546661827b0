use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use millstream_packet::{Instant, PacketBatch};
use proptest::prelude::*;

use super::*;
use crate::testing::{kit, pool};
use crate::{DropCause, Link};

const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

fn configs(medium: Medium) -> [UnixConfig; 2] {
    MACS.map(|mac| UnixConfig { medium, mac, ..UnixConfig::default() })
}

#[test]
fn the_kit_passes_over_a_stream_socket() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let [near, far] = configs(medium);
        kit::run(|| {
            let (a, b) = UnixStream::pair().unwrap();
            (StreamLink::new(a, &near).unwrap(), StreamLink::new(b, &far).unwrap())
        });
    }
}

#[test]
fn the_kit_passes_over_a_datagram_socket() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let [near, far] = configs(medium);
        kit::run(|| {
            let (a, b) = UnixDatagram::pair().unwrap();
            (DatagramLink::new(a, &near).unwrap(), DatagramLink::new(b, &far).unwrap())
        });
    }
}

#[test]
fn the_socket_of_a_link_can_be_asked_for() {
    let (stream, _other) = UnixStream::pair().unwrap();
    let (datagram, _peer) = UnixDatagram::pair().unwrap();
    let fds = [stream.as_raw_fd(), datagram.as_raw_fd()];
    let stream = StreamLink::new(stream, &UnixConfig::default()).unwrap();
    let datagram = DatagramLink::new(datagram, &UnixConfig::default()).unwrap();
    assert_eq!([stream.as_fd(), datagram.as_fd()].map(|fd| fd.as_raw_fd()), fds);
}

fn received(link: &mut dyn Link) -> Result<Vec<usize>, LinkError> {
    let mut batch = PacketBatch::new();
    link.receive(Instant::from_millis(1), &pool(), &mut batch)?;
    Ok(batch.iter().map(|packet| packet.len()).collect())
}

#[test]
fn frames_of_lengths_that_none_has_are_dropped_and_counted() {
    let (mut other, socket) = UnixStream::pair().unwrap();
    let mut link = StreamLink::new(socket, &UnixConfig::default()).unwrap();
    for len in [0, 14, 60, 1518, 1519, 100_000, 61_u32] {
        other.write_all(&len.to_be_bytes()).unwrap();
        other.write_all(&vec![7; len as usize]).unwrap();
    }
    let lengths = [received(&mut link).unwrap(), received(&mut link).unwrap()].concat();
    assert_eq!(lengths, [60, 1518, 61]);
    let dropped = |cause| link.stats().dropped(cause);
    assert_eq!((dropped(DropCause::TooShort), dropped(DropCause::TooLong)), (2, 2));
    drop(other);
    assert!(received(&mut link).is_err(), "the other side has gone");

    let (other, socket) = UnixDatagram::pair().unwrap();
    let mut link = DatagramLink::new(socket, &UnixConfig::default()).unwrap();
    for len in [14, 1519, 1518] {
        other.send(&vec![7; len]).unwrap();
    }
    let lengths: Vec<_> = (0..3).flat_map(|_| received(&mut link).unwrap()).collect();
    let dropped = |cause| link.stats().dropped(cause);
    assert_eq!((lengths, dropped(DropCause::TooShort)), (vec![1518], 1));
    assert_eq!(dropped(DropCause::TooLong), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn frames_are_found_wherever_reads_cut_them(
        lengths in prop::collection::vec(15_usize..1518, 1..40),
        cuts in prop::collection::vec(1_usize..3000, 1..40),
    ) {
        let mut bytes = Vec::new();
        for len in &lengths {
            bytes.extend((*len as u32).to_be_bytes());
            bytes.resize(bytes.len() + len, 9);
        }
        let (mut other, socket) = UnixStream::pair().unwrap();
        let mut link = StreamLink::new(socket, &UnixConfig::default()).unwrap();
        let (mut left, mut found) = (&bytes[..], Vec::new());
        for cut in cuts.iter().cycle() {
            let (now, later) = left.split_at((*cut).min(left.len()));
            other.write_all(now).unwrap();
            found.extend(received(&mut link).unwrap());
            left = later;
            if left.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, lengths);
    }
}
