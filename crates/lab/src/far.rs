//! The measurements of a far host, put into the record of a run.

use millstream_load::remote::{Clock, FarSide};
use millstream_record::{Probes, RunRecord};

/// Adds them, or why they are missing, in the times of this host's run, which began at `origin_ns`
/// of its CLOCK_MONOTONIC.
pub(crate) fn add(found: Result<(FarSide, Clock), String>, origin_ns: u64, record: &mut RunRecord) {
    let (side, clock) = match found {
        Ok(found) => found,
        Err(why) => {
            return record.notes.push(format!("The far host's probes are missing: {why}."));
        }
    };
    let FarSide { mut probes, origin_ns: theirs_ns, environment, interfaces } = side;
    let later_s = (clock.ours(theirs_ns) as f64 - origin_ns as f64) / 1e9;
    probes.times_s.iter_mut().for_each(|at_s| *at_s += later_s);
    for (name, value) in environment.facts {
        record.environment.set(format!("far.{name}"), value);
    }
    let unsure_us = clock.unsure_ns as f64 / 1e3;
    record.environment.set("far.clock_unsure_us", format!("{unsure_us:.1}"));
    for (name, bytes) in interfaces {
        let text = format!("{} received, {} sent", bytes.rx_bytes, bytes.tx_bytes);
        record.environment.set(format!("far.interface.{name}.bytes"), text);
    }
    record.far_probes = Some(Box::new(Probes { ends: None, ..probes }));
}
