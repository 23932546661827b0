//! Several tasks that wait for one side of a socket.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use tokio::sync::Mutex;

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
