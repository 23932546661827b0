//! Packets that the kernel dropped, by its own reason: the tracepoint of packets that are freed
//! before their time.

use std::os::fd::{AsRawFd, OwnedFd};

use millstream_record::Kind::Counter;
use millstream_record::{Column, Key};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::counters::{Counters, Rows};
use super::kernel::kernel;
use super::{Absent, Kind, ProcFile, rise};

/// The place of tracefs where somebody has mounted it.
const TRACEFS: &str = "/sys/kernel/tracing";
/// The file there with the kernel's words for its reasons.
const FORMAT: &str = "events/skb/kfree_skb/format";

static COLUMNS: [Column; 1] =
    [Column::new("packets", "packets", Counter, "Packets that the kernel dropped for it.")];

pub(super) const KIND: Kind = Kind {
    name: "drops",
    open: |_| {
        let kernel = kernel()?;
        kernel.drops()?;
        let names = names()?;
        let name = move |reason: usize| {
            let known = names.iter().find(|(number, _)| *number == reason);
            known.map_or_else(|| format!("reason {reason}"), |(_, name)| name.clone())
        };
        let read = move || -> Result<Rows, Absent> {
            let counts = kernel.drops()?.into_iter().enumerate();
            let dropped = counts.filter(|(_, count)| *count > 0);
            Ok(dropped.map(|(reason, count)| (name(reason), vec![count])).collect())
        };
        let columns = COLUMNS.iter().cloned();
        Ok(Counters::boxed("drops", Key::Reason, columns, rise, Box::new(read)))
    },
};

/// Returns numbers and names of the reasons.
fn names() -> Result<Vec<(usize, String)>, Absent> {
    let at = |folder: &str| ProcFile::open(format!("{folder}/{FORMAT}"))?.parse(parse);
    at(TRACEFS).or_else(|why| {
        let own = unplaced_tracefs().map_err(|_| why)?;
        at(&format!("/proc/self/fd/{}", own.as_raw_fd()))
    })
}

/// Returns a tracefs that is mounted at no place, and is gone with this descriptor: not every
/// machine has one mounted, and nobody else sees this one.
fn unplaced_tracefs() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// Returns numbers and names of the reasons in the text of their format: `{ 12, "NETFILTER_DROP" }`.
fn parse(text: &str) -> Result<Vec<(usize, String)>, String> {
    let one = |part: &str| {
        let (number, rest) = part.trim().split_once(", \"")?;
        Some((number.parse().ok()?, rest.split_once('"')?.0.to_owned()))
    };
    let found: Vec<_> = text.split('{').filter_map(one).collect();
    if found.is_empty() { Err("no names of reasons".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_of_the_kernel() {
        let text = r#"print fmt: "skbaddr=%p reason: %s", REC->skbaddr, __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 12, "NETFILTER_DROP" })"#;
        let expected = [(2, "NOT_SPECIFIED"), (12, "NETFILTER_DROP")];
        assert_eq!(parse(text).unwrap(), expected.map(|(at, name)| (at, name.to_owned())));
        assert!(parse("print fmt: \"skbaddr=%p\"").is_err());
    }

    #[test]
    fn names_are_found_where_nobody_has_mounted_tracefs() {
        let Ok(own) = unplaced_tracefs() else { return eprintln!("skipped: it needs root") };
        let path = format!("/proc/self/fd/{}/{FORMAT}", own.as_raw_fd());
        let found = ProcFile::open(path).unwrap().parse(parse).unwrap();
        assert!(found.iter().any(|(_, name)| name == "NO_SOCKET"), "{found:?}");
        assert_eq!(names().unwrap(), found);
    }
}
