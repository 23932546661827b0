//! The time that a halted processor may take to wake up: a request to the kernel's power management
//! (PM QoS).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Four bytes, a number of microseconds in the machine's order: written, they are a request that
/// lasts as long as the file is open; read, the strictest of all requests (the kernel's
/// Documentation/power/pm_qos_interface.rst).
const DEVICE: &str = "/dev/cpu_dma_latency";

/// The kernel's number for "no limit" (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`); larger requests are cut
/// to it.
const NO_LIMIT_US: i32 = 2_000_000_000;

/// The driver that puts processors to rest, as `/sys/devices/system/cpu/cpuidle` has it.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";

/// A request that no processor of the machine enters an idle state that takes longer to leave than
/// so much. The kernel drops it with this value, or with the process, however that ends.
///
/// It is for the whole machine, not for one process or processor, and costs power: at zero an idle
/// processor spins in the kernel, at full clock, and takes time from its sibling and, on a virtual
/// machine, from other guests.
///
/// Asking never fails. What came of it tells [`IdleLatency::state`].
#[derive(Debug)]
pub struct IdleLatency {
    asked_us: i32,
    path: PathBuf,
    file: Result<File, String>,
    doubt: Option<&'static str>,
}

/// A request, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleLatencyState {
    /// The request, in whole microseconds.
    pub asked: Duration,
    /// The limit in force now, or why there is none of ours. It is the strictest of all requests on
    /// the machine, so it may be less than was asked.
    pub in_force: Result<Duration, String>,
    /// Why it may change nothing although it is in force.
    pub doubt: Option<&'static str>,
}

impl IdleLatency {
    /// Asks for `limit`, rounded down to microseconds. The device file usually belongs to root
    /// alone.
    pub fn hold(limit: Duration) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let mut held = Self::hold_at(Path::new(DEVICE), limit);
        held.doubt = doubt(read(DRIVER).trim(), read(GOVERNOR).trim(), held.asked_us);
        held
    }

    /// The same by another file.
    fn hold_at(path: &Path, limit: Duration) -> Self {
        let asked_us = i32::try_from(limit.as_micros()).unwrap_or(NO_LIMIT_US).min(NO_LIMIT_US);
        let file = request(path, asked_us).map_err(|error| because(path, &error));
        Self { asked_us, path: path.to_owned(), file, doubt: None }
    }

    /// The request and what is in force now.
    pub fn state(&self) -> IdleLatencyState {
        let in_force = match &self.file {
            Ok(file) => in_force(file).map_err(|error| because(&self.path, &error)),
            Err(reason) => Err(reason.clone()),
        };
        IdleLatencyState { asked: micros(self.asked_us), in_force, doubt: self.doubt }
    }

    /// The limit in force for the machine, whoever asked; read without asking for any.
    pub fn of_machine() -> Result<Duration, String> {
        let path = Path::new(DEVICE);
        File::open(path).and_then(|file| in_force(&file)).map_err(|error| because(path, &error))
    }
}

impl fmt::Display for IdleLatencyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} µs asked, ", self.asked.as_micros())?;
        match &self.in_force {
            Ok(limit) => write!(f, "{} µs in force", limit.as_micros())?,
            Err(reason) => write!(f, "refused: {reason}")?,
        }
        self.doubt.map_or(Ok(()), |doubt| write!(f, "; {doubt}"))
    }
}

fn request(path: &Path, limit_us: i32) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // In one call: four bytes are the number, any other count its hexadecimal digits.
    match file.write_at(&limit_us.to_ne_bytes(), 0)? {
        4 => Ok(file),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn in_force(file: &File) -> io::Result<Duration> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(micros(i32::from_ne_bytes(bytes)))
}

fn micros(us: i32) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

fn because(path: &Path, error: &io::Error) -> String {
    // Only the text of the error, without "(os error 13)".
    let text = error.to_string();
    format!("{}: {}", path.display(), text.split(" (os error").next().unwrap_or_default())
}

