//! The kernel as a contender: plain loops of `send` and `recv`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
use peers_common::{Awake, Deadline, Options, Role};

use crate::use_cubic;

/// Connects and does what the command line says until the far end closes.
pub fn run() -> std::io::Result<()> {
    let options = Options::from_args(0);
    let _awake = Awake::of(&options)?;
    let mut stream = open(options.peer)?;
    let deadline = Deadline::new(options.seconds);
    let mut data = vec![3_u8; options.call];
    match options.role {
        Role::Send => while !deadline.is_over() && stream.write_all(&data).is_ok() {},
        Role::Receive => {
            while !deadline.is_over() && stream.read(&mut data).is_ok_and(|len| len != 0) {}
        }
        Role::Echo => {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(options.spin)?;
            echo(&mut stream, &deadline);
        }
        Role::MemoryBulk | Role::MemoryRr => {
            return Err(std::io::Error::new(
                ErrorKind::Unsupported,
                "the kernel has no memory link",
            ));
        }
    }
    println!("{{}}");
    Ok(())
}

fn open(peer: SocketAddrV4) -> std::io::Result<TcpStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    use_cubic(&socket)?;
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::from(peer))?;
    Ok(TcpStream::from(socket))
}

fn echo(stream: &mut TcpStream, deadline: &Deadline) {
    let mut byte = [0];
    while !deadline.is_over() {
        match stream.read(&mut byte) {
            Ok(1) if stream.write_all(&byte).is_ok() => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            _ => return,
        }
    }
}
