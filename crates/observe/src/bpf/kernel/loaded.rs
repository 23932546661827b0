//! The programs that are loaded, of whoever has loaded them.

use aya::programs::{SchedClassifier, TcAttachType, loaded_programs};

use crate::bpf::LoadedProgram;

/// Types of programs that look at packets, by their numbers in bpf(2): classifiers and actions of
/// tc(8), XDP, and those of control groups.
const LOOKING: [u32; 4] = [3, 4, 6, OF_CONTROL_GROUPS];
const OF_CONTROL_GROUPS: u32 = 8;

/// Returns those that look at packets; none where they may not be asked for.
pub fn packet_programs() -> Vec<LoadedProgram> {
    let known = loaded_programs().filter_map(|one| {
        let one = one.ok()?;
        let kind = one.program_type() as u32;
        LOOKING.contains(&kind).then(|| LoadedProgram {
            number: one.id(),
            name: millstream_foreign::shown(one.name()),
            is_of_control_groups: kind == OF_CONTROL_GROUPS,
        })
    });
    known.collect()
}

/// Returns the programs at the tcx hooks of an interface of the namespace that the calling thread
/// is in: the hook and the number of each. None where they may not be asked for.
pub fn tcx_programs(interface: &str) -> Vec<(&'static str, u32)> {
    let hooks = [("ingress", TcAttachType::Ingress), ("egress", TcAttachType::Egress)];
    let at = |(name, hook)| {
        let found = SchedClassifier::query_tcx(interface, hook);
        found.into_iter().flat_map(|(_, all)| all).map(move |one| (name, one.id()))
    };
    hooks.into_iter().flat_map(at).collect()
}
