//! The calls of an engine: each hands the layers below to the one that answers it.

mod echo;
mod intercept;
mod links;
mod routes;
mod sockets;
mod tcp;
mod udp;

pub use echo::EchoHandle;
pub use intercept::Intercept;
pub use links::LinksHandle;
pub use routes::RoutesHandle;
pub use sockets::SocketsHandle;
pub use tcp::{ListenerHandle, TcpHandle};
pub use udp::UdpHandle;
