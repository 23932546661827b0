//! Opening the stack that a job asks for.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use millstream::link::netdev::MacvtapMode;
use millstream::link::{
    Link, MacvtapConfig, PairConfig, PairEnd, RawConfig, RawLink, Tap, TapConfig, pair,
};
use millstream::route::{LinkId, Prefix};
use millstream::{Engine, EngineConfig};

use super::data::Opened;
use super::protocol::{Engine as Placement, MillstreamJob, MillstreamLink};
use crate::limits;
use crate::transport::{KernelNetwork, LocalNetwork, Network, ThreadedNetwork};

/// What both stacks are asked for, socket by socket.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketOptions {
    /// Buffers; `None`: as the stack likes.
    pub(super) buffer_bytes: Option<usize>,
    /// Congestion control, as Linux spells it; `None`: the stack's default.
    pub(super) congestion: Option<String>,
    /// Own address of what connects, where the kernel is not to choose; of the kernel's sockets alone.
    pub(super) source: Option<IpAddr>,
}

/// The kernel's sockets. A congestion control that is not to be had is noted.
pub(super) fn kernel(options: &SocketOptions) -> Result<Opened, String> {
    let mut network = KernelNetwork::new().map_err(|error| error.to_string())?;
    network.set_buffers(options.buffer_bytes);
    network.set_source(options.source);
    let mut notes = Vec::new();
    if let Some(name) = &options.congestion
        && let Err(error) = network.set_congestion(name)
    {
        notes.push(format!("the kernel's sockets do not use {name}: {error}"));
    }
    Ok(Opened { network: Box::new(network), stack: "kernel", notes })
}

/// Millstream over the link of one end: a TAP device that it makes in another host's namespace, or a
/// packet socket on an interface of its own.
pub(super) fn one_end(
    job: &MillstreamJob,
    engine_cpu: Option<usize>,
    options: &SocketOptions,
) -> Result<Opened, String> {
    match &job.link {
        MillstreamLink::Tap { namespace, name } => {
            let (tap, notes) = tap(job, namespace, name)?;
            millstream(Box::new(tap), &job.addresses, job, engine_cpu, options, notes)
        }
        MillstreamLink::Macvtap { interface } => {
            let config = MacvtapConfig {
                interface: interface.clone(),
                mode: MacvtapMode::Passthru,
                offload: job.offload,
                ..MacvtapConfig::default()
            };
            let link = Tap::open_over(&config)
                .map_err(|error| format!("cannot have all of {interface}: {error}"))?;
            let notes = link.notes().to_vec();
            millstream(Box::new(link), &job.addresses, job, engine_cpu, options, notes)
        }
        MillstreamLink::Raw { interface } => {
            let config = RawConfig {
                interface: interface.clone(),
                receive_buffer_bytes: Some(limits::RAW_BUFFER_BYTES),
                ..RawConfig::default()
            };
            let link = RawLink::open(&config)
                .map_err(|error| format!("cannot use {interface}: {error}"))?;
            let notes = link.notes().to_vec();
            millstream(Box::new(link), &job.addresses, job, engine_cpu, options, notes)
        }
        MillstreamLink::Pair => Err("a worker with one end needs a device".to_owned()),
    }
}

fn tap(job: &MillstreamJob, namespace: &Path, name: &str) -> Result<(Tap, Vec<String>), String> {
    let config = TapConfig {
        name: Some(name.to_owned()),
        netns: Some(namespace.to_owned()),
        mtu: job.mtu as usize,
        vnet_hdr: job.offload,
        offload: job.offload,
        super_segment_bytes: job.super_segment_bytes,
        ..TapConfig::default()
    };
    let tap = Tap::open(&config).map_err(|error| format!("cannot open {name}: {error}"))?;
    let notes = tap.notes().to_vec();
    Ok((tap, notes))
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
    engine_cpu: Option<usize>,
    options: &SocketOptions,
    mut notes: Vec<String>,
) -> Result<Opened, String> {
    let addresses = addresses.to_vec();
    let live = job.live;
    let build = move || engine(link, &addresses, live);
    let local = |(engine, link)| -> Box<dyn Network> { Box::new(LocalNetwork::new(engine, link)) };
    let network = match job.engine {
        Placement::Local => build().map(local),
        Placement::Net => {
            ThreadedNetwork::spawn(engine_cpu, build).map(|net| Box::new(net) as Box<dyn Network>)
        }
    };
    let mut network = network.map_err(|error| format!("cannot start Millstream: {error}"))?;
    network.set_buffers(options.buffer_bytes);
    if let Some(name) = &options.congestion
        && let Err(error) = network.set_congestion(name)
    {
        notes.push(format!("Millstream's sockets do not use {name}: {error}"));
    }
    Ok(Opened { network, stack: "millstream", notes })
}

fn engine(
    link: Box<dyn Link>,
    addresses: &[(IpAddr, u8)],
    live: bool,
) -> io::Result<(Engine, LinkId)> {
    let mut config = EngineConfig::default().stage_sample(limits::STAGE_SAMPLE_TURNS);
    if live {
        config = config.live(limits::LIVE_NAME);
    }
    let mut engine = Engine::new(config)?;
    let link = engine.add_link(link)?;
    for (address, len) in addresses {
        engine
            .add_address(link, Prefix::new(*address, *len).ok_or(io::ErrorKind::InvalidInput)?)?;
    }
    Ok((engine, link))
}
