//! Opening the stack that a job asks for.

use std::io;
use std::net::IpAddr;

use millstream::link::{Link, PairConfig, PairEnd, Tap, TapConfig, pair};
use millstream::route::{LinkId, Prefix};
use millstream::{Engine, EngineConfig};

use super::data::Opened;
use super::protocol::{Engine as Placement, MillstreamJob, MillstreamLink};
use crate::transport::{KernelNetwork, LocalNetwork, Network, ThreadedNetwork};

/// The kernel's sockets. A congestion control that is not to be had is noted.
pub(super) fn kernel(
    buffer_bytes: Option<usize>,
    congestion: Option<String>,
) -> Result<Opened, String> {
    let mut network = KernelNetwork::new().map_err(|error| error.to_string())?;
    network.set_buffers(buffer_bytes);
    let mut notes = Vec::new();
    if let Some(name) = congestion
        && let Err(error) = network.set_congestion(&name)
    {
        notes.push(format!("the kernel's sockets do not use {name}: {error}"));
    }
    Ok(Opened { network: Box::new(network), stack: "kernel", notes })
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
    let addresses = addresses.to_vec();
    let build = move || engine(link, &addresses);
    let local = |(engine, link)| -> Box<dyn Network> { Box::new(LocalNetwork::new(engine, link)) };
    let network = match job.engine {
        Placement::Local => build().map(local),
        Placement::Net => {
            ThreadedNetwork::spawn(build).map(|net| Box::new(net) as Box<dyn Network>)
        }
    };
    let mut network = network.map_err(|error| format!("cannot start Millstream: {error}"))?;
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
