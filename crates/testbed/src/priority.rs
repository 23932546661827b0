//! The scheduling priority of the processes that the laboratory starts.

use rustix::process::{Pid, setpriority_process, setsid};

/// The nice value of the level `high`: such a thread gets 88 times the time of one at 0.
pub const HIGH: i32 = -20;

/// Gives a process (its first thread, and those that it starts from then on) or, with `None`, the
/// calling thread the priority [`HIGH`].
pub fn raise(pid: Option<u32>) -> Result<(), String> {
    let pid = match pid {
        Some(pid) => Some(Pid::from_raw(pid as i32).ok_or("no process")?),
        None => None,
    };
    setpriority_process(pid, HIGH).map_err(|errno| format!("nice {HIGH}: {errno}"))
}

/// Returns whether each session is a group of the scheduler: then a nice value counts inside its
/// session alone (sched(7), autogroup), and against processes of other sessions that of the group.
pub fn is_by_session() -> bool {
    let grouped = millstream_foreign::read("/proc/sys/kernel/sched_autogroup_enabled");
    grouped.is_ok_and(|text| is_on(&text))
}

/// Puts this process into a session of its own, whose group has the priority [`HIGH`].
pub fn raise_session() -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("a session at nice {HIGH}: {error}");
    setsid().map_err(|errno| failed(&errno))?;
    // A new group has the value of a nice 0 until this is written.
    std::fs::write("/proc/self/autogroup", HIGH.to_string()).map_err(|error| failed(&error))
}

/// Succeeds when this process may raise priorities and that would help; else the error says why
/// not. Processes that are started in sessions of their own are raised there
/// ([`raise_session`]).
pub fn may_raise(in_own_session: bool) -> Result<(), String> {
    if is_by_session() && !in_own_session {
        return Err(
            "priorities count inside a session alone here (kernel.sched_autogroup_enabled)".into(),
        );
    }
    // In a thread that ends: priorities are threads' own.
    let tried = std::thread::spawn(|| raise(None)).join();
    tried.unwrap_or_else(|_| Err("the thread panicked".to_owned()))
}

fn is_on(text: &str) -> bool {
    text.trim() != "0"
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
        let _ = may_raise(true);
        assert_eq!(own(), before);
    }

    #[test]
    fn where_sessions_are_groups_a_priority_would_seem_to_make_no_difference() {
        assert!(is_on("1\n") && !is_on("0\n"));
    }

    /// The test runs the program `setsid` in its place: a test may not leave its own session.
    #[test]
    fn a_session_of_its_own_has_a_group_whose_priority_may_be_written() {
        if !is_by_session() || may_raise(true).is_err() {
            eprintln!("skipped: sessions are no groups here, or this process may not raise them");
            return;
        }
        let script = format!("echo {HIGH} >/proc/self/autogroup; cat /proc/self/autogroup");
        let output =
            std::process::Command::new("setsid").args(["-w", "sh", "-c", &script]).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(said.trim().ends_with(&format!("nice {HIGH}")), "{said}");
        let own = millstream_foreign::read("/proc/self/autogroup").unwrap();
        assert!(!own.trim().ends_with(&format!("nice {HIGH}")), "{own}");
    }

    #[test]
    fn a_raised_process_has_it_and_so_has_what_it_starts() {
        let started = std::thread::spawn(|| {
            if raise(None).is_err() {
                return HIGH.to_string();
            }
            let output = std::process::Command::new("nice").output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        assert_eq!(started.join().unwrap().trim(), HIGH.to_string());
    }
}
