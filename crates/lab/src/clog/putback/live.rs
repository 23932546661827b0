//! The put-back clog over minutes: it settles, has bursts that it recovers from, and clogs after
//! one that was too long.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use millstream::clogs::Clogs;
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, SocketId};
use nix::sys::socket::{MsgFlags, send as send_with};

use super::{CLOG, FRAMES, MESSAGE, config, message, read_some, take_turns};
use crate::clog::live::{LastPart, Living, Outside, connected, outside, published};
use crate::clog::threads::{Stop, joined, pin, rest};
use crate::clog::two_hosts::{accepting, failed};

/// Messages that are sent in a second.
const PER_S: f64 = 20_000.0;
/// Shares of the time: the reader pauses now and then from the first on, and once for long at the
/// second.
const BURSTS_FROM: f64 = 0.15;
const STALL_AT: f64 = 0.4;
/// The time from one short pause to the next, its length, and that of the long one.
const BURST_EVERY: Duration = Duration::from_secs(3);
const BURST: Duration = Duration::from_millis(150);
const STALL: Duration = Duration::from_secs(3);

pub(super) fn live(living: &Living<'_>) -> io::Result<f64> {
    let frames = PoolConfig { limit_frames: FRAMES, limit_blocks: 0, ..PoolConfig::default() };
    let clogs = Clogs { put_back_walk: living.clogged, ..Clogs::default() };
    let pool = Pool::clogged(frames, clogs).map_err(failed)?;
    let (link, load) = outside(living)?;
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| match load {
            Outside::Kernel(outside) => send(&connected(&outside)?, &stop),
            Outside::Engine(far) => super::send(&pool, *far, PER_S, &stop),
        });
        // The connection ends after it, so that the sender has been told.
        let end = stop.at_end();
        pin(0)?;
        let config = published(config(&pool), Some(living.name(&CLOG)));
        let (mut engine, socket) = accepting(link, config)?;
        let seen = receive(&mut engine, socket, living);
        drop(end);
        engine.tcp(socket).abort();
        engine.flush();
        joined(sender)?;
        seen
    })
}

/// Sends messages until it is told to stop, each of them a segment by itself (`MSG_EOR`).
fn send(stream: &std::net::TcpStream, stop: &Stop) -> io::Result<()> {
    pin(1)?;
    let (mut sent, mut begun) = (0_u64, Instant::now());
    while !stop.is_set() {
        let due = (begun.elapsed().as_secs_f64() * PER_S) as u64;
        while sent < due && !stop.is_set() {
            match send_with(stream.as_raw_fd(), &message(sent), MsgFlags::MSG_EOR) {
                Ok(MESSAGE) => sent += 1,
                // A part of one, or no room for any in time: nothing is made up for later.
                Ok(_) => return Err(io::Error::other("half a message was sent")),
                Err(error) => match io::Error::from(error) {
                    late if matches!(late.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        begun = Instant::now() - Duration::from_secs_f64(sent as f64 / PER_S);
                    }
                    _ if stop.is_set() => return Ok(()),
                    error => return Err(error),
                },
            }
        }
        rest();
    }
    Ok(())
}

/// Reads until its time is over; returns the messages that were read in a second of the last part
/// of it.
fn receive(engine: &mut Engine, socket: SocketId, living: &Living<'_>) -> io::Result<f64> {
    living.tell_published(engine.inspect());
    let [bursts_from, stall_at] = [BURSTS_FROM, STALL_AT].map(|share| living.time.mul_f64(share));
    let (mut read, mut has_more, mut last_part) = (0, false, LastPart::of(living));
    while !last_part.is_over(living, read) {
        take_turns(engine, has_more)?;
        let now = last_part.now(read);
        let is_burst = (bursts_from..stall_at).contains(&now)
            && (now - bursts_from).as_nanos() % BURST_EVERY.as_nanos() < BURST.as_nanos();
        let is_still = is_burst || (stall_at..stall_at + STALL).contains(&now);
        has_more = !is_still && read_some(engine, socket, &mut read)?;
    }
    Ok(last_part.rate(read))
}
