//! Names, looked up by DNS over an engine's sockets.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime};

use crate::{Stack, TcpStream, UdpSocket};

/// A connection to a server takes so long at most, unless the resolver says otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// The resolver of hickory-dns over an engine's sockets: `lookup_ip("host.example.")` and all its
/// other calls.
pub type Resolver = hickory_resolver::Resolver<Sockets>;

/// Returns a resolver that asks these servers, by UDP and where an answer is too long by TCP. With
/// other settings it is made by [`Resolver::builder_with_config`] and [`Sockets`].
pub fn resolver(stack: &Stack, servers: &[IpAddr]) -> Result<Resolver, NetError> {
    let servers = servers.iter().map(|server| NameServerConfig::udp_and_tcp(*server)).collect();
    let config = ResolverConfig::from_name_servers(servers);
    Resolver::builder_with_config(config, Sockets::new(stack)).build()
}

/// The sockets of an engine for hickory-dns.
#[derive(Clone)]
pub struct Sockets {
    stack: Stack,
    tasks: TokioHandle,
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").finish_non_exhaustive()
    }
}

impl Sockets {
    /// Returns those of this engine.
    pub fn new(stack: &Stack) -> Self {
        Self { stack: stack.clone(), tasks: TokioHandle::default() }
    }
}

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl RuntimeProvider for Sockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.tasks.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        _from: Option<SocketAddr>,
        within: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let stack = self.stack.clone();
        Box::pin(async move {
            let connect = TcpStream::connect(&stack, server);
            let stream = tokio::time::timeout(within.unwrap_or(CONNECT), connect).await??;
            stream.set_nodelay(true).await?;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, own: SocketAddr, _server: SocketAddr) -> Opening<UdpSocket> {
        let stack = self.stack.clone();
        Box::pin(async move { UdpSocket::bind(&stack, own).await })
    }
}

impl DnsUdpSocket for UdpSocket {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        Self::poll_recv_from(self, context, buffer)
    }

    fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        Self::poll_send_to(self, context, bytes, to)
    }
}
