//! The two sides: the kernel with a TAP device, Millstream behind it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use millstream::link::{Fault, FaultConfig, Faults, Link, Reorder, Tap, TapConfig};
use millstream::packet::{Pool, PoolConfig};
use millstream::tcp::TcpInfo;
use millstream::{Engine, EngineConfig};

use crate::capture::Capture;
use crate::namespace::{Stop, say};

/// The version of IP a test uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    V4,
    V6,
}

impl Ip {
    /// The kernel's address; over a pair, that of the first end.
    pub fn kernel(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 70, 0, 1).into(),
            Self::V6 => Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    /// Millstream's address.
    pub fn ours(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 70, 0, 2).into(),
            Self::V6 => Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    pub fn prefix_len(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

/// A TAP device with the kernel's addresses on it.
pub fn tap(offload: bool) -> Result<Box<dyn Link>, Stop> {
    let config = TapConfig {
        name: Some("judge0".into()),
        vnet_hdr: offload,
        offload,
        super_segment_bytes: offload.then_some(262_144),
        host_addresses: [Ip::V4, Ip::V6].map(|ip| (ip.kernel(), ip.prefix_len())).into(),
        ..TapConfig::default()
    };
    let tap = Tap::open(&config).map_err(|error| match error.is_not_permitted() {
        true => Stop::Absent(format!("no TAP device here: {error}")),
        false => Stop::Failed(error.to_string()),
    })?;
    for note in tap.notes() {
        say(note);
    }
    Ok(Box::new(tap))
}

/// Returns the faults that the transfers have to survive, in both directions: of a hundred packets
/// one is lost and one overtaken, of a thousand one has a flipped bit.
pub fn faults(seed: u64) -> FaultConfig {
    let both = Faults {
        loss: 0.01,
        reorder: Some(Reorder { probability: 0.01, delay: Duration::from_millis(1) }),
        corrupt: 0.001,
        ..Faults::default()
    };
    FaultConfig { seed, transmit: both, receive: both }
}

/// The same of super-segments, which go on whole or are lost or overtaken whole: long gaps.
pub fn faults_of_wholes(seed: u64) -> FaultConfig {
    let whole = |faults| Faults { corrupt: 0.0, whole_super_segments: true, ..faults };
    let FaultConfig { transmit, receive, .. } = faults(seed);
    FaultConfig { seed, transmit: whole(transmit), receive: whole(receive) }
}

/// A link behind faults, captured on this side of them.
pub fn damaged(
    link: Box<dyn Link>,
    faults: FaultConfig,
    capture: &Capture,
) -> Result<Box<dyn Link>, Stop> {
    Ok(capture.trace(Fault::new(link, faults))?)
}

/// Addresses for an engine.
pub fn addresses(choose: fn(Ip) -> IpAddr) -> Vec<millstream::route::Prefix> {
    [Ip::V4, Ip::V6]
        .map(|ip| millstream::route::Prefix { addr: choose(ip), len: ip.prefix_len() })
        .into()
}

/// Returns the events of a connection as a short text.
pub fn story(info: &TcpInfo) -> String {
    format!(
        "{} retransmissions, {} recoveries ({} spurious), {} time-outs, {} loss probes, srtt {} us, \
         {} segments out of order, {} out, {} in",
        info.retransmits,
        info.fast_recoveries,
        info.spurious_recoveries,
        info.timeouts,
        info.loss_probes,
        info.srtt_us,
        info.out_of_order_segments,
        info.segments_out,
        info.segments_in,
    )
}

/// A pool of its own for an engine.
pub fn pool() -> Pool {
    Pool::new(PoolConfig::default()).expect("memory for a pool")
}

/// An engine with one link.
pub fn engine(
    pool: &Pool,
    link: Box<dyn Link>,
    choose: fn(Ip) -> IpAddr,
) -> std::io::Result<Engine> {
    let mut engine = Engine::new(EngineConfig::new(pool.clone()))?;
    let link = engine.add_link(link)?;
    for prefix in addresses(choose) {
        engine.add_address(link, prefix)?;
    }
    Ok(engine)
}
