//! Where segments are: a directory in memory that its owner alone may read.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Damage, LiveError};
use crate::file::{SEGMENT, SOCKET, UNFINISHED, open_regular};
use crate::segment::Segment;

/// Files of a directory that are looked at; others are left alone.
const FILES_MOST: usize = 4096;

/// A file without a segment is no engine's that is being made when it is older.
const MAKING: Duration = Duration::from_secs(60);

/// The variable that says which directory it is instead of those that are looked for.
const VARIABLE: &str = "MILLSTREAM_LIVE_DIR";

/// A directory for segments. It is of mode 0700 and of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
    uid: u32,
}

/// A segment of a directory.
#[derive(Debug)]
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// It, or why it cannot be read.
    pub segment: Result<Segment, Damage>,
}

/// Segments that were removed because their engines ended without removing them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Their files.
    pub removed: Vec<PathBuf>,
}

impl Directory {
    /// Returns the directory in which engines of user `uid` publish: the one that
    /// `MILLSTREAM_LIVE_DIR` names, or else the first that is in memory, and that nobody else has
    /// taken, of `/run/millstream` (of root), `$XDG_RUNTIME_DIR/millstream` (of others),
    /// `/run/user/UID/millstream` and `/dev/shm/millstream-UID`. It is made where it is missing.
    ///
    /// # Errors
    /// When there is none, or it is not this user's alone: why each of them is not.
    pub fn of_user(uid: u32) -> Result<Self, LiveError> {
        if let Some(path) = set(VARIABLE) {
            return Self::at(path, uid);
        }
        let mut refused = Vec::new();
        for path in candidates(uid) {
            let parent = path.parent().unwrap_or(&path);
            if !is_in_memory(parent) {
                continue;
            }
            match Self::at(&path, uid) {
                Ok(directory) => return Ok(directory),
                Err(error) => refused.push(error.to_string()),
            }
        }
        if refused.is_empty() {
            refused.push("none of them is on a file system in memory".to_owned());
        }
        Err(LiveError::NoDirectory(refused.join("; ")))
    }

    /// Returns this directory, which is made where it is missing. On a disk it would have engines
    /// wait for the disk.
    ///
    /// # Errors
    /// When it cannot be made, or is not user `uid`'s alone.
    pub fn at(path: impl Into<PathBuf>, uid: u32) -> Result<Self, LiveError> {
        let path = path.into();
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(LiveError::file(path)(error)),
        }
        Self::existing(path, uid)
    }

    /// Returns all directories that engines of user `uid` may have published in, as far as they are
    /// there: a reader's environment may be another than the engine's.
    pub fn all_of_user(uid: u32) -> Vec<Self> {
        let paths = set(VARIABLE).map_or_else(|| candidates(uid), |path| vec![path]);
        paths.into_iter().filter_map(|path| Self::existing(path, uid).ok()).collect()
    }

    /// Returns a directory that is there and user `uid`'s alone, and that nobody else can replace.
    fn existing(path: PathBuf, uid: u32) -> Result<Self, LiveError> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let meta = match options.open(&path).map(|opened| opened.metadata()) {
            // A link, or no directory.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {
                return Err(LiveError::Unsafe { path, why: "it is no directory".to_owned() });
            }
            opened => opened.and_then(|meta| meta).map_err(LiveError::file(&path))?,
        };
        let whole = fs::canonicalize(&path).map_err(LiveError::file(&path))?;
        let why = match &meta {
            meta if meta.uid() != uid => Some(format!("it belongs to user {}", meta.uid())),
            meta if meta.mode() & 0o077 != 0 => {
                Some("others may read or change it; chmod 700".to_owned())
            }
            _ => exchanged_by(&whole, uid),
        };
        match why {
            Some(why) => Err(LiveError::Unsafe { path, why }),
            None => Ok(Self { path: whole, uid }),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its owner.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Removes the segments of engines that have ended, and returns the others in order of their
    /// names. One that cannot be read comes with the reason.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn engines(&self) -> io::Result<Vec<Found>> {
        self.sweep()?;
        let open = |path: PathBuf| {
            let segment = Segment::open(&path, self.uid);
            Found { path, segment }
        };
        let mut found: Vec<Found> =
            self.files()?.into_iter().filter(|path| is_segment(path)).map(open).collect();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Removes what engines have left that have ended without removing it: segments whose lock
    /// nobody holds, with their control sockets.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn sweep(&self) -> io::Result<Swept> {
        let mut swept = Swept::default();
        for path in self.files()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_stale = match () {
                () if is_segment(&path) => self.remove_if_ended(&path, Duration::ZERO),
                () if name.starts_with(UNFINISHED) => self.remove_if_ended(&path, MAKING),
                () if path.extension().is_some_and(|end| end == SOCKET) => {
                    !path.with_extension(SEGMENT).exists()
                        && age(&path).is_some_and(|age| age > MAKING)
                        && fs::remove_file(&path).is_ok()
                }
                () => false,
            };
            if is_stale {
                swept.removed.push(path);
            }
        }
        Ok(swept)
    }

    /// Removes a segment that no engine holds and that is older than `age`.
    fn remove_if_ended(&self, path: &Path, older: Duration) -> bool {
        let Ok(file) = open_regular(path, self.uid) else { return false };
        if !older.is_zero() && age(path).is_none_or(|age| age < older) {
            return false;
        }
        // The lock is kept until the file is gone. So nobody else removes it, and another engine
        // can take its name only afterwards.
        if file.try_lock().is_err() {
            return false;
        }
        let is_same = |meta: fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == meta.ino());
        if !fs::symlink_metadata(path).is_ok_and(is_same) {
            return false;
        }
        let _ = fs::remove_file(path.with_extension(SOCKET));
        fs::remove_file(path).is_ok()
    }

    /// Returns its files, [`FILES_MOST`] at most.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.path)?.take(FILES_MOST);
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
    }
}

