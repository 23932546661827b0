//! The sockets of an engine in its application's thread: each call asks the engine, with turns
//! between until it can answer.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_tcp::FourTuple;

use super::stack::Stack;
use crate::door::driver::{
    Base, How, ListenerDriver, NOT_LISTENING, SocketDriver, TcpDriver, UdpDriver,
};
use crate::engine::Reader;
use crate::{DatagramInfo, DatagramToSend, Engine, Error, ReceivedDatagram, SocketId, SocketKind};

/// See the module text.
pub struct LocalSocket {
    base: Base<Stack>,
    /// The reading side was shut down.
    read_shut: Cell<bool>,
}

/// The next step of a call that waits.
enum Step {
    /// Asks whether there is something.
    Look,
    /// Lets the engine take a turn, which may sleep for so long.
    Turn(Option<Duration>),
}

/// The longest time that a call may wait; fails where it may not.
type MayWait = io::Result<Option<Duration>>;

impl LocalSocket {
    fn new(stack: &Stack, id: SocketId) -> Self {
        Self { base: Base::new(stack, id), read_shut: Cell::default() }
    }

    /// Returns how long a call may wait that reads. Where the reading side was shut down, it does
    /// not wait.
    fn to_read(&self) -> MayWait {
        match self.read_shut.get() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.base.timeouts.to_read(),
        }
    }

    fn to_write(&self) -> MayWait {
        self.base.timeouts.to_write()
    }

    /// Returns the result of a call that reads: the end, where the reading side was shut down and
    /// it would have to wait.
    fn or_end<T: Default>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.read_shut.get() => {
                Ok(T::default())
            }
            result => result,
        }
    }

    /// Repeats `call` with turns between until it does not block any more.
    fn block<T>(
        &self,
        may_wait: impl FnOnce() -> MayWait,
        mut call: impl FnMut(&mut Engine) -> Result<T, Error>,
    ) -> io::Result<T> {
        self.wait_by(may_wait, |engine, step| match step {
            Step::Look => unless_it_blocks(call(engine)),
            Step::Turn(left) => {
                self.base.stack.run(engine, left, None)?;
                Ok(None)
            }
        })
    }

    /// Looks, and then takes turns and looks after each, until either has come to something, or the
    /// time is up, or no link leads to the socket's peer any more: nobody can add one meanwhile.
    fn wait_by<T>(
        &self,
        may_wait: impl FnOnce() -> MayWait,
        mut step: impl FnMut(&mut Engine, Step) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let (mut engine, id) = (self.base.stack.engine(), self.base.id);
        if let Some(value) = step(&mut engine, Step::Look)? {
            return Ok(value);
        }
        let deadline = may_wait()?.map(|timeout| engine.refresh_time() + timeout);
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(engine.now()));
            if left == Some(Duration::ZERO) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if engine.inspect().has_lost_links() && !engine.inspect().is_reachable(id) {
                return Err(Error::NetworkDown.into());
            }
            for step_now in [Step::Turn(left), Step::Look] {
                if let Some(value) = step(&mut engine, step_now)? {
                    return Ok(value);
                }
            }
        }
    }

    /// Makes a call that may have something to send, which leaves at once.
    fn send<T>(&self, call: impl FnOnce(&mut Engine) -> T) -> T {
        send(&mut self.base.stack.engine(), call)
    }
}

/// Makes a call that may have something to send, which leaves at once.
fn send<T>(engine: &mut Engine, call: impl FnOnce(&mut Engine) -> T) -> T {
    engine.refresh_time();
    let result = call(engine);
    engine.flush();
    result
}

/// Returns the value of `result`; `None` if the call would have to wait.
fn unless_it_blocks<T>(result: Result<T, Error>) -> io::Result<Option<T>> {
    match result {
        Err(Error::WouldBlock) => Ok(None),
        result => Ok(Some(result?)),
    }
}

impl SocketDriver for LocalSocket {
    type Stack = Stack;

    fn base(&self) -> &Base<Stack> {
        &self.base
    }

    fn open(
        stack: &Stack,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self::new(stack, send(&mut stack.engine(), open)?))
    }

    fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
    ) -> io::Result<T> {
        Ok(call(&mut self.base.stack.engine())?)
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        let (mut engine, id) = (self.base.stack.engine(), self.base.id);
        let error = match id.kind() {
            SocketKind::Tcp => engine.tcp(id).take_error()?,
            SocketKind::Udp => engine.udp(id).take_error(),
            SocketKind::Listener | SocketKind::Icmp => None,
        };
        Ok(error.map(io::Error::from))
    }
}

impl TcpDriver for LocalSocket {
    fn wait_connected(&self, timeout: Option<Duration>) -> io::Result<()> {
        let connected = |engine: &mut Engine| match engine.tcp(self.base.id).connected()? {
            true => Ok(()),
            false => Err(Error::WouldBlock),
        };
        self.block(|| Ok(timeout), connected).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }

    fn is_connected(&self) -> bool {
        self.base.stack.engine().tcp(self.base.id).is_connected()
    }

    fn readable_bytes(&self) -> io::Result<usize> {
        Ok(self.base.stack.engine().tcp(self.base.id).readable_bytes()?)
    }

    fn addresses(&self) -> io::Result<FourTuple> {
        Ok(self.base.stack.engine().tcp(self.base.id).addresses()?)
    }

