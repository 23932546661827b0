//! Context switches of the machine, from `/proc/stat`.

use super::{Absent, Probe, ProcFile, Turn, rise};
use crate::record::Probes;

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
        let now = self.file.parse(parse)?;
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

pub(super) fn parse(text: &str) -> Result<u64, String> {
    let count = text.lines().find_map(|line| line.strip_prefix("ctxt "));
    let count = count.ok_or("no line ctxt")?;
    count.trim().parse().map_err(|_| format!("odd number {count:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_ctxt_is_taken() {
        assert_eq!(parse(include_str!("samples/stat.txt")), Ok(468_073));
        assert!(parse("cpu 1\n").is_err());
        assert!(parse("ctxt many\n").is_err());
    }
}
