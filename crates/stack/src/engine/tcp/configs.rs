//! Configurations that connections have in common.

use std::sync::Arc;

use millstream_tcp::Config;

/// Configurations kept to be given out again: most connections of an engine have one of a few.
const KEPT: usize = 16;

/// The configurations given out last. One that is not among them any more is shared by those that
/// have it.
pub(crate) struct Configs {
    /// The engine's setting that all of them have
    /// ([`Tuning::windows_bytes`](crate::tuning::Tuning)).
    windows_bytes: usize,
    /// The most recent first.
    recent: Vec<Arc<Config>>,
}

impl Configs {
    /// None given out yet.
    pub const fn new(windows_bytes: usize) -> Self {
        Self { windows_bytes, recent: Vec::new() }
    }

    /// `config` as others have it.
    pub fn shared(&mut self, config: Config) -> Arc<Config> {
        let config = config.windows_bytes(self.windows_bytes);
        if let Some(at) = self.recent.iter().position(|known| **known == config) {
            self.recent[..=at].rotate_right(1);
        } else {
            self.recent.truncate(KEPT - 1);
            self.recent.insert(0, Arc::new(config));
        }
        Arc::clone(&self.recent[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_one() {
        let mut configs = Configs::new(4 << 20);
        let with = |mss| Config::default().mss(mss).windows_bytes(4 << 20);
        let first = configs.shared(with(1000));
        assert!(Arc::ptr_eq(&first, &configs.shared(with(1000))));
        let own = with(1000).windows_bytes(1 << 20);
        assert!(Arc::ptr_eq(&first, &configs.shared(own)), "that is the engine's");
        for mss in 1001..1015 {
            assert_eq!(*configs.shared(with(mss)), with(mss));
        }
        assert!(Arc::ptr_eq(&first, &configs.shared(with(1000))), "used of late");
        for mss in 2000..2016 {
            configs.shared(with(mss));
        }
        assert!(!Arc::ptr_eq(&first, &configs.shared(with(1000))));
        assert_eq!(configs.recent.len(), KEPT);
    }
}
