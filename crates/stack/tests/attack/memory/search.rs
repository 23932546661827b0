//! The worst of the attackers who hold memory for the least: drawn, tried against a host with few
//! frames, and changed in one respect after the other as long as that makes them worse. The same in
//! every run. `MILLSTREAM_SEARCH` says how many are tried.

use std::time::Duration;

use millstream::MemoryPressure;

use super::world::{CHARGEN, ECHO, World};
use super::{FRAMES, busy, within_limit};
use crate::{Guess, KEPT};

/// Simulated time beside each attacker.
const TIME: Duration = Duration::from_secs(8);
/// Least share of the newcomers that are served in time.
const SERVED: f64 = 0.9;
/// A newcomer comes this often, in ms.
const NEWCOMER_MS: usize = 250;
/// Within which it is to be served, in ms.
const SERVED_MS: usize = 3000;
/// Bytes a second that an attacker takes or sends at most over all its connections: as much as the
/// path of those who behave carries. Who moves more is no attacker of the kind that does little.
const LITTLE_PER_S: usize = 2_500_000;
/// Packets that it sends in a millisecond at most.
const PACKETS_PER_MS: usize = 10;
/// Attackers tried where nothing else is said.
const TRIES: usize = 24;

/// An attacker: how it holds memory, and what it does not to be told from a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attacker {
    /// The server that it comes to echoes; otherwise that writes without end.
    echo: bool,
    peers: usize,
    /// Addresses that it comes from.
    sources: usize,
    /// Its connections are opened over so long, in ms.
    opens_ms: usize,
    /// Each acts so often, in ms,
    every_ms: usize,
    /// acknowledges so many bytes more then,
    takes: usize,
    /// offers a window of so many times 128 bytes,
    window: u16,
    /// and sends so many.
    sends: usize,
    /// A connection that was reset is replaced by another.
    returns: bool,
}

/// A number up to `most` of which any number of digits is as likely.
fn digits(guess: &mut Guess, most: usize) -> usize {
    let top = 1 << (guess.next() as usize % (usize::BITS - most.leading_zeros()) as usize);
    (top + guess.next() as usize % top).min(most)
}

impl Attacker {
    /// Byte by byte from a small buffer, of a server that writes.
    const LEAST: Attacker = Attacker {
        echo: false,
        peers: 1500,
        sources: 1,
        opens_ms: 100,
        every_ms: 1000,
        takes: 1,
        window: 16,
        sends: 0,
        returns: false,
    };

    /// The same with one respect changed.
    fn changed(mut self, guess: &mut Guess) -> Attacker {
        match guess.next() % 9 {
            0 => self.echo = !self.echo,
            1 => self.peers = 50 + digits(guess, 1450),
            2 => self.sources = digits(guess, 128),
            3 => self.opens_ms = digits(guess, 4000),
            4 => self.every_ms = digits(guess, 5000),
            5 => self.takes = digits(guess, 1 << 16),
            6 => self.window = digits(guess, 4096) as u16,
            7 => self.sends = digits(guess, 1400),
            _ => self.returns = !self.returns,
        }
        self.every_ms = self.every_ms.max(self.peers / PACKETS_PER_MS);
        let most = LITTLE_PER_S * self.every_ms / 1000 / self.peers;
        self.takes = self.takes.min(most).max(1);
        self.sends = self.sends.min(most);
        self
    }

    fn drawn(guess: &mut Guess) -> Attacker {
        (0..12).fold(Self::LEAST, |attacker, _| attacker.changed(guess))
    }

    /// Acts for one step of a millisecond.
    fn act(&self, world: &mut World, step: usize, open: &mut usize) {
        let port = if self.echo { ECHO } else { CHARGEN };
        let host = |index: usize| 66 + (index % self.sources) as u8;
        let due = (self.peers * (step + 1) / self.opens_ms.max(1)).min(self.peers);
        for index in *open..due.min(*open + 64) {
            world.knock(port, index, host(index));
            *open += 1;
        }
        let first = (self.every_ms - step % self.every_ms) % self.every_ms;
        for index in (first..*open).step_by(self.every_ms) {
            let peer = &mut world.peers[index];
            if !peer.is_open {
                if self.returns && peer.echo != 0 {
                    world.knock(port, index, host(index));
                }
                continue;
            }
            let left = peer.seen.distance_from(peer.ack) as usize;
            peer.ack += left.min(self.takes);
            let room = peer.window.saturating_sub(peer.seq.distance_from(peer.acked) as usize);
            let len = if self.echo { self.sends.max(1) } else { self.sends }.min(room);
            // what was not taken comes again
            let at = if len == 0 { peer.acked } else { peer.seq };
            peer.seq = at;
            let window = self.window;
            world.send(index, |header| header.window = window, &[b'f'; 1400][..len]);
            world.peers[index].seq = at + len;
        }
    }
}

