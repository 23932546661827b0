//! How the kernel's receive polling (NAPI) of an interface works, set through sysfs
//! (Documentation/networking/napi.rst).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::index;
use crate::LinkError;

const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// The settings of one interface, open to be changed as often as one likes. Dropped, it puts back what it
/// found, for the interface that outlives its user; a killed process cannot.
#[derive(Debug)]
pub struct NapiControl {
    name: String,
    threaded: File,
    gro_flush: File,
    /// What was set before, as read.
    found: [String; 2],
}

impl NapiControl {
    /// Opens those of the interface `name`.
    ///
    /// # Errors
    /// When there is no such interface, the kernel is too old (threads: Linux 5.12), or for want of
    /// privilege (to mount sysfs, too: it shows the interfaces of the namespace it is mounted in).
    pub fn open(name: &str) -> Result<Self, LinkError> {
        // A name that is no interface here must not become a path.
        index(name)?;
        let files = || -> io::Result<(File, File)> {
            let sysfs = mount_sysfs()?;
            let open = |file: &str| {
                let sysfs = sysfs.as_raw_fd();
                let path = format!("/proc/self/fd/{sysfs}/class/net/{name}/{file}");
                File::options().read(true).write(true).open(path)
            };
            Ok((open("threaded")?, open("gro_flush_timeout")?))
        };
        let (threaded, gro_flush) = files().map_err(|error| failed(name, error))?;
        let found = [&threaded, &gro_flush].map(read);
        let [Ok(first), Ok(second)] = found else {
            let error = found.into_iter().find_map(Result::err);
            return Err(failed(name, error.unwrap_or_else(|| io::ErrorKind::Other.into())));
        };
        Ok(Self { name: name.to_owned(), threaded, gro_flush, found: [first, second] })
    }

    /// Sets how the receive queues are polled: for how long the kernel holds segments back to merge
    /// others with them (zero: until its queue is empty), and whether a thread of the kernel's own does
    /// it, on whatever core is free, instead of the core that brings a packet. Takes some 50 µs.
    ///
    /// # Errors
    /// When the interface is gone, or the kernel has no memory for a thread: then it is as it was found.
    pub fn set(&self, gro_flush: Duration, threaded: bool) -> Result<(), LinkError> {
        let result = self.write(&u8::from(threaded).to_string(), &gro_flush.as_nanos().to_string());
        result.map_err(|error| {
            self.restore();
            failed(&self.name, error)
        })
    }

    fn write(&self, threaded: &str, gro_flush: &str) -> io::Result<()> {
        self.threaded.write_all_at(threaded.as_bytes(), 0)?;
        self.gro_flush.write_all_at(gro_flush.as_bytes(), 0)
    }

    fn restore(&self) {
        let [threaded, gro_flush] = &self.found;
        // It may be gone with its last user.
        let _ = self.threaded.write_all_at(threaded.as_bytes(), 0);
        let _ = self.gro_flush.write_all_at(gro_flush.as_bytes(), 0);
    }
}

impl Drop for NapiControl {
    fn drop(&mut self) {
        self.restore();
    }
}

/// What a setting is now.
fn read(file: &File) -> io::Result<String> {
    let mut text = [0; 32];
    let n = file.read_at(&mut text, 0)?;
    Ok(String::from_utf8_lossy(&text[..n]).trim().to_owned())
}

fn failed(name: &str, error: io::Error) -> LinkError {
    LinkError::from_io(format!("set the receive polling of {name}"), error)
}

/// The root of a sysfs of the calling thread's network namespace, mounted nowhere; it ends with the
/// descriptor.
fn mount_sysfs() -> io::Result<OwnedFd> {
    // SAFETY: the name ends in zero and is static.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, c"sysfs".as_ptr(), 1) })?;
    let none = std::ptr::null::<libc::c_char>();
    let fd = context.as_raw_fd();
    // SAFETY: this command takes neither key nor value.
    let made = unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no pointers. The mount is closed on exec.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, fd, 1, 0) })
}

/// The descriptor that a system call gave.
fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(fd) {
        // SAFETY: it was just opened and is owned by nobody else.
        Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What is set for an interface of the calling thread's namespace.
#[cfg(test)]
pub(crate) fn setting(name: &str, file: &str) -> io::Result<String> {
    let sysfs = mount_sysfs()?;
    let path = format!("/proc/self/fd/{}/class/net/{name}/{file}", sysfs.as_raw_fd());
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::Namespace;
    use crate::testing::permitted;
    use crate::{Link, NapiMode, Tap, TapConfig};

    #[test]
    fn what_is_set_is_set_in_the_devices_own_namespace() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let config = TapConfig {
            netns: Some(namespace.path()),
            napi: NapiMode::On(crate::Napi { threaded: true, gro_flush: Duration::from_micros(7) }),
            ..TapConfig::default()
        };
        let Some(tap) = permitted(Tap::open(&config)) else { return };
        if !tap.notes().is_empty() {
            return println!("skipped: {:?}", tap.notes());
        }
        let name = tap.name();
        let read = |file: &str| namespace.run(|| setting(name, file)).unwrap();
        assert_eq!(read("threaded").unwrap(), "1");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        let control = namespace.run(|| NapiControl::open(name)).unwrap().unwrap();
        control.set(Duration::ZERO, false).unwrap();
        assert_eq!(read("threaded").unwrap(), "0");
        control.set(Duration::from_micros(9), true).unwrap();
        assert_eq!(read("gro_flush_timeout").unwrap(), "9000");
        // Its second half is out of range: nothing is left of the first.
        assert!(control.set(Duration::MAX, false).is_err());
        assert_eq!(read("threaded").unwrap(), "1");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        control.set(Duration::ZERO, false).unwrap();
        drop(control);
        assert_eq!(read("threaded").unwrap(), "1", "as it was found");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        assert!(namespace.run(|| NapiControl::open("../lo")).unwrap().is_err());
    }
}
