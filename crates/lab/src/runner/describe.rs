//! The record of the experiment before its first run.

use std::collections::BTreeMap;

use millstream_observe::environment;
use millstream_plan::{Definition, FACTORS, Factor};
use millstream_record::{Difference, ExperimentRecord};

use super::Setting;

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
    for factor in FACTORS.iter() {
        let mut levels: Vec<String> = Vec::new();
        for &workload in &definition.workloads {
            if factor.is_of(workload) && definition.names(workload, factor.name) {
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
    let has_more = definition.stacks.len() > 1 && setting.access.hosts.is_ok();
    if has_more && definition.workloads.iter().any(|workload| workload.is_routed()) {
        experiment.differences = routers();
    }
    if has_more && definition.workloads.iter().any(|workload| !workload.is_routed()) {
        let same_path = levels(definition, "path").iter().all(|level| level == "impaired");
        let links = levels(definition, "link");
        let used = links_used(&links, setting.access.tap.is_ok());
        experiment.differences.extend(differences(&used, same_path));
        experiment.differences.extend(buffers(&levels(definition, "socket_buffer_bytes")));
        let is_tap = used.contains(&"tap") && !same_path;
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

/// Returns the difference of socket buffers where the stack decides on their size; with a given
/// size they do not differ.
fn buffers(levels: &[String]) -> Option<Difference> {
    let is_own = |level: &String| level == "auto";
    let what = match levels.iter().all(is_own) {
        true => "socket buffers",
        false => "socket buffers with socket_buffer_bytes=auto",
    };
    let kernel = "auto-tuned within the system's tcp_rmem and tcp_wmem";
    levels.iter().any(is_own).then(|| entry(what, kernel, "the stack's own default"))
}

/// Returns the difference in super-segments beyond 64 KiB, where they were asked for.
fn super_segments(levels: &[String]) -> Option<Difference> {
    let is_asked = levels.iter().any(|level| level != "auto");
    let what = "super-segments beyond 64 KiB";
    let millstream = "to the far host; from it a TAP device has none";
    is_asked.then(|| entry(what, "both ways", millstream))
}

/// Millstream's links in the order of their factor's levels; without devices it has the one in
/// memory alone.
fn links_used(levels: &[String], has_devices: bool) -> Vec<&'static str> {
    let is_asked = |link: &&str| levels.iter().any(|level| level == link);
    match has_devices {
        true => ["tap", "macvtap", "memory"].into_iter().filter(is_asked).collect(),
        false => vec!["memory"],
    }
}

/// Returns the text of the first of the links `used`, and behind it every other text with the name
/// of its link. `others` is the text of links that are not in `texts`.
fn over_links(used: &[&str], texts: &[(&str, &str)], others: &str) -> String {
    let text = |link: &str| texts.iter().find(|(name, _)| *name == link).map(|(_, text)| *text);
    let mut all = String::new();
    for link in used {
        match text(link).unwrap_or(others) {
            text if all.is_empty() => all.push_str(text),
            text if all != text => all.push_str(&format!("; {text} with link={link}")),
            _ => {}
        }
    }
    all
}

/// Returns the differences between routers.
fn routers() -> Vec<Difference> {
    let entry = |what: &str, kernel: &str, millstream: &str, bare: &str| Difference {
        what: what.to_owned(),
        by_stack: [("kernel", kernel), ("millstream", millstream), ("bare", bare)]
            .map(|(stack, how)| (stack.to_owned(), how.to_owned()))
            .into(),
    };
    let links = "links of Millstream by router_link: TAP devices in the hosts, or sockets on the ends of veth pairs";
    vec![
        entry(
            "router",
            "the kernel's forwarding, on other CPUs than the near host's (RPS) unless router_cpu says near or free",
            "an engine with forwarding, in a thread on router_cpu",
            "a loop that moves frames between the same links, in a thread on router_cpu",
        ),
        entry("router's links", "the ends of veth pairs", links, links),
    ]
}

/// Returns the other differences between the two sides, where Millstream has these links.
fn differences(links: &[&str], same_path: bool) -> Vec<Difference> {
    let link = over_links(
        links,
        &[
            ("macvtap", "a macvtap device that has all of the near end of that pair"),
            ("memory", "in memory, between two threads"),
        ],
        "a TAP device in the far namespace, with virtio-net headers unless offload=off",
    );
    let peer = over_links(
        links,
        &[("memory", "Millstream in the same process")],
        "the kernel, plain sockets",
    );
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
        let told = |links: &[&str]| {
            let all = differences(links, false);
            [0, 1].map(|at| all[at].by_stack["millstream"].clone())
        };
        let [link, peer] = told(&["tap"]);
        assert!(link.starts_with("a TAP device") && !link.contains("memory"));
        assert_eq!(peer, "the kernel, plain sockets");
        let [link, peer] = told(&["tap", "macvtap", "memory"]);
        assert!(link.contains("; a macvtap device"), "{link}");
        assert!(link.ends_with("with link=memory"), "{link}");
        assert_eq!(peer.matches("kernel").count(), 1, "{peer}");
        assert!(told(&["memory"])[0].starts_with("in memory"));
        let all = ["tap", "memory"].map(str::to_owned);
        assert_eq!(links_used(&all, true), ["tap", "memory"]);
        assert_eq!(links_used(&all, false), ["memory"]);
        let memory = |set: &str| {
            let text = format!("name = \"x\"\nworkload = [\"tcp_rr\", \"tcp_stream\"]\n{set}");
            levels(&Definition::parse("x.toml", &text).unwrap(), "link")
        };
        assert_eq!(memory(""), ["tap", "tap"]);
        assert_eq!(memory("[factors.tcp_rr]\nlink = \"memory\""), ["memory", "tap"]);
    }
}
