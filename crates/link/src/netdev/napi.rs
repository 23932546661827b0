//! How the kernel's receive polling (NAPI) of an interface works, set through sysfs
//! (Documentation/networking/napi.rst).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::index;
use crate::LinkError;

const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Sets how the receive queues of interface `name` are polled: for how long the kernel holds
/// segments back to merge others with them (zero: until its queue is empty), and whether a thread
/// of the kernel's own does it, on whatever core is free, instead of the core that brings a packet.
///
/// # Errors
/// When there is no such interface, the kernel is too old (threads: Linux 5.12), or for want of
/// privilege (to mount sysfs, too: it shows the interfaces of the namespace it is mounted in).
pub fn set_napi(name: &str, gro_flush: Duration, threaded: bool) -> Result<(), LinkError> {
    // A name that is no interface here must not become a path.
    index(name)?;
    let set = || -> io::Result<()> {
        let sysfs = mount_sysfs()?;
        let write = |file: &str, value: u128| {
            let path = format!("/proc/self/fd/{}/class/net/{name}/{file}", sysfs.as_raw_fd());
            File::options().write(true).open(path)?.write_all(value.to_string().as_bytes())
        };
        write("threaded", threaded.into())?;
        write("gro_flush_timeout", gro_flush.as_nanos())
    };
    set().map_err(|e| LinkError::from_io(format!("set the receive polling of {name}"), e))
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
        let read = |file: &str| {
            namespace.run(|| {
                let sysfs = mount_sysfs().unwrap();
                let path = format!("/proc/self/fd/{}/class/net/{name}/{file}", sysfs.as_raw_fd());
                std::fs::read_to_string(path).unwrap().trim().to_owned()
            })
        };
        assert_eq!(read("threaded").unwrap(), "1");
        assert_eq!(read("gro_flush_timeout").unwrap(), "7000");
        namespace.run(|| set_napi(name, Duration::ZERO, false)).unwrap().unwrap();
        assert_eq!(read("threaded").unwrap(), "0");
        assert!(namespace.run(|| set_napi("../lo", Duration::ZERO, true)).unwrap().is_err());
    }
}
