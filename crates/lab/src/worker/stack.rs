//! Opening the stack that a job asks for.

use std::io;
use std::net::IpAddr;

use millstream::link::{Link, PairConfig, PairEnd, Tap, TapConfig, pair};
use millstream::route::{LinkId, Prefix};
use millstream::{Engine, EngineConfig};

use super::data::Opened;
use super::protocol::{Engine as Placement, MillstreamJob, MillstreamLink};
use crate::transport::{KernelNetwork, LocalNetwork, Network};

/// The kernel's sockets.
pub(super) fn kernel(buffer_bytes: Option<usize>) -> Result<Opened, String> {
    let mut network = KernelNetwork::new().map_err(|error| error.to_string())?;
    network.set_buffers(buffer_bytes);
    Ok(Opened { network: Box::new(network), stack: "kernel", notes: Vec::new() })
}

/// Millstream over a TAP device that it makes in another host's namespace.
pub(super) fn over_tap(job: &MillstreamJob, buffer_bytes: Option<usize>) -> Result<Opened, String> {
    let MillstreamLink::Tap { namespace, name } = &job.link else {
        return Err("a worker with one end needs a TAP device".to_owned());
    };
    let config = TapConfig {
        name: Some(name.clone()),
        netns: Some(namespace.clone()),
        mtu: job.mtu as usize,
        vnet_hdr: job.offload,
        offload: job.offload,
        ..TapConfig::default()
    };
    let tap = Tap::open(&config).map_err(|error| format!("cannot open {name}: {error}"))?;
    let notes = tap.notes().to_vec();
    millstream(Box::new(tap), &job.addresses, job, buffer_bytes, notes)
}

/// The two ends of an in-memory link.
pub(super) fn memory(job: &MillstreamJob) -> Result<(PairEnd, PairEnd), String> {
    let config =
        PairConfig { mtu: job.mtu as usize, offload: job.offload, ..PairConfig::default() };
    pair(config).map_err(|error| error.to_string())
}

/// Millstream over any link.
pub(super) fn millstream(
    link: Box<dyn Link>,
    addresses: &[(IpAddr, u8)],
    job: &MillstreamJob,
    buffer_bytes: Option<usize>,
    notes: Vec<String>,
) -> Result<Opened, String> {
    let (engine, link) = engine(link, addresses).map_err(|error| error.to_string())?;
    let mut network: Box<dyn Network> = match job.engine {
        Placement::Local => Box::new(LocalNetwork::new(engine, link)),
        Placement::Net => return Err("engine=net is not built yet".to_owned()),
    };
    network.set_buffers(buffer_bytes);
    Ok(Opened { network, stack: "millstream", notes })
}

fn engine(link: Box<dyn Link>, addresses: &[(IpAddr, u8)]) -> io::Result<(Engine, LinkId)> {
    let mut engine = Engine::new(EngineConfig::default())?;
    let link = engine.add_link(link)?;
    for (address, len) in addresses {
        engine
            .add_address(link, Prefix::new(*address, *len).ok_or(io::ErrorKind::InvalidInput)?)?;
    }
    Ok((engine, link))
}
