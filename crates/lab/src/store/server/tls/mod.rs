//! TLS to a PostgreSQL server: when there is any, whom it trusts, and how a session is made with it. Options and their
//! meaning are libpq's.

mod failure;
mod trust;

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use postgres::config::{Host, SslMode, SslNegotiation};
use postgres::error::SqlState;
use postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::location::Environment;
use super::super::{Location, StoreError};
use super::address::Server;

pub(super) use failure::explained;

/// The options of a URL that are looked at here, each with the variable of the environment that stands in for it.
const OPTIONS: [(&str, &str); 4] = [
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
];

/// `sslmode`. Each asks for more than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    /// No TLS.
    Disable,
    /// TLS where the server refuses to do without.
    Allow,
    /// TLS where the server has it and it can be agreed on.
    Prefer,
    /// TLS. The server is verified where there are authorities to do it by, as with the next.
    Require,
    /// TLS, and an authority that is trusted has signed the server's certificate.
    VerifyCa,
    /// That, and the certificate is for the host's name.
    VerifyFull,
}

/// Who may sign a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Authorities {
    /// Nobody is asked for.
    None,
    /// Those of a file.
    File(PathBuf),
    /// Those that this machine trusts.
    System,
}

/// Certificate and private key of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
}

/// What a URL and the environment say of TLS. No file has been looked into.
#[derive(Clone, Debug)]
pub(super) struct Options {
    mode: Mode,
    authorities: Authorities,
    identity: Option<Identity>,
}

