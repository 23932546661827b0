//! The demands of a run's configuration: its link, its CPUs, its task, and the job of each end.

use millstream_load::worker::{Engine, Job, MillstreamJob, MillstreamLink, StackJob};
use millstream_load::workload::End;
use millstream_observe::probe::Absent;
use millstream_plan::{Configuration, Task};
use millstream_testbed::hosts::{PREFIX_V4, PREFIX_V6, Path};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::Run;
use crate::runner::Places;
use crate::runner::distance::Cpus;

/// CPUs of the near and of the far host: the first two that this process may use; where there is
/// one, both have that.
pub(super) fn placement(level: &str) -> (Option<usize>, Option<usize>) {
    let mut cpus = allowed_cpus();
    let first = cpus.next();
    match level {
        "same" => (first, first),
        "free" => (None, None),
        _ => (first, cpus.next().or(first)),
    }
}

/// The CPUs that this process may use.
fn allowed_cpus() -> impl Iterator<Item = usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(move |&cpu| allowed.is_set(cpu).unwrap_or(false))
}

/// CPU of a router between hosts on these CPUs, of those that are `allowed`.
fn router_cpu(
    level: &str,
    (near, far): (Option<usize>, Option<usize>),
    mut allowed: impl Iterator<Item = usize>,
) -> Option<usize> {
    match level {
        "near" => near,
        "far" => far,
        "free" => None,
        // Hosts that may be anywhere leave none for it alone.
        _ => far
            .and(near)
            .and_then(|_| allowed.find(|&cpu| ![near, far].contains(&Some(cpu))))
            .or(far),
    }
}

/// Returns the CPUs without that of a far end on another host: the program there chooses it.
pub(super) fn on_this_host(
    (near, far): (Option<usize>, Option<usize>),
    places: &Places,
) -> (Option<usize>, Option<usize>) {
    (near, far.filter(|_| places.is_one_machine()))
}

/// The CPUs of hosts that have one each.
pub(in crate::runner) fn two_cpus() -> Option<Cpus> {
    let (near, far) = placement("split");
    near.zip(far).filter(|(near, far)| near != far)
}

/// Buffers of the sockets of the near or the `far` host; `None` leaves them to its stack.
fn buffer_bytes(configuration: &Configuration, far: bool) -> Option<usize> {
    let has_own = far && configuration.level("peer_buffer_bytes") != "same";
    let factor = if has_own { "peer_buffer_bytes" } else { "socket_buffer_bytes" };
    // a word is no number
    Some(configuration.number(factor) as usize).filter(|&bytes| bytes > 0)
}

/// CPU of the thread of an engine at `end`, of the CPUs of the near and the far host. "near" is its
/// own application's, so that both ends of a pair are treated alike.
fn engine_cpu(level: &str, (near, far): (Option<usize>, Option<usize>), end: End) -> Option<usize> {
    let (own, other) = if end == End::Near { (near, far) } else { (far, near) };
    match level {
        "far" => other,
        "free" => None,
        _ => own,
    }
}

/// Returns the reason why the asked length of super-segments has no effect over this link; `None`
/// when it has one.
fn vain_super_segments(configuration: &Configuration, link: Link) -> Option<String> {
    let bytes = configuration.level("super_segment_bytes");
    let why = match link {
        _ if bytes == "auto" => return None,
        _ if configuration.level("offload") == "off" => "offload=off",
        Link::Path(Path::Impaired) => "path=impaired",
        Link::Memory => "link=memory",
        Link::Path(_) | Link::Macvtap | Link::Routed(_) | Link::There => return None,
    };
    Some(format!("super_segment_bytes={bytes} has no effect with {why}"))
}

/// Returns the remark on sockets that use another congestion control than the system's, although
/// nobody asked for it.
pub(super) fn overridden_control(configuration: &Configuration, systems: &str) -> Option<String> {
    let level = configuration.level("congestion");
    let is_asked = configuration.named.contains_key("congestion");
    (!is_asked && level != "system" && level != systems).then(|| {
        format!(
            "Sockets of both stacks were changed from {systems}, the system's congestion control, to {level}, that of an \
             experiment that names none; congestion=system keeps the system's."
        )
    })
}