    /// The link may put the data into `buffer` at once.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let id = self.base.id;
        self.or_end(self.wait_by(
            || self.to_read(),
            |engine, step| match step {
                Step::Look => unless_it_blocks(engine.tcp(id).read(buffer)),
                Step::Turn(left) => {
                    let mut direct = Reader::of_one(id, buffer);
                    self.base.stack.run(engine, left, Some(&mut direct))?;
                    Ok(Some(direct.filled()).filter(|&filled| filled != 0))
                }
            },
        ))
    }

    fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let id = self.base.id;
        self.or_end(self.block(|| self.to_read(), |engine| engine.tcp(id).peek(buffer)))
    }

    fn read_packet(&self, max: usize) -> io::Result<Option<Packet>> {
        let id = self.base.id;
        self.or_end(self.block(|| self.to_read(), |engine| engine.tcp(id).read_packet(max)))
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        let id = self.base.id;
        self.block(
            || self.to_write(),
            |engine| {
                engine.refresh_time();
                engine.tcp(id).send(data)
            },
        )
    }

    /// Writes the first alone, as `Write` does by itself.
    fn write_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        first.map_or(Ok(0), |first| self.write(first))
    }

    fn write_packet(&self, packet: Packet) -> io::Result<()> {
        let (id, mut waiting) = (self.base.id, Some(packet));
        self.block(
            || self.to_write(),
            |engine| {
                let Some(packet) = waiting.take() else { return Ok(()) };
                send(engine, |engine| engine.tcp(id).write_packet(packet)).map_err(
                    |(packet, error)| {
                        waiting = Some(packet);
                        error
                    },
                )
            },
        )
    }

    fn try_write_packet(&self, packet: Packet) -> Result<(), (Packet, Error)> {
        self.send(|engine| engine.tcp(self.base.id).write_packet(packet))
    }

    fn bulk_bytes(&self) -> usize {
        self.base.stack.engine().tcp(self.base.id).bulk_bytes().unwrap_or(0)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            self.send(|engine| engine.tcp(self.base.id).shutdown_write())?;
        }
        if how != Shutdown::Write {
            self.read_shut.set(true);
        }
        Ok(())
    }

    fn urgent(&self) -> io::Result<Option<u64>> {
        Ok(self.base.stack.engine().tcp(self.base.id).urgent()?)
    }

    fn write_urgent(&self, data: &[u8]) -> io::Result<usize> {
        let mut engine = self.base.stack.engine();
        engine.refresh_time();
        let written = engine.tcp(self.base.id).write_urgent(data)?;
        engine.tcp(self.base.id).push_written(written);
        Ok(written)
    }

    fn abort(self: Arc<Self>) {
        self.send(|engine| engine.tcp(self.base.id).abort());
    }
}

impl ListenerDriver for LocalSocket {
    type Stream = Self;

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.base.stack.engine().listener(self.base.id).addr()?)
    }

    fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        let listener = self.base.id;
        if self.read_shut.get() {
            return Err(NOT_LISTENING.into());
        }
        let accepted = self.block(|| self.to_read(), |engine| engine.listener(listener).accept());
        accepted.map(|(id, peer)| (Self::new(&self.base.stack, id), peer))
    }

    fn shutdown(&self) -> io::Result<()> {
        self.read_shut.set(true);
        self.send(|engine| engine.listener(self.base.id).close());
        Ok(())
    }
}

impl UdpDriver for LocalSocket {
    fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        Ok(self.base.stack.engine().udp(self.base.id).connect(addr)?)
    }

    fn transmit(&self, data: &[u8], to: Option<SocketAddr>, how: How<'_>) -> io::Result<usize> {
        let id = self.base.id;
        let transmit = |engine: &mut Engine| match how {
            How::Whole => engine.udp(id).send(data, to),
            How::Segmented(size) => engine.udp(id).send_segmented(data, size, to),
            How::With(options) => engine.udp(id).send_with(data, to, options),
        };
        self.block(|| self.to_write(), |engine| send(engine, transmit))?;
        Ok(data.len())
    }

    fn send_many(&self, list: &[DatagramToSend<'_>]) -> io::Result<usize> {
        let id = self.base.id;
        self.block(
            || self.to_write(),
            |engine| send(engine, |engine| engine.udp(id).send_many(list)),
        )
    }

    fn receive(&self) -> io::Result<(Packet, SocketAddr, DatagramInfo)> {
        let id = self.base.id;
        self.block(|| self.to_read(), |engine| engine.udp(id).recv_packet_with_info())
    }

    /// The datagrams may come straight out of a link's memory.
    fn recv_many(&self, buffer: &mut [u8], list: &mut Vec<ReceivedDatagram>) -> io::Result<usize> {
        let id = self.base.id;
        self.wait_by(
            || self.to_read(),
            |engine, step| match step {
                Step::Look => unless_it_blocks(engine.udp(id).recv_many(buffer, list)),
                Step::Turn(left) => {
                    let mut direct = Reader::of_datagrams(id, buffer, list);
                    self.base.stack.run(engine, left, Some(&mut direct))?;
                    Ok(Some(list.len()).filter(|&count| count != 0))
                }
            },
        )
    }
}

impl fmt::Debug for LocalSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSocket").field("id", &self.base.id).finish_non_exhaustive()
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        self.base.stack.let_go(self.base.id);
    }
}
