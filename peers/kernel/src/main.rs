//! The kernel's sockets: the far end of every contender, which measures, and the near end of the
//! kernel.
//!
//! ```text
//! peer-kernel far send|receive|echo --listen A:P --device NAME [--warm S] [--window S] [--call BYTES] [--spin]
//! peer-kernel send|receive|echo --peer A:P [--call BYTES] [--spin] [--awake]
//! ```
//! The role is the near end's: `far send` receives.
#![deny(unsafe_code)]

mod far;
mod near;
#[allow(unsafe_code, reason = "a request of the kernel's that no library wraps")]
mod queue;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

fn main() {
    let is_far = std::env::args().nth(1).as_deref() == Some("far");
    if let Err(error) = if is_far { far::run() } else { near::run() } {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// The congestion control that every kernel socket of a comparison uses.
fn use_cubic(socket: impl AsFd) -> io::Result<()> {
    setsockopt(&socket, sockopt::TcpCongestion, &OsString::from("cubic"))?;
    Ok(())
}
