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
    experiment.steady_cpus = definition.steady_cpus;
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
        let same_path = levels(definition, "path").iter().all(|level| level == "impaired");
        let links = levels(definition, "link");
        let memory = links.iter().any(|link| link == "memory") || setting.access.tap.is_err();
        let tap = links.iter().any(|link| link == "tap") && setting.access.tap.is_ok();
        experiment.differences = differences(tap, memory, same_path);
        experiment.differences.extend(buffers(&levels(definition, "socket_buffer_bytes")));
        let is_tap = tap && !same_path;
        let long = levels(definition, "super_segment_bytes");
        experiment.differences.extend(super_segments(&long).filter(|_| is_tap));
    }
}

/// The levels that a factor has in any of the workloads.
fn levels(definition: &Definition, factor: &str) -> Vec<String> {
    let factor = Factor::of(factor);
    let of = |&workload| factor.map(|factor| definition.levels(workload, factor));
    definition.workloads.iter().filter_map(of).flatten().collect()
}

fn entry(what: &str, kernel: &str, millstream: &str) -> Difference {
    Difference {
        what: what.to_owned(),
        by_stack: BTreeMap::from([
            ("kernel".to_owned(), kernel.to_owned()),
            ("millstream".to_owned(), millstream.to_owned()),
        ]),
    }
}

/// How sockets have their buffers where the stack decides; of one size that is given they are the same.
fn buffers(levels: &[String]) -> Option<Difference> {
    let is_own = |level: &String| level == "auto";
    let what = match levels.iter().all(is_own) {
        true => "socket buffers",
        false => "socket buffers with socket_buffer_bytes=auto",
    };
    let kernel = format!("auto-tuned up to {} MiB", limits::TCP_MEMORY_MAX_BYTES >> 20);
    levels.iter().any(is_own).then(|| entry(what, &kernel, "the stack's own default"))
}

/// Which ways super-segments beyond those of 64 KiB pass where they were asked for.
fn super_segments(levels: &[String]) -> Option<Difference> {
    let is_asked = levels.iter().any(|level| level != "auto");
    let what = "super-segments beyond 64 KiB";
    let millstream = "to the far host; from it a TAP device has none";
    is_asked.then(|| entry(what, "both ways", millstream))
}

/// What else is not the same on the two sides, where Millstream's link is a TAP device, in memory, or each in some runs.
fn differences(tap: bool, memory: bool, same_path: bool) -> Vec<Difference> {
    let of = |over_tap: &str, in_memory: &str| match (tap, memory) {
        (true, false) => over_tap.to_owned(),
        (true, true) => format!("{over_tap}; {in_memory} with link=memory"),
        (false, _) => in_memory.to_owned(),
    };
    let link = of(
        "a TAP device in the far namespace, with virtio-net headers unless offload=off",
        "in memory, between two threads",
    );
    let peer = of("the kernel, plain sockets", "Millstream in the same process");
    let paths = match same_path {
        true => vec![entry(
            "access to the path",
            "the interface of a TAP device",
            "a packet socket on that interface",
        )],
        false => vec![
            entry("link", "a veth pair between two namespaces", &link),
            entry("far host", "the kernel, plain sockets", &peer),
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
    ];
    paths.into_iter().chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_differ_where_the_stacks_choose_them() {
        let what = |asked: &[&str]| {
            buffers(&asked.iter().map(|&level| level.to_owned()).collect::<Vec<_>>())
                .map(|difference| difference.what)
        };
        assert_eq!(what(&["auto", "auto"]).as_deref(), Some("socket buffers"));
        assert!(what(&["262144", "auto"]).is_some_and(|what| what.contains("=auto")));
        assert_eq!(what(&["262144"]), None);
    }

    #[test]
    fn long_super_segments_are_told_of_where_they_were_asked_for() {
        let levels = |all: &[&str]| all.iter().map(|&level| level.to_owned()).collect::<Vec<_>>();
        assert_eq!(super_segments(&levels(&["auto", "auto"])), None);
        let found = super_segments(&levels(&["auto", "262144"])).unwrap();
        assert!(found.by_stack["millstream"].contains("a TAP device has none"));
    }

    #[test]
    fn the_link_that_was_asked_for_is_what_differs() {
        let link = |tap, memory| differences(tap, memory, false)[0].by_stack["millstream"].clone();
        assert!(
            link(true, false).starts_with("a TAP device") && !link(true, false).contains("memory")
        );
        assert!(link(true, true).contains("TAP") && link(true, true).ends_with("with link=memory"));
        assert!(link(false, true).starts_with("in memory"));
        let memory = |set: &str| {
            let text = format!("name = \"x\"\nworkload = [\"tcp_rr\", \"tcp_stream\"]\n{set}");
            levels(&Definition::parse("x.toml", &text).unwrap(), "link")
        };
        assert_eq!(memory(""), ["tap", "tap"]);
        assert_eq!(memory("[factors.tcp_rr]\nlink = \"memory\""), ["memory", "tap"]);
    }
}
