//! The terminal while `top` has it. Whatever ends or stops the program, it is as it was before: a
//! return, an error, a panic, SIGTERM, SIGINT, SIGHUP, SIGTSTP. Only SIGKILL and SIGSTOP are not
//! heard of.

use std::io::{self, Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millstream_record::error::Error;
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::flag::register;
use signal_hook::low_level::emulate_default_handler;

/// Why a wait for input ended.
pub enum Event {
    Key(KeyEvent),
    /// A signal asks for the end.
    End,
    /// The time is over, or something else happened for which the screen is drawn again.
    Nothing,
}

/// The terminal, in raw mode and with its other screen, until this is dropped.
pub struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
    end: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    again: Arc<AtomicBool>,
}

/// Signals are looked at so often.
const LOOK: Duration = Duration::from_millis(50);

impl Terminal {
    pub fn enter() -> Result<Self, Error> {
        let (end, stop, again) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let signals = || {
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                register(signal, end.clone())?;
            }
            register(SIGTSTP, stop.clone())?;
            register(SIGCONT, again.clone())
        };
        signals().map_err(Error::host("watch for signals"))?;
        // The message of a panic is to be read, so the screen is left before it is written.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            hook(panic);
        }));
        begin().map_err(failed)?;
        let inner = fresh().inspect_err(|_| leave()).map_err(failed)?;
        Ok(Self { inner, end, stop, again })
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Error> {
        self.inner.draw(draw).map(drop).map_err(failed)
    }

    /// Waits for a key or a signal. SIGTSTP and SIGCONT are dealt with here.
    pub fn wait(&mut self, time: Duration) -> Result<Event, Error> {
        let until = Instant::now() + time;
        loop {
            if self.end.load(Ordering::Acquire) {
                return Ok(Event::End);
            }
            if self.stop.swap(false, Ordering::AcqRel) {
                self.suspend()?;
                return Ok(Event::Nothing);
            }
            // After a SIGSTOP the shell has had the terminal.
            if self.again.swap(false, Ordering::AcqRel) {
                self.resume()?;
                return Ok(Event::Nothing);
            }
            let left = until.saturating_duration_since(Instant::now());
            if event::poll(left.min(LOOK)).map_err(failed)? {
                return match event::read().map_err(failed)? {
                    event::Event::Key(key) if key.kind != KeyEventKind::Release => {
                        Ok(Event::Key(key))
                    }
                    _ => Ok(Event::Nothing),
                };
            }
            if left.is_zero() {
                return Ok(Event::Nothing);
            }
        }
    }

    /// Gives the terminal back and stops, as SIGTSTP does, until SIGCONT.
    pub fn suspend(&mut self) -> Result<(), Error> {
        leave();
        emulate_default_handler(SIGTSTP).map_err(Error::host("stop"))?;
        self.again.store(false, Ordering::Release);
        self.resume()
    }

    fn resume(&mut self) -> Result<(), Error> {
        begin().map_err(failed)?;
        // One that knows nothing of what was shown: all of it is drawn, and the terminal is not
        // asked for its cursor.
        self.inner = fresh().map_err(failed)?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

fn failed(error: io::Error) -> Error {
    Error::file("the terminal")(error)
}

fn fresh() -> io::Result<ratatui::Terminal<CrosstermBackend<Stdout>>> {
    ratatui::Terminal::new(CrosstermBackend::new(stdout()))
}

fn begin() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All), Hide).inspect_err(|_| leave())
}

/// Puts the terminal back. One that is gone needs nothing put back.
fn leave() {
    let _ = execute!(stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
