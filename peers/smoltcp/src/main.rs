//! smoltcp as a contender: on its own TAP device, on a TAP device with virtio-net headers and
//! segmentation offload (its feature `segmentation-offload`, with a device of ours), and in memory.
//!
//! Everything runs in one thread; the loop polls the interface, then lets the socket work, and
//! sleeps in `phy::wait` until the interface's next deadline when nothing happened (or polls again
//! with `--spin`).

mod memory;
mod near;
mod offload;

use std::net::Ipv4Addr;

use peers_common::{Options, Role};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, Medium, TunTapInterface};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};

/// Send and receive buffer of a socket over TAP unless asked otherwise; the best of a sweep
/// (docs/peers.md).
const BUFFER_BYTES: usize = 1 << 20;
/// The same in memory, where it must stay in the cache.
const MEMORY_BUFFER_BYTES: usize = 256 << 10;

fn main() {
    let mut options = Options::from_args(0);
    if options.buffer == 0 {
        let in_memory = matches!(options.role, Role::MemoryBulk | Role::MemoryRr);
        options.buffer = if in_memory { MEMORY_BUFFER_BYTES } else { BUFFER_BYTES };
    }
    let done = match (options.role, options.link.as_str()) {
        (Role::MemoryBulk, _) => {
            memory::bulk(&options);
            Ok(())
        }
        (Role::MemoryRr, _) => {
            memory::rr(&options);
            Ok(())
        }
        (_, "tso") => offload::OffloadTap::open(&options.device, options.mtu)
            .and_then(|device| near::run(&options, device)),
        (_, _) => TunTapInterface::new(&options.device, Medium::Ethernet)
            .and_then(|device| near::run(&options, device)),
    };
    if let Err(error) = done {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// An interface over `device` with one address, and its one socket.
fn host(
    device: &mut impl Device,
    address: Ipv4Addr,
    options: &Options,
) -> (Interface, SocketSet<'static>, smoltcp::iface::SocketHandle) {
    let [_, _, _, last] = address.octets();
    let mac = EthernetAddress([0x02, 0x6d, 0x73, 0, 0, last]);
    let mut config = Config::new(mac.into());
    config.random_seed = u64::from(std::process::id());
    let mut interface = Interface::new(config, device, Instant::now());
    interface.update_ip_addrs(|list| {
        let added = list.push(IpCidr::new(address.into(), 24));
        assert!(added.is_ok(), "an interface has room for one address");
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; options.buffer]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    let mut sockets = SocketSet::new(Vec::with_capacity(1));
    let handle = sockets.add(socket);
    (interface, sockets, handle)
}
