//! Which queue a packet of the kernel's goes to, where there is only one.
//!
//! Once any interface of the machine has receive packet steering (RPS), the kernel dissects and
//! hashes every packet that it puts into a device with one queue, to keep a table of flows that
//! nobody reads. A program that names the queue itself spares that.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::kernel::xdp::bpf::{Attributes, PROGRAM_LOAD};
use crate::sys::check;

const PROGRAM_TYPE_SOCKET_FILTER: u32 = 1;

/// `TUNSETSTEERINGEBPF`.
const SET_STEERING: u32 = 0x8004_54e0;

/// `r0 = 0; exit`: the first queue.
const FIRST_QUEUE: [u64; 2] = [0xb7, 0x95];

/// Has all packets of the device of `fd`, which has one queue, go there unseen. The device keeps
/// the program until it ends or is given another.
///
/// # Errors
/// When the kernel takes no such program (Linux 4.16), or for want of privilege: then everything is
/// as it was.
pub(super) fn always(fd: RawFd) -> io::Result<()> {
    let attributes = Attributes::new(&[PROGRAM_TYPE_SOCKET_FILTER, FIRST_QUEUE.len() as u32])
        .pointer(2, FIRST_QUEUE.as_ptr())
        .pointer(4, c"MIT".as_ptr());
    // SAFETY: the pointers are to static memory: the instructions, as many as said, and a string
    // that ends in zero.
    let program = unsafe { attributes.open(PROGRAM_LOAD) }?;
    let program = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int; the device takes its own hold of the program.
    check(unsafe { libc::ioctl(fd, SET_STEERING as libc::Ioctl, &raw const program) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::Namespace;
    use crate::testing::permitted;
    use crate::{LinkError, Tap, TapConfig};

    /// Every other test of this device shows that packets still come.
    #[test]
    fn the_kernel_takes_the_program() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let config = TapConfig { netns: Some(namespace.path()), ..TapConfig::default() };
        let Some(tap) = permitted(Tap::open(&config)) else { return };
        let done = always(tap.fd.as_raw_fd()).map_err(|e| LinkError::from_io("steer", e));
        // Fails but for want of privilege.
        let _ = permitted(done);
        assert!(always(-1).is_err());
    }
}
