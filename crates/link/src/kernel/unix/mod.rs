//! Links over UNIX sockets, as virtual machines and their networks have them.

mod datagram;
mod stream;
#[cfg(test)]
mod tests;

use millstream_wire::ethernet::MacAddr;

pub use datagram::DatagramLink;
pub use stream::StreamLink;

use crate::medium::check_mtu;
use crate::{Capabilities, LinkError, Medium, limits};

/// The packets of a [`StreamLink`] or [`DatagramLink`].
///
/// ```
/// use std::os::unix::net::UnixStream;
///
/// use millstream_link::{StreamLink, UnixConfig};
///
/// // The socket of `passt`, or of QEMU's `-netdev stream`.
/// let (ours, theirs) = UnixStream::pair()?;
/// let link = StreamLink::new(ours, &UnixConfig::default())?;
/// # drop((link, theirs));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnixConfig {
    /// The header that packets start with.
    pub medium: Medium,
    /// Largest IP packet, in bytes: what the other side has.
    pub mtu: usize,
    /// The engine's link address, which nobody else behind the socket has.
    pub mac: MacAddr,
}

impl Default for UnixConfig {
    /// Ethernet frames with an MTU of 1,500 bytes.
    fn default() -> Self {
        let mac = MacAddr([0x02, 0, 0, 0, 0, 0x0d]);
        Self { medium: Medium::Ethernet, mtu: 1500, mac }
    }
}

impl UnixConfig {
    fn capabilities(&self) -> Result<Capabilities, LinkError> {
        check_mtu(self.mtu, limits::MTU_MAX_BYTES)?;
        let mac = if self.medium == Medium::Ip { MacAddr::ZERO } else { self.mac };
        Ok(Capabilities::plain(self.medium, self.mtu, mac))
    }
}
