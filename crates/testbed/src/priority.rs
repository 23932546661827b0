//! The scheduling priority of the processes that the laboratory starts.

use rustix::process::{Pid, setpriority_process};

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

/// Succeeds when this process may raise priorities and that would help; else the error says why
/// not. Where each session is a group of the scheduler, a nice value counts inside its session
/// alone (sched(7), autogroup): against processes of other sessions it would seem to make no
/// difference.
pub fn may_raise() -> Result<(), String> {
    let grouped = millstream_foreign::read("/proc/sys/kernel/sched_autogroup_enabled");
    let grouped = grouped.is_ok_and(|text| is_on(&text));
    if grouped {
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
        let _ = may_raise();
        assert_eq!(own(), before);
    }

    #[test]
    fn where_sessions_are_groups_a_priority_would_seem_to_make_no_difference() {
        assert!(is_on("1\n") && !is_on("0\n"));
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
