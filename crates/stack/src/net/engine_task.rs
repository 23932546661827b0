//! An engine without a thread: a task of the application's does its work.

use std::time::Duration;

use millstream_link::sys::PollEntry;

use super::worker::Worker;
use crate::engine::Sleep;
use crate::stats::Undelivered;

/// The work of an engine ([`Stack::in_task`](super::Stack::in_task)), for a task that sleeps on the
/// engine's descriptors. Dropped before its end, it is as if the engine's thread had panicked.
pub struct EngineTask {
    worker: Worker,
    sleep: Option<Sleep>,
}

impl std::fmt::Debug for EngineTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineTask").finish_non_exhaustive()
    }
}

/// A sleep of an [`EngineTask`].
#[derive(Debug)]
pub struct TaskSleep<'a> {
    /// It ends when one of them is ready. [`poll`](millstream_link::sys::poll) says which are, once
    /// more before the engine works again.
    pub entries: &'a mut [PollEntry],
    /// It ends then at the latest.
    pub limit: Option<Duration>,
    /// A descriptor that stands at the same place as before is the same one while this does not
    /// change.
    pub generation: (u32, u32),
}

impl EngineTask {
    pub(super) fn new(worker: Worker) -> Self {
        Self { worker, sleep: None }
    }

    /// Does what there is to do: a turn, with the calls and the news of sockets. Returns false when
    /// the engine has been told to end, or cannot sleep: [`finish`](Self::finish) follows.
    pub fn work(&mut self) -> bool {
        if let Some(sleep) = self.sleep.take() {
            sleep.end(&mut self.worker.sockets.engine);
        }
        if self.worker.mailbox.has_stopped() {
            return false;
        }
        let work = self.worker.work();
        let is_well = work.is_ok();
        self.sleep = work.unwrap_or_default();
        is_well
    }

    /// Returns the sleep that comes before more work; `None` if there is more at once.
    pub fn sleep(&mut self) -> Option<TaskSleep<'_>> {
        let engine = &mut self.worker.sockets.engine;
        let generation = engine.inspect().reachability();
        let sleep = self.sleep.as_ref()?;
        Some(TaskSleep { entries: sleep.entries(engine), limit: sleep.limit, generation })
    }

    /// Closes all sockets, and sees through what was written, as a thread of an engine does at its
    /// end, which this blocks for as long as that takes.
    pub fn finish(mut self) -> Undelivered {
        self.worker.finish()
    }
}
