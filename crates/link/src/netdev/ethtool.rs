//! Questions to the driver of an interface, and what it is told to take, by `SIOCETHTOOL`
//! (ethtool(8)).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::live::Interface;
use super::{interface_request, socket};
use crate::LinkError;
use crate::sys::check;

const ETHTOOL_GDRVINFO: u32 = 0x03;
#[cfg(test)]
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GSG: u32 = 0x18;
const ETHTOOL_SSG: u32 = 0x19;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Bytes of struct ethtool_drvinfo, and where its driver's name lies.
const DRIVER_INFO_BYTES: usize = 196;
const DRIVER_NAME: std::ops::Range<usize> = 4..36;

/// struct ethtool_value: a command, and what it sets or tells.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Says whether interface `name` takes packets whose transport checksum is yet to be completed.
///
/// A virtual pair never completes them: it trusts the other end. An XDP program at that other end
/// sees bad checksums unless this is off.
///
/// # Errors
/// When there is no such interface, or for want of privilege.
pub fn set_transmit_checksum(name: &str, on: bool) -> Result<(), LinkError> {
    let mut value = Value { command: ETHTOOL_STXCSUM, data: on.into() };
    // SAFETY: a live value of the command's kind.
    let done = unsafe { ask_named(name, (&raw mut value).cast()) };
    done.map_err(|e| LinkError::from_io(format!("set the checksum offload of {name}"), e))
}

/// Returns whether interface `name` of the calling thread's namespace takes them.
#[cfg(test)]
pub(crate) fn takes_transmit_checksum(name: &str) -> io::Result<bool> {
    let index = super::index(name).map_err(io::Error::other)?;
    value(socket()?.as_raw_fd(), index, ETHTOOL_GTXCSUM, 0).map(|on| on != 0)
}

/// Returns whether the interface `name` is an end of a virtual pair; false where that cannot be
/// told.
pub(crate) fn is_veth(name: &str) -> bool {
    let mut info = [0_u32; DRIVER_INFO_BYTES / 4];
    info[0] = ETHTOOL_GDRVINFO;
    // SAFETY: a live block of this command's size, aligned as its words are.
    let asked = unsafe { ask_named(name, info.as_mut_ptr().cast()) };
    let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
    asked.is_ok() && bytes[DRIVER_NAME].starts_with(b"veth\0")
}

/// Queues that the interface `name` receives by; `None` where its driver does not tell.
pub(crate) fn receive_queues(name: &str) -> Option<u32> {
    // struct ethtool_channels: the command, four limits, then the counts of rx, tx, other,
    // combined.
    let mut channels = [0_u32; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    // SAFETY: a live block of this command's size, aligned as its words are.
    unsafe { ask_named(name, channels.as_mut_ptr().cast()) }.ok()?;
    Some(channels[5].saturating_add(channels[8]))
}

/// The setting by which the kernel may hand an interface a packet that lies in several pieces of
/// memory (scatter-gather), open to be changed as often as one likes. Dropped, it puts back what it
/// found, for the interface that outlives its user; a killed process cannot.
#[derive(Debug)]
pub(crate) struct ScatterGather {
    /// Answers for the interface's namespace.
    socket: Arc<OwnedFd>,
    index: u32,
    found: bool,
    is_ours: bool,
}

impl ScatterGather {
    /// Opens that of the interface with `index` in the namespace of `socket`.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn open(socket: Arc<OwnedFd>, index: u32) -> io::Result<Self> {
        let found = value(socket.as_raw_fd(), index, ETHTOOL_GSG, 0)? != 0;
        Ok(Self { socket, index, found, is_ours: false })
    }

    /// Opens that of the interface `name` of the calling thread's namespace.
    #[cfg(test)]
    pub fn of(name: &str) -> Result<Self, LinkError> {
        let index = super::index(name)?;
        let opened = socket().and_then(|socket| Self::open(Arc::new(socket), index));
        opened.map_err(|error| LinkError::from_io(format!("find {name}"), error))
    }

    /// Returns what was found.
    #[cfg(test)]
    pub fn found(&self) -> bool {
        self.found
    }

    /// Has each packet lie in one piece, or, without `whole`, as it was found. Takes some 10 µs.
    ///
    /// # Errors
    /// When the interface is gone, or for want of privilege.
    pub fn lay_whole(&mut self, whole: bool) -> io::Result<()> {
        let on = self.found && !whole;
        value(self.socket.as_raw_fd(), self.index, ETHTOOL_SSG, on.into())?;
        self.is_ours = on != self.found;
        Ok(())
    }
}

