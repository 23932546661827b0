//! Context switches of the machine, from `/proc/stat`.

use millstream_record::Probes;

use super::{Absent, Kind, Probe, ProcFile, Turn, rise};
use crate::proc::stat::switches;

pub(super) const KIND: Kind =
    Kind { name: "context_switches", open: |_| Ok(Box::new(Context::open()?)) };

pub(super) struct Context {
    file: ProcFile,
    last: u64,
    steps: Vec<u64>,
}

impl Context {
    pub(super) fn open() -> Result<Self, Absent> {
        Ok(Self { file: ProcFile::open("/proc/stat")?, last: 0, steps: Vec::new() })
    }
}

impl Probe for Context {
    fn name(&self) -> &'static str {
        "context_switches"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        let now = self.file.parse(switches)?;
        if turn != Turn::First {
            self.steps.push(rise(self.last, now));
        }
        self.last = now;
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        into.context_switches = Some(self.steps);
    }
}
