//! The present state of an interface, found by its index: its name may be another one by now.

use std::io;
use std::os::fd::RawFd;

use millstream_wire::ethernet::MacAddr;

use super::mac_in;
use crate::sys::check;

/// An interface under its present name, and a socket in its namespace that answers questions about
/// it.
pub(crate) struct Interface {
    fd: RawFd,
    request: libc::ifreq,
}

impl Interface {
    /// The one with `index` in the namespace of the socket `fd`, which must live as long; `ENODEV`
    /// when it is not there.
    pub fn find(fd: RawFd, index: u32) -> io::Result<Self> {
        // SAFETY: an ifreq is plain data, for which all zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = index.cast_signed();
        let mut interface = Self { fd, request };
        interface.ask(libc::SIOCGIFNAME as libc::Ioctl)?;
        Ok(interface)
    }

    /// Returns whether it is up.
    pub fn is_up(&mut self) -> io::Result<bool> {
        Ok(self.flags()? & libc::IFF_UP != 0)
    }

    /// Returns whether it is up and has a carrier, as far as its driver tells (netdevice(7)).
    pub fn is_running(&mut self) -> io::Result<bool> {
        const RUNNING: i32 = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(self.flags()? & RUNNING == RUNNING)
    }

    fn flags(&mut self) -> io::Result<i32> {
        self.ask(libc::SIOCGIFFLAGS as libc::Ioctl)?;
        // SAFETY: SIOCGIFFLAGS filled in this member of the union.
        Ok(unsafe { self.request.ifr_ifru.ifru_flags }.into())
    }

    /// Its MTU.
    pub fn mtu(&mut self) -> io::Result<usize> {
        self.ask(libc::SIOCGIFMTU as libc::Ioctl)?;
        // SAFETY: SIOCGIFMTU filled in this member of the union.
        let mtu = unsafe { self.request.ifr_ifru.ifru_mtu };
        Ok(usize::try_from(mtu).unwrap_or(0))
    }

    /// Its link address.
    pub fn mac(&mut self) -> io::Result<MacAddr> {
        self.ask(libc::SIOCGIFHWADDR as libc::Ioctl)?;
        Ok(mac_in(&self.request))
    }

    /// A request that names it, for the socket it was found by.
    pub fn into_request(self) -> libc::ifreq {
        self.request
    }

    /// One `SIOCGIF*` question, which leaves the name as it is.
    fn ask(&mut self, question: libc::Ioctl) -> io::Result<()> {
        // SAFETY: `request` is a live ifreq, which is what these questions read and write; a socket
        // answers them for its own namespace.
        check(unsafe { libc::ioctl(self.fd, question, &raw mut self.request) }).map(drop)
    }
}