/// Outcome for those who behave.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Share kept of the rate of the transfers that were there before.
    kept: f64,
    /// Share served of the newcomers that had the time.
    served: f64,
}

impl Outcome {
    fn harm(&self) -> f64 {
        1.0 - self.kept.min(self.served)
    }
}

/// Lets [`TIME`] pass beside what `act` does in each step; what the transfers moved, and how many
/// newcomers were served of how many.
fn play(world: &mut World, mut act: impl FnMut(&mut World, usize)) -> (u64, usize, usize) {
    let (before, mut step) = (world.kept(), 0);
    let (mut waiting, mut served, mut judged): (Vec<(usize, usize)>, _, _) = (Vec::new(), 0, 0);
    world.run(TIME, |world| {
        act(world, step);
        if step % NEWCOMER_MS == 50 {
            let fetches = (step / NEWCOMER_MS).is_multiple_of(2);
            waiting.push((world.transfer(fetches, 2000), step));
        }
        if step % 10 == 0 {
            waiting.retain(|&(index, since)| {
                let is_done = world.is_done(index);
                let is_over = is_done || step - since >= SERVED_MS;
                if is_over {
                    (judged, served) = (judged + 1, served + usize::from(is_done));
                    world.finish(index);
                }
                !is_over
            });
        }
        if step % 1000 == 0 && std::env::var_os("MILLSTREAM_SEARCH_TELLS").is_some() {
            let usage = world.far.inspect().memory_use();
            println!(
                "  {step:5} {:?} {} KiB, {} frames, {served} of {judged}, {} evicted",
                usage.pressure,
                usage.held_bytes / 1024,
                world.frames.stats().used_frames,
                world.far.stats().tcp_evicted
            );
        }
        step += 1;
    });
    (world.kept() - before, served, judged)
}

/// Tries one, and looks that all it held is back a second after it has gone.
fn try_one(attacker: Attacker, undisturbed: [u64; 2]) -> Outcome {
    let v6 = attacker.sources.is_multiple_of(2);
    let (mut world, mut open) = (busy(v6), 0);
    let (kept, served, judged) =
        play(&mut world, |world, step| attacker.act(world, step, &mut open));
    within_limit("search", &world.far.inspect().memory_use());
    // the answers to those that came out of order tell the number that counts
    for _ in 0..3 {
        world.leave();
        world.run(Duration::from_millis(300), |_| {});
    }
    world.end();
    world.run(Duration::from_secs(1), |_| {});
    let usage = world.far.inspect().memory_use();
    assert_eq!((usage.pressure, usage.held_bytes), (MemoryPressure::None, 0), "{attacker:?}");
    let used = world.frames.stats().used_frames;
    assert!(used < FRAMES / 16, "{attacker:?}: {used} frames used");
    Outcome {
        kept: kept as f64 / undisturbed[usize::from(v6)] as f64,
        served: served as f64 / judged as f64,
    }
}

#[test]
fn the_worst_attacker_found_keeps_nobody_from_being_served() {
    let tries = std::env::var("MILLSTREAM_SEARCH").ok().and_then(|n| n.parse().ok());
    let undisturbed = [false, true].map(|v6| {
        let (kept, served, judged) = play(&mut busy(v6), |_, _| {});
        assert_eq!(served, judged, "newcomers without an attack");
        kept
    });
    let mut guess = Guess(50);
    let mut worst: Option<(Attacker, Outcome)> = None;
    for number in 0..tries.unwrap_or(TRIES) {
        let attacker = match (number, worst) {
            (0, _) => Attacker::LEAST,
            (1, _) => Attacker { echo: true, sends: 1400, ..Attacker::LEAST },
            // what the echo server has read and its peer does not take
            (2, _) => {
                Attacker { echo: true, sends: 250, every_ms: 150, opens_ms: 182, ..Attacker::LEAST }
            }
            (_, Some((worst, _))) if number % 3 != 0 => worst.changed(&mut guess),
            _ => Attacker::drawn(&mut guess),
        };
        let outcome = try_one(attacker, undisturbed);
        println!("{number:4} harm {:.2} {outcome:.2?} {attacker:?}", outcome.harm());
        if worst.is_none_or(|(_, worst)| outcome.harm() > worst.harm()) {
            worst = Some((attacker, outcome));
        }
    }
    let (attacker, outcome) = worst.expect("some were tried");
    println!("worst {outcome:.2?} {attacker:?}");
    assert!(outcome.kept >= KEPT, "{outcome:?} beside {attacker:?}");
    assert!(outcome.served >= SERVED, "{outcome:?} beside {attacker:?}");
}
