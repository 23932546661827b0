//! Where a store is: a file of this machine, or a database of a server.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};

use super::{StoreError, tls};

/// Where a server's socket is when its URL names no host, as Debian has it.
const SOCKETS: &str = "/var/run/postgresql";

/// Where a store is. Its text, in messages and records, has no password.
#[derive(Clone, Debug)]
pub enum Location {
    /// An SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(Box<Server>),
}

/// A PostgreSQL server's database, and as whom it is used.
#[derive(Clone, Debug)]
pub struct Server {
    /// The URL without a password.
    name: String,
    pub(super) config: postgres::Config,
    pub(super) tls: tls::Options,
}

impl Location {
    /// A URL that begins with `postgres://` or `postgresql://` is of a server, anything else a file.
    ///
    /// What the URL does not say: the host is the local socket, the user that of this process (so call it before a user
    /// namespace is entered), the database is named like the user, and the password is `PGPASSWORD` of the environment.
    /// Options of TLS and their variables are libpq's (`sslmode`, `sslrootcert`, `sslcert`, `sslkey`).
    pub fn parse(text: &OsStr) -> Result<Self, StoreError> {
        Self::parse_in(text, &|name| std::env::var_os(name))
    }

    pub(super) fn parse_in(
        text: &OsStr,
        environment: tls::Environment<'_>,
    ) -> Result<Self, StoreError> {
        let Some(url) = text.to_str().filter(|text| is_url(text)) else {
            return Ok(Self::File(text.into()));
        };
        let name = without_password(url);
        let (rest, given) = tls::taken_from(url);
        let mut config: postgres::Config = rest.parse().map_err(|error: postgres::Error| {
            StoreError::BadUrl { url: name.clone(), why: super::error::whole(&error) }
        })?;
        if config.get_hosts().is_empty() {
            // A server that is known by its address alone is called that.
            let addresses = config.get_hostaddrs().to_vec();
            if addresses.is_empty() {
                config.host_path(SOCKETS);
            }
            for address in &addresses {
                config.host(&address.to_string());
            }
        }
        let me = User::from_uid(geteuid()).ok().flatten();
        if let Some(me) = me.filter(|_| config.get_user().is_none()) {
            config.user(&me.name);
        }
        if let Some(password) = environment("PGPASSWORD").and_then(|word| word.into_string().ok())
            && config.get_password().is_none()
        {
            config.password(password);
        }
        let tls = tls::Options::new(&given, environment, &config)
            .map_err(|why| StoreError::BadOption { url: name.clone(), why })?;
        Ok(Self::Server(Box::new(Server { name, config, tls })))
    }

    /// The file, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// A word of a command line as it may be recorded: of a database's URL all but the password.
pub fn without_password(word: &str) -> String {
    let Some(at) = word.find("postgres://").or_else(|| word.find("postgresql://")) else {
        return word.to_owned();
    };
    let begin = at + word[at..].find("://").map_or(0, |colon| colon + 3);
    let (rest, query) = match word[begin..].split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (&word[begin..], None),
    };
    let mut kept = word[..begin].to_owned();
    match rest.rsplit_once('@') {
        Some((user, host)) => {
            kept.push_str(user.split(':').next().unwrap_or_default());
            kept.push('@');
            kept.push_str(host);
        }
        None => kept.push_str(rest),
    }
    let options = query.iter().flat_map(|query| query.split('&'));
    let options: Vec<&str> = options.filter(|one| !is_secret(one)).collect();
    if !options.is_empty() {
        kept.push('?');
        kept.push_str(&options.join("&"));
    }
    kept
}

fn is_secret(option: &str) -> bool {
    option.starts_with("password=") || option.starts_with("sslpassword=")
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(server) => f.write_str(&server.name),
        }
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Self {
        location.clone()
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Self {
        Self::File(path.clone())
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn parsed(text: &str) -> Result<Location, StoreError> {
        Location::parse(&OsString::from(text))
    }

    #[test]
    fn a_url_is_a_server_and_all_else_a_file() {
        for file in ["kept.sqlite3", "./postgres://x", "http://x", "postgres:", ""] {
            assert_eq!(parsed(file).unwrap().file(), Some(Path::new(file)), "{file}");
        }
        let Location::Server(server) = parsed("postgresql:///lab").unwrap() else { panic!() };
        let host = postgres::config::Host::Unix(SOCKETS.into());
        assert_eq!(server.config.get_hosts(), [host]);
        assert_eq!(server.config.get_dbname(), Some("lab"));
        assert!(server.config.get_user().is_some(), "whoever runs it");
    }

    #[test]
    fn a_password_is_never_told() {
        let cases = [
            ("postgres://ann:se@cret@db:5432/lab", "postgres://ann@db:5432/lab"),
            ("--db=postgresql://ann:secret@db/lab", "--db=postgresql://ann@db/lab"),
            ("postgres://db/lab?password=secret", "postgres://db/lab"),
            (
                "postgres:///lab?host=/run&password=secret&user=ann",
                "postgres:///lab?host=/run&user=ann",
            ),
            ("postgres://ann@db/lab", "postgres://ann@db/lab"),
            ("first-look", "first-look"),
        ];
        for (word, kept) in cases {
            assert_eq!(without_password(word), kept);
        }
        let wrong = parsed("postgres://ann:secret@db:port/lab").unwrap_err();
        let said = format!("{wrong} {wrong:?}");
        assert!(said.contains("ann@db:port") && !said.contains("secret"), "{said}");
        let right = parsed("postgres://ann:secret@db/lab").unwrap();
        let said = format!("{right} {right:?}");
        assert!(!said.contains("secret"), "{said}");
    }
}
