//! The application's side of a listener.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{Ordering, fence};

use millstream_packet::ring::{Consumer, spsc};

use super::mailbox::{Answer, may_wait};
use super::shared::{CUT_READ, READ_END, Shared};
use super::side::Side;
use super::socket::{Ends, Parts, Reader, RingSocket};
use super::sockets::{ListenerParts, Sockets};
use super::stream::StreamParts;
use super::tcp::TcpEnds;
use crate::door::driver::{ListenerDriver, NOT_LISTENING};
use crate::{Engine, Error, SocketId};

/// See the module text.
pub struct ListenerEnds {
    local: SocketAddr,
    accepted: Side<Consumer<StreamParts>>,
}

impl Ends for ListenerEnds {
    fn open(
        sockets: &mut Sockets,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error>,
    ) -> Result<Parts<Self>, Error> {
        let id = open(&mut sockets.engine)?;
        let ListenerParts { shared, accepted, local } = sockets.attach_listener(id)?;
        Ok((id, shared, Self { local, accepted: Side::new(accepted) }))
    }

    fn close(socket: &mut RingSocket<Self>) {
        drop(stop(socket));
    }

    fn is_readable(&self, shared: &Shared) -> bool {
        self.accepted.with(|ring| ring.is_ready()) || shared.has(READ_END | CUT_READ)
    }

    fn is_writable(&self, _shared: &Shared) -> bool {
        true
    }
}

impl<T> Reader for Consumer<T> {
    fn is_ready(&self) -> bool {
        !self.is_empty()
    }

    fn is_half_empty(&self) -> bool {
        // A side that sees no stall after this sees what has left the ring.
        fence(Ordering::SeqCst);
        2 * self.len() <= self.capacity()
    }
}

/// Has the engine end the listener, with what lies in its ring.
fn stop(socket: &RingSocket<ListenerEnds>) -> Answer<()> {
    let id = socket.base.id;
    let accepted = socket.ends.accepted.with(|ring| std::mem::replace(ring, spsc(1).1));
    socket.mailbox().ask_later(move |sockets| sockets.close_listener(id, accepted))
}

/// Does so, and has all accepts fail.
pub fn shut_down(socket: &RingSocket<ListenerEnds>) -> Answer<()> {
    socket.shared.set_error(NOT_LISTENING);
    let answer = stop(socket);
    socket.shared.set_state(READ_END);
    answer
}

impl ListenerDriver for RingSocket<ListenerEnds> {
    type Stream = RingSocket<TcpEnds>;

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.ends.local)
    }

    fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)> {
        let gone = || Some(Err(self.shared.error().unwrap_or(Error::EngineGone).into()));
        let parts = self.receive(&self.ends.accepted, READ_END, |ring| Ok(ring.pop()), gone)?;
        let parts = parts.ok_or(Error::WouldBlock)?;
        let peer = parts.addresses.remote;
        Ok((RingSocket::new(&self.base.stack, parts.into()), peer))
    }

    fn shutdown(&self) -> io::Result<()> {
        let answer = shut_down(self);
        // In an engine's thread it is over when the call is.
        if may_wait().is_ok() {
            answer.wait()?;
        }
        Ok(())
    }
}
