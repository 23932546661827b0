//! RFC 4861, 6.1, 7.1 and 8.1: messages that are not valid are discarded.

use std::time::Duration;

use millstream::link::PairConfig;
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::MacAddr;
use millstream_wire::icmp;
use millstream_wire::ndp::{NdpMessage, NeighborAdvert, NeighborSolicitation};

use super::hub::{Hub, mac, ndp};

const PEER: &str = "fd09::9";
/// Where the IPv6 header and the message are in a frame.
const IP: usize = 14;
const BODY: usize = IP + 40;

/// Makes the checksum right again, and the length.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let len = frame.len() - BODY;
    frame[IP + 4..IP + 6].copy_from_slice(&(len as u16).to_be_bytes());
    let address =
        |at: usize| std::net::Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| frame[at + i]));
    let (src, dst) = (address(IP + 8), address(IP + 24));
    let at = BODY + icmp::CHECKSUM_OFFSET;
    frame[at..at + 2].fill(0);
    let mut sum = Accumulator::new(icmp::pseudo_sum(src.into(), dst.into(), len));
    sum.add(&frame[BODY..]);
    frame[at..at + 2].copy_from_slice(&sum.finish());
    frame
}

/// An engine that knows the peer as station 9.
fn knows_peer() -> Hub {
    let mut hub = Hub::new();
    hub.add(|_| {}, PairConfig::default());
    hub.address(0, "fd09::1/64");
    hub.say(&solicitation(9));
    hub.settle();
    hub.pass(Duration::from_secs(2));
    hub.take_heard();
    hub
}

/// The peer, which is said to be this station, asks for us.
fn solicitation(station: u8) -> Vec<u8> {
    let message = NdpMessage::NeighborSolicitation(NeighborSolicitation {
        target: "fd09::1".parse().unwrap(),
        source_ll: Some(mac(station)),
        nonce: None,
    });
    let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);
    ndp(mac(station), group, PEER, "ff02::1:ff00:1", &message)
}

/// The peer tells us that it is station 8.
fn advert() -> Vec<u8> {
    let message = NdpMessage::NeighborAdvert(NeighborAdvert {
        router: false,
        solicited: true,
        override_flag: true,
        target: PEER.parse().unwrap(),
        target_ll: Some(mac(8)),
    });
    ndp(mac(8), mac(0), PEER, "fd09::1", &message)
}

/// Returns if the engine believes the frame, and if it answers.
fn effect(frame: &[u8]) -> (bool, bool) {
    let mut hub = knows_peer();
    let before: Vec<_> =
        hub.engines[0].inspect().neighbors().map(|entry| (entry.ip, entry.mac)).collect();
    hub.say(frame);
    hub.settle();
    let answers = !hub.take_from(0).is_empty();
    let after: Vec<_> =
        hub.engines[0].inspect().neighbors().map(|entry| (entry.ip, entry.mac)).collect();
    (after != before, answers)
}

type Change = fn(&mut Vec<u8>);

#[test]
fn what_is_no_valid_message_does_nothing() {
    assert_eq!(effect(&sealed(solicitation(8))), (true, true));
    assert_eq!(effect(&sealed(advert())), (true, false));
    let both: [(&str, Change); 12] = [
        ("it may have come over a router", |frame| frame[IP + 7] = 254),
        ("a code", |frame| frame[BODY + 1] = 1),
        ("too short", |frame| frame.truncate(BODY + 23)),
        ("without a target", |frame| frame.truncate(BODY + 8)),
        ("a group as the target", |frame| frame[BODY + 8] = 0xff),
        ("an option without length", |frame| frame[BODY + 25] = 0),
        ("an option beyond the end", |frame| frame[BODY + 25] = 2),
        ("half an option", |frame| frame.truncate(BODY + 28)),
        ("a second option without length", |frame| frame.extend([14, 0, 0, 0, 0, 0, 0, 0])),
        ("a group as the station", |frame| frame[BODY + 26] = 1),
        ("everybody as the station", |frame| frame[BODY + 26..BODY + 32].fill(0xff)),
        ("nobody as the station", |frame| frame[BODY + 26..BODY + 32].fill(0)),
    ];
    for (name, change) in both {
        for mut frame in [solicitation(8), advert()] {
            change(&mut frame);
            assert_eq!(effect(&sealed(frame)), (false, false), "{name}");
        }
    }
    // RFC 6980, 5: also where the fragment is the whole message (RFC 6946), and behind other
    // headers.
    for (name, headers) in [
        ("an atomic fragment", vec![44, 58, 0, 0, 0, 0, 0, 0, 7]),
        ("one behind options", vec![60, 44, 0, 1, 4, 0, 0, 0, 0, 58, 0, 0, 0, 0, 0, 0, 7]),
        ("options behind one", vec![44, 60, 0, 0, 0, 0, 0, 0, 7, 58, 0, 1, 4, 0, 0, 0, 0]),
        ("two of them", vec![44, 44, 0, 0, 0, 0, 0, 0, 7, 58, 0, 0, 0, 0, 0, 0, 8]),
    ] {
        for frame in [solicitation(8), advert()] {
            let mut frame = sealed(frame);
            frame[IP + 6] = headers[0];
            frame.splice(BODY..BODY, headers[1..].iter().copied());
            frame[IP + 5] += headers.len() as u8 - 1;
            assert_eq!(effect(&frame), (false, false), "{name}");
        }
    }
    for mut frame in [solicitation(8), advert()] {
        frame[BODY + icmp::CHECKSUM_OFFSET] ^= 1;
        assert_eq!(effect(&frame), (false, false), "a wrong checksum");
    }
    let unspecified: Change = |frame| frame[IP + 8..IP + 24].fill(0);
    let solicitations: [(&str, Change); 2] = [
        ("a station of nobody's", unspecified),
        ("of nobody, to one station", |frame| {
            frame[IP + 8..IP + 24].fill(0);
            frame.truncate(BODY + 24);
            frame[..6].copy_from_slice(&mac(0).0);
            frame[IP + 24..IP + 40]
                .copy_from_slice(&"fd09::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        }),
    ];
    for (name, change) in solicitations {
        let mut frame = solicitation(8);
        change(&mut frame);
        assert_eq!(effect(&sealed(frame)), (false, false), "{name}");
    }
    // An answer that is for all.
    let mut frame = advert();
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    frame[IP + 24..IP + 40]
        .copy_from_slice(&"ff02::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    assert_eq!(effect(&sealed(frame)), (false, false));
}
