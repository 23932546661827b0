//! A test that shows whether the kernel still gives packets back to the CPU that allocated them.
//!
//! Since Linux 5.19 a TCP receiver does not free what it has read: it puts it on a list of the CPU
//! that allocated it, of at most `net.core.skb_defer_max`, and interrupts that CPU when half of
//! them are there. Linux 6.18 counts also what finds no room, and counts from zero again only when
//! it takes something from the list. So a count that is above the limit while the list is empty
//! stays so, and nothing is given back to that CPU any more until it is mended: its allocator
//! always asks for new memory, the reader's has too much.
//!
//! The count cannot be read, but its interrupt can be seen. While the one CPU rests, the other
//! reads one packet of each of so many connections that half the limit is exceeded, and the resting
//! CPU must begin to receive (`NET_RX` of /proc/softirqs). Receptions in an equal time in which
//! nothing is read show the other traffic.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use millstream_link::sys::pin_current_thread;
use millstream_record::Environment;
use nix::sys::socket::{setsockopt, sockopt};

use super::{text, value_of};

/// Name of the fact.
pub const GIVEN_BACK: &str = "cpus.packets_given_back";

/// Value of the fact where all packets are given back.
pub const ALL_GIVEN_BACK: &str = "yes";

/// Limits with which this can be told: by fewer packets than the limit, and without too many
/// connections.
const LIMITS: std::ops::RangeInclusive<usize> = 16..=512;

/// Packets read in a round beyond half of the limit.
const BEYOND: usize = 4;

/// Times that it is tried.
const ROUNDS: usize = 6;

/// Time after which the CPU that has sent rests.
const REST: Duration = Duration::from_micros(200);

/// Longest time until an interrupt must have come.
const PATIENCE: Duration = Duration::from_millis(5);

/// Time between two looks for the interrupt.
const LOOK: Duration = Duration::from_micros(50);

/// Longest time until the packets must have come, and the other thread have done its part.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Records whether packets are given back to either of two CPUs by the other: `yes`, `not to CPU
/// 0`, `not to CPU 0 and CPU 1`, `off` where the limit is 0, or why that cannot be told. Takes some
/// 20 ms, and makes connections over the loopback of the namespace that it is called in.
pub fn capture_give_back(env: &mut Environment, (one, other): (usize, usize)) {
    let found = limit().and_then(|limit| match limit {
        0 => Ok("off".to_owned()),
        limit => {
            let to_one = gives_back(one, other, limit)?;
            let to_other = gives_back(other, one, limit)?;
            Ok(words(&[(one, to_one), (other, to_other)]))
        }
    });
    env.record(GIVEN_BACK, found);
}

fn words(found: &[(usize, bool)]) -> String {
    let not = found.iter().filter(|(_, gives)| !gives).map(|(cpu, _)| format!("CPU {cpu}"));
    let not = not.collect::<Vec<_>>().join(" and ");
    if not.is_empty() { ALL_GIVEN_BACK.to_owned() } else { format!("not to {not}") }
}

/// Returns the number of packets that may wait to be taken back; an error where the test cannot
/// work.
fn limit() -> Result<usize, String> {
    let limit = text("/proc/sys/net/core/skb_defer_max")?;
    let limit = limit.parse().map_err(|_| format!("net.core.skb_defer_max is {limit:?}"))?;
    if limit != 0 && !LIMITS.contains(&limit) {
        return Err(format!("net.core.skb_defer_max is {limit}"));
    }
    // There a thread takes them back, which raises no soft interrupt.
    for (path, word) in
        [("/proc/sys/kernel/version", "PREEMPT_RT"), ("/proc/cmdline", "thread_backlog_napi")]
    {
        if text(path)?.contains(word) {
            return Err(format!("not to be seen with {word}"));
        }
    }
    Ok(limit)
}

/// Returns true when packets that `to` allocated and `reader` has read go back; an error when other
/// traffic hides it.
fn gives_back(to: usize, reader: usize, limit: usize) -> Result<bool, String> {
    let failed = |error: io::Error| format!("CPU {to} to CPU {reader}: {error}");
    let pairs = (0..limit / 2 + BEYOND).map(|_| connected()).collect::<io::Result<Vec<_>>>();
    let (mut near, mut far): (Vec<_>, Vec<_>) = pairs.map_err(failed)?.into_iter().unzip();
    let (writes, reads) = (&mut near[..], &mut far[..]);
    let (sent, come) = channel();
    let (read, again) = channel();
    let seen = thread::scope(|scope| {
        let sender = scope.spawn(move || send(to, writes, &sent, &again));
        let reader = scope.spawn(move || look(to, reader, reads, &come, &read));
        let seen = reader.join().expect("it does not panic");
        sender.join().expect("it does not panic").and(seen)
    });
    // Before the other ends: what is reset leaves nothing that waits for its time.
    drop(near);
    let (woken, woken_by_others) = seen.map_err(failed)?;
    verdict(woken, woken_by_others)
        .ok_or_else(|| format!("CPU {to} to CPU {reader}: other traffic is in the way"))
}

