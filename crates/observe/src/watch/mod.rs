//! The activity of this machine, of the network namespace of the calling thread and of this user's
//! engines, interval by interval, as `millstream top` shows it.
//!
//! Each source is optional. If one cannot be read, [`Moment::absent`] has the reason, and its
//! values are none, never zero. Nothing is changed, and nothing is kept beyond the last interval.

mod engines;
mod interfaces;
mod interrupts;
mod json;
mod limits;
mod load;
mod pressure;
mod sheet;
mod sheets;
mod sockets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::bpf::Kernel;
use crate::table::{CpuTable, Row};

pub use engines::{EngineRates, EngineSocket, Engines};
pub use interfaces::InterfaceRates;
pub use interrupts::SourceRates;
pub use json::{cpu_json, moment_json};
pub use load::Load;
pub use pressure::{PressureShares, Shares};
pub use sheet::{Cell, Head, Sheet};
pub use sheets::{Choice, Subject, cpu_sheet, sheet, summary};
pub use sockets::{SocketRates, Sockets};

use crate::probe::Absent;

/// Everything that is looked at, with what it was before.
pub struct Watch {
    begun: Instant,
    kernel: Result<Arc<Kernel>, Absent>,
    cpus: CpuTable,
    interfaces: Result<interfaces::Interfaces, Absent>,
    interrupts: Result<interrupts::Interrupts, Absent>,
    pressure: Result<pressure::Pressure, Absent>,
    sockets: sockets::Looker,
    engines: engines::Looker,
}

/// One interval.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Its end, seconds since the watch was opened.
    pub at_s: f64,
    /// Its width in seconds.
    pub width_s: f64,
    /// Seconds from the begin to the end of the readings at its end.
    pub look_s: f64,
    /// Load and time since the machine was started.
    pub load: Option<Load>,
    /// A row for each CPU that is online.
    pub cpus: Vec<Row>,
    /// Rates by the name of the interface.
    pub interfaces: BTreeMap<String, InterfaceRates>,
    /// Sources of interrupts, those of devices first.
    pub interrupts: Vec<SourceRates>,
    /// Shares of the time that tasks waited.
    pub pressure: Option<PressureShares>,
    /// Sockets and their queues.
    pub sockets: Option<Sockets>,
    /// Millstream's own engines of this user.
    pub engines: Engines,
    /// Reasons why something is not measured, or is measured in another way, by column or source.
    pub absent: BTreeMap<String, String>,
}

impl Watch {
    /// Opens what there is and takes the first look. Only `/proc/stat` has to be there.
    pub fn open(kernel: Result<Arc<Kernel>, Absent>) -> Result<Self, Absent> {
        Ok(Self {
            begun: Instant::now(),
            cpus: CpuTable::open(kernel.as_deref().ok())?,
            interfaces: interfaces::Interfaces::open(),
            interrupts: interrupts::Interrupts::open(kernel.as_deref().ok()),
            pressure: pressure::Pressure::open(),
            sockets: sockets::Looker::open(),
            engines: engines::Looker::open(),
            kernel,
        })
    }

    /// Returns the activity since the last reading.
    pub fn sample(&mut self) -> Result<Moment, Absent> {
        let from = Instant::now();
        let kernel = self.kernel.as_deref();
        let mut moment = Moment { load: Load::read().ok(), ..Moment::default() };
        (moment.width_s, moment.cpus) = self.cpus.sample(kernel.ok())?;
        for (column, note) in self.cpus.notes(kernel) {
            moment.absent.insert(column.to_owned(), note);
        }
        let mut absent = |what: &str, why: &Absent| {
            moment.absent.insert(what.to_owned(), format!("not measured, because {why}"));
        };
        match taken(&mut self.interfaces, interfaces::Interfaces::sample) {
            Ok(now) => moment.interfaces = now,
            Err(why) => absent("interfaces", &why),
        }
        match taken(&mut self.interrupts, |source| source.sample(kernel)) {
            Ok(now) => moment.interrupts = now,
            Err(why) => absent("interrupts", &why),
        }
        if let Ok(source) = &self.interrupts
            && let Some(why) = source.times_absent()
        {
            absent("interrupt time", why);
        }
        match taken(&mut self.pressure, pressure::Pressure::sample) {
            Ok(now) => moment.pressure = Some(now),
            Err(why) => absent("pressure", &why),
        }
        match self.sockets.sample() {
            Ok(now) => moment.sockets = Some(now),
            Err(why) => absent("sockets", &why),
        }
        moment.engines = self.engines.sample();
        for (engine, why) in &moment.engines.cut_short {
            moment.absent.insert(format!("sockets of {engine}"), format!("not all, because {why}"));
        }
        moment.at_s = self.begun.elapsed().as_secs_f64();
        moment.look_s = from.elapsed().as_secs_f64();
        Ok(moment)
    }
}

/// A sample of a source that could be opened; one that fails once says why from then on.
fn taken<S, T>(
    source: &mut Result<S, Absent>,
    sample: impl FnOnce(&mut S) -> Result<T, Absent>,
) -> Result<T, Absent> {
    let taken = sample(source.as_mut().map_err(|why| why.clone())?);
    if let Err(why) = &taken {
        *source = Err(why.clone());
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_values_or_a_reason() {
        let mut watch = Watch::open(Err(Absent("not asked for".to_owned()))).unwrap();
        let moment = watch.sample().unwrap();
        assert!(!moment.cpus.is_empty() && moment.width_s > 0.0 && moment.look_s > 0.0);
        for (what, there) in [
            ("interfaces", !moment.interfaces.is_empty()),
            ("interrupts", !moment.interrupts.is_empty()),
            ("pressure", moment.pressure.is_some()),
            ("sockets", moment.sockets.is_some()),
        ] {
            assert!(there != moment.absent.contains_key(what), "{what}: {:?}", moment.absent);
        }
        // The counts of BPF programs are absent, and no zero stands for them.
        assert!(moment.absent["csw"].contains("not asked for"));
        assert!(moment.interrupts.iter().all(|one| one.busy_percent.is_none()));
        assert!(moment.absent["interrupt time"].contains("not asked for"));
    }

    #[test]
    fn a_source_that_fails_once_keeps_its_reason() {
        let mut source = Ok(0);
        let fail = |_: &mut i32| -> Result<i32, Absent> { Err(Absent("gone".to_owned())) };
        assert!(taken(&mut source, fail).is_err());
        assert_eq!(taken(&mut source, |one| Ok(*one)).unwrap_err().0, "gone");
    }
}
