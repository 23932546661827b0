//! Why a link could not be opened, set up or used.

use std::fmt;
use std::io;

/// A refusal by a link: what was tried and what the system said about it.
///
/// Damaged, surplus or oversized packets are never errors: links count them by
/// [`DropCause`](crate::DropCause) and go on.
#[derive(Debug)]
pub enum LinkError {
    /// A system call failed; `what` names the attempted step and its object.
    System {
        /// The step, for people, with what it takes where that is known: `set MTU of ms0`,
        /// `open a packet socket on eth0 (it takes CAP_NET_RAW, as root has)`.
        what: String,
        /// The system's answer.
        error: io::Error,
    },
    /// The caller asked for something no such link can be.
    Invalid(String),
}

impl LinkError {
    /// The last operating system error, as the failure of `what`.
    pub(crate) fn last(what: impl Into<String>) -> Self {
        Self::System { what: what.into(), error: io::Error::last_os_error() }
    }

    /// `error` as the failure of `what`.
    pub fn from_io(what: impl Into<String>, error: io::Error) -> Self {
        Self::System { what: what.into(), error }
    }

    /// Interface `name` is there no more.
    pub(crate) fn gone(name: &str) -> Self {
        let what = format!(
            "{name} was removed or moved to another namespace (one of its name is another, to be opened anew)"
        );
        Self::from_io(what, io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// The same; where privilege was missing, with what it takes.
    pub(crate) fn needing(needs: &str, what: impl Into<String>, error: io::Error) -> Self {
        let what = what.into();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::from_io(format!("{what} (it takes {needs})"), error)
            }
            _ => Self::from_io(what, error),
        }
    }

    /// True when the system refused for want of privilege or of the device: a test may skip, a
    /// program may fall back to another link.
    pub fn is_not_permitted(&self) -> bool {
        let Self::System { error, .. } = self else { return false };
        matches!(
            error.raw_os_error(),
            Some(libc::EPERM | libc::EACCES | libc::ENOENT | libc::ENODEV | libc::ENXIO)
        )
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, error } => write!(f, "{what}: {error}"),
            Self::Invalid(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            Self::Invalid(_) => None,
        }
    }
}

impl From<LinkError> for io::Error {
    fn from(error: LinkError) -> Self {
        let kind = match &error {
            LinkError::System { error, .. } => error.kind(),
            LinkError::Invalid(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_privilege_says_what_it_takes() {
        let refused = |code| {
            let error = io::Error::from_raw_os_error(code);
            LinkError::needing("CAP_NET_RAW", "open a socket", error).to_string()
        };
        assert!(refused(libc::EPERM).starts_with("open a socket (it takes CAP_NET_RAW): "));
        assert!(refused(libc::EACCES).contains("CAP_NET_RAW"));
        assert!(refused(libc::ENODEV).starts_with("open a socket: "));
    }
}
