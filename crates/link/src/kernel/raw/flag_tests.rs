//! What the kernel says of a packet beside its bytes: checksums done, left and to be checked, and
//! packets that it had not room for.

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use millstream_packet::{Checksum, Instant, Packet, PacketBatch};

use super::*;
use crate::netdev::Namespace;
use crate::offload::vnet;
use crate::sys::{PollEntry, poll};
use crate::testing::{HOST_PORT, OUR_PORT, Shape, bytes, parse, permitted, pool};
use crate::{Napi, NapiMode, Tap, TapConfig};

const HOST: [u8; 4] = [10, 70, 0, 1];
const OURS: [u8; 4] = [10, 70, 0, 2];

fn both_ways_to_receive(interface: &str, netns: Option<PathBuf>) -> [RawConfig; 2] {
    let plain = RawConfig { interface: interface.into(), netns, ..RawConfig::default() };
    let block = RingConfig { block_bytes: 1 << 17, ..RingConfig::default() };
    [plain.clone(), RawConfig { receive_ring: Some(block), ..plain }]
}

/// The first packet that `wanted` accepts.
fn hear(link: &mut RawLink, wanted: impl Fn(&Packet) -> bool) -> Option<Packet> {
    for _ in 0..500 {
        let mut batch = PacketBatch::new();
        if link.receive(Instant::ZERO, &pool(), &mut batch).unwrap() == 0 {
            let mut entries = [PollEntry::readable(link.wait_fd().unwrap())];
            poll(&mut entries, Some(Duration::from_millis(20))).unwrap();
        }
        if let Some(packet) = batch.drain().find(&wanted) {
            return Some(packet);
        }
    }
    None
}

#[test]
fn a_checksum_that_the_sender_left_is_to_be_filled_and_one_it_made_is_whole() {
    for transmit_checksum in [true, false] {
        let Some(near) = permitted(Namespace::create()) else { return };
        let Some(far) = permitted(Namespace::create()) else { return };
        let made = near.run(|| {
            netdev::add_veth("ms0", "ms1", Some(&far), 1)?;
            netdev::set_up("ms0")?;
            netdev::mac("ms0")
        });
        let Some(mac) = permitted(made.and_then(|mac| mac)) else { return };
        let socket = far.run(|| {
            netdev::set_up("ms1")?;
            netdev::set_transmit_checksum("ms1", transmit_checksum)?;
            netdev::set_address("ms1", HOST.into(), 24)?;
            netdev::add_neighbor("ms1", OURS.into(), mac)?;
            let socket = UdpSocket::bind((IpAddr::from(HOST), HOST_PORT));
            socket.map_err(|error| LinkError::from_io("bind", error))
        });
        let socket = socket.unwrap().unwrap();
        for config in both_ways_to_receive("ms0", Some(near.path())) {
            let mut link = RawLink::open(&config).unwrap();
            socket.send_to(&[9; 700], (IpAddr::from(OURS), OUR_PORT)).unwrap();
            let mut got = hear(&mut link, |packet| packet.len() == 742).expect("the datagram");
            let state = got.meta().checksum;
            if transmit_checksum {
                assert_eq!(state, Checksum::Partial { start: 34, offset: 6 }, "not ready");
                assert!(!parse(&got, Medium::Ethernet).is_valid);
                assert_eq!(crate::offload::complete_checksum(&mut got, &pool()), Ok(true));
            } else {
                assert!(!matches!(state, Checksum::Partial { .. }), "{state:?}");
            }
            assert!(parse(&got, Medium::Ethernet).is_valid);
        }
    }
}

#[test]
fn a_checksum_that_the_kernel_has_checked_is_not_summed_again() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let netns = Some(namespace.path());
    // Receive polling sums TCP segments to merge them.
    let napi = NapiMode::On(Napi::default());
    let tap = TapConfig { netns: netns.clone(), offload: false, napi, ..TapConfig::default() };
    let Some(mut tap) = permitted(Tap::open(&tap)) else { return };
    if tap.notes().iter().any(|note| note.contains("one by one") || note.contains("NAPI")) {
        return println!("skipped: {:?}", tap.notes());
    }
    for config in both_ways_to_receive(tap.name(), netns) {
        let mut link = RawLink::open(&config).unwrap();
        for is_damaged in [false, true] {
            let mut packet = Shape::new(false, true, vec![3; 555]).build(&pool());
            crate::offload::complete_checksum(&mut packet, &pool()).unwrap();
            packet.head_mut().unwrap()[51] ^= u8::from(is_damaged);
            let mut batch = PacketBatch::new();
            batch.push(packet).unwrap();
            tap.transmit(Instant::ZERO, &pool(), &mut batch).unwrap();
            let got = hear(&mut link, |packet| packet.len() == 621).expect("the segment");
            let valid = Trust::in_this_kernel().valid();
            let expected = if is_damaged { Checksum::Unverified } else { valid };
            assert_eq!(got.meta().checksum, expected);
            assert_eq!(parse(&got, Medium::Ethernet).is_valid, !is_damaged);
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_counted_and_the_next_packet_comes_whole() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let big = namespace.run(|| netdev::set_mtu("lo", 400_000));
    let Some(()) = permitted(big.and_then(|big| big)) else { return };
    let sender = namespace.run(|| socket::open("lo").unwrap()).unwrap();
    // Addressed to another protocol than any here, so that the kernel itself drops it.
    let send = |len: usize| {
        let mut bytes = vec![7; vnet::HEADER_BYTES + len];
        bytes[..vnet::HEADER_BYTES].fill(0);
        bytes[vnet::HEADER_BYTES + 12..][..2].copy_from_slice(&[0x88, 0xb5]);
        assert_eq!(crate::sys::write(sender.as_raw_fd(), &bytes).unwrap(), bytes.len());
    };
    // Beyond a super-segment, and beyond a block of the ring.
    for (config, len) in
        both_ways_to_receive("lo", Some(namespace.path())).iter().zip([70_000, 200_000])
    {
        let mut link = RawLink::open(config).unwrap();
        send(len);
        send(1000);
        let got =
            hear(&mut link, |packet| packet.head()[12..14] == [0x88, 0xb5]).expect("the second");
        assert_eq!((got.len(), bytes(&got)[14]), (1000, 7));
        assert_eq!(link.stats().dropped(DropCause::Truncated), 1, "{:?}", link.stats());
        assert_eq!(link.stats().dropped_total(), 1);
    }
}
