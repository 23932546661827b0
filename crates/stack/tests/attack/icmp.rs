//! ICMP errors about segments that were never sent (RFC 5927).

use std::net::SocketAddr;

use millstream_wire::icmp::{Icmp, Unreachable};

use super::net::Net;
use super::{Guess, beside};
use crate::common::frames;

/// About numbers far from what is outstanding, as nearly all guesses are: one in some 50,000 lies
/// in a window of 80 kB.
fn spoof(error: fn(&mut Guess) -> Icmp) -> Box<dyn FnMut(&mut Net)> {
    let mut guess = Guess(4);
    let mut steps = 0;
    Box::new(move |net| {
        steps += 1;
        if steps % 4 != 0 {
            return;
        }
        for index in 0..net.transfers.len() {
            let ends = net.transfers[index].ends;
            let router: SocketAddr = Net::attacker(ends.from.is_ipv6(), 1);
            for (to_far, quoted) in [(true, ends.back()), (false, ends)] {
                let Some(oldest) = net.acknowledged(ends, !to_far) else { continue };
                let afar = (1 << 20) + guess.next() % (u32::MAX - (1 << 21));
                let (seq, error) = (oldest.0.wrapping_add(afar), error(&mut guess));
                net.inject(to_far, &frames::icmp_error(router.ip(), quoted, seq, error));
            }
        }
    })
}

#[test]
fn unreachable_about_nothing() {
    beside(
        "ICMP unreachable, 4,000 a second",
        |_, _| spoof(|_| Icmp::Unreachable(Unreachable::Port)),
        |net, _| all_are_about(net, false),
    );
}

#[test]
fn too_big_about_nothing() {
    beside(
        "ICMP packet too big, 4,000 a second",
        |_, _| spoof(|guess| Icmp::PacketTooBig { mtu: 68 + guess.next() % 1300 }),
        |net, _| {
            for index in 0..net.transfers.len() {
                let client = net.transfers[index].client;
                let info = net.near.engine.tcp(client).info().expect("open");
                assert!(info.snd_mss_bytes > 1300, "segments of {}", info.snd_mss_bytes);
            }
            all_are_about(net, false);
        },
    );
}

/// Asserts how many ICMP errors about each transfer named nothing outstanding: all at the sending
/// side, or less than a tenth if they name `outstanding` data. (The receiving side has nothing
/// outstanding.)
fn all_are_about(net: &mut Net, outstanding: bool) {
    let ends = 2 * net.transfers.len();
    let sent = net.injected / ends as u64;
    assert!(sent > 500, "{sent} errors to each");
    for index in 0..net.transfers.len() {
        // the first transfer brings, the second fetches
        let info = net.transfer_info(index, index == 1);
        let about_nothing = u64::from(info.icmp_not_outstanding);
        match outstanding {
            true => assert!(about_nothing < sent / 10, "{about_nothing} of {sent}: {info:?}"),
            false => assert_eq!(about_nothing, sent, "{info:?}"),
        }
    }
}

/// Tells both ends of every transfer of an error about the oldest segment that can be outstanding:
/// the number that the peer acknowledged last.
fn about_the_oldest(error: fn() -> Icmp) -> Box<dyn FnMut(&mut Net)> {
    Box::new(move |net: &mut Net| {
        for index in 0..net.transfers.len() {
            let ends = net.transfers[index].ends;
            let router = Net::attacker(ends.from.is_ipv6(), 1).ip();
            for (to_far, quoted) in [(true, ends.back()), (false, ends)] {
                let Some(seq) = net.acknowledged(ends, !to_far) else { continue };
                net.inject(to_far, &frames::icmp_error(router, quoted, seq.0, error()));
            }
        }
    })
}

/// Even about a segment that is outstanding, an error does not end a connection that is open (RFC
/// 5461).
#[test]
fn unreachable_about_something() {
    beside(
        "ICMP unreachable about what is outstanding",
        |_, _| about_the_oldest(|| Icmp::Unreachable(Unreachable::Port)),
        |net, _| all_are_about(net, true),
    );
}

/// Even about a segment that is outstanding, nothing shrinks where full segments have arrived
/// before and this one does too (RFC 5927 7.2).
#[test]
fn too_big_about_something() {
    beside(
        "ICMP packet too big about what is outstanding",
        |_, _| about_the_oldest(|| Icmp::PacketTooBig { mtu: 68 }),
        |net, _| {
            for index in 0..net.transfers.len() {
                let client = net.transfers[index].client;
                let info = net.near.engine.tcp(client).info().expect("open");
                assert!(info.snd_mss_bytes > 1300, "segments of {}: {info:?}", info.snd_mss_bytes);
                assert!(!info.may_be_fragmented, "nor may routers cut its packets");
            }
            all_are_about(net, true);
        },
    );
}
