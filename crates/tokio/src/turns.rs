//! Tasks that wait for one side of a socket: by themselves, and several.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use tokio::sync::Mutex;
use tokio::task::coop::poll_proceed;

/// The tasks that wait for one side: the engine wakes the first, and the others wait for that.
#[derive(Debug, Default)]
pub struct Turns(Mutex<()>);

impl Turns {
    /// Repeats `call` until it does not block any more. Between attempts the task waits for its
    /// turn, and then for `poll_ready`.
    pub async fn run<T>(
        &self,
        mut call: impl FnMut() -> io::Result<T>,
        poll_ready: impl Fn(&mut Context<'_>) -> Poll<()>,
    ) -> io::Result<T> {
        tokio::task::coop::consume_budget().await;
        loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let _turn = self.0.lock().await;
            poll_fn(&poll_ready).await;
        }
    }
}

/// Makes a call that is non-blocking; where it blocks has the task woken when it may go on. Takes
/// of the task's budget, so that a socket that is always ready leaves time for other tasks.
pub fn poll_call<T>(
    context: &mut Context<'_>,
    mut call: impl FnMut() -> io::Result<T>,
    poll_ready: impl Fn(&mut Context<'_>) -> Poll<()>,
) -> Poll<io::Result<T>> {
    let budget = ready!(poll_proceed(context));
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(poll_ready(context));
            }
            result => {
                budget.made_progress();
                return Poll::Ready(result);
            }
        }
    }
}
