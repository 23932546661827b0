//! Settings in the sysfs of the calling thread's network namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::detached;

/// Longest setting that is read, in bytes: a set of 8,192 CPUs.
const SETTING_BYTES: usize = 4096;

/// A sysfs mounted nowhere; it ends with this.
pub(super) struct Sysfs {
    root: OwnedFd,
}

impl Sysfs {
    /// Mounts that of the calling thread's network namespace.
    ///
    /// # Errors
    /// For want of privilege, or before Linux 5.2.
    pub fn mount() -> io::Result<Self> {
        Ok(Self { root: detached::mount(c"sysfs")? })
    }

    /// Returns the text of the file at `path`.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(self.path(path))
    }

    fn path(&self, path: &str) -> String {
        format!("/proc/self/fd/{}/{path}", self.root.as_raw_fd())
    }

    /// The setting at `path`, to be changed.
    ///
    /// # Errors
    /// When there is none, or for want of privilege.
    pub fn setting(&self, path: &str) -> io::Result<Setting> {
        let file = File::options().read(true).write(true).open(self.path(path))?;
        let mut text = vec![0; SETTING_BYTES];
        let n = file.read_at(&mut text, 0)?;
        let found = String::from_utf8_lossy(&text[..n]).trim().to_owned();
        Ok(Setting { file, found, is_ours: AtomicBool::new(false) })
    }
}

/// A setting, open to be changed as often as one likes. Dropped, it puts back what it found, if it
/// was changed by this.
#[derive(Debug)]
pub(super) struct Setting {
    file: File,
    found: String,
    /// The present value is ours, as far as we know.
    is_ours: AtomicBool,
}

impl Setting {
    /// Returns the value that was set before.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Sets it.
    ///
    /// # Errors
    /// When the kernel does not take that, or the interface is gone.
    pub fn write(&self, value: &str) -> io::Result<()> {
        self.is_ours.store(true, Ordering::Relaxed);
        self.file.write_all_at(value.as_bytes(), 0)
    }

    /// Puts back what was found.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn restore(&self) -> io::Result<()> {
        self.write(&self.found)?;
        self.is_ours.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // A value that somebody else has set meanwhile stays.
        if self.is_ours.load(Ordering::Relaxed) {
            // It may be gone with its last user.
            let _ = self.restore();
        }
    }
}

/// Returns a setting of an interface of the calling thread's namespace.
#[cfg(test)]
pub(crate) fn setting(name: &str, file: &str) -> io::Result<String> {
    Ok(Sysfs::mount()?.read(&format!("class/net/{name}/{file}"))?.trim().to_owned())
}
