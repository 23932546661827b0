//! Under attack: what strangers and ill-meaning peers do to a host, beside transfers of good will.
//! The transfers go on at no less than 0.9 of their rate, new ones are accepted, and the cost of
//! the attack is bounded. docs/attacks.md tells what each attack is and what was measured.

mod blind;
#[path = "../common/mod.rs"]
mod common;
mod cost;
mod crowd;
mod datagrams;
mod fill;
mod flood;
mod icmp;
mod intercept;
mod memory;
mod net;
mod oracle;
mod peer;
mod puppet;
mod states;

use std::sync::OnceLock;
use std::time::Duration;

use millstream::tcp::State;
use net::Net;

/// The part of the rate without an attack that must remain.
const KEPT: f64 = 0.9;
const TIME: Duration = Duration::from_millis(800);

/// Segments that an attack sends in a step, of a quarter of a millisecond, to each end of each
/// connection it knows: more with `MILLSTREAM_ATTACK`.
fn rate() -> u32 {
    std::env::var("MILLSTREAM_ATTACK").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Splitmix64: guesses that are the same in every run.
struct Guess(u64);

impl Guess {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 16) as u32
    }
}

/// A net with a transfer each way, past its start.
fn busy(v6: bool) -> Net {
    let mut net = Net::new();
    net.transfer(v6, false);
    net.transfer(v6, true);
    net.run(Duration::from_millis(500), |_| {});
    net
}

/// Bytes that the transfers move in [`TIME`] when nobody attacks.
fn undisturbed(v6: bool) -> u64 {
    static BYTES: [OnceLock<u64>; 2] = [OnceLock::new(), OnceLock::new()];
    *BYTES[usize::from(v6)].get_or_init(|| {
        let mut net = busy(v6);
        let before = net.moved();
        net.run(TIME, |_| {});
        net.moved() - before
    })
}

/// Runs `attack` beside the transfers, once for each family, and hands the net over afterwards.
fn beside(
    name: &str,
    mut prepare: impl FnMut(&mut Net, bool) -> Box<dyn FnMut(&mut Net)>,
    mut after: impl FnMut(&mut Net, bool),
) {
    for v6 in [false, true] {
        let mut net = busy(v6);
        let attack = prepare(&mut net, v6);
        let before = net.moved();
        net.run(TIME, attack);
        let share = (net.moved() - before) as f64 / undisturbed(v6) as f64;
        let family = if v6 { "IPv6" } else { "IPv4" };
        println!("{name:44} {family} {share:5.2} of the rate without, {} packets", net.injected);
        assert!(share >= KEPT, "{name}, {family}: {share:.2} of the rate");
        for index in 0..net.transfers.len() {
            let client = net.transfers[index].client;
            assert_eq!(net.near.engine.tcp(client).state(), Ok(State::Established), "{name}");
        }
        after(&mut net, v6);
    }
}