/// The link between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Path(Path),
    /// The veth pair between the kernels, of which Millstream has the near end by a device over it.
    Macvtap,
    Memory,
    /// A router on a third host.
    Routed(Routed),
    /// The unknown path between addresses that are there already.
    There,
}

/// The links of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routed {
    /// Veth pairs, of which its kernel has the ends.
    Veth,
    /// TAP devices that it has made in the hosts.
    Tap,
    /// AF_XDP sockets on veth pairs.
    Xdp,
    /// Packet sockets on veth pairs.
    Packet,
}

impl Routed {
    fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Tap => "tap",
            Self::Xdp => "xdp",
            Self::Packet => "packet",
        }
    }
}

impl Link {
    pub(super) fn name(self) -> &'static str {
        match self {
            Link::Path(Path::Veth | Path::ToRouter | Path::FromRouter) => "veth",
            Link::Routed(routed) => routed.name(),
            Link::Path(Path::Tap) => "tap",
            Link::Path(Path::Impaired) => "impaired",
            Link::Macvtap => "macvtap",
            Link::Memory => "memory",
            Link::There => "there",
        }
    }
}

/// Seed of the faults: the same for every configuration of a block, so that the same packets meet
/// the same fate whatever stack sends them.
pub(super) fn path_seed(experiment: u64, block: u32) -> u64 {
    experiment.wrapping_add(u64::from(block)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11
}

impl Run<'_> {
    pub(super) fn configuration(&self) -> &Configuration {
        &self.planned.configuration
    }

    /// The CPUs whose distance decides over a run: not where a bad path is the limit, nor where the
    /// hosts have one CPU or are not bound to theirs.
    pub(super) fn cpus_between(&self) -> Option<Cpus> {
        let (near, far) = self.cpus.0.zip(self.cpus.1)?;
        (near != far && self.link() != Link::Path(Path::Impaired)).then_some((near, far))
    }

    /// Returns the CPUs whose distance is watched while the run goes; an error is the reason why
    /// none is.
    pub(super) fn cpus_watched(&self) -> Result<Cpus, Absent> {
        let absent = |reason: &str| Err(Absent(reason.to_owned()));
        match (self.cpus, self.cpus_between()) {
            _ if self.configuration().named.contains_key("idle_latency_us") => {
                absent("how CPUs sleep is what is measured (idle_latency_us)")
            }
            (_, Some(cpus)) => Ok(cpus),
            _ if self.link() == Link::Path(Path::Impaired) => absent("not over the impaired path"),
            ((Some(cpu), Some(_)), _) => absent(&format!("both hosts have CPU {cpu}")),
            _ => absent("the hosts are not bound to CPUs"),
        }
    }

    pub(super) fn link(&self) -> Link {
        match self.configuration().stack.as_str() {
            _ if matches!(self.setting.places, Places::There(_)) => Link::There,
            stack if self.configuration().workload.is_routed() => Link::Routed(match stack {
                "kernel" => Routed::Veth,
                _ => match self.configuration().level("router_link") {
                    "xdp" => Routed::Xdp,
                    "packet" => Routed::Packet,
                    _ => Routed::Tap,
                },
            }),
            _ if self.configuration().level("path") == "impaired" => Link::Path(Path::Impaired),
            "kernel" => Link::Path(Path::Veth),
            _ if self.configuration().level("link") == "memory" => Link::Memory,
            _ if self.setting.access.tap.is_err() => Link::Memory,
            _ if self.configuration().level("link") == "macvtap" => Link::Macvtap,
            _ => Link::Path(Path::Tap),
        }
    }

    pub(super) fn task(&self) -> Task {
        let Configuration { workload, named, settings, .. } = self.configuration();
        let levels = settings.iter().chain(named);
        Task::new(*workload, levels.map(|(name, level)| (name.as_str(), level.as_str())))
    }

    /// Returns the task of an end. The factor `api` is for the near host, and for Millstream at the
    /// far one; a kernel at the far end copies.
    pub(super) fn task_of(&self, end: Option<End>, stack: &StackJob) -> Task {
        match end == Some(End::Far) && matches!(stack, StackJob::Kernel) {
            true => self.task().with("api", "copy"),
            false => self.task(),
        }
    }

    pub(super) fn job(&self, end: Option<End>, stack: StackJob) -> Job {
        let (near, far) = self.cpus;
        Job {
            end,
            task: self.task_of(end, &stack),
            stack,
            cpu: if end == Some(End::Far) { far } else { near },
            far_cpu: far,
            engine_cpu: self.engine_cpu(end.unwrap_or(End::Near)),
            far_engine_cpu: self.engine_cpu(End::Far),
            buffer_bytes: self.buffer_bytes(end),
            congestion: Some(self.configuration().level("congestion").to_owned())
                .filter(|name| name != "system"),
            source: match &self.setting.places {
                Places::There(addresses) if end == Some(End::Near) => addresses.near,
                _ => None,
            },
        }
    }

    /// Buffers of the sockets of an end; `None` leaves them to its stack.
    pub(super) fn buffer_bytes(&self, end: Option<End>) -> Option<usize> {
        buffer_bytes(self.configuration(), end == Some(End::Far))
    }

    /// Returns true when the engine runs in a thread of its own.
    pub(super) fn has_engine_thread(&self) -> bool {
        let configuration = self.configuration();
        configuration.stack == "millstream" && configuration.level("engine") == "net"
    }

    /// CPU of the thread of an end's engine.
    pub(super) fn engine_cpu(&self, end: End) -> Option<usize> {
        engine_cpu(self.configuration().level("engine_cpu"), self.cpus, end)
    }

    /// Returns true when Millstream is the far host's stack, too.
    pub(super) fn far_is_millstream(&self) -> bool {
        match self.link() {
            Link::Memory => true,
            Link::Path(Path::Impaired) => self.configuration().level("peer") == "millstream",
            Link::Path(_) | Link::Macvtap | Link::Routed(_) | Link::There => false,
        }
    }

    /// Returns true when the router is no stack at all, but a bare loop.
    pub(super) fn is_bare(&self) -> bool {
        self.configuration().stack == "bare"
    }

    /// CPU of the router's thread.
    pub(super) fn router_cpu(&self) -> Option<usize> {
        router_cpu(self.configuration().level("router_cpu"), self.cpus, allowed_cpus())
    }

    pub(super) fn v6(&self) -> bool {
        self.configuration().level("ip") == "v6"
    }

    pub(super) fn mtu(&self) -> u32 {
        self.configuration().number("mtu") as u32
    }

    pub(super) fn offload(&self) -> bool {
        self.configuration().level("offload") == "on"
    }

    /// The longest super-segment, where the devices' own limit is not kept.
    pub(super) fn super_segment_bytes(&self) -> Option<u32> {
        self.configuration().level("super_segment_bytes").parse().ok().filter(|_| self.offload())
    }

    /// Returns the reason why the asked length of super-segments has no effect in this run; `None`
    /// when it has one.
    pub(super) fn vain_super_segments(&self) -> Option<String> {
        vain_super_segments(self.configuration(), self.link())
    }

    /// Millstream with the address of host `number` on `path`; the far end is host 2.
    pub(super) fn millstream(&self, link: MillstreamLink, path: Path, number: u8) -> StackJob {
        let local = self.configuration().level("engine") == "local";
        let both = |host: u8| {
            vec![(path.address(false, host), PREFIX_V4), (path.address(true, host), PREFIX_V6)]
        };
        StackJob::Millstream(MillstreamJob {
            engine: if local { Engine::Local } else { Engine::Net },
            link,
            mtu: self.mtu(),
            offload: self.offload(),
            super_segment_bytes: self.super_segment_bytes(),
            addresses: both(number),
            far_addresses: both(2),
            live: self.configuration().workload.is_watched(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_plan::Workload;

    #[test]
    fn an_engine_is_on_the_cpu_of_its_own_application_at_either_end() {
        let cpus =
            |level| [End::Near, End::Far].map(|end| engine_cpu(level, (Some(4), Some(7)), end));
        assert_eq!(cpus("near"), [Some(4), Some(7)]);
        assert_eq!(cpus("far"), [Some(7), Some(4)]);
        assert_eq!(cpus("free"), [None, None]);
    }

    #[test]
    fn a_router_has_a_cpu_of_its_own_where_there_is_one() {
        let cpu =
            |level, near, far| router_cpu(level, (Some(near), Some(far)), [0, 1, 2].into_iter());
        assert_eq!(cpu("own", 0, 1), Some(2));
        assert_eq!(cpu("own", 0, 0), Some(1));
        assert_eq!((cpu("near", 0, 1), cpu("far", 0, 1)), (Some(0), Some(1)));
        assert_eq!(cpu("free", 0, 1), None);
        assert_eq!(router_cpu("own", (Some(0), Some(1)), [0, 1].into_iter()), Some(1));
        assert_eq!(router_cpu("own", (None, None), [0, 1].into_iter()), None);
    }

    #[test]
    fn a_congestion_control_that_nobody_asked_for_is_said_where_the_system_has_another() {
        let note = |named: Option<&str>, systems: &str| {
            let named = named.map(|level| ("congestion".to_owned(), level.to_owned()));
            let configuration = Configuration {
                workload: Workload::of("tcp_stream").unwrap(),
                stack: "kernel".into(),
                named: named.into_iter().collect(),
                settings: [("congestion".to_owned(), "cubic".to_owned())].into(),
            };
            overridden_control(&configuration, systems)
        };
        let said = note(None, "bbr").unwrap();
        assert!(said.contains("from bbr") && said.contains("to cubic"), "{said}");
        assert_eq!(note(None, "cubic"), None);
        assert_eq!(note(Some("cubic"), "bbr"), None);
        assert_eq!(note(Some("system"), "bbr"), None);
    }

    #[test]
    fn a_length_of_super_segments_that_says_nothing_is_noted() {
        let note = |bytes: &str, offload: &str, link| {
            let levels = [("super_segment_bytes", bytes), ("offload", offload)];
            let configuration = Configuration {
                workload: Workload::of("tcp_stream").unwrap(),
                stack: "millstream".into(),
                named: levels.map(|(factor, level)| (factor.into(), level.into())).into(),
                settings: [].into(),
            };
            vain_super_segments(&configuration, link)
        };
        let tap = Link::Path(Path::Tap);
        assert_eq!(note("262144", "on", tap), None);
        assert_eq!(note("262144", "on", Link::Macvtap), None);
        assert_eq!(note("auto", "off", Link::Memory), None);
        for (offload, link, why) in [
            ("off", tap, "offload=off"),
            ("on", Link::Path(Path::Impaired), "path=impaired"),
            ("on", Link::Memory, "link=memory"),
        ] {
            assert!(note("262144", offload, link).is_some_and(|note| note.ends_with(why)));
        }
    }

    #[test]
    fn the_far_host_has_buffers_of_its_own_where_they_are_asked_for() {
        let buffers = |near: &str, far: &str| {
            let levels = [("socket_buffer_bytes", near), ("peer_buffer_bytes", far)];
            let configuration = Configuration {
                workload: Workload::of("tcp_stream").unwrap(),
                stack: "millstream".into(),
                named: levels.map(|(factor, level)| (factor.into(), level.into())).into(),
                settings: [].into(),
            };
            (buffer_bytes(&configuration, false), buffer_bytes(&configuration, true))
        };
        assert_eq!(buffers("auto", "same"), (None, None));
        assert_eq!(buffers("65536", "same"), (Some(65536), Some(65536)));
        assert_eq!(buffers("65536", "auto"), (Some(65536), None));
        assert_eq!(buffers("auto", "65536"), (None, Some(65536)));
    }
}
