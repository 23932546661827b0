//! An engine in a task, in place of a thread.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

use millstream::Engine;
use millstream::net::{EngineTask, TaskSleep};
use millstream_link::sys::{PollEntry, duplicate, poll};
use tokio::io::unix::AsyncFd;

use crate::{Stack, Undelivered};

/// Returns the handle of an engine, and the future that is its work, for a task of a runtime with
/// tokio's drivers for I/O and time. It sleeps on the engine's descriptors and timers, which the
/// runtime has in milliseconds, and gives way to other tasks after each turn. It ends by
/// [`shutdown`](crate::shutdown), or when the last [`Stack`] and the last socket are gone: then a
/// thread for calls that block sees through what was written. Returns the data that was not
/// delivered.
///
/// Cancelled, the engine is gone, with its connections; nobody is told. Sockets fail with
/// `BrokenPipe`.
///
/// # Errors
/// As [`Stack::in_task`]; the future fails where descriptors cannot be waited for.
pub fn in_task(
    engine: Engine,
) -> io::Result<(Stack, impl Future<Output = io::Result<Undelivered>> + Send + 'static)> {
    let (stack, task) = Stack::in_task(engine)?;
    Ok((stack, run(task)))
}

async fn run(mut task: EngineTask) -> io::Result<Undelivered> {
    let mut watched = Watched::default();
    while task.work() {
        match task.sleep() {
            Some(sleep) => watched.sleep(sleep).await?,
            None => tokio::task::yield_now().await,
        }
    }
    Ok(tokio::task::spawn_blocking(|| task.finish()).await?)
}

/// The descriptors of an engine in the runtime's reactor.
#[derive(Default)]
struct Watched {
    /// Each by the engine's number, and as a duplicate that is open for as long as it is watched.
    list: Vec<(RawFd, AsyncFd<OwnedFd>)>,
    generation: (u32, u32),
}

impl Watched {
    async fn sleep(&mut self, sleep: TaskSleep<'_>) -> io::Result<()> {
        let TaskSleep { entries, limit, generation } = sleep;
        self.follow(entries, generation)?;
        let woken = poll_fn(|context| self.poll(context, entries));
        match limit {
            None => woken.await,
            Some(limit) => tokio::time::timeout(limit, woken).await.unwrap_or(Ok(())),
        }
    }

    /// Watches these descriptors, and no others.
    fn follow(&mut self, entries: &[PollEntry], generation: (u32, u32)) -> io::Result<()> {
        let are_known =
            self.list.iter().map(|(fd, _)| *fd).eq(entries.iter().map(|entry| entry.fd));
        if are_known && generation == self.generation {
            return Ok(());
        }
        self.list.clear();
        for entry in entries {
            #[allow(
                deprecated,
                reason = "its successor is unsafe; what owns its descriptor is fit"
            )]
            let watched = AsyncFd::new(duplicate(entry.fd)?)?;
            self.list.push((entry.fd, watched));
        }
        self.generation = generation;
        Ok(())
    }

    /// Says whether a descriptor is ready; else the task is woken when one becomes so. The
    /// reactor knows edges alone, which are forgotten before the descriptors are asked.
    fn poll(&self, context: &mut Context<'_>, entries: &mut [PollEntry]) -> Poll<io::Result<()>> {
        loop {
            if poll(entries, Some(Duration::ZERO))? != 0 {
                return Poll::Ready(Ok(()));
            }
            let mut is_news = false;
            for ((_, fd), entry) in self.list.iter().zip(entries.iter()) {
                if let Poll::Ready(guard) = fd.poll_read_ready(context) {
                    guard?.clear_ready();
                    is_news = true;
                }
                if entry.wants_write
                    && let Poll::Ready(guard) = fd.poll_write_ready(context)
                {
                    guard?.clear_ready();
                    is_news = true;
                }
            }
            if !is_news {
                return Poll::Pending;
            }
        }
    }
}
