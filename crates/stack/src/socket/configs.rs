//! Configurations that connections have in common.

use std::sync::Arc;

use millstream_tcp::Config;

/// Configurations kept to be given out again: most connections of an engine have one of a few.
const KEPT: usize = 16;

/// The configurations given out last. One that is not among them any more is shared by those that have it.
#[derive(Default)]
pub(crate) struct Configs {
    /// The most recent first.
    recent: Vec<Arc<Config>>,
}

impl Configs {
    /// `config` as others have it.
    pub fn shared(&mut self, config: Config) -> Arc<Config> {
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
        let mut configs = Configs::default();
        let with = |mss| Config { mss, ..Config::default() };
        let first = configs.shared(with(1000));
        assert!(Arc::ptr_eq(&first, &configs.shared(with(1000))));
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
