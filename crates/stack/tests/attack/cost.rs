//! The cost of a segment of a hostile peer, counted in instructions by `scripts/attack-cost`. It
//! runs this under valgrind with more and more segments. Flat means that the ten-thousandth costs
//! as much as the thousandth.

use std::time::Duration;

use super::Guess;
use super::net::Net;
use super::peer::PLAYS;
use super::puppet::Puppet;

/// Plays `MILLSTREAM_PLAY` with `MILLSTREAM_SEGMENTS` segments, 32 before each turn; nobody else is
/// there.
#[test]
#[ignore = "run by scripts/attack-cost"]
fn cost() {
    let name = std::env::var("MILLSTREAM_PLAY").expect("the name of a play");
    let count: u64 =
        std::env::var("MILLSTREAM_SEGMENTS").expect("how many").parse().expect("a number");
    let (_, port, play) =
        PLAYS.into_iter().find(|(known, ..)| *known == name).expect("a play of that name");
    let mut net = Net::new();
    let mut puppet = Puppet::open(&mut net, false, port, 4000);
    let mut guess = Guess(6);
    while puppet.sent < count {
        for _ in 0..32 {
            play(&mut puppet, &mut net, &mut guess);
        }
        net.run(Duration::from_micros(250), |_| {});
        puppet.listen(&mut net);
    }
    let info = net.served_info(puppet.ends.from);
    println!("{name}: {} segments, {} answers, {:?}", puppet.sent, net.sent, info);
}
