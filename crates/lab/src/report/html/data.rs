//! The records inside the page.

use serde::Serialize;

use super::super::model::Model;
use crate::record::{Environment, ExperimentRecord, RunRecord};

/// Largest JSON put into a page; what goes beyond is left out by kind and named.
const SIZE_BYTES: usize = 900_000;

#[derive(Serialize)]
struct Data<'a> {
    experiment: &'a ExperimentRecord,
    runs: &'a [RunRecord],
    omitted: &'a [&'a str],
}

/// Takes something out of a run to make it smaller.
type Reduction = (&'static str, fn(&mut RunRecord));

const REDUCTIONS: [Reduction; 6] = [
    ("runs[].probes.hosts series", |run| {
        let hosts = run.probes.hosts.iter_mut().flat_map(|hosts| hosts.values_mut());
        for interface in hosts.flat_map(|host| host.interfaces.values_mut()) {
            interface.rx_bytes_series.clear();
            interface.tx_bytes_series.clear();
        }
    }),
    ("runs[].probes.engine_series and queues", |run| {
        run.probes.engine_series.clear();
        run.probes.queues = None;
    }),
    ("runs[].environment", |run| run.environment = Environment::default()),
    ("runs[].probes.interrupts series", |run| {
        for row in
            run.probes.interrupts.iter_mut().flat_map(|interrupts| interrupts.rows.iter_mut())
        {
            row.series.clear();
        }
    }),
    ("runs[].probes", |run| run.probes = Default::default()),
    ("runs[].intervals", |run| run.intervals = Default::default()),
];

/// JSON that is safe inside a script element: no `<` in it.
pub(super) fn embedded(model: &Model<'_>) -> Result<String, serde_json::Error> {
    let experiment = model.experiment;
    let mut runs = model.runs.to_vec();
    for run in &mut runs {
        if run.environment == experiment.environment {
            run.environment = Environment::default();
        }
    }
    let mut omitted: Vec<&str> = Vec::new();
    let mut reductions = REDUCTIONS.iter();
    loop {
        let text = serde_json::to_string(&Data { experiment, runs: &runs, omitted: &omitted })?;
        if text.len() <= SIZE_BYTES {
            return Ok(text.replace('<', "\\u003c"));
        }
        match reductions.next() {
            Some((name, reduce)) => {
                runs.iter_mut().for_each(reduce);
                omitted.push(name);
            }
            None => {
                omitted.push("runs");
                let text =
                    serde_json::to_string(&Data { experiment, runs: &[], omitted: &omitted })?;
                return Ok(text.replace('<', "\\u003c"));
            }
        }
    }
}
