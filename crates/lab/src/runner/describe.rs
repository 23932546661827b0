//! The record of the experiment before its first run.

use std::collections::BTreeMap;

use super::Setting;
use crate::environment;
use crate::experiment::{Definition, FACTORS};
use crate::limits;
use crate::record::{Difference, ExperimentRecord};

/// Fills in everything that is known beforehand.
pub(super) fn fill(
    experiment: &mut ExperimentRecord,
    definition: &Definition,
    setting: &Setting,
    runs: usize,
    notes: Vec<String>,
) {
    experiment.question.clone_from(&definition.question);
    experiment.repeats = definition.repeats;
    experiment.planned_runs = runs as u32;
    experiment.workloads = definition.workloads.iter().map(|w| w.name().to_owned()).collect();
    experiment.stacks.clone_from(&definition.stacks);
    for factor in FACTORS {
        let mut levels: Vec<String> = Vec::new();
        for &workload in &definition.workloads {
            if factor.workloads.contains(&workload) && definition.names(workload, factor.name) {
                levels.extend(definition.levels(workload, factor));
            }
        }
        let mut seen = Vec::new();
        levels.retain(|level| {
            !seen.contains(level) && {
                seen.push(level.clone());
                true
            }
        });
        if !levels.is_empty() {
            experiment.factors.insert(factor.name.to_owned(), levels);
        }
    }
    experiment.definition = definition.to_toml();
    experiment.command_line.clone_from(&setting.command_line);
    experiment.notes = notes;
    experiment.environment = environment::capture();
    let privilege = setting.access.privilege.name();
    experiment.environment.set("process.privilege", privilege);
    if definition.stacks.len() > 1 && setting.access.hosts.is_ok() {
        experiment.differences = differences(setting.access.tap.is_ok());
    }
}

/// What is not the same on the two sides.
fn differences(tap: bool) -> Vec<Difference> {
    let entry = |what: &str, kernel: &str, millstream: &str| Difference {
        what: what.to_owned(),
        by_stack: BTreeMap::from([
            ("kernel".to_owned(), kernel.to_owned()),
            ("millstream".to_owned(), millstream.to_owned()),
        ]),
    };
    let link = if tap {
        "a TAP device with virtio-net headers, in the far namespace"
    } else {
        "in memory, between two threads"
    };
    let peer = if tap { "the kernel, plain sockets" } else { "Millstream in the same process" };
    vec![
        entry("link", "a veth pair between two namespaces", link),
        entry("far host", "the kernel, plain sockets", peer),
        entry(
            "calls of the near host",
            "system calls: blocking send and recv for one stream, epoll for several",
            "function calls into the stack, in the application's thread unless engine=net",
        ),
        entry(
            "congestion control of the near host",
            "cubic unless asked otherwise, see TCP_INFO",
            "the stack's own, see TCP_INFO",
        ),
        entry(
            "socket buffers",
            &format!("auto-tuned up to {} MiB", limits::TCP_MEMORY_MAX_BYTES >> 20),
            "the stack's own default",
        ),
    ]
}
