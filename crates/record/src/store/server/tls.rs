//! TLS to a PostgreSQL server. Its library's options say whether there is any (`sslmode`,
//! `sslnegotiation`); the server then has to prove its name by an authority that this machine
//! trusts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, Error, NoTls};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::address::Server;

/// The name of the protocol for a server that takes several on one port.
const PROTOCOL: &[u8] = b"postgresql";

/// Makes sessions with a server.
pub(in crate::store) struct Dialer {
    config: Config,
    /// `None` where there is to be no TLS, and over sockets of this machine, where no server has
    /// it.
    tls: Option<MakeRustlsConnect>,
}

impl Dialer {
    /// Reads the authorities that this machine trusts, where they are needed; nobody is connected
    /// to.
    pub(in crate::store) fn new(server: &Server) -> Self {
        let config = server.config.clone();
        let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let is_plain = is_local || config.get_ssl_mode() == SslMode::Disable;
        Self { config, tls: (!is_plain).then(connector) }
    }

    /// Returns how long a session may take to be made.
    pub(super) fn patience(&self) -> Duration {
        let each = self.config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(10));
        each * self.config.get_hosts().len().max(1) as u32
    }

    /// Makes a session, with TLS or without.
    pub(in crate::store) fn dial(&self) -> Result<Client, Error> {
        match &self.tls {
            Some(connector) => self.config.connect(connector.clone()),
            None => self.config.connect(NoTls),
        }
    }
}

fn connector() -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    // Without any, nobody is trusted: a server that has TLS is refused, and others are not
    // concerned.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let mut client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    MakeRustlsConnect::new(client)
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Returns what to do about an error, with its causes, where it is TLS's.
pub(super) fn remedy(error: &str) -> Option<&'static str> {
    if error.contains("server does not support TLS") {
        return Some(
            "turn it on there (ssl = on), or do without (sslmode=prefer) where the network is trusted",
        );
    }
    error.contains("TLS handshake").then_some(
        "name the server as its certificate does (hostaddr=ADDRESS says where it is); SSL_CERT_FILE=FILE names the \
         certificate of an authority that this machine does not know",
    )
}
