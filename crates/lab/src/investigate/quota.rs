//! The CPU quotas of the control groups in which the ends run: how long they were held back, and
//! where a quota is set.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use millstream_record::Throttling;

/// Looks between two reads: what is counted only rises.
const EVERY: u32 = 10;

/// The throttled time of each group with a quota, at the first and at the last reading.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    looks: u32,
    groups: BTreeMap<PathBuf, (f64, f64)>,
    is_known: bool,
}

impl Quotas {
    /// Looks at the groups of these processes, every tenth time.
    pub(super) fn look<'a>(&mut self, pids: impl Iterator<Item = &'a u32>) {
        self.looks += 1;
        if self.looks % EVERY != 1 {
            return;
        }
        for pid in pids {
            let Ok(text) = fs::read(format!("/proc/{pid}/cgroup")) else { continue };
            for folder in folders(&text) {
                let Some(now) = throttled_s(&folder) else { continue };
                self.is_known = true;
                self.groups.entry(folder).or_insert((now, now)).1 = now;
            }
        }
    }

    /// The file that holds the quota of the group that was held back longest, and for how long;
    /// `None` where no group of theirs counts that.
    pub(super) fn finish(mut self) -> Option<Throttling> {
        for (folder, (_, last)) in &mut self.groups {
            *last = throttled_s(folder).unwrap_or(*last);
        }
        let longest = self.groups.iter().max_by(|a, b| {
            let of = |(first, last): (f64, f64)| last - first;
            of(*a.1).total_cmp(&of(*b.1))
        });
        match longest {
            Some((folder, (first, last))) if last > first => Some(Throttling {
                throttled_s: last - first,
                quota_file: quota_file(folder).map(|path| path.display().to_string()),
            }),
            _ => self.is_known.then(Throttling::default),
        }
    }
}

/// The folders of a process's groups that have a quota, itself and all above: the line of version
/// 2, or of `cpu`.
fn folders(text: &[u8]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        // A group beyond those that this process sees: nothing above the root is one.
        if path.split(|byte| *byte == b'/').any(|part| part == b"..") {
            continue;
        }
        let roots: &[&str] = match controllers {
            b"" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            _ if controllers.split(|byte| *byte == b',').any(|one| one == b"cpu") => {
                &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
            }
            _ => continue,
        };
        for root in roots {
            // A group's name is of any bytes, as that of a folder.
            let below = path.strip_prefix(b"/").unwrap_or(path);
            let mut at = Path::new(root).join(OsStr::from_bytes(below));
            while at.starts_with(root) {
                if quota_file(&at).is_some() {
                    all.push(at.clone());
                }
                if !at.pop() {
                    break;
                }
            }
        }
    }
    all
}

fn quota_file(folder: &Path) -> Option<PathBuf> {
    ["cpu.max", "cpu.cfs_quota_us"]
        .map(|name| folder.join(name))
        .into_iter()
        .find(|path| path.exists())
}

/// `throttled_usec` of version 2, `throttled_time` of version 1 in nanoseconds
/// (Documentation/scheduler/sched-bwc.rst).
fn throttled_s(folder: &Path) -> Option<f64> {
    of_stat(&millstream_foreign::read(folder.join("cpu.stat")).ok()?)
}

fn of_stat(text: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        let scale = match name {
            "throttled_usec" => 1e-6,
            "throttled_time" => 1e-9,
            _ => return None,
        };
        Some(number.trim().parse::<f64>().ok()? * scale)
    })
}

/// The text which, written to the file of a control group's quota, lifts the quota.
pub(super) fn no_quota(file: &Path) -> &'static str {
    match file.file_name().is_some_and(|name| name == "cpu.max") {
        true => "max",
        false => "-1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_how_long_a_group_was_held_back() {
        assert_eq!(of_stat("nr_periods 1\nthrottled_usec 2500000\n"), Some(2.5));
        assert_eq!(of_stat("nr_periods 1\nthrottled_time 2500000000\n"), Some(2.5));
        assert_eq!(of_stat("usage_usec 1\n"), None);
        assert_eq!(no_quota(Path::new("/x/cpu.max")), "max");
        assert_eq!(no_quota(Path::new("/x/cpu.cfs_quota_us")), "-1");
        assert!(folders(b"nonsense\n3:memory:/\n").is_empty());
        // The group is outside, and another user may have chosen its name.
        let outside = std::env::temp_dir().join(format!("ms-group-{}", std::process::id()));
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("cpu.max"), "1000 100000").unwrap();
        let path = format!("/sys/fs/cgroup/../../../{}", outside.display());
        assert!(Path::new(&path).exists());
        let found = folders(format!("0::/../../../{}\n", outside.display()).as_bytes());
        fs::remove_dir_all(outside).unwrap();
        assert_eq!(found, Vec::<PathBuf>::new());
    }
}