/// The options of a URL that are for here.
pub(super) struct Given(Vec<(&'static str, OsString)>);

/// Takes the options that are for here out of a URL.
pub(super) fn taken_from(url: &str) -> (String, Given) {
    let Some((before, query)) = url.split_once('?') else {
        return (url.to_owned(), Given(Vec::new()));
    };
    let mut given = Vec::new();
    let mut others = Vec::new();
    for each in query.split('&') {
        let (key, value) = each.split_once('=').unwrap_or((each, ""));
        match OPTIONS.iter().find(|(option, _)| *option == key) {
            Some((option, _)) => {
                given.push((*option, OsString::from_vec(percent_decode_str(value).collect())));
            }
            None => others.push(each),
        }
    }
    let mut rest = before.to_owned();
    if others.iter().any(|one| !one.is_empty()) {
        rest = format!("{rest}?{}", others.join("&"));
    }
    (rest, Given(given))
}

impl Options {
    /// What they mean, or what is wrong with them and what to do, in one line.
    pub(super) fn new(
        given: &Given,
        environment: Environment<'_>,
        config: &Config,
    ) -> Result<Self, String> {
        let value = |option: &str| {
            let in_url = given.0.iter().rev().find(|(name, _)| *name == option);
            let variable = OPTIONS.iter().find(|(name, _)| *name == option);
            let value = in_url.map(|(_, value)| value.clone());
            value
                .or_else(|| variable.and_then(|(_, name)| environment(name)))
                .filter(|value| !value.is_empty())
        };
        let home = environment("HOME").filter(|home| !home.is_empty());
        let usual = |name: &str| home.as_ref().map(|h| Path::new(h).join(".postgresql").join(name));
        let there = |name: &str| usual(name).filter(|path| path.exists());

        let authorities = match value("sslrootcert") {
            Some(word) if word == "system" => Authorities::System,
            Some(file) => Authorities::File(file.into()),
            None => there("root.crt").map_or(Authorities::None, Authorities::File),
        };
        let asked = value("sslmode").as_deref().map(mode).transpose()?;
        let mode = match (asked, &authorities) {
            (None, Authorities::System) => Mode::VerifyFull,
            // They sign for everybody, each for names of their own: without the name it would mean nothing.
            (Some(weak), Authorities::System) if weak < Mode::VerifyFull => {
                return Err("sslrootcert=system needs sslmode=verify-full".to_owned());
            }
            (Some(Mode::VerifyCa), Authorities::None) => {
                return Err("sslmode=verify-ca needs the certificate of the server's authority: \
                            add sslrootcert=FILE"
                    .to_owned());
            }
            (asked, _) => asked.unwrap_or(Mode::Prefer),
        };
        let authorities = match authorities {
            Authorities::None if mode == Mode::VerifyFull => Authorities::System,
            named => named,
        };
        let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        if direct && mode < Mode::Require {
            return Err(
                "sslnegotiation=direct needs sslmode=require, verify-ca or verify-full".to_owned()
            );
        }
        let certificate = value("sslcert").map(PathBuf::from).or_else(|| there("postgresql.crt"));
        let key = value("sslkey").map(PathBuf::from);
        let identity = match (certificate, key) {
            (Some(certificate), key) => {
                let key = key.or_else(|| usual("postgresql.key"));
                let key = key.ok_or("sslcert needs the private key: add sslkey=FILE")?;
                Some(Identity { certificate, key })
            }
            (None, Some(_)) => {
                return Err("sslkey needs the certificate: add sslcert=FILE".to_owned());
            }
            (None, None) => None,
        };
        // Nothing leaves the machine over its own socket, where no server has TLS.
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let mode = if local { Mode::Disable } else { mode };
        Ok(Self { mode, authorities, identity })
    }
}

fn mode(word: &OsStr) -> Result<Mode, String> {
    Ok(match word.to_str() {
        Some("disable") => Mode::Disable,
        Some("allow") => Mode::Allow,
        Some("prefer") => Mode::Prefer,
        Some("require") => Mode::Require,
        Some("verify-ca") => Mode::VerifyCa,
        Some("verify-full") => Mode::VerifyFull,
        _ => {
            return Err(format!(
                "sslmode is one of disable, allow, prefer, require, verify-ca and verify-full, not {word:?}"
            ));
        }
    })
}

/// Makes sessions with a server.
pub(in crate::store) struct Dialer {
    plain: Config,
    tls: Option<Tls>,
    mode: Mode,
}

struct Tls {
    config: Config,
    connector: MakeRustlsConnect,
}

impl Dialer {
    /// Reads the files of certificates; nobody is connected to.
    pub(in crate::store) fn new(server: &Server) -> Result<Self, StoreError> {
        let Options { mode, authorities, identity } = &server.tls;
        let with = |mode| {
            let mut config = server.config.clone();
            config.ssl_mode(mode);
            config
        };
        let tls = match mode {
            Mode::Disable => None,
            _ => {
                let by_name = *mode == Mode::VerifyFull;
                let client = trust::client(authorities, by_name, identity.as_ref());
                let client = client.map_err(|why| StoreError::Tls {
                    at: Location::Server(Box::new(server.clone())),
                    why,
                })?;
                let asked = if *mode == Mode::Prefer { SslMode::Prefer } else { SslMode::Require };
                Some(Tls { config: with(asked), connector: MakeRustlsConnect::new(client) })
            }
        };
        Ok(Self { plain: with(SslMode::Disable), tls, mode: *mode })
    }

    /// How long a session may take to be made: each host twice, with TLS and without.
    pub(super) fn patience(&self) -> Duration {
        let each = self.plain.get_connect_timeout().copied().unwrap_or(Duration::from_secs(10));
        each * 2 * self.plain.get_hosts().len().max(1) as u32
    }

    /// A session, with TLS or without.
    pub(in crate::store) fn dial(&self) -> Result<Client, Error> {
        let plain = || self.plain.connect(NoTls);
        let Some(Tls { config, connector }) = &self.tls else { return plain() };
        let encrypted = || config.connect(connector.clone());
        match self.mode {
            Mode::Allow => plain()
                .or_else(|refused| if is_unwelcome(&refused) { encrypted() } else { Err(refused) }),
            // Where both fail, the first says more.
            Mode::Prefer => encrypted().or_else(|failed| {
                let without = failure::is_of_handshake(&failed) || is_unwelcome(&failed);
                if without { plain().map_err(|_| failed) } else { Err(failed) }
            }),
            _ => encrypted(),
        }
    }
}

/// Whether the server takes nobody who comes in this manner.
fn is_unwelcome(error: &Error) -> bool {
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// What rustls said, wherever it stands among the causes.
fn of_rustls(error: &Error) -> Option<&rustls::Error> {
    let mut cause = error.source();
    while let Some(one) = cause {
        let inner = one.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
        let said = inner.and_then(|inner| inner.downcast_ref()).or_else(|| one.downcast_ref());
        if said.is_some() {
            return said;
        }
        cause = one.source();
    }
    None
}

#[cfg(test)]
mod tests;
