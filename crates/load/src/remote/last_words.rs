//! The last lines that a process writes, and its end.

use std::io::Read;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use millstream_foreign::lines;

use crate::limits;

/// The last lines that a process writes on its standard error.
pub(super) struct LastWords {
    kept: Arc<Mutex<Vec<u8>>>,
    /// The thread that keeps them.
    listener: Option<thread::JoinHandle<()>>,
}

impl LastWords {
    pub(super) fn of(stream: Option<impl Read + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let listener = stream.map(|stream| {
            let kept = kept.clone();
            thread::spawn(move || keep_last(stream, &kept))
        });
        Self { kept, listener }
    }

    /// Waits for the last of them, once the process has ended.
    pub(super) fn wait(&mut self, deadline: Instant) {
        if let Some(listener) = self.listener.take() {
            while !listener.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Returns them in brackets, on one line; nothing if there are none.
    pub(super) fn text(&self) -> String {
        let words = self.kept.lock().map(|words| words.clone()).unwrap_or_default();
        let words = lines(&words);
        let words: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        if words.is_empty() { String::new() } else { format!(" ({})", words.join("; ")) }
    }
}

/// Returns the status with which a process ended, if it ends by then.
pub(super) fn ended_by(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            _ => return None,
        }
    }
}

/// Keeps the last bytes of a stream.
fn keep_last(mut stream: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        if let Ok(mut kept) = kept.lock() {
            kept.extend_from_slice(&piece[..count]);
            let over = kept.len().saturating_sub(limits::STDERR_KEPT_BYTES);
            kept.drain(..over);
        }
    }
}
