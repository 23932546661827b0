//! `millstream serve`: waits for runners, one run at a time.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::session::session;
use super::{Token, wire};
use crate::error::Error;
use crate::runner::{Interrupt, WorkerProgram};

/// Connections that have proved nothing yet. One more, and the oldest of them is ended.
const STRANGERS: usize = 8;
/// How often the end is looked for while nobody connects.
const LOOK: Duration = Duration::from_millis(50);

/// What every connection shares.
struct Shared {
    token: Token,
    program: WorkerProgram,
    interrupt: Interrupt,
    /// A run is going.
    busy: AtomicBool,
    /// By their number, the oldest first.
    strangers: Mutex<VecDeque<(u64, TcpStream)>>,
    /// Told of each run and each refusal, in one line.
    tell: Box<dyn Fn(String) + Send + Sync>,
}

/// Serves runners until it is interrupted. `tell` hears of each run and each refusal, in one line.
pub fn serve(
    listener: &TcpListener,
    token: Token,
    program: WorkerProgram,
    interrupt: &Interrupt,
    tell: impl Fn(String) + Send + Sync + 'static,
) -> Result<(), Error> {
    let failed = |error| Error::host("wait for runners")(error);
    listener.set_nonblocking(true).map_err(failed)?;
    let shared = Arc::new(Shared {
        token,
        program,
        interrupt: interrupt.clone(),
        busy: AtomicBool::new(false),
        strangers: Mutex::default(),
        tell: Box::new(tell),
    });
    let mut number = 0;
    while !interrupt.is_raised() {
        match listener.accept() {
            Ok((stream, peer)) => {
                number += 1;
                shared.welcome(number, stream, peer);
            }
            // Whoever goes before it is accepted, or no file left for it: the next one may come later.
            Err(_) => std::thread::sleep(LOOK),
        }
    }
    // The load of a run ends with its session.
    while shared.busy.load(Ordering::Acquire) {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

impl Shared {
    /// Has a thread of its own hear one out.
    fn welcome(self: &Arc<Self>, number: u64, stream: TcpStream, peer: SocketAddr) {
        // What a listener accepts on Linux blocks, whatever the listener does; other systems differ.
        let _ = stream.set_nonblocking(false);
        let Ok(copy) = stream.try_clone() else { return };
        {
            let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
            strangers.push_back((number, copy));
            if strangers.len() > STRANGERS
                && let Some((_, oldest)) = strangers.pop_front()
            {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("ms-serve".to_owned());
        let spawned = thread.spawn(move || shared.hear(number, stream, peer));
        if spawned.is_err() {
            self.is_no_stranger(number);
        }
    }

    fn is_no_stranger(&self, number: u64) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|(other, _)| *other != number);
    }

    fn hear(&self, number: u64, stream: TcpStream, peer: SocketAddr) {
        let take = || self.busy.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        let mut is_ours = false;
        let known = wire::receive(stream, &self.token, || {
            self.is_no_stranger(number);
            is_ours = take().is_ok();
            is_ours
        });
        self.is_no_stranger(number);
        let _ends = is_ours.then(|| Busy(&self.busy));
        match known {
            Ok(ends) => {
                (self.tell)(format!("{peer}: a run begins"));
                match session(ends, &self.program, &self.interrupt) {
                    Ok(()) => (self.tell)(format!("{peer}: gone")),
                    Err(why) => (self.tell)(format!("{peer}: ended: {why}")),
                }
            }
            Err(error) => (self.tell)(format!("{peer}: refused: {}", in_words(&error))),
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

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it went without a proof".to_owned(),
        io::ErrorKind::TimedOut => "no proof in time".to_owned(),
        _ => error.to_string(),
    }
}