impl Drop for ScatterGather {
    fn drop(&mut self) {
        if self.is_ours {
            // The interface may be gone with its last user.
            let _ = self.lay_whole(false);
        }
    }
}

/// Lets packets for the interface with `index` in the namespace of `socket` lie in pieces, without
/// which there are no super-segments.
///
/// # Errors
/// When there is no such interface, or for want of privilege.
pub(crate) fn allow_pieces(socket: RawFd, index: u32) -> io::Result<()> {
    value(socket, index, ETHTOOL_SSG, 1).map(drop)
}

/// Has the interface with `index` carry out `command` with `data`; what it answers.
fn value(socket: RawFd, index: u32, command: u32, data: u32) -> io::Result<u32> {
    let mut request = Interface::find(socket, index)?.into_request();
    let mut value = Value { command, data };
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: `value` is live, and of this command's kind.
    unsafe { ask(socket, &mut request) }?;
    Ok(value.data)
}

/// Has the driver of the interface `name` take a command.
///
/// # Safety
/// `command` points at the live structure of the command that it begins with.
unsafe fn ask_named(name: &str, command: *mut libc::c_char) -> io::Result<()> {
    // SAFETY: as the caller says.
    unsafe { ask_by(&socket()?, name, command) }
}

/// The same for the interface `name` in the namespace of `socket`.
///
/// # Safety
/// `command` points at the live structure of the command that it begins with.
pub(super) unsafe fn ask_by(
    socket: &OwnedFd,
    name: &str,
    command: *mut libc::c_char,
) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = command;
    // SAFETY: as the caller says.
    unsafe { ask(socket.as_raw_fd(), &mut request) }
}

/// Has the driver of the interface that `request` names take the command it points at.
///
/// # Safety
/// Its data point at the live structure of that command.
unsafe fn ask(socket: RawFd, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a live ifreq, and its data what the caller answers for.
    check(unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as libc::Ioctl, &raw mut *request) })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::{self, Namespace};
    use crate::testing::permitted;

    #[test]
    fn pieces_are_as_they_were_found_when_nobody_wants_packets_whole() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let made = namespace.run(|| netdev::add_veth("ms0", "ms1", None, 1));
        if permitted(made.and_then(|made| made)).is_none() {
            return;
        }
        let open = |name| namespace.run(|| ScatterGather::of(name)).unwrap().unwrap();
        let in_pieces = |name| open(name).found();
        assert!(in_pieces("ms0"), "a virtual pair begins so");
        let mut gather = open("ms0");
        gather.lay_whole(true).unwrap();
        assert!(!in_pieces("ms0"));
        // Found whole: whoever set that knows why.
        let mut second = open("ms0");
        second.lay_whole(true).unwrap();
        second.lay_whole(false).unwrap();
        drop(second);
        assert!(!in_pieces("ms0"));
        gather.lay_whole(false).unwrap();
        assert!(in_pieces("ms0"));
        // By its index, whatever its name is.
        namespace.run(|| netdev::rename("ms0", "ms2")).unwrap().unwrap();
        gather.lay_whole(true).unwrap();
        assert!(!in_pieces("ms2"));
        drop(gather);
        assert!(in_pieces("ms2"), "as it was found");
        let mut late = open("ms2");
        namespace.run(|| netdev::remove("ms2")).unwrap().unwrap();
        assert!(late.lay_whole(true).is_err());
    }
}
