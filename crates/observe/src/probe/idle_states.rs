//! Entries and time of every CPU in each idle state, from `/sys/devices/system/cpu/cpuN/cpuidle`.

use std::path::Path;

use millstream_record::{IdleCpu, IdleState};

use super::{Absent, limits, rise};

const CPUS: &str = "/sys/devices/system/cpu";

/// The counters at one moment, since the machine was started.
#[derive(Clone, Debug, Default)]
pub struct IdleReading(Vec<IdleCpu>);

impl IdleReading {
    /// Reads them now, of so many CPUs at most. The kernel adds a stay when it ends.
    pub fn now() -> Result<Self, Absent> {
        Self::read(Path::new(CPUS))
    }

    fn read(folder: &Path) -> Result<Self, Absent> {
        let mut cpus = Vec::new();
        for cpu in 0..limits::IDLE_CPUS {
            let states = states(&folder.join(format!("cpu{cpu}/cpuidle")))?;
            if !states.is_empty() {
                cpus.push(IdleCpu { cpu, states });
            }
        }
        match cpus.is_empty() {
            true => Err(Absent(format!("{}: no CPU has a folder cpuidle", folder.display()))),
            false => Ok(Self(cpus)),
        }
    }

    /// Returns the entries and the time that were added since `earlier`.
    pub fn since(mut self, earlier: &Self) -> Vec<IdleCpu> {
        for one in &mut self.0 {
            let before = earlier.0.iter().find(|before| before.cpu == one.cpu);
            for state in &mut one.states {
                let before = before
                    .and_then(|cpu| cpu.states.iter().find(|before| before.name == state.name));
                let Some(before) = before else { continue };
                state.entries = rise(before.entries, state.entries);
                state.time_us = rise(before.time_us, state.time_us);
            }
        }
        self.0
    }
}

/// The states of a CPU in the order of their depth; none when it is not there.
fn states(folder: &Path) -> Result<Vec<IdleState>, Absent> {
    let mut states = Vec::new();
    for depth in 0..limits::IDLE_STATES {
        let folder = folder.join(format!("state{depth}"));
        let Ok(name) = millstream_foreign::read(folder.join("name")) else { break };
        let number = |file: &str| {
            let path = folder.join(file);
            let because = |why: String| Absent(format!("{}: {why}", path.display()));
            let text =
                millstream_foreign::read(&path).map_err(|error| because(error.to_string()))?;
            text.trim().parse().map_err(|_| because(format!("odd text {text:?}")))
        };
        states.push(IdleState {
            name: name.trim().to_owned(),
            exit_latency_us: number("latency")?,
            entries: number("usage")?,
            time_us: number("time")?,
        });
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Machine(std::path::PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let name = format!("millstream-cpuidle-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn set(&self, cpu: u32, depth: u32, state: (&str, &str, &str, &str)) {
            let folder = self.0.join(format!("cpu{cpu}/cpuidle/state{depth}"));
            fs::create_dir_all(&folder).unwrap();
            let (name, latency, usage, time) = state;
            for (file, text) in
                [("name", name), ("latency", latency), ("usage", usage), ("time", time)]
            {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_added_is_told_by_cpu_and_state() {
        let machine = Machine::new("added");
        machine.set(0, 0, ("POLL", "0", "100", "5000"));
        machine.set(0, 1, ("haltpoll idle", "1", "10", "900"));
        machine.set(3, 0, ("POLL", "0", "7", "7"));
        let before = IdleReading::read(&machine.0).unwrap();
        machine.set(0, 0, ("POLL", "0", "150", "6000"));
        machine.set(0, 1, ("haltpoll idle", "1", "13", "1000"));
        machine.set(3, 0, ("POLL", "0", "2", "9"));
        let added = IdleReading::read(&machine.0).unwrap().since(&before);
        let of = |at: usize| {
            let states = added[at].states.iter();
            states.map(|one| (one.name.as_str(), one.entries, one.time_us)).collect::<Vec<_>>()
        };
        assert_eq!((added[0].cpu, added[1].cpu), (0, 3));
        assert_eq!(of(0), [("POLL", 50, 1000), ("haltpoll idle", 3, 100)]);
        // One that fell started again.
        assert_eq!(of(1), [("POLL", 0, 2)]);
        assert!(added[0].states[1].halts() && !added[0].states[0].halts());
    }

    #[test]
    fn what_is_not_there_or_odd_is_absent_with_the_reason() {
        let machine = Machine::new("odd");
        assert!(IdleReading::read(&machine.0).unwrap_err().0.contains("no CPU"));
        machine.set(0, 0, ("POLL", "0", "many", "1"));
        assert!(IdleReading::read(&machine.0).unwrap_err().0.contains("usage: odd text"));
    }
}
