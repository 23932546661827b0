//! How an engine is published.

use std::path::PathBuf;
use std::time::Duration;

/// Under which name an engine publishes its counters, and where (docs/live.md). The name is enough:
/// `EngineConfig::default().live("proxy")`.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::LiveConfig;
///
/// let config = LiveConfig::new("proxy").directory("/run/proxy").every(Duration::from_millis(100));
/// assert_eq!(config.name, "proxy");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveConfig {
    /// The engine's name for people: 1 to 32 of `A–Z a–z 0–9 . _ -`, the first a letter or digit.
    /// Several engines may have one name.
    pub name: String,
    /// A directory of mode 0700, made where it is not there; `None` looks for one in memory
    /// ([`Directory::of_user`](millstream_live::Directory::of_user)). One on a disk may hold the engine
    /// up.
    pub directory: Option<PathBuf>,
    /// How often the engine publishes while it has work.
    pub every: Duration,
}

impl LiveConfig {
    /// Under this name, every 10 ms.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), directory: None, every: Duration::from_millis(10) }
    }

    /// In another [`directory`](field@Self::directory).
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// At other [times](field@Self::every).
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }
}

impl From<&str> for LiveConfig {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for LiveConfig {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}
