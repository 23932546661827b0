//! Soft interrupts by kind and CPU, from `/proc/softirqs`.

use millstream_observe::proc::softirqs::{Counts, parse};

use super::ends::Ends;
use super::{Absent, Kind, Probe, Turn, rise32};
use crate::record::Probes;

pub(super) const KIND: Kind = Kind { name: "softirqs", open: |_| Ok(Box::new(Softirqs::open()?)) };

pub(super) struct Softirqs(Ends<Counts>);

impl Softirqs {
    pub(super) fn open() -> Result<Self, Absent> {
        Ends::open("/proc/softirqs", parse).map(Self)
    }
}

impl Probe for Softirqs {
    fn name(&self) -> &'static str {
        "softirqs"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        self.0.sample(turn)
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Ends { first, last, .. } = self.0;
        let risen = last.into_iter().map(|(kind, counts)| {
            let before = first.get(&kind);
            let before = |at: usize| before.and_then(|counts| counts.get(at)).copied().unwrap_or(0);
            let counts =
                counts.iter().enumerate().map(|(at, &now)| rise32(before(at), now)).collect();
            (kind, counts)
        });
        into.softirqs = Some(risen.collect());
    }
}