/// Returns false when the CPU began to receive in one round at most, and true when it did so in
/// nearly all. `by_others` are the rounds in which it did so although nothing was read; `None` when
/// they leave too few.
fn verdict(woken: usize, by_others: usize) -> Option<bool> {
    match (woken, woken.saturating_sub(by_others)) {
        (0..=1, _) => Some(false),
        (_, difference) => (difference >= ROUNDS - 1).then_some(true),
    }
}

/// Two ends over the loopback that leave nothing behind: closing the first resets the connection.
fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, who) = listener.accept()?;
    if who != near.local_addr()? {
        return Err(io::Error::new(ErrorKind::ConnectionRefused, "somebody else came"));
    }
    setsockopt(&near, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    near.set_nodelay(true)?;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((near, far))
}

/// Sends one packet over each connection, and rests until they have been read; so often.
fn send(
    cpu: usize,
    streams: &mut [TcpStream],
    sent: &Sender<()>,
    again: &Receiver<()>,
) -> io::Result<()> {
    pin_current_thread(cpu)?;
    for _ in 0..ROUNDS {
        for stream in &mut *streams {
            stream.write_all(&[1])?;
        }
        // The reader may have failed, and says why.
        if sent.send(()).is_err() || again.recv().is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads them, and tells in how many rounds `from` began to receive then, and in how many in as
/// much time after it.
fn look(
    from: usize,
    cpu: usize,
    streams: &mut [TcpStream],
    come: &Receiver<()>,
    read: &Sender<()>,
) -> io::Result<(usize, usize)> {
    pin_current_thread(cpu)?;
    let (mut woken, mut by_others) = (0, 0);
    for _ in 0..ROUNDS {
        come.recv_timeout(TIMEOUT).map_err(io::Error::other)?;
        thread::sleep(REST);
        let (before, begin) = (receptions(from)?, Instant::now());
        for stream in &mut *streams {
            stream.read_exact(&mut [0])?;
        }
        while receptions(from)? == before && begin.elapsed() < PATIENCE {
            thread::sleep(LOOK);
        }
        let after = receptions(from)?;
        thread::sleep(begin.elapsed());
        woken += usize::from(after != before);
        by_others += usize::from(receptions(from)? != after);
        if read.send(()).is_err() {
            break;
        }
    }
    Ok((woken, by_others))
}

/// Returns the number of times that a CPU has begun to receive.
fn receptions(cpu: usize) -> io::Result<u64> {
    let all = text("/proc/softirqs").map_err(io::Error::other)?;
    let counts = value_of(&all, "NET_RX").and_then(|line| line.split_whitespace().nth(cpu));
    let count = counts.and_then(|count| count.parse().ok());
    count.ok_or_else(|| io::Error::other("/proc/softirqs has no such column"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_where_other_traffic_does_not_hide_it() {
        assert_eq!(verdict(ROUNDS, 0), Some(true));
        assert_eq!(verdict(ROUNDS, 1), Some(true));
        assert_eq!(verdict(0, 0), Some(false));
        assert_eq!(verdict(1, 1), Some(false));
        assert_eq!(verdict(ROUNDS, ROUNDS), None);
        assert_eq!(verdict(3, 0), None);
    }

    #[test]
    fn who_gets_nothing_back_is_named() {
        assert_eq!(words(&[(0, true), (1, true)]), "yes");
        assert_eq!(words(&[(0, false), (1, true)]), "not to CPU 0");
        assert_eq!(words(&[(2, false), (3, false)]), "not to CPU 2 and CPU 3");
    }

    #[test]
    fn what_cannot_be_told_has_a_reason() {
        let mut env = Environment::default();
        capture_give_back(&mut env, (0, 1_000_000));
        assert!(env.absent.contains_key(GIVEN_BACK) || env.get(GIVEN_BACK) == Some("off"));
    }

    /// A kernel that does not give back is no failure of this test, nor is traffic that hides it.
    #[test]
    fn two_cpus_of_this_machine_give_back_or_not_or_a_reason_is_there() {
        let mut env = Environment::default();
        capture_give_back(&mut env, (0, 1));
        match env.get(GIVEN_BACK) {
            Some(value) => {
                assert!(value == "yes" || value == "off" || value.starts_with("not to CPU"));
            }
            None => assert_ne!(env.absent[GIVEN_BACK], ""),
        }
    }

    #[test]
    fn connections_pass_a_byte_and_leave_nothing() {
        let Ok((mut near, mut far)) = connected() else { return };
        near.write_all(&[7]).unwrap();
        let mut byte = [0];
        far.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
        drop(near);
        assert_eq!(far.read(&mut byte).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
