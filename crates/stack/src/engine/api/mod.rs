//! The calls of an engine: each hands the layers below to the one that answers it.

mod echo;
mod intercept;
mod ip;
mod tcp;
mod udp;

pub use echo::EchoHandle;
pub use intercept::Intercept;
pub use tcp::{ListenerHandle, TcpHandle};
pub use udp::UdpHandle;
