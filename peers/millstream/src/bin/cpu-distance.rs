//! Prints the nanoseconds that a cache line takes from one CPU to another and back: once, or ten
//! times a second between CPUs at work, each with its time on the monotonic clock.
//!
//! ```text
//! cpu-distance 0 1
//! cpu-distance 0 1 --watch SECONDS
//! ```
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use millstream_distance::{DistanceWatch, cpu_distance};
use peers_common::{Deadline, monotonic_seconds};

/// Between two looks while CPUs are at work.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let cpu = |word: &str| word.parse::<usize>().ok();
    let done = match words[..] {
        [one, other] => cpu(one).zip(cpu(other)).map(|(one, other)| once(one, other)),
        [one, other, "--watch", seconds] => (|| {
            let seconds = seconds.parse().ok().filter(|seconds| (0.0..1e6).contains(seconds))?;
            Some(watch(cpu(one)?, cpu(other)?, seconds))
        })(),
        _ => None,
    };
    match done {
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(error)) => eprintln!("error: CPU {} to CPU {}: {error}", words[0], words[1]),
        None => {
            eprintln!("error: give the numbers of two CPUs: cpu-distance 0 1 [--watch SECONDS]")
        }
    }
    ExitCode::FAILURE
}

fn once(one: usize, other: usize) -> io::Result<()> {
    let distance = cpu_distance(one, other)?;
    writeln!(io::stdout(), "{}", distance.as_nanos())
}

/// Until the time is over, or nobody reads any more. A look that found the two CPUs busy has no
/// line.
fn watch(one: usize, other: usize, seconds: f64) -> io::Result<()> {
    let mut watch = DistanceWatch::start(one, other)?;
    let deadline = Deadline::new(seconds);
    let mut warm = false;
    while !deadline.is_over() {
        match watch.read() {
            Ok(distance) if warm => {
                writeln!(io::stdout(), "{:.6} {}", monotonic_seconds(), distance.as_nanos())?;
            }
            Ok(_) => warm = true,
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
        sleep(PAUSE);
    }
    Ok(())
}
