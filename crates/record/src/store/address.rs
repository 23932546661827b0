//! A server's database, and as whom it is used: the URL read.

use std::ffi::OsString;

use nix::unistd::{User, geteuid};

use super::secret::without_password;

/// Where a server's socket is when its URL names no host, as Debian has it.
const SOCKETS: &str = "/var/run/postgresql";

/// A PostgreSQL server's database, and as whom it is used.
#[derive(Clone, Debug)]
pub struct Server {
    /// The URL without a password.
    name: String,
    pub(super) config: postgres::Config,
}

impl Server {
    /// Reads a URL of PostgreSQL. Errors: it is none, or an option of it has no such value.
    pub(super) fn parse(
        url: &str,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, String> {
        let name = without_password(url);
        let mut config: postgres::Config = url.parse().map_err(|error: postgres::Error| {
            format!("{}; write it as postgres://USER@HOST/DATABASE", whole(&error))
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
        #[expect(clippy::disallowed_methods, reason = "a password of a URL is text")]
        if let Some(password) = environment("PGPASSWORD").and_then(|word| word.into_string().ok())
            && config.get_password().is_none()
        {
            config.password(password);
        }
        Ok(Self { name, config })
    }

    /// Returns the URL without a password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns an error with its causes, as far as it does not name them itself.
pub(super) fn whole(error: &postgres::Error) -> String {
    let mut text = match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = std::error::Error::source(error).filter(|_| error.as_db_error().is_none());
    while let Some(one) = cause {
        let said = one.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = one.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::{Location, StoreError};
    use super::*;

    fn parsed(text: &str) -> Result<Location, StoreError> {
        Location::parse(&OsString::from(text))
    }

    #[test]
    fn a_url_is_a_server() {
        let Location::Server(server) = parsed("postgresql:///lab").unwrap() else { panic!() };
        let host = postgres::config::Host::Unix(SOCKETS.into());
        assert_eq!(server.config.get_hosts(), [host]);
        assert_eq!(server.config.get_dbname(), Some("lab"));
        assert!(server.config.get_user().is_some(), "whoever runs it");
    }

    #[test]
    fn a_password_is_never_told() {
        let wrong = parsed("postgres://ann:secret@db:port/lab").unwrap_err();
        let said = format!("{wrong} {wrong:?}");
        assert!(said.contains("ann@db:port") && !said.contains("secret"), "{said}");
        let right = parsed("postgres://ann:secret@db/lab").unwrap();
        let said = format!("{right} {right:?}");
        assert!(!said.contains("secret"), "{said}");
    }
}
