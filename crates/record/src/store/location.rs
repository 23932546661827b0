//! Where a store is: a file of this machine, or a database of a server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::StoreError;
use super::server::Server;

/// A variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where a store is. Its text, in messages and records, has no password.
#[derive(Clone, Debug)]
pub enum Location {
    /// An SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(Box<Server>),
}

impl Location {
    /// Reads a URL that begins with `postgres://` or `postgresql://` as that of a server, and
    /// anything else as the path of a file.
    ///
    /// Parts that the URL leaves out have defaults: the host is the local socket, the user that of
    /// this process (so call it before a user namespace is entered), the database is named like the
    /// user, and the password is `PGPASSWORD` of the environment. Options of TLS are those of the
    /// server's library (`sslmode`, `sslnegotiation`).
    pub fn parse(text: &OsStr) -> Result<Self, StoreError> {
        Self::parse_in(text, &|name| std::env::var_os(name))
    }

    pub(super) fn parse_in(text: &OsStr, environment: Environment<'_>) -> Result<Self, StoreError> {
        match text.to_str().filter(|text| is_url(text)) {
            Some(url) => Ok(Self::Server(Box::new(Server::parse(url, environment)?))),
            None => Ok(Self::File(text.into())),
        }
    }

    /// Returns the file, where it is one.
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

/// Returns a word of a command line as it may be recorded: a database's URL without its password.
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
            Self::Server(server) => f.write_str(server.name()),
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

    fn parsed(text: &str) -> Result<Location, StoreError> {
        Location::parse(&OsString::from(text))
    }

    #[test]
    fn all_but_a_url_is_a_file() {
        for file in ["kept.sqlite3", "./postgres://x", "http://x", "postgres:", ""] {
            assert_eq!(parsed(file).unwrap().file(), Some(Path::new(file)), "{file}");
        }
    }

    #[test]
    #[cfg(not(feature = "postgres"))]
    fn a_url_is_refused_without_its_password_where_there_are_no_servers() {
        let said = parsed("postgres://ann:secret@db/lab").unwrap_err().to_string();
        assert!(said.starts_with("postgres://ann@db/lab: this millstream was built"), "{said}");
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
    }
}
