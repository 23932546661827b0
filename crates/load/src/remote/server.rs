//! `millstream serve`: waits for runners, one run at a time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millstream_record::error::Error;
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;
use socket2::Socket;

use super::Token;
use super::door::Door;
use super::session::{Programs, session};
use super::started::PATIENCE;
use super::wire::{self, Challenges, Receiver, Sender, Unproved};
use crate::worker::may_open_files;

/// Time between two looks for the end while nobody connects.
const LOOK: Duration = Duration::from_millis(50);

/// Longest time in which who has started this program reads its last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The state that every run shares.
struct Shared {
    programs: Programs,
    interrupt: Interrupt,
    /// A run is going.
    busy: AtomicBool,
    /// Told of each run and of refusals, in one line.
    tell: Box<dyn Fn(String) + Send + Sync>,
}

/// Serves runners until it is interrupted. `tell` hears of each run and of refusals, in one line;
/// of many refusals it hears how many they were.
pub fn serve(
    listener: &TcpListener,
    token: Token,
    program: WorkerProgram,
    interrupt: &Interrupt,
    tell: impl Fn(String) + Send + Sync + 'static,
) -> Result<(), Error> {
    let failed = |error| Error::host("wait for runners")(error);
    may_open_files();
    listener.set_nonblocking(true).map_err(failed)?;
    let shared = Arc::new(Shared {
        programs: Programs { worker: program, guard: None },
        interrupt: interrupt.clone(),
        busy: AtomicBool::new(false),
        tell: Box::new(tell),
    });
    let mut door = Door::new(listener, &shared.tell).map_err(failed)?;
    while !interrupt.is_raised() {
        for (unproved, peer) in door.wait(LOOK).map_err(failed)? {
            let prepared = wire::over_tcp(unproved.stream());
            match prepared.and_then(|()| unproved.judge(&token, || shared.take())) {
                Ok(ends) => shared.begin(ends, peer),
                Err(error) => door.refused(peer, &error.to_string()),
            }
        }
    }
    // The load of a run ends with its session.
    while shared.busy.load(Ordering::Acquire) {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Serves who has started this program, over standard input and output, until they close. `guard`
/// stands before the commands that are started for it.
pub fn serve_starter(
    worker: WorkerProgram,
    guard: WorkerProgram,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let failed = |error| Error::host("speak to the near end, which started this program")(error);
    may_open_files();
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let (mut from, mut to) = (theirs.try_clone().map_err(failed)?, theirs);
    let own = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(File::from);
    let mut input = own(io::stdin().as_fd()).map_err(failed)?;
    let mut output = own(io::stdout().as_fd()).map_err(failed)?;
    std::thread::spawn(move || {
        pass_on(&mut input, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let writing = std::thread::spawn(move || {
        pass_on(&mut from, &mut output);
        // Where nobody reads any more the near end is gone, even if the input stays open.
        let _ = from.shutdown(Shutdown::Both);
    });
    let ends = meet(ours.into(), PATIENCE).map_err(failed)?;
    let programs = Programs { worker, guard: Some(guard) };
    let done = session(ends, &programs, interrupt).map_err(Error::Worker);
    // The last message is on its way, unless nobody reads it.
    let until = Instant::now() + LAST_WORDS;
    while !writing.is_finished() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    done
}

/// Greets who has started this program, who has so long to prove that.
pub(super) fn meet(stream: Socket, patience: Duration) -> io::Result<(Sender, Receiver)> {
    stream.set_read_timeout(Some(patience))?;
    let mut unproved = Unproved::greet(stream, Challenges::new()?.next())?;
    if !unproved.read()? {
        let why = format!("it says nothing for {} s", patience.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    unproved.judge(&Token::of_who_starts(), || true)
}

/// Writes what it reads, at once, until one of the two ends: by splice(2), which `std::io::copy`
/// uses, messages over ssh were held back.
fn pass_on(from: &mut impl Read, to: &mut impl Write) {
    let mut piece = [0; 64 << 10];
    loop {
        match from.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(length) if to.write_all(&piece[..length]).is_err() => return,
            Ok(_) => {}
        }
    }
}

impl Shared {
    fn take(&self) -> bool {
        let taken = self.busy.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok()
    }

    /// Has a thread of its own do the run of one for whom the place was taken.
    fn begin(self: &Arc<Self>, ends: (Sender, Receiver), peer: SocketAddr) {
        let shared = self.clone();
        let run = move || {
            let _ends = Busy(&shared.busy);
            (shared.tell)(format!("{peer}: a run begins"));
            match session(ends, &shared.programs, &shared.interrupt) {
                Ok(()) => (shared.tell)(format!("{peer}: gone")),
                Err(why) => (shared.tell)(format!("{peer}: ended: {why}")),
            }
        };
        let spawned: io::Result<_> = std::thread::Builder::new().name("ms-serve".into()).spawn(run);
        if spawned.is_err() {
            drop(Busy(&self.busy));
        }
    }
}

/// A run is going until this is dropped, whatever ends it.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The near end is gone, and who stands between holds the input open.
    #[test]
    fn who_has_started_it_and_says_nothing_is_not_waited_for_without_end() {
        let (_near, far) = UnixStream::pair().unwrap();
        let error = meet(far.into(), Duration::from_millis(10)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
