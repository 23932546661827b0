//! An engine that talks to itself.

use millstream_link::Loopback;
use millstream_route::LinkId;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Adds a link by which the engine talks to itself: what its sockets send to own addresses, to 127.0.0.0/8 and to ::1
    /// (which sockets may be bound to from then on) lies in its queue until the next turn, which takes a batch as from any
    /// link. It is an ordinary link otherwise, and can be removed ([`Engine::remove_link`]). What comes by others for or
    /// from such addresses is dropped all the same.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when there is one; [`Error::Limit`] as for [`Engine::add_link`].
    pub fn add_loopback(&mut self) -> Result<LinkId, Error> {
        if self.ip.addresses.has_loopback() {
            return Err(Error::AddrInUse);
        }
        let link = self.add_link(Box::new(Loopback::new()))?;
        self.ip.addresses.set_loopback(link);
        // Next hops to own addresses are others now.
        self.ip.routing.note_link_change();
        Ok(link)
    }
}
