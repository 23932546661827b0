//! Attackers who know the four-tuple and cannot see the segments (RFC 5961), with luck up to the
//! check that a row of docs/attacks.md names: what checks before it, or after it, look at is right,
//! so that nothing but that check stands between them and the connection. Each row counts that its
//! segments got there.

use millstream::tcp::TcpInfo;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use super::net::Net;
use super::{Guess, beside, rate};
use crate::common::frames;

/// A distance that no guess of this file falls into: more than any window here, and than the bytes
/// acknowledged late.
const NEAR: u32 = 1 << 20;

/// Where a segment begins.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Far from the window, as nearly all guesses are.
    Guessed,
    /// In the window, as one guess in some 50,000 is; not the very next number, which one in 2^32
    /// is.
    InWindow,
    /// Before the window, and its end reaches in.
    OverLeftEdge,
}

/// The acknowledgement number of a forged segment.
#[derive(Clone, Copy, PartialEq)]
enum Acked {
    /// The number that the peer acknowledged last.
    Right,
    /// Something else, as nearly all guesses are.
    Guessed,
    /// Nothing: it has no ACK flag.
    Nothing,
}

/// Its timestamp.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stamp {
    /// It has none.
    None,
    /// As the peer's last.
    Right,
    /// Far ahead of it, as half of all guesses are: what is older than the one that was kept is
    /// dropped.
    Ahead,
}

#[derive(Clone, Copy)]
struct Forgery {
    flags: TcpFlags,
    len: usize,
    place: Place,
    acked: Acked,
    stamp: Stamp,
}

impl Stamp {
    fn name(self) -> &'static str {
        match self {
            Stamp::None => "no timestamp",
            Stamp::Right => "right timestamp",
            Stamp::Ahead => "timestamp ahead",
        }
    }
}

impl Forgery {
    const DATA: Forgery = Forgery {
        flags: TcpFlags::NONE,
        len: 1400,
        place: Place::InWindow,
        acked: Acked::Right,
        stamp: Stamp::Right,
    };
    const ACK: Forgery = Forgery { len: 0, ..Forgery::DATA };
    const RST: Forgery = Forgery { flags: TcpFlags::RST, acked: Acked::Nothing, ..Forgery::ACK };
    const SYN: Forgery = Forgery { flags: TcpFlags::SYN, acked: Acked::Nothing, ..Forgery::ACK };

    /// To both ends of all transfers.
    fn send(self, net: &mut Net, guess: &mut Guess) {
        for index in 0..net.transfers.len() {
            for to_far in [true, false] {
                for _ in 0..rate() {
                    let segment = self.segment(net, guess, index, to_far).expect("they talk");
                    net.inject(to_far, &segment);
                }
            }
        }
    }

