//! The record of the experiment before its first run.

use std::collections::BTreeMap;

use super::Setting;
use crate::environment;
use crate::experiment::{Definition, FACTORS, Factor};
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
        let impaired = |&workload| {
            let path = Factor::of("path").map(|path| definition.levels(workload, path));
            path.is_some_and(|levels| levels.iter().all(|level| level == "impaired"))
        };
        let same_path = definition.workloads.iter().all(impaired);
        experiment.differences = differences(setting.access.tap.is_ok(), same_path);
    }
}

/// What is not the same on the two sides.
fn differences(tap: bool, same_path: bool) -> Vec<Difference> {
    let entry = |what: &str, kernel: &str, millstream: &str| Difference {
        what: what.to_owned(),
        by_stack: BTreeMap::from([
            ("kernel".to_owned(), kernel.to_owned()),
            ("millstream".to_owned(), millstream.to_owned()),
        ]),
    };
    let link = if tap {
        "a TAP device in the far namespace, with virtio-net headers unless offload=off"
    } else {
        "in memory, between two threads"
    };
    let peer = if tap { "the kernel, plain sockets" } else { "Millstream in the same process" };
    let paths = match same_path {
        true => vec![entry(
            "access to the path",
            "the interface of a TAP device",
            "a packet socket on that interface",
        )],
        false => vec![
            entry("link", "a veth pair between two namespaces", link),
            entry("far host", "the kernel, plain sockets", peer),
        ],
    };
    let ends = vec![
        entry(
            "calls of the near host",
            "system calls: blocking send and recv for one stream, epoll for several; sendfile with api=zero-copy",
            "function calls into the stack, in the application's thread unless engine=net",
        ),
        entry(
            "congestion control",
            "Linux's: its bbr is version 1",
            "the stack's own: its bbr is version 3",
        ),
        entry(
            "socket buffers",
            &format!("auto-tuned up to {} MiB", limits::TCP_MEMORY_MAX_BYTES >> 20),
            "the stack's own default",
        ),
    ];
    paths.into_iter().chain(ends).collect()
}
