//! Attackers who know the four-tuple and cannot see the segments (RFC 5961).

use millstream::wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use super::frames;
use super::net::Net;
use super::{Guess, beside, rate};

/// What changes a forged segment; the bytes of payload that it gets.
type Change = fn(&mut Guess, &mut TcpHeader) -> usize;

/// Sends a segment whose numbers are guesses, but for `seq` if given, to a host, as if from its peer.
fn forge(
    net: &mut Net,
    guess: &mut Guess,
    (to_far, ends): (bool, frames::Ends),
    seq: Option<SeqNumber>,
    change: Change,
) {
    let mut header = TcpHeader {
        seq: seq.unwrap_or_else(|| SeqNumber(guess.next())),
        ack: SeqNumber(guess.next()),
        flags: TcpFlags::ACK,
        window: guess.next() as u16,
        ..TcpHeader::default()
    };
    let len = change(guess, &mut header);
    net.inject(to_far, &frames::segment(ends, header, &[0xbb; 1400][..len]));
}

/// Sends segments at both ends of both transfers, as if from their peers.
fn spoof(change: Change) -> Box<dyn FnMut(&mut Net)> {
    let mut guess = Guess(2);
    Box::new(move |net| {
        for index in 0..net.transfers.len() {
            let ends = net.transfers[index].ends;
            for (to_far, ends) in [(true, ends), (false, ends.back())] {
                for _ in 0..rate() {
                    forge(net, &mut guess, (to_far, ends), None, change);
                }
            }
        }
    })
}

/// The same with numbers that lie in the receiver's window, as one guess in some 50,000 does; not the very next,
/// which one in 2^32 is, and which an RST needs.
fn spoof_in_window(change: Change) -> Box<dyn FnMut(&mut Net)> {
    let mut guess = Guess(3);
    Box::new(move |net| {
        for index in 0..net.transfers.len() {
            let ends = net.transfers[index].ends;
            for (to_far, ends) in [(true, ends), (false, ends.back())] {
                let Some(next) = expected(net, index, to_far) else { continue };
                let seq = next + 4000 + (guess.next() % 30_000) as usize;
                forge(net, &mut guess, (to_far, ends), Some(seq), change);
            }
        }
    })
}

/// What a host expects next in a transfer: what the last segment that it sent acknowledges.
fn expected(net: &Net, index: usize, far: bool) -> Option<SeqNumber> {
    net.acknowledged(net.transfers[index].ends, far)
}

/// At most the rate of RFC 5961 section 7 for each connection: ten a second, of two connections at each host.
fn challenges_are_few(net: &mut Net) {
    let seconds = 1 + net.now.saturating_duration_since(net.begin).as_secs();
    for index in 0..net.transfers.len() {
        let transfer = &net.transfers[index];
        let (client, from) = (transfer.client, transfer.ends.from);
        let near = net.near.engine.tcp_info(client).expect("open");
        let far = net.served_info(from).expect("open");
        for info in [near, far] {
            assert!(u64::from(info.challenge_acks) <= 10 * (seconds + 1), "{info:?}");
        }
    }
}

#[test]
fn blind_resets() {
    let reset = |_: &mut Guess, header: &mut TcpHeader| {
        header.flags = TcpFlags::RST;
        0
    };
    beside("blind RST", |_, _| spoof(reset), |net, _| challenges_are_few(net));
    beside(
        "RST in the window",
        |_, _| spoof_in_window(reset),
        |net, _| {
            challenges_are_few(net);
            let from = net.transfers[0].ends.from;
            assert!(net.served_info(from).expect("open").challenge_acks > 0, "never challenged");
        },
    );
}

#[test]
fn blind_syns() {
    let syn = |_: &mut Guess, header: &mut TcpHeader| {
        header.flags = TcpFlags::SYN;
        0
    };
    beside("blind SYN", |_, _| spoof(syn), |net, _| challenges_are_few(net));
    beside("SYN in the window", |_, _| spoof_in_window(syn), |net, _| challenges_are_few(net));
}

#[test]
fn blind_data() {
    // that none of it is ever read, the applications see: it is other than theirs
    let data = |_: &mut Guess, _: &mut TcpHeader| 1400;
    beside("blind data", |_, _| spoof(data), |_, _| {});
    beside("data in the window, ACK guessed", |_, _| spoof_in_window(data), |_, _| {});
}

#[test]
fn blind_acks() {
    let ack = |_: &mut Guess, _: &mut TcpHeader| 0;
    beside("ACK storm", |_, _| spoof(ack), |net, _| challenges_are_few(net));
    beside("ACKs in the window", |_, _| spoof_in_window(ack), |net, _| challenges_are_few(net));
}

/// Two hosts that were made to disagree do not answer each other for ever.
#[test]
fn no_storm_between_the_hosts() {
    for v6 in [false, true] {
        let mut net = Net::new();
        net.transfer(v6, true);
        net.run(std::time::Duration::from_millis(300), |_| {});
        // both hear an ACK of what they never sent, from the right place
        let ends = net.transfers[0].ends;
        for (to_far, ends) in [(true, ends), (false, ends.back())] {
            let next = expected(&net, 0, to_far).expect("they talk");
            let header = TcpHeader {
                seq: next,
                ack: SeqNumber(0x1234_5678),
                flags: TcpFlags::ACK,
                window: 100,
                ..TcpHeader::default()
            };
            for _ in 0..50 {
                net.inject(to_far, &frames::segment(ends, header, &[]));
            }
        }
        net.near.engine.tcp_shutdown_write(net.transfers[0].client).expect("open");
        let fed = net.served[0].0;
        net.served[0].2 = false;
        net.far.engine.tcp_shutdown_write(fed).expect("open");
        net.run(std::time::Duration::from_millis(1500), |_| {});
        let before = net.sent;
        net.run(std::time::Duration::from_millis(1500), |_| {});
        assert!(net.sent - before <= 4, "{} segments when all is said", net.sent - before);
    }
}