    /// A segment to a host of a transfer, as if from its peer; none while the two have said too
    /// little.
    fn segment(self, net: &Net, guess: &mut Guess, index: usize, to_far: bool) -> Option<Vec<u8>> {
        let ends = net.transfers[index].ends;
        let next = net.acknowledged(ends, to_far)?;
        let acked = net.acknowledged(ends, !to_far)?;
        let timestamps = net.timestamps(ends, !to_far)?;
        let mut afar = || NEAR + guess.next() % (u32::MAX - 2 * NEAR);
        let (far, ack) = (afar(), afar());
        let value = match self.stamp {
            Stamp::Ahead => timestamps.value.wrapping_add((1 << 30) + guess.next() % (1 << 30)),
            _ => timestamps.value,
        };
        let stamps = Timestamps { value, ..timestamps };
        let header = TcpHeader {
            seq: match self.place {
                Place::Guessed => SeqNumber(next.0.wrapping_add(far)),
                Place::InWindow => next + 4000 + (guess.next() % 30_000) as usize,
                Place::OverLeftEdge => SeqNumber(next.0.wrapping_sub(700 + guess.next() % 600)),
            },
            ack: match self.acked {
                Acked::Right => acked,
                Acked::Guessed => SeqNumber(acked.0.wrapping_add(ack)),
                Acked::Nothing => SeqNumber(0),
            },
            flags: match self.acked {
                Acked::Nothing => self.flags,
                _ => self.flags | TcpFlags::ACK,
            },
            window: guess.next() as u16,
            options: TcpOptions {
                timestamps: (self.stamp != Stamp::None).then_some(stamps),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        let ends = if to_far { ends } else { ends.back() };
        Some(frames::segment(ends, header, &[0xbb; 1400][..self.len]))
    }
}

/// Sends such segments at both ends of both transfers, whichever of `stamps` they have. All of them
/// get as far as the check that is meant, which has dropped as many as `reached` says.
fn row(name: &str, stamps: &[Stamp], forgery: Forgery, reached: fn(&TcpInfo) -> u32) {
    for &stamp in stamps {
        let forgery = Forgery { stamp, ..forgery };
        beside(
            &format!("{name}, {}", stamp.name()),
            |_, _| {
                let mut guess = Guess(2);
                Box::new(move |net| forgery.send(net, &mut guess))
            },
            |net, _| {
                let ends = 2 * net.transfers.len();
                let sent = net.injected / ends as u64;
                assert!(sent > 1000, "{sent} segments to each");
                for index in 0..net.transfers.len() {
                    for far in [false, true] {
                        let info = net.transfer_info(index, far);
                        let reached = u64::from(reached(&info));
                        match forgery.place {
                            // as wide as it is, it lies before what came since the last ACK
                            Place::OverLeftEdge => assert!(reached > sent / 2, "{name}: {info:?}"),
                            _ => assert_eq!(reached, sent, "{name}, {stamp:?}: {info:?}"),
                        }
                        challenges_are_few(net, &info);
                    }
                }
            },
        );
    }
}

/// At most the rate of RFC 5961 section 7 for each connection: ten a second.
fn challenges_are_few(net: &Net, info: &TcpInfo) {
    let seconds = 1 + net.now.saturating_duration_since(net.begin).as_secs();
    assert!(u64::from(info.challenge_acks) <= 10 * (seconds + 1), "{info:?}");
}

const BOTH: [Stamp; 2] = [Stamp::Right, Stamp::Ahead];

fn out_of_window(info: &TcpInfo) -> u32 {
    info.out_of_window
}

fn unacceptable_acks(info: &TcpInfo) -> u32 {
    info.unacceptable_acks
}

#[test]
fn blind_resets() {
    let guessed = Forgery { place: Place::Guessed, ..Forgery::RST };
    row("RST, number guessed", &BOTH, guessed, out_of_window);
    row("RST in the window", &BOTH, Forgery::RST, |info| info.challenged_resets);
}

#[test]
fn blind_syns() {
    let guessed = Forgery { place: Place::Guessed, ..Forgery::SYN };
    row("SYN, number guessed", &BOTH, guessed, out_of_window);
    row("SYN in the window", &BOTH, Forgery::SYN, |info| info.challenged_syns);
}

/// The applications check that they never read any of it: it differs from their data.
#[test]
fn blind_data() {
    let guessed = Forgery { place: Place::Guessed, ..Forgery::DATA };
    row("data, number guessed", &BOTH, guessed, out_of_window);
    let guessed = Forgery { acked: Acked::Guessed, ..Forgery::DATA };
    row("data in the window, ACK guessed", &BOTH, guessed, unacceptable_acks);
    let plain = Forgery { acked: Acked::Nothing, ..Forgery::DATA };
    row("data in the window, no ACK", &BOTH, plain, |info| info.without_ack);
    row("data in the window, ACK right", &[Stamp::None], Forgery::DATA, |info| {
        info.without_timestamp
    });
}

/// A connection that keeps their timestamps takes nothing more from its peer.
#[test]
fn blind_timestamps() {
    let guessed = Forgery { acked: Acked::Guessed, place: Place::OverLeftEdge, ..Forgery::DATA };
    row("data over the left edge, ACK guessed", &BOTH, guessed, unacceptable_acks);
}

#[test]
fn blind_ends() {
    let fin = Forgery { flags: TcpFlags::FIN, acked: Acked::Guessed, ..Forgery::ACK };
    row("FIN in the window, ACK guessed", &BOTH, fin, unacceptable_acks);
}

#[test]
fn blind_acks() {
    let guessed = Forgery { place: Place::Guessed, ..Forgery::ACK };
    row("ACK, number guessed", &BOTH, guessed, out_of_window);
    let guessed = Forgery { acked: Acked::Guessed, ..Forgery::ACK };
    row("ACK in the window, guessed", &BOTH, guessed, unacceptable_acks);
}

/// Two hosts that were made to disagree do not answer each other for ever.
#[test]
fn no_storm_between_the_hosts() {
    for v6 in [false, true] {
        let mut net = Net::new();
        net.transfer(v6, true);
        net.run(std::time::Duration::from_millis(300), |_| {});
        // both hear an ACK of what they never sent, from the right place and with the right
        // timestamps
        let ends = net.transfers[0].ends;
        for (to_far, ends) in [(true, ends), (false, ends.back())] {
            let transfer = net.transfers[0].ends;
            let next = net.acknowledged(transfer, to_far).expect("they talk");
            let timestamps = net.timestamps(transfer, !to_far);
            let header = TcpHeader {
                seq: next,
                ack: SeqNumber(0x1234_5678),
                flags: TcpFlags::ACK,
                window: 100,
                options: TcpOptions { timestamps, ..TcpOptions::NONE },
                ..TcpHeader::default()
            };
            for _ in 0..50 {
                net.inject(to_far, &frames::segment(ends, header, &[]));
            }
        }
        net.step();
        for far in [false, true] {
            let info = net.transfer_info(0, far);
            // all but those that data on their way made old, or whose place is taken
            assert!(info.unacceptable_acks + info.out_of_window >= 50, "{info:?}");
        }
        net.near.engine.tcp(net.transfers[0].client).shutdown_write().expect("open");
        let fed = net.served[0].0;
        net.served[0].2 = false;
        net.far.engine.tcp(fed).shutdown_write().expect("open");
        net.run(std::time::Duration::from_millis(1500), |_| {});
        let before = net.sent;
        net.run(std::time::Duration::from_millis(1500), |_| {});
        assert!(net.sent - before <= 4, "{} segments when all is said", net.sent - before);
    }
}
