//! The near end over a TAP device.

use std::io;
use std::os::fd::AsRawFd;

use peers_common::{Awake, Deadline, Options, Role};
use smoltcp::iface::{Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;

/// Connects over `device` and does what the options say until the far end closes.
pub fn run(options: &Options, mut device: impl Device + AsRawFd) -> io::Result<()> {
    let _awake = Awake::of(options)?;
    let (mut interface, mut sockets, handle) = crate::host(&mut device, options.address, options);
    let socket = sockets.get_mut::<tcp::Socket>(handle);
    let peer = (std::net::IpAddr::from(*options.peer.ip()), options.peer.port());
    socket
        .connect(interface.context(), peer, 49_152)
        .map_err(|error| io::Error::other(format!("connect: {error}")))?;
    let mut load = Load::new(options);
    let deadline = Deadline::new(options.seconds);
    let mut opened = false;
    while !deadline.is_over() {
        let polled = interface.poll(Instant::now(), &mut device, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        let open = socket.may_recv() && socket.may_send();
        opened |= open;
        if opened && !open {
            break;
        }
        let moved = open && load.step(socket);
        if moved && options.role == Role::Echo {
            interface.poll_egress(Instant::now(), &mut device, &mut sockets);
        } else if !moved && polled == PollResult::None && !options.spin {
            sleep(&mut interface, &sockets, &device)?;
        }
    }
    leave(&mut interface, &mut sockets, handle, &mut device);
    println!("{{\"version\":\"smoltcp 0.14.0\",\"buffer\":{}}}", options.buffer);
    if opened { Ok(()) } else { Err(io::Error::other("not connected")) }
}

fn sleep(interface: &mut Interface, sockets: &SocketSet, device: &impl AsRawFd) -> io::Result<()> {
    let delay = interface.poll_delay(Instant::now(), sockets);
    phy::wait(device.as_raw_fd(), delay)
}

/// Resets the connection, so that the far end does not wait.
fn leave(
    interface: &mut Interface,
    sockets: &mut SocketSet,
    handle: SocketHandle,
    device: &mut impl Device,
) {
    sockets.get_mut::<tcp::Socket>(handle).abort();
    interface.poll_egress(Instant::now(), device, sockets);
}

/// What is done with the socket between two polls.
struct Load {
    role: Role,
    data: Vec<u8>,
}

impl Load {
    fn new(options: &Options) -> Self {
        Self { role: options.role, data: vec![7; options.call] }
    }

    /// Works until the socket has no more; whether there was anything.
    fn step(&mut self, socket: &mut tcp::Socket) -> bool {
        let mut moved = false;
        match self.role {
            Role::Send => {
                while socket.can_send() && socket.send_slice(&self.data).is_ok_and(|len| len != 0) {
                    moved = true;
                }
            }
            Role::Receive => {
                while socket.can_recv()
                    && socket.recv_slice(&mut self.data).is_ok_and(|len| len != 0)
                {
                    moved = true;
                }
            }
            _ => {
                let mut byte = [0];
                while socket.can_recv() && socket.recv_slice(&mut byte) == Ok(1) {
                    moved |= socket.send_slice(&byte) == Ok(1);
                }
            }
        }
        moved
    }
}
