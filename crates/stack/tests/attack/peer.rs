//! Peers that opened a connection in earnest, and play with it for ever.

use millstream::tcp::TcpInfo;
use millstream_wire::tcp::TcpHeader;

use super::net::{CHARGEN, DISCARD, Net};
use super::puppet::Puppet;
use super::{Guess, beside, rate};

pub type Play = fn(&mut Puppet, &mut Net, &mut Guess);

/// Runs `play` twice a step, or more (8,000 segments a second) on a connection to `port`; `check`
/// sees what the far host says of that connection at every 40th step and at the end.
fn play(name: &str, port: u16, play: Play, check: fn(&TcpInfo)) {
    beside(
        name,
        move |net, v6| {
            let mut puppet = Puppet::open(net, v6, port, 4000);
            let mut guess = Guess(5);
            let mut steps = 0;
            Box::new(move |net: &mut Net| {
                puppet.listen(net);
                for _ in 0..2 * rate() {
                    play(&mut puppet, net, &mut guess);
                }
                steps += 1;
                if steps % 40 == 0
                    && let Some(info) = net.served_info(puppet.ends.from)
                {
                    bounded(&info);
                    check(&info);
                }
            })
        },
        move |net, v6| {
            if let Some(info) = net.served_info(Net::attacker(v6, 4000)) {
                bounded(&info);
                check(&info);
            }
        },
    );
}

/// Asserts the bounds of what any connection holds.
fn bounded(info: &TcpInfo) {
    let limit = 2 * info.recv_limit_bytes + 70_000;
    assert!(info.recv_queue_held_bytes <= limit, "{info:?}");
    assert!(info.send_queue_held_bytes <= info.send_limit_bytes + 70_000, "{info:?}");
    assert!(info.out_of_order_ranges <= millstream_tcp::limits::REASSEMBLY_RANGES);
    assert!(info.challenge_acks <= 10 * 4, "{} challenge ACKs in 2 s", info.challenge_acks);
}

fn tiny(puppet: &mut Puppet, net: &mut Net, _: &mut Guess) {
    puppet.send(net, |_| {}, b"f");
    puppet.seq += 1;
}

fn gaps(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    let at = 1 + 2 * (guess.next() % 15_000) as usize;
    puppet.send(net, |header| header.seq += at, b"f");
}

fn overlap(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    let at = 1 + (guess.next() % 25_000) as usize;
    let len = 1 + (guess.next() % 1400) as usize;
    puppet.send(net, |header| header.seq += at, &[b'f'; 1400][..len]);
}

/// Ever downwards, each over half of the one before; sometimes the gap is filled.
fn cross(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    let place = 28_000 - (puppet.sent % 400) as usize * 70;
    puppet.send(net, |header| header.seq += 1 + place, &[b'f'; 140]);
    if guess.next().is_multiple_of(5000) {
        puppet.send(net, |_| {}, b"f");
        puppet.seq = puppet.acked;
    }
}

fn beyond(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    let at = (1 << 24) + (guess.next() >> 8) as usize;
    puppet.send(net, |header| header.seq += at, b"f");
}

/// Says that bytes `begin` to `end`, counted from the acknowledgement, are here.
fn sack(header: &mut TcpHeader, begin: usize, end: usize) {
    let (left, right) = (header.ack + begin, header.ack + end);
    let _ = header.options.sack.push(left, right);
}

fn all(puppet: &mut Puppet, net: &mut Net, _: &mut Guess) {
    let seen = puppet.seen.distance_from(puppet.ack) as usize;
    puppet.send(net, |header| sack(header, 1, seen.max(2)), &[]);
}

fn nothing(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    let mut at = (guess.next() % 60_000) as usize;
    let gap = 1 + (guess.next() % 3000) as usize;
    let blocks = |header: &mut TcpHeader| {
        // as many as fit beside timestamps
        for _ in 0..3 {
            sack(header, at, at + 1);
            at += gap;
        }
    };
    puppet.send(net, blocks, &[]);
}

fn optimistic(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    let ahead = (guess.next() % 40_000) as usize;
    puppet.ack = puppet.ack.max(puppet.seen);
    puppet.send(net, |header| header.ack += ahead, &[]);
}

/// A hundred of each, so that early and late the same amount of data is sent for as many.
fn duplicates(puppet: &mut Puppet, net: &mut Net, _: &mut Guess) {
    if puppet.sent.is_multiple_of(100) {
        puppet.ack = puppet.seen;
    }
    puppet.send(net, |_| {}, &[]);
}

fn zero(puppet: &mut Puppet, net: &mut Net, _: &mut Guess) {
    puppet.ack = puppet.seen;
    puppet.send(net, |header| header.window = 0, &[]);
}

fn shrink(puppet: &mut Puppet, net: &mut Net, guess: &mut Guess) {
    if guess.next().is_multiple_of(4) {
        puppet.ack = puppet.seen;
    }
    let window = [0, 1, 3, 512][(guess.next() % 4) as usize];
    puppet.send(net, |header| header.window = window, &[]);
}

/// Every play by its name, and the port that it is for.
pub const PLAYS: [(&str, u16, Play); 11] = [
    ("tiny", DISCARD, tiny),
    ("gaps", DISCARD, gaps),
    ("overlap", DISCARD, overlap),
    ("cross", DISCARD, cross),
    ("beyond", DISCARD, beyond),
    ("all", CHARGEN, all),
    ("nothing", CHARGEN, nothing),
    ("optimistic", CHARGEN, optimistic),
    ("duplicates", CHARGEN, duplicates),
    ("zero", CHARGEN, zero),
    ("shrink", CHARGEN, shrink),
];

#[test]
fn one_byte_at_a_time() {
    play("segments of one byte, in order", DISCARD, tiny, |info| {
        assert!(info.bytes_received > 10, "nothing arrives");
    });
}

#[test]
fn one_byte_with_gaps() {
    play("segments of one byte, gaps for ever", DISCARD, gaps, |info| {
        assert!(info.out_of_order_ranges > 10);
    });
}

#[test]
fn overlapping() {
    play("overlapping segments, a gap for ever", DISCARD, overlap, |info| {
        assert!(info.out_of_order_bytes > 1000);
    });
}

#[test]
fn crossed() {
    play("crossed segments", DISCARD, cross, |info| {
        assert!(info.out_of_order_segments > 10);
    });
}

#[test]
fn beyond_the_window() {
    play("out of the window", DISCARD, beyond, |info| {
        assert_eq!((info.bytes_received, info.out_of_order_bytes), (0, 0));
    });
}

#[test]
fn everything_selectively() {
    play("SACK of everything but the first byte", CHARGEN, all, |info| {
        assert!(info.timeouts + info.fast_recoveries > 0);
    });
}

#[test]
fn nothing_selectively() {
    play("SACK of single bytes, sent or not", CHARGEN, nothing, |info| {
        assert!(info.sacked_bytes > 0);
    });
}

#[test]
fn optimistic_acks() {
    play("optimistic ACKs", CHARGEN, optimistic, |info| assert!(info.challenge_acks > 0));
}

#[test]
fn duplicate_acks() {
    play("duplicate ACKs", CHARGEN, duplicates, |info| assert!(info.duplicate_acks_in > 10));
}

#[test]
fn a_window_of_zero() {
    play("a window of zero for ever", CHARGEN, zero, |info| assert_eq!(info.snd_wnd_bytes, 0));
}

#[test]
fn a_window_that_shrinks() {
    play("a window that opens and shrinks", CHARGEN, shrink, |_| {});
}