/// Why a request would not be heeded: without a driver the kernel halts by itself, and `haltpoll`,
/// the governor of virtual machines, knows only zero (`haltpoll_select`).
fn doubt(driver: &str, governor: &str, limit_us: i32) -> Option<&'static str> {
    match (driver, governor) {
        ("none", _) => Some("no cpuidle driver: idle CPUs are halted whatever is asked"),
        (_, "haltpoll") if (1..NO_LIMIT_US).contains(&limit_us) => {
            Some("the governor haltpoll heeds no limit but 0")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that stands for the device, for one test.
    struct StandIn(std::path::PathBuf);

    impl StandIn {
        fn new(name: &str) -> Self {
            let name = format!("millstream-idle-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, NO_LIMIT_US.to_ne_bytes()).unwrap();
            Self(path)
        }

        fn value(&self) -> i32 {
            i32::from_ne_bytes(std::fs::read(&self.0).unwrap().try_into().unwrap())
        }

        /// Descriptors of this process that refer to it.
        fn open_count(&self) -> usize {
            let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            links.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == self.0)).count()
        }
    }

    impl Drop for StandIn {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_request_is_a_number_of_four_bytes_in_a_file_held_open() {
        let file = StandIn::new("granted");
        let held = IdleLatency::hold_at(&file.0, Duration::from_nanos(7_900));
        assert_eq!((file.value(), file.open_count()), (7, 1));
        let seven = Duration::from_micros(7);
        let state = IdleLatencyState { asked: seven, in_force: Ok(seven), doubt: None };
        assert_eq!(held.state(), state);
        assert_eq!(state.to_string(), "7 µs asked, 7 µs in force");
        drop(held);
        assert_eq!(file.open_count(), 0);
    }

    #[test]
    fn what_is_in_force_is_read_when_asked_and_may_be_stricter() {
        let file = StandIn::new("stricter");
        let held = IdleLatency::hold_at(&file.0, Duration::from_micros(100));
        std::fs::write(&file.0, 3_i32.to_ne_bytes()).unwrap();
        assert_eq!(held.state().in_force, Ok(Duration::from_micros(3)));
        std::fs::write(&file.0, [1]).unwrap();
        assert!(held.state().in_force.is_err());
    }

    #[test]
    fn a_refusal_says_why_and_holds_nothing() {
        let held = IdleLatency::hold_at(Path::new("/no/such/device"), Duration::ZERO);
        let state = held.state();
        assert_eq!(state.in_force, Err("/no/such/device: No such file or directory".to_owned()));
        assert_eq!(
            state.to_string(),
            "0 µs asked, refused: /no/such/device: No such file or directory"
        );
        // A folder cannot be written to, whoever asks.
        let held = IdleLatency::hold_at(&std::env::temp_dir(), Duration::ZERO);
        assert!(held.state().in_force.unwrap_err().contains("directory"));
    }

    #[test]
    fn more_than_the_kernel_knows_is_no_limit() {
        let file = StandIn::new("most");
        for limit in [Duration::from_secs(2_000), Duration::from_secs(4_000), Duration::MAX] {
            let held = IdleLatency::hold_at(&file.0, limit);
            assert_eq!(file.value(), NO_LIMIT_US);
            assert_eq!(held.state().asked, Duration::from_secs(2_000));
        }
    }

    #[test]
    fn who_does_not_heed_a_request_is_named() {
        assert!(doubt("none", "menu", 0).unwrap().contains("driver"));
        assert!(doubt("haltpoll", "haltpoll", 1).unwrap().contains("haltpoll"));
        for (driver, governor, limit_us) in [
            ("haltpoll", "haltpoll", 0),
            ("haltpoll", "haltpoll", NO_LIMIT_US),
            ("intel_idle", "menu", 10),
            ("", "", 0),
        ] {
            assert_eq!(doubt(driver, governor, limit_us), None);
        }
    }

    /// As lax as it can be, so that the machine stays as it is.
    #[test]
    fn this_machine_grants_it_or_says_why_not() {
        match IdleLatency::hold(Duration::MAX).state().in_force {
            Ok(limit) => assert!(limit <= Duration::from_secs(2_000)),
            Err(reason) => assert!(reason.starts_with(DEVICE), "{reason}"),
        }
    }
}
