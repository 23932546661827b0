//! Clock rates of the CPUs, and how often heat held them back, from `/sys/devices/system/cpu`.

use std::collections::BTreeMap;
use std::path::Path;

use millstream_record::{Measured, Probes};

use super::{Absent, Kind, Probe, ProcFile, Turn, limits, rise};

const NAME: &str = "frequency";
const CPUS: &str = "/sys/devices/system/cpu";

pub(super) const KIND: Kind =
    Kind { name: NAME, open: |_| Ok(Box::new(Frequency::open(Path::new(CPUS))?)) };

/// Times that a CPU, or its whole package, was held back (x86).
const THROTTLED: [&str; 2] = ["core_throttle_count", "package_throttle_count"];

struct Frequency {
    clocks: Vec<(u32, ProcFile, Seen)>,
    throttles: Vec<(String, ProcFile, [u64; 2])>,
}

/// kHz over the samples.
#[derive(Default)]
struct Seen {
    sum: f64,
    samples: u32,
    least: f64,
}

impl Seen {
    fn add(&mut self, khz: u64) {
        let khz = khz as f64;
        self.least = if self.samples == 0 { khz } else { self.least.min(khz) };
        self.sum += khz;
        self.samples += 1;
    }
}

impl Frequency {
    /// Opens the files of the first CPUs, as many as have their idle states read.
    fn open(folder: &Path) -> Result<Self, Absent> {
        let (mut clocks, mut throttles) = (Vec::new(), Vec::new());
        for cpu in 0..limits::IDLE_CPUS {
            let at = |file: &str| ProcFile::open(folder.join(format!("cpu{cpu}/{file}")));
            clocks.extend(at("cpufreq/scaling_cur_freq").map(|file| (cpu, file, Seen::default())));
            for name in THROTTLED {
                let file = at(&format!("thermal_throttle/{name}"));
                throttles.extend(file.map(|file| (format!("cpu{cpu}_{name}"), file, [0; 2])));
            }
        }
        match clocks.is_empty() && throttles.is_empty() {
            true => Err(Absent(format!(
                "{}: no CPU has a folder cpufreq or thermal_throttle, as in most virtual machines",
                folder.display()
            ))),
            false => Ok(Self { clocks, throttles }),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("odd text {text:?}"))
}

impl Probe for Frequency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        for (_, file, seen) in &mut self.clocks {
            seen.add(file.parse(number)?);
        }
        for (_, file, counts) in &mut self.throttles {
            match turn {
                Turn::First => counts[0] = file.parse(number)?,
                Turn::Middle => {}
                Turn::Last => counts[1] = file.parse(number)?,
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { clocks, throttles } = *self;
        for (missing, what, folder) in [
            (clocks.is_empty(), "cpu_clocks", "cpufreq"),
            (throttles.is_empty(), "thermal_throttling", "thermal_throttle"),
        ] {
            if missing {
                into.absent.insert(what.to_owned(), format!("no CPU has a folder {folder}"));
            }
        }
        let mut measured = BTreeMap::new();
        for (cpu, _, seen) in clocks {
            let mean = seen.sum / f64::from(seen.samples.max(1));
            for (name, khz) in [("mean", mean), ("least", seen.least)] {
                measured.insert(format!("cpu{cpu}_{name}_mhz"), Measured::Level(khz / 1e3));
            }
        }
        for (name, _, [first, last]) in throttles {
            measured.insert(name, Measured::Count(rise(first, last) as f64));
        }
        into.measured.insert(NAME.to_owned(), measured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_means_and_throttling_is_what_rose() {
        let folder = std::env::temp_dir().join(format!("millstream-clock-{}", std::process::id()));
        let put = |file: &str, text: &str| {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(Frequency::open(&folder).err().unwrap().0.contains("no CPU has a folder cpufreq"));
        put("cpu1/cpufreq/scaling_cur_freq", "3000000\n");
        put("cpu1/thermal_throttle/core_throttle_count", "5\n");
        let mut probe = Box::new(Frequency::open(&folder).unwrap());
        probe.sample(Turn::First).unwrap();
        put("cpu1/cpufreq/scaling_cur_freq", "1000000\n");
        probe.sample(Turn::Middle).unwrap();
        put("cpu1/cpufreq/scaling_cur_freq", "2000000\n");
        put("cpu1/thermal_throttle/core_throttle_count", "8\n");
        probe.sample(Turn::Last).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        std::fs::remove_dir_all(&folder).unwrap();
        let found = &probes.measured[NAME];
        assert_eq!(found["cpu1_mean_mhz"], Measured::Level(2000.0));
        assert_eq!(found["cpu1_least_mhz"], Measured::Level(1000.0));
        assert_eq!(found["cpu1_core_throttle_count"], Measured::Count(3.0));
        assert!(probes.absent.is_empty());
    }

    #[test]
    fn what_one_of_the_two_lacks_is_told() {
        let probe = Frequency { clocks: vec![], throttles: vec![] };
        let mut probes = Probes::default();
        Box::new(probe).finish(&mut probes);
        assert!(probes.absent["cpu_clocks"].contains("cpufreq"));
        assert!(probes.absent["thermal_throttling"].contains("thermal_throttle"));
    }
}
