//! File systems that are in nobody's tree: they are there as long as their descriptor is open
//! (Linux 5.2, fsopen(2)).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::check;

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A file system of this kind, as this thread's namespaces have it.
///
/// # Errors
/// For want of privilege, or where the kernel has none.
pub(crate) fn mount(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the string ends in zero and outlives the call.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let fd = context.as_raw_fd();
    let none = ptr::null::<libc::c_void>();
    // SAFETY: this command takes neither key nor value.
    let created =
        unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) };
    check(created as libc::c_int)?;
    // SAFETY: fsmount takes no pointers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, 0) })
}

/// Opens the file at `path` in it.
pub(crate) fn open(root: &OwnedFd, path: &str, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path ends in zero and outlives the call.
    owned(unsafe { libc::openat(root.as_raw_fd(), path.as_ptr(), flags) }.into())
}

/// Makes a node for a character device in it.
pub(crate) fn make_device(root: &OwnedFd, path: &str, device: libc::dev_t) -> io::Result<()> {
    let path = CString::new(path)?;
    let mode = libc::S_IFCHR | 0o600;
    // SAFETY: the path ends in zero and outlives the call.
    check(unsafe { libc::mknodat(root.as_raw_fd(), path.as_ptr(), mode, device) }).map(drop)
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(result as libc::c_int)?;
    // SAFETY: `fd` was just opened and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
