//! Errors of the laboratory, each as one line that says what was refused and what to do.

use std::fmt;
use std::io;

/// An error of the laboratory; its `Display` form is a single line.
#[derive(Debug)]
pub enum Error {
    /// The request is refused before it begins: an experiment, factor, level or option that is not
    /// accepted, a file or an interface that is not there. The text names the key, the value and
    /// what is allowed.
    Refused(String),
    /// A host, link or kernel setting could not be made.
    Host {
        /// The step that failed, as it stands after “cannot”.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A worker process failed, died, or did not answer in time.
    Worker(String),
    /// A file could not be read or written.
    File {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kept runs could not be read or written.
    Store(String),
    /// The user interrupted; what was finished is kept.
    Interrupted,
}

impl Error {
    /// Returns a closure for `map_err` that says what was being done.
    pub fn host(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Host { doing, source }
    }

    /// Returns a closure for `map_err` that names the file.
    pub fn file(path: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::Refused(text) | Error::Worker(text) | Error::Store(text) => text.clone(),
            Error::Host { doing, source } => format!("cannot {doing}: {source}"),
            Error::File { path, source } => format!("{path}: {source}"),
            Error::Interrupted => "interrupted; finished runs are kept".to_owned(),
        };
        // Names and values in it are whatever somebody wrote.
        f.write_str(&text.replace(char::is_control, " "))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_it_names() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let errors = [
            Error::Refused("unknown key 'a\nb'; allowed: name".to_owned()),
            Error::file("x\r\ny\u{1b}[2J.toml")(missing()),
            Error::host("move\nit")(missing()),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
