//! The pull-up clog over minutes: all is well until the sender's records begin with less than
//! 64 bytes, which is what makes a read join all that is queued.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use millstream::clogs::Clogs;
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, SocketId};
use nix::sys::socket::{MsgFlags, send as send_with};

use super::{CLOG, FRAMES, READ, config, pattern};
use crate::clog::live::{LastPart, Living, Outside, connected, outside, published};
use crate::clog::threads::{Stop, joined, pin};
use crate::clog::two_hosts::{accepting, failed};

/// Bytes of the first segment of a record: at first, and from this share of the time on.
const FIRST: usize = 256;
const SMALL: usize = 32;
const SMALL_FROM: f64 = 0.4;
/// Limit of the receive queue.
const LIMIT_BYTES: usize = 4 << 20;

pub(super) fn live(living: &Living<'_>) -> io::Result<f64> {
    let frames = PoolConfig { limit_frames: FRAMES, ..PoolConfig::default() };
    let clogs = Clogs { pull_up_behind_small: living.clogged, ..Clogs::default() };
    let pool = Pool::clogged(frames, clogs).map_err(failed)?;
    let (link, load) = outside(living)?;
    let (stop, small_from) = (Stop::default(), living.time.mul_f64(SMALL_FROM));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| match load {
            Outside::Kernel(outside) => send(&connected(&outside)?, small_from, &stop),
            Outside::Engine(far) => super::send(&pool, *far, &stop),
        });
        // The connection ends after it, so that the sender has been told.
        let end = stop.at_end();
        pin(0)?;
        let mut config = published(config(&pool), Some(living.name(&CLOG)));
        config.tcp.recv_buffer_bytes = LIMIT_BYTES;
        config.tcp.recv_auto_tune = false;
        let (mut engine, socket) = accepting(link, config)?;
        let seen = receive(&mut engine, socket, living);
        drop(end);
        engine.tcp(socket).abort();
        engine.flush();
        joined(sender)?;
        seen
    })
}

/// Sends records of as many bytes as a read takes, without end, until it is told to stop: the first
/// bytes in a segment by themselves (`MSG_EOR`), then the others.
fn send(stream: &TcpStream, small_from: Duration, stop: &Stop) -> io::Result<()> {
    pin(1)?;
    let mut data = vec![0; READ + 251];
    pattern(0, &mut data);
    let (mut sent, begun) = (0, Instant::now());
    while !stop.is_set() {
        let first = if begun.elapsed() < small_from { FIRST } else { SMALL };
        for mut left in [first, READ - first] {
            while left != 0 && !stop.is_set() {
                let bytes = &data[sent % 251..][..left];
                match send_with(stream.as_raw_fd(), bytes, MsgFlags::MSG_EOR)
                    .map_err(io::Error::from)
                {
                    Ok(len) => (sent, left) = (sent + len, left - len),
                    Err(error)
                        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(_) if stop.is_set() => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// Reads a record at a time until its time is over; returns the bits that were read in a second of
/// the last part of it.
fn receive(engine: &mut Engine, socket: SocketId, living: &Living<'_>) -> io::Result<f64> {
    living.tell_published(engine.inspect());
    let (mut buffer, mut expected) = (vec![0; READ], vec![0; READ + 251]);
    pattern(0, &mut expected);
    let (mut received, mut last_part) = (0, LastPart::of(living));
    while !last_part.is_over(living, received as u64) {
        engine.run_once(Some(Duration::from_millis(1)))?;
        // It reads the rest of a record first, so that the next read begins with a record.
        let wanted = READ - received % READ;
        let Ok(len @ 1..) = engine.tcp(socket).read(&mut buffer[..wanted]) else { continue };
        if buffer[..len] != expected[received % 251..][..len] {
            return Err(failed("what was received is not what was sent"));
        }
        received += len;
    }
    Ok(8.0 * last_part.rate(received as u64))
}
