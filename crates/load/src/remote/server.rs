//! `millstream serve`: waits for runners, one run at a time.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_record::error::Error;
use millstream_testbed::guard::WorkerProgram;
use millstream_testbed::interrupt::Interrupt;

use super::Token;
use super::door::Door;
use super::session::session;
use super::wire::{Receiver, Sender};
use crate::worker::may_open_files;

/// Time between two looks for the end while nobody connects.
const LOOK: Duration = Duration::from_millis(50);

/// The state that every run shares.
struct Shared {
    program: WorkerProgram,
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
        program,
        interrupt: interrupt.clone(),
        busy: AtomicBool::new(false),
        tell: Box::new(tell),
    });
    let mut door = Door::new(listener, &shared.tell).map_err(failed)?;
    while !interrupt.is_raised() {
        for (unproved, peer) in door.wait(LOOK).map_err(failed)? {
            match unproved.judge(&token, || shared.take()) {
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
            match session(ends, &shared.program, &shared.interrupt) {
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
