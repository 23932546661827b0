//! Two TAP devices joined by a path with faults: a netem for machines without it.
//!
//! A packet that the kernel sends into one device comes out of the other after loss, delay, jitter,
//! reordering, duplication, corruption and a rate limit. Each direction has its own faults; their
//! chance comes from a seed. The devices end with the process, in whatever way it ends.

mod bridge;
mod change;
mod forwarder;
mod units;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use millstream::link::{Tap, TapConfig};
use millstream::packet::{Pool, PoolConfig};
use millstream_link::netdev::run_in;

pub use bridge::sleep;
pub use bridge::{Bridge, Way, until_interrupted};
pub use change::{Change, KEYS, describe};
pub use forwarder::Forwarder;
pub use units::{duration, prefix};

use crate::limits;
use millstream_netlink::Netlink;
use millstream_record::error::Error;

/// One of the two devices.
#[derive(Clone, Debug, Default)]
pub struct EndConfig {
    /// Its name.
    pub name: String,
    /// The namespace that it is made in: a name in /run/netns, or a path; `None`: the caller's.
    pub netns: Option<String>,
    /// Addresses to give it, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl EndConfig {
    /// Refuses a name that no device can have.
    fn check(&self) -> Result<(), Error> {
        let name = &self.name;
        let fits = (1..=limits::INTERFACE_NAME_BYTES).contains(&name.len());
        let plain = name.bytes().all(|b| b.is_ascii_graphic() && !b"/:%".contains(&b));
        if fits && plain && name != "." && name != ".." {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "'{name}' cannot be the name of a device; allowed: 1 to {} characters without blanks, \
             '/', ':' and '%'",
            limits::INTERFACE_NAME_BYTES
        )))
    }

    /// Makes the device and brings it up.
    ///
    /// # Errors
    /// A name or namespace that cannot be, or what the system refused, with what is needed.
    pub fn open(&self, mtu: usize, offload: bool) -> Result<(Tap, KernelDrops), Error> {
        self.check()?;
        let netns = self.netns.as_deref().map(namespace).transpose()?;
        let config = TapConfig {
            name: Some(self.name.clone()),
            netns: netns.clone(),
            mtu,
            offload,
            host_addresses: self.addresses.clone(),
            queue_packets: Some(limits::IMPAIR_QUEUE_PACKETS),
            ..TapConfig::default()
        };
        let refused = |error| Error::Refused(format!("cannot make '{}': {error}", self.name));
        let tap = Tap::open(&config).map_err(refused)?;
        let counters = run_in(netns.as_deref(), Netlink::route).ok().and_then(Result::ok);
        Ok((tap, KernelDrops { name: self.name.clone(), counters }))
    }
}

/// The path of a namespace: a name in /run/netns, or a path.
///
/// # Errors
/// When there is none.
pub fn namespace(name: &str) -> Result<PathBuf, Error> {
    let path =
        if name.contains('/') { PathBuf::from(name) } else { Path::new("/run/netns").join(name) };
    if path.exists() {
        return Ok(path);
    }
    Err(Error::Refused(format!(
        "no network namespace '{name}' ({}); make it with `ip netns add`, or give a path such as \
         /proc/PID/ns/net",
        path.display()
    )))
}

/// Memory for the packets of a command, taken as it is needed.
///
/// # Errors
/// When the system has none.
pub fn pool() -> Result<Pool, Error> {
    Pool::new(PoolConfig { prefault: false, ..PoolConfig::default() })
        .map_err(|error| Error::host("get memory for packets")(io::Error::other(error)))
}

/// A reader of the packets that the kernel dropped at a device.
pub struct KernelDrops {
    name: String,
    counters: Option<Netlink>,
}

impl KernelDrops {
    /// Packets dropped at the kernel's side of the device; `None` when it cannot be asked.
    pub fn count(&mut self) -> Option<u64> {
        let counters = self.counters.as_mut()?;
        counters.interface(&self.name).ok().map(|interface| interface.dropped)
    }
}
