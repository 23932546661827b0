//! The distance of the hosts' CPUs while both are at work.

use millstream_distance::DistanceWatch;
use millstream_record::Probes;

use super::{Absent, Kind, Probe, Turn};

pub(super) const KIND: Kind =
    Kind { name: "cpu_distance", open: |config| Ok(Box::new(Distance::open(&config.distance)?)) };

pub(super) struct Distance {
    watch: DistanceWatch,
    /// Nanoseconds; `None` where the two CPUs were not to be had together.
    steps: Vec<Option<u64>>,
}

impl Distance {
    /// Starts to measure the distance of these CPUs; an error is the reason why it is not measured.
    pub(super) fn open(cpus: &Result<(usize, usize), Absent>) -> Result<Self, Absent> {
        let &(one, other) = cpus.as_ref().map_err(Clone::clone)?;
        let watch = DistanceWatch::start(one, other).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Absent(format!("real-time priority is not permitted: {error}"))
            }
            _ => Absent(format!("CPU {one} to CPU {other}: {error}")),
        })?;
        Ok(Self { watch, steps: Vec::new() })
    }
}

impl Probe for Distance {
    fn name(&self) -> &'static str {
        "cpu_distance"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        match self.watch.read() {
            // The first warms up: a step has its distance at its end.
            _ if turn == Turn::First => {}
            Ok(distance) => self.steps.push(Some(distance.as_nanos() as u64)),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => self.steps.push(None),
            Err(error) => return Err(Absent(error.to_string())),
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        into.own_cpu_s += self.watch.held().as_secs_f64();
        if self.steps.iter().any(Option::is_some) {
            into.cpu_distance_ns = Some(self.steps);
        } else {
            let reason = "the two CPUs were never to be had together".to_owned();
            into.absent.insert(self.name().to_owned(), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_is_not_looked_at_is_said() {
        let reason = Absent("both hosts have CPU 0".into());
        assert_eq!(Distance::open(&Err(reason.clone())).err(), Some(reason));
        let same = Distance::open(&Ok((0, 0))).err().unwrap();
        assert!(same.0.contains("two CPUs"), "{same}");
        assert!(Distance::open(&Ok((0, 1_000_000))).is_err());
    }

    /// Where this machine has two CPUs and real-time priority is permitted.
    #[test]
    fn a_step_has_a_distance_or_none_and_what_it_cost_is_counted() {
        let Ok(probe) = Distance::open(&Ok((0, 1))) else { return };
        let mut probe = Box::new(probe);
        for turn in [Turn::First, Turn::Middle, Turn::Last] {
            probe.sample(turn).unwrap();
        }
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        match probes.cpu_distance_ns {
            Some(steps) => assert_eq!(steps.len(), 2),
            None => assert!(probes.absent.contains_key("cpu_distance")),
        }
        assert!(probes.own_cpu_s > 0.0);
    }
}
