//! Finds a bug in a toy protocol, by simulating many unlucky networks.
//!
//! ```text
//! cargo run -p millstream --example simulate
//! ```
//! A sender numbers its words, and sends each again until it is acknowledged. The receiver
//! acknowledges what comes and takes it. When an acknowledgement is lost the word comes twice, and
//! a receiver that does not look at the number takes it twice. On a good network nobody sees that.
//! The simulation tells the first seed with which it happens, and with that seed it happens again.

use std::io::{self, ErrorKind};
use std::time::Duration;

use millstream::link::Faults;
use millstream::local::{Stack, UdpSocket};
use millstream::sim::Simulation;

const WORDS: [&[u8]; 4] = [b"to", b"be", b"or", b"not"];
const AGAIN: Duration = Duration::from_millis(200);

struct Sender {
    socket: UdpSocket,
    /// The word that is under way, and when it was sent last.
    at: usize,
    sent: Option<Duration>,
}

impl Sender {
    fn work(&mut self, now: Duration) -> io::Result<()> {
        let mut ack = [0];
        while let Some(_len) = unless_none(self.socket.recv(&mut ack))? {
            if usize::from(ack[0]) == self.at {
                (self.at, self.sent) = (self.at + 1, None);
            }
        }
        let is_due = self.sent.is_none_or(|sent| now >= sent + AGAIN);
        if is_due && let Some(word) = WORDS.get(self.at) {
            self.socket.send(&[&[self.at as u8], *word].concat())?;
            self.sent = Some(now);
        }
        Ok(())
    }
}

struct Receiver {
    socket: UdpSocket,
    taken: Vec<Vec<u8>>,
    looks_at_numbers: bool,
}

impl Receiver {
    fn work(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16];
        while let Some((len, from)) = unless_none(self.socket.recv_from(&mut bytes))? {
            let (number, word) = (bytes[0], &bytes[1..len]);
            if !self.looks_at_numbers || usize::from(number) == self.taken.len() {
                self.taken.push(word.to_vec());
            }
            self.socket.send_to(&[number], from)?;
        }
        Ok(())
    }
}

fn unless_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

fn socket(stack: &Stack, address: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(stack, address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns the words that the receiver has taken in a network of this seed.
fn exchange(seed: u64, looks_at_numbers: bool) -> io::Result<Vec<Vec<u8>>> {
    let simulation = Simulation::new(seed)?;
    let (near, far) = (simulation.host()?, simulation.host()?);
    let path = Faults { loss: 0.02, delay: Duration::from_millis(10), ..Faults::default() };
    simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), path)?;
    let mut sender = Sender { socket: socket(&near, "10.0.0.1:7")?, at: 0, sent: None };
    sender.socket.connect("10.0.0.2:7")?;
    let mut receiver =
        Receiver { socket: socket(&far, "10.0.0.2:7")?, taken: Vec::new(), looks_at_numbers };
    while sender.at < WORDS.len() {
        sender.work(simulation.now())?;
        receiver.work()?;
        simulation.sleep(Duration::from_millis(1))?;
    }
    Ok(receiver.taken)
}

/// Returns the first of so many seeds with which the words do not arrive as they were sent.
pub fn find(seeds: u64, looks_at_numbers: bool) -> io::Result<Option<u64>> {
    for seed in 0..seeds {
        if exchange(seed, looks_at_numbers)? != WORDS {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

#[allow(dead_code, reason = "a test has the functions above")]
fn main() -> io::Result<()> {
    match find(1000, false)? {
        Some(seed) => println!("seed {seed}: a word was taken twice"),
        None => println!("all arrived as they were sent"),
    }
    match find(1000, true)? {
        Some(seed) => println!("mended, seed {seed}: a word was taken twice"),
        None => println!("mended: all arrived as they were sent"),
    }
    Ok(())
}
