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
use crate::clog::live::{Living, Outside, connected, outside};
use crate::clog::threads::{Stop, joined, pin, rest};
use crate::clog::two_hosts::{accepting, failed};

/// Messages that are sent in a second.
const PER_S: f64 = 20_000.0;
/// Shares of the time: the reader pauses now and then from the first on, and once for long at the
/// second; the result is the rate from the third on.
const BURSTS_FROM: f64 = 0.15;
const STALL_AT: f64 = 0.4;
const RESULT_FROM: f64 = 0.7;
/// The time from one short pause to the next, its length, and that of the long one.
const BURST_EVERY: Duration = Duration::from_secs(3);
const BURST: Duration = Duration::from_millis(150);
const STALL: Duration = Duration::from_secs(3);
/// One turn in how many has its stages timed.
const STAGE_SAMPLE: u32 = 16;

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
        let config = config(&pool).live(living.name(&CLOG)).stage_sample(STAGE_SAMPLE);
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
    (living.say)(&match engine.inspect().live_error() {
        Some(why) => format!("the engine is not published: {why}"),
        None => "the engine is published: `millstream ps`, `millstream netstat -i 1`".to_owned(),
    });
    let begun = Instant::now();
    let [bursts_from, stall_at, result_from] =
        [BURSTS_FROM, STALL_AT, RESULT_FROM].map(|share| living.time.mul_f64(share));
    let (mut read, mut has_more, mut at_result) = (0, false, None);
    while !living.is_over(begun) {
        let now = begun.elapsed();
        take_turns(engine, has_more)?;
        if now >= result_from && at_result.is_none() {
            at_result = Some((now, read));
        }
        let is_burst = (bursts_from..stall_at).contains(&now)
            && (now - bursts_from).as_nanos() % BURST_EVERY.as_nanos() < BURST.as_nanos();
        let is_still = is_burst || (stall_at..stall_at + STALL).contains(&now);
        has_more = !is_still && read_some(engine, socket, &mut read)?;
    }
    let (from, already) = at_result.unwrap_or_default();
    let rate = (read - already) as f64 / (begun.elapsed() - from).as_secs_f64();
    Ok(rate)
}
