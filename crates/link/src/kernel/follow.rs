//! Going by an interface's MTU, link address and carrier as they are now.
//!
//! Nobody tells a packet socket, an AF_XDP socket or a TAP device that somebody has set them: they
//! are asked for ([`Link::refresh`](crate::Link::refresh)).

use std::os::fd::RawFd;

use millstream_wire::ethernet::MacAddr;

use crate::Capabilities;
use crate::netdev::live::Interface;

/// The state of a link's interface, as far as it is known.
#[derive(Debug)]
pub(crate) struct Follow {
    index: u32,
    /// As they were when the link was opened, and when last looked at.
    first: Found,
    last: Found,
    /// The largest MTU that the link can go by: what it was made for.
    most: usize,
    /// The link's address is the interface's.
    has_its_address: bool,
    /// It was down, or had no carrier, when last looked at.
    is_down: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    mtu: usize,
    mac: MacAddr,
}

impl Follow {
    /// Follows the interface with `index` and this MTU, for a link that can go by one of `most` at
    /// most; its address is that of the link, if it is (`mac`).
    pub fn new(index: u32, mtu: usize, most: usize, mac: Option<MacAddr>) -> Self {
        let first = Found { mtu, mac: mac.unwrap_or(MacAddr::ZERO) };
        Self { index, first, last: first, most, has_its_address: mac.is_some(), is_down: false }
    }

    /// Sets the MTU that the link was made for to `most`.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Returns whether the interface was down, or without a carrier, when last looked at.
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// Looks what they are, by a socket in the interface's namespace, and brings `capabilities` and
    /// `notes` up to that; whether the capabilities have changed. An interface that is not there is
    /// as it was: it is another's part to find that out.
    pub fn look(
        &mut self,
        fd: RawFd,
        name: &str,
        capabilities: &mut Capabilities,
        notes: &mut Vec<String>,
    ) -> bool {
        let Some(found) = self.find(fd).filter(|found| *found != self.last) else { return false };
        self.last = found;
        self.note(name, notes);
        let before = (capabilities.mtu, capabilities.mac);
        capabilities.mtu = found.mtu.min(self.most);
        if self.has_its_address {
            capabilities.mac = found.mac;
        }
        (capabilities.mtu, capabilities.mac) != before
    }

    fn find(&mut self, fd: RawFd) -> Option<Found> {
        let mut interface = Interface::find(fd, self.index).ok()?;
        self.is_down = !interface.is_running().ok()?;
        let mac = match self.has_its_address {
            true => interface.mac().ok()?,
            false => self.first.mac,
        };
        Some(Found { mtu: interface.mtu().ok()?, mac })
    }

    /// Says how they are others than at first, in the place of what was said before.
    #[cold]
    fn note(&self, name: &str, notes: &mut Vec<String>) {
        let Self { first, last, most, .. } = self;
        let (mtu, mac) = (format!("{name}: its MTU is "), format!("{name}: its address is "));
        notes.retain(|note| !note.starts_with(&mtu) && !note.starts_with(&mac));
        if last.mtu != first.mtu {
            let limit = match last.mtu > *most {
                true => {
                    format!("; the link was opened for {most} at most, and is to be opened anew")
                }
                false => String::new(),
            };
            notes.push(format!("{mtu}{} since it was opened with {}{limit}", last.mtu, first.mtu));
        }
        if last.mac != first.mac {
            notes.push(format!("{mac}{} since it was opened with {}", last.mac, first.mac));
        }
    }
}
