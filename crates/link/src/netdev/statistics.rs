//! A driver's own counters beside those that every interface has: of each queue, and why it dropped
//! (`ethtool -S`).

use std::io;
use std::os::fd::OwnedFd;

use super::ethtool::ask_by;
use super::socket;
use crate::LinkError;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
/// `ETH_SS_STATS`: the set of names that belongs to the counters.
const SET: u32 = 1;
/// Bytes of a name (`ETH_GSTRING_LEN`).
const NAME_BYTES: usize = 32;
/// Counters of an interface that are read. A driver with 128 queues has some 5,000.
const LIMIT: usize = 16_384;

/// The counters of one driver, open to be read as often as one likes.
///
/// It stays with the network namespace that it was opened in. An interface that was removed, or has
/// other counters than before, is an error.
#[derive(Debug)]
pub struct DriverStatistics {
    socket: OwnedFd,
    interface: String,
    names: Vec<String>,
    /// Room for an answer: two words of head, then the names or values of twice [`LIMIT`] counters.
    answer: Box<[u64]>,
}

impl DriverStatistics {
    /// Opens those of interface `name` of the calling thread's namespace.
    ///
    /// # Errors
    /// When there is no such interface, or its driver counts nothing of its own (`EOPNOTSUPP`).
    pub fn open(name: &str) -> Result<Self, LinkError> {
        let opened = || -> io::Result<Self> {
            let socket = socket()?;
            let answer = vec![0; 2 + 2 * LIMIT * NAME_BYTES / 8].into_boxed_slice();
            let mut statistics = Self { socket, interface: name.to_owned(), names: vec![], answer };
            statistics.names = statistics.read_names()?;
            Ok(statistics)
        };
        opened().map_err(|error| LinkError::from_io(format!("driver's counters of {name}"), error))
    }

    /// Their names, in the driver's order. Two may have the same.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Their values now, in the order of the names. Takes what the driver takes: microseconds, or
    /// where it asks the device, milliseconds.
    ///
    /// # Errors
    /// When the interface is gone, or has other counters than when it was opened: its queues were
    /// changed.
    pub fn read(&mut self) -> Result<&[u64], LinkError> {
        let count = self.names.len();
        let done = self.count().and_then(|now| match now == count {
            true => self.ask([ETHTOOL_GSTATS, now as u32]),
            false => Err(io::Error::other(format!("{now} counters, {count} before"))),
        });
        let what = || format!("driver's counters of {}", self.interface);
        done.map_err(|error| LinkError::from_io(what(), error))?;
        // struct ethtool_stats: command and count in one word, then the values.
        Ok(&self.answer[1..1 + count])
    }

    fn read_names(&mut self) -> io::Result<Vec<String>> {
        let count = self.count()?;
        // struct ethtool_gstrings: command, set, count, then the names, which begin in the middle
        // of the second word.
        self.answer[1] = 0;
        self.ask([ETHTOOL_GSTRINGS, SET])?;
        let bytes: Vec<u8> = self
            .answer
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .skip(12)
            .take(count * NAME_BYTES)
            .collect();
        let text = |name: &[u8]| {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            String::from_utf8_lossy(&name[..end]).trim().to_owned()
        };
        Ok(bytes.chunks_exact(NAME_BYTES).map(text).collect())
    }

    /// Returns how many there are now.
    fn count(&mut self) -> io::Result<usize> {
        // struct ethtool_sset_info: command, reserved, the mask of sets, then a count for each set
        // of the mask.
        self.answer[1] = 1 << SET;
        self.answer[2] = 0;
        self.ask([ETHTOOL_GSSET_INFO, 0])?;
        let count = match self.answer[1] {
            0 => 0,
            _ => u32::from_ne_bytes(*self.answer[2].to_ne_bytes().first_chunk().expect("a word"))
                as usize,
        };
        match count {
            0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            1..=LIMIT => Ok(count),
            _ => Err(io::Error::other(format!("{count} counters, {LIMIT} at most are read"))),
        }
    }

    /// Has the driver answer a command, which begins with these two words of 32 bits.
    fn ask(&mut self, [command, second]: [u32; 2]) -> io::Result<()> {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&command.to_ne_bytes());
        head[4..].copy_from_slice(&second.to_ne_bytes());
        self.answer[0] = u64::from_ne_bytes(head);
        // SAFETY: `answer` is live, aligned for every structure of these commands, and has room for
        // what the kernel writes: the names or the values of all counters that the driver has at
        // this moment. There were LIMIT of them at most when they were counted a moment ago, and
        // there is room for the names of twice as many, which is room for the values of eight times
        // as many.
        unsafe { ask_by(&self.socket, &self.interface, self.answer.as_mut_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::{self, Namespace};
    use crate::testing::permitted;

    #[test]
    fn a_virtual_pair_has_counters_of_each_queue() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let made = namespace.run(|| netdev::add_veth("ms0", "ms1", None, 2));
        if permitted(made.and_then(|made| made)).is_none() {
            return;
        }
        let peer = namespace.run(|| netdev::index("ms1")).unwrap().unwrap();
        let mut found = namespace.run(|| DriverStatistics::open("ms0")).unwrap().unwrap();
        let at = |name: &str| found.names().iter().position(|one| one == name);
        let (peer_at, queue) = (at("peer_ifindex").unwrap(), at("rx_queue_1_drops"));
        assert!(queue.is_some(), "of the second queue: {:?}", found.names());
        // From outside of the namespace.
        let values = found.read().unwrap();
        assert_eq!(values[peer_at], u64::from(peer));
        assert_eq!(values.len(), found.names().len());
        namespace.run(|| netdev::remove("ms0")).unwrap().unwrap();
        assert!(found.read().is_err());
    }

    #[test]
    fn a_driver_without_counters_says_so() {
        let refused = DriverStatistics::open("lo").unwrap_err().to_string();
        assert!(refused.contains("driver's counters of lo"), "{refused}");
        assert!(DriverStatistics::open("no-such-one").is_err());
    }
}
