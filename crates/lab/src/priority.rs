//! The scheduling priority of what is started here.

use rustix::process::{Pid, setpriority_process};

/// The nice value of the level `high`: such a thread gets 88 times the time of one at 0.
pub const HIGH: i32 = -20;

/// Gives a process (its first thread, and those that it starts from then on) or, with `None`, the calling thread the
/// priority [`HIGH`].
pub fn raise(pid: Option<u32>) -> Result<(), String> {
    let pid = match pid {
        Some(pid) => Some(Pid::from_raw(pid as i32).ok_or("no process")?),
        None => None,
    };
    setpriority_process(pid, HIGH).map_err(|errno| format!("nice {HIGH}: {errno}"))
}

/// Whether this process may; else why not.
pub fn may_raise() -> Result<(), String> {
    // In a thread that ends: priorities are threads' own.
    let tried = std::thread::spawn(|| raise(None)).join();
    tried.unwrap_or_else(|_| Err("the thread panicked".to_owned()))
}

/// The nice value of the calling thread.
#[cfg(test)]
fn own() -> Option<i32> {
    rustix::process::getpriority_process(None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_whether_it_may_be_raised_raises_nothing() {
        let before = own();
        let _ = may_raise();
        assert_eq!(own(), before);
    }

    #[test]
    fn a_raised_process_has_it_and_so_has_what_it_starts() {
        if may_raise().is_err() {
            return;
        }
        let started = std::thread::spawn(|| {
            raise(None).unwrap();
            let output = std::process::Command::new("nice").output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        assert_eq!(started.join().unwrap().trim(), HIGH.to_string());
    }
}
