//! Doing something in another network namespace without leaving one's own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread::Builder;

use crate::LinkError;
use crate::sys::check;

/// A network namespace held open by a descriptor.
///
/// One made by [`create`](Self::create) has no name: it ends, with every device in it, when the
/// last holder does, so nothing stays behind a killed process.
///
/// ```no_run
/// use millstream_link::netdev::Namespace;
///
/// let namespace = Namespace::create()?;
/// let listener = namespace.run(|| std::net::TcpListener::bind("127.0.0.1:80"))?;
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl From<OwnedFd> for Namespace {
    fn from(fd: OwnedFd) -> Self {
        Self { file: fd.into() }
    }
}

impl Namespace {
    /// A new, empty namespace with its loopback interface up.
    ///
    /// # Errors
    /// When the process may not make namespaces.
    pub fn create() -> Result<Self, LinkError> {
        let made = std::thread::scope(|scope| {
            let thread = Builder::new().spawn_scoped(scope, || {
                // SAFETY: unshare takes no pointers; it moves only this thread, which ends right
                // after.
                check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
                File::open("/proc/thread-self/ns/net")
            });
            join(thread?)
        });
        let refused =
            |e| LinkError::needing("CAP_SYS_ADMIN, as root has", "make a network namespace", e);
        let made = Self { file: made.map_err(refused)? };
        made.run(|| super::set_up("lo"))??;
        Ok(made)
    }

    /// The namespace at `path`: `/run/netns/NAME`, `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// When there is nothing at `path`.
    pub fn open(path: &Path) -> Result<Self, LinkError> {
        match File::open(path) {
            Ok(file) => Ok(Self { file }),
            Err(error) => {
                Err(LinkError::from_io(format!("open namespace {}", path.display()), error))
            }
        }
    }

    /// A path by which this process can open the namespace again, as long as this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd()))
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Runs `work` in the namespace, on a thread of its own; the calling thread waits and stays
    /// where it is. Descriptors that `work` opens keep belonging to the namespace.
    ///
    /// # Errors
    /// When the process may not enter the namespace.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, LinkError> {
        let fd = self.file.as_raw_fd();
        let result = std::thread::scope(|scope| {
            let thread = Builder::new().spawn_scoped(scope, move || {
                // SAFETY: setns takes no pointers; it moves only this thread, which ends after
                // `work`.
                check(unsafe { libc::setns(fd, libc::CLONE_NEWNET) })?;
                Ok(work())
            });
            join(thread?)
        });
        result.map_err(|e| {
            let why = match e.raw_os_error() {
                Some(libc::EINVAL) => " (the path given is something else's)",
                _ => "",
            };
            LinkError::needing("CAP_SYS_ADMIN", format!("enter a network namespace{why}"), e)
        })
    }
}

/// The result of `thread`; its panic, should it panic, goes on in the caller.
fn join<R>(thread: std::thread::ScopedJoinHandle<'_, io::Result<R>>) -> io::Result<R> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs `work` in the namespace at `path`, or right here without one.
///
/// # Errors
/// When the namespace cannot be opened or entered.
pub fn run_in<R: Send>(
    path: Option<&Path>,
    work: impl FnOnce() -> R + Send,
) -> Result<R, LinkError> {
    match path {
        None => Ok(work()),
        Some(path) => Namespace::open(path)?.run(work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::permitted;

    fn own() -> PathBuf {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap()
    }

    #[test]
    fn the_calling_thread_stays_where_it_is() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let before = own();
        let inside = namespace.run(own).unwrap();
        assert_ne!(inside, before);
        assert_eq!(own(), before);
        assert_eq!(run_in(Some(&namespace.path()), own).unwrap(), inside);
    }
}
