//! A flag that signals raise, and that ends an experiment early.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_record::error::Error;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// From now on a file that would grow beyond the limit of this process (`ulimit -f`) is an error of
/// its writing, which can be told; SIGXFSZ would end the process without a word. The workers are
/// not concerned: they write no file.
pub fn survive_file_limit() {
    // Where no handler can be installed, things stay as they were.
    let _ = signal_hook::flag::register(Signal::SIGXFSZ as i32, Arc::default());
}

/// Set by SIGINT, SIGTERM and SIGHUP; looked at between steps and while waiting.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that the signals SIGINT, SIGTERM and SIGHUP raise. A second signal
    /// ends the process at once.
    pub fn from_signals() -> Result<Self, Error> {
        Self::from_signals_beside(|_| ())
    }

    /// The same; `between` is called between the two registrations of each signal.
    fn from_signals_beside(between: impl Fn(Signal)) -> Result<Self, Error> {
        let interrupt = Self::default();
        // A signal between the two registrations would find the first alone, which does nothing
        // with it.
        let signals: SigSet =
            [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        let watch = || {
            for signal in &signals {
                let (number, flag) = (signal as i32, interrupt.0.clone());
                signal_hook::flag::register_conditional_shutdown(number, 130, flag.clone())?;
                between(signal);
                signal_hook::flag::register(number, flag)?;
            }
            Ok::<(), io::Error>(())
        };
        let held = || {
            let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
            let watched = watch();
            before.thread_set_mask()?;
            watched
        };
        held().map_err(Error::host("watch for signals"))?;
        Ok(interrupt)
    }

    /// A descriptor that is readable once SIGINT, SIGTERM or SIGHUP has come: for sleeping on it.
    pub fn waker(&self) -> Result<UnixStream, Error> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let watch = || {
            let (read, write) = UnixStream::pair()?;
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
            }
            Ok(read)
        };
        watch().map_err(Error::host("watch for signals"))
    }

    /// Raises it.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The error to return when it was raised.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its first handler alone would do nothing with it, and it would be lost.
    #[test]
    fn a_signal_between_its_two_handlers_is_kept_for_both() {
        let raise = |signal| {
            if signal == Signal::SIGHUP {
                nix::sys::signal::raise(signal).expect("a signal to this thread");
            }
        };
        let interrupt = Interrupt::from_signals_beside(raise).expect("handlers");
        assert!(interrupt.is_raised());
    }

    #[test]
    fn an_interrupt_is_seen_by_every_copy() {
        let interrupt = Interrupt::default();
        let copy = interrupt.clone();
        assert!(copy.check().is_ok());
        interrupt.raise();
        assert!(matches!(copy.check(), Err(Error::Interrupted)));
    }
}