/// Returns a variable of the environment that is not empty.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns whether root of the host sees this, to whom a user's environment may come by `su` or
/// `sudo -E`, and not root of a user's own namespace, to whom nothing above belongs to anybody.
fn is_of_the_host() -> bool {
    fs::metadata("/").is_ok_and(|root| root.uid() == 0)
}

fn candidates(uid: u32) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let is_root = uid == 0 && is_of_the_host();
    match set("XDG_RUNTIME_DIR").filter(|_| !is_root) {
        Some(path) => paths.push(path.join("millstream")),
        None if uid == 0 => paths.push("/run/millstream".into()),
        None => {}
    }
    paths.push(format!("/run/user/{uid}/millstream").into());
    paths.push(format!("/dev/shm/millstream-{uid}").into());
    paths.dedup();
    paths
}

/// Returns why somebody besides user `uid` can put another directory in the place of this one,
/// which has no links in its path.
fn exchanged_by(path: &Path, uid: u32) -> Option<String> {
    let above = path.ancestors().skip(1).filter(|_| is_of_the_host());
    above.filter_map(|folder| Some((folder, fs::metadata(folder).ok()?))).find_map(
        |(folder, meta)| {
            let folder = folder.display();
            if meta.uid() != 0 && meta.uid() != uid {
                return Some(format!("{folder} belongs to user {}", meta.uid()));
            }
            // In a sticky one everybody exchanges his own alone.
            let is_open = meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0;
            is_open.then(|| format!("others may write {folder}"))
        },
    )
}

fn is_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    !name.starts_with('.') && path.extension().is_some_and(|end| end == SEGMENT)
}

fn age(path: &Path) -> Option<Duration> {
    fs::symlink_metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// Returns true if `path` is in memory, as far as the list of mounts tells.
fn is_in_memory(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    let device = meta.dev();
    // As `makedev` of Linux has it.
    let major = (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    let device = format!("{major}:{minor}");
    let mounts = millstream_foreign::read("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| is_memory_mount(line, &device))
}

/// Returns true if a line of `mountinfo` describes this device, and it is memory
/// (proc_pid_mountinfo(5)).
fn is_memory_mount(line: &str, device: &str) -> bool {
    let (before, after) = line.split_once(" - ").unwrap_or_default();
    let kind = after.split(' ').next().unwrap_or_default();
    before.split(' ').nth(2) == Some(device) && matches!(kind, "tmpfs" | "ramfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_another_user_can_exchange_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let uid = fs::metadata("/proc/self").expect("itself").uid();
        let above = std::env::temp_dir().join(format!("millstream-above-{}", std::process::id()));
        let inner = above.join("inner");
        fs::create_dir(&above).expect("made");
        assert!(Directory::at(&inner, uid).is_ok());
        let why = || match Directory::at(&inner, uid) {
            Err(LiveError::Unsafe { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        let chmod = |mode| fs::set_permissions(&above, fs::Permissions::from_mode(mode));
        for mode in [0o777, 0o770, 0o702] {
            chmod(mode).expect("set");
            assert!(why().contains("others may write"), "{mode:o}");
        }
        chmod(0o1777).expect("set");
        assert!(Directory::at(&inner, uid).is_ok(), "as /tmp and /dev/shm are");
        if uid == 0 {
            chown(&above, Some(65_534), None).expect("given away");
            assert!(why().contains("belongs to user 65534"));
            chown(&above, Some(0), None).expect("taken back");
            // As of who was there first, in /dev/shm.
            chown(&inner, Some(65_534), None).expect("given away");
            assert_eq!(why(), "it belongs to user 65534");
        }
        fs::remove_dir_all(above).expect("removed");
    }

    #[test]
    fn a_mount_in_memory_is_told_from_others() {
        let shm = "25 30 0:22 / /dev/shm rw,nosuid - tmpfs tmpfs rw";
        assert!(is_memory_mount(shm, "0:22"));
        assert!(!is_memory_mount(shm, "0:2"));
        assert!(!is_memory_mount("30 1 254:0 / / rw shared:1 - ext4 /dev/vda rw", "254:0"));
        assert!(!is_memory_mount("", ""));
    }
}
