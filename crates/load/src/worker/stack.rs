//! Opening the stack that a job asks for.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use millstream::link::MacvtapMode;
use millstream::link::{
    Link, LinkError, MacvtapConfig, PairConfig, PairEnd, RawConfig, RawLink, Tap, TapConfig, Xdp,
    XdpConfig, pair,
};
use millstream::packet::{Pool, PoolConfig};
use millstream::route::{LinkId, Prefix};
use millstream::{Engine, EngineConfig};

use super::protocol::{Engine as Placement, MillstreamJob, MillstreamLink};
use crate::limits;
use crate::transport::{KernelNetwork, LocalNetwork, Network, ThreadedNetwork};

/// The options that both stacks are asked for, socket by socket.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketOptions {
    /// Buffers; `None`: as the stack likes.
    pub(super) buffer_bytes: Option<usize>,
    /// Congestion control, as Linux spells it; `None`: the stack's default.
    pub(super) congestion: Option<String>,
    /// Own address of sockets that connect, where the kernel is not to choose it; for the kernel's
    /// sockets alone.
    pub(super) source: Option<IpAddr>,
}

/// A stack and what can be asked of it besides traffic.
pub(super) struct Opened {
    pub(super) network: Box<dyn Network>,
    pub(super) stack: &'static str,
    pub(super) notes: Vec<String>,
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

/// Millstream over the link of one end.
pub(super) fn one_end(
    job: &MillstreamJob,
    engine_cpu: Option<usize>,
    options: &SocketOptions,
) -> Result<Opened, String> {
    let pool = pool()?;
    let wanted = LinkOptions {
        mtu: job.mtu as usize,
        offload: job.offload,
        super_segment_bytes: job.super_segment_bytes,
        ring_packets: None,
    };
    let (link, notes) = open(&job.link, &wanted, &pool)?;
    millstream((link, pool), &job.addresses, job, engine_cpu, options, notes)
}

/// Memory for packets, which grows.
pub(super) fn pool() -> Result<Pool, String> {
    Pool::new(PoolConfig::default()).map_err(|error| error.to_string())
}

/// Memory for packets that AF_XDP sockets can use: all of it from the beginning.
pub(super) fn fixed_pool() -> Result<Pool, String> {
    Pool::new(PoolConfig::fixed(limits::ROUTER_FRAMES)).map_err(|error| error.to_string())
}

/// The wanted properties of a link. A link has them as far as it can.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkOptions {
    /// Largest IP packet of a device that is made.
    pub(super) mtu: usize,
    /// Checksum and segmentation offload of a device that is made.
    pub(super) offload: bool,
    /// Bytes of the longest super-segment over a TAP device; `None` leaves that to the device.
    pub(super) super_segment_bytes: Option<u32>,
    /// Packets that each ring takes; `None`: as links are made.
    pub(super) ring_packets: Option<u32>,
}

/// Opens a device, and tells its notes: a TAP device that it makes in another host's namespace, or
/// something on an interface of its own.
pub(super) fn open(
    link: &MillstreamLink,
    wanted: &LinkOptions,
    pool: &Pool,
) -> Result<(Box<dyn Link>, Vec<String>), String> {
    let failed = |what: String| move |error: LinkError| format!("cannot {what}: {error}");
    let link: Box<dyn Link> = match link {
        MillstreamLink::Tap { namespace, name } => {
            let config = tap_config(namespace, name, wanted);
            Box::new(Tap::open(&config).map_err(failed(format!("open {name}")))?)
        }
        MillstreamLink::Macvtap { interface } => {
            let config = MacvtapConfig {
                interface: interface.clone(),
                mode: MacvtapMode::Passthru,
                offload: wanted.offload,
                ..MacvtapConfig::default()
            };
            let tap = Tap::open_over(&config);
            Box::new(tap.map_err(failed(format!("have all of {interface}")))?)
        }
        MillstreamLink::Raw { interface } => {
            let bytes = |packets| packets as usize * limits::RAW_PACKET_BYTES;
            let config = RawConfig {
                interface: interface.clone(),
                receive_buffer_bytes: Some(
                    wanted.ring_packets.map_or(limits::RAW_BUFFER_BYTES, bytes),
                ),
                ..RawConfig::default()
            };
            Box::new(RawLink::open(&config).map_err(failed(format!("use {interface}")))?)
        }
        MillstreamLink::Xdp { interface } => {
            let config = XdpConfig {
                interface: interface.clone(),
                ring: wanted.ring_packets,
                ..XdpConfig::default()
            };
            Box::new(Xdp::open(&config, pool).map_err(failed(format!("use {interface}")))?)
        }
        MillstreamLink::Pair => return Err("a worker with one end needs a device".to_owned()),
    };
    let notes = link.notes().to_vec();
    Ok((link, notes))
}

fn tap_config(namespace: &Path, name: &str, wanted: &LinkOptions) -> TapConfig {
    let made = TapConfig::default();
    TapConfig {
        name: Some(name.to_owned()),
        netns: Some(namespace.to_owned()),
        mtu: wanted.mtu,
        vnet_hdr: wanted.offload,
        offload: wanted.offload,
        super_segment_bytes: wanted.super_segment_bytes,
        queue_packets: wanted.ring_packets.map(|packets| packets as usize).or(made.queue_packets),
        ..made
    }
}

/// The two ends of an in-memory link.
pub(super) fn memory(job: &MillstreamJob) -> Result<(PairEnd, PairEnd), String> {
    let config =
        PairConfig { mtu: job.mtu as usize, offload: job.offload, ..PairConfig::default() };
    pair(config).map_err(|error| error.to_string())
}

/// Millstream over any link, with the pool that it was opened with.
pub(super) fn millstream(
    (link, pool): (Box<dyn Link>, Pool),
    addresses: &[(IpAddr, u8)],
    job: &MillstreamJob,
    engine_cpu: Option<usize>,
    options: &SocketOptions,
    mut notes: Vec<String>,
) -> Result<Opened, String> {
    let addresses = addresses.to_vec();
    let live = job.live;
    let build = move || engine((link, pool), &addresses, live);
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
    (link, pool): (Box<dyn Link>, Pool),
    addresses: &[(IpAddr, u8)],
    live: bool,
) -> io::Result<(Engine, LinkId)> {
    let mut config = EngineConfig::new(pool).stage_sample(limits::STAGE_SAMPLE_TURNS);
    if live {
        config = config.live(limits::LIVE_NAME);
    }
    let mut engine = Engine::new(config)?;
    let link = add_link(&mut engine, link, addresses)?;
    Ok((engine, link))
}

/// Gives an engine a link with its addresses.
pub(super) fn add_link(
    engine: &mut Engine,
    link: Box<dyn Link>,
    addresses: &[(IpAddr, u8)],
) -> io::Result<LinkId> {
    let link = engine.add_link(link)?;
    for (address, len) in addresses {
        engine
            .add_address(link, Prefix::new(*address, *len).ok_or(io::ErrorKind::InvalidInput)?)?;
    }
    Ok(link)
}
