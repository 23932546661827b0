//! A third host between the two, which forwards what one sends to the other.

use std::{fs, io};

use millstream::link::LinkError;
use millstream_link::netdev::{self, ReceiveSteering};
use millstream_link::sys::pin_current_thread;
use millstream_netlink::{OFFLOAD_FEATURES, set_features};
use millstream_record::error::Error;

use super::{
    FAR_INTERFACE, Hosts, IN_INTERFACE, NEAR_INTERFACE, OUT_INTERFACE, PREFIX_V4, PREFIX_V6, Path,
    join_by_veth,
};
use crate::namespace::Namespace;

/// The program in the third host that forwards packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// The kernel of the third host.
    Kernel,
    /// A stack in a process there, which has the router's addresses.
    Stack,
    /// A loop that has no address and changes no packet: each host takes the other's network for
    /// its own.
    Bare,
}

impl Hosts {
    fn router_host(&self) -> Result<&Namespace, Error> {
        self.router.as_ref().ok_or_else(|| Error::Refused("these hosts have no router".to_owned()))
    }

    /// A veth pair from the router to each of the two hosts.
    pub(super) fn join_router(&self) -> Result<(), Error> {
        let router = self.router_host()?;
        join_by_veth((&self.near, NEAR_INTERFACE), (router, IN_INTERFACE))?;
        join_by_veth((router, OUT_INTERFACE), (&self.far, FAR_INTERFACE))?;
        for name in [IN_INTERFACE, OUT_INTERFACE] {
            let mtu = self.config.mtu as usize;
            let up =
                router.run(move || netdev::set_mtu(name, mtu).and_then(|()| netdev::set_up(name)));
            up.map_err(io::Error::from).map_err(Error::host(format!("take {name} up")))?;
        }
        Ok(())
    }

    /// Has what the two hosts send over veth pairs carry whole checksums, for a router that takes
    /// frames without what the kernel keeps beside them.
    pub fn sum_checksums(&self) -> Result<(), Error> {
        for (host, name) in [(&self.near, NEAR_INTERFACE), (&self.far, FAR_INTERFACE)] {
            host.run(move || set_features(name, OFFLOAD_FEATURES, false))
                .map_err(Error::host(format!("take offloads from {name}")))?;
        }
        Ok(())
    }

    /// Addresses and routes of all hosts, once the devices are there.
    pub fn configure_routed(&self, by: Router) -> Result<(), Error> {
        self.configure(&self.near, NEAR_INTERFACE, Path::ToRouter, &[1])?;
        self.configure(&self.far, FAR_INTERFACE, Path::FromRouter, &[2])?;
        let router = self.router_host()?;
        match by {
            Router::Kernel => {
                self.configure(router, IN_INTERFACE, Path::ToRouter, &[2])?;
                self.configure(router, OUT_INTERFACE, Path::FromRouter, &[1])?;
                router.run(forwarding).map_err(Error::host("have the router's kernel forward"))?;
            }
            Router::Stack | Router::Bare => router.run(speechless),
        }
        let by_router = by != Router::Bare;
        lead(&self.near, NEAR_INTERFACE, (Path::FromRouter, 2), (Path::ToRouter, 2), by_router)?;
        lead(&self.far, FAR_INTERFACE, (Path::ToRouter, 1), (Path::FromRouter, 1), by_router)
    }
}

/// Has the kernel of a router carry on what comes from the near host on other CPUs than `near_cpu`
/// (RPS), where its sender works, for as long as what is given back lives.
pub fn steer_from(router: &Namespace, near_cpu: usize) -> Result<ReceiveSteering, Error> {
    // Which CPU is left out is that of the thread that asks.
    let ask = move || -> Result<ReceiveSteering, String> {
        pin_current_thread(near_cpu)
            .map_err(|error| format!("cannot run on CPU {near_cpu}: {error}"))?;
        let steering = ReceiveSteering::open(IN_INTERFACE).map_err(|error| error.to_string())?;
        steering.elsewhere().map_err(|error| error.to_string())?;
        Ok(steering)
    };
    // A thread has the namespace of the one that starts it.
    let asked = router.run(move || std::thread::spawn(ask).join());
    asked.unwrap_or_else(|_| Err("a thread panicked".to_owned())).map_err(Error::Worker)
}

/// Routes of both versions of IP from `host` to the network of `to`, by way of `gateway` or, where
/// nobody is that, straight.
fn lead(
    host: &Namespace,
    name: &'static str,
    to: (Path, u8),
    gateway: (Path, u8),
    by_router: bool,
) -> Result<(), Error> {
    let add = move || -> Result<(), LinkError> {
        for v6 in [false, true] {
            if v6 && !has_v6() {
                continue;
            }
            let prefix_len = if v6 { PREFIX_V6 } else { PREFIX_V4 };
            // The number of the network is what the kernel takes.
            let network = to.0.address(v6, 0);
            let gateway = by_router.then(|| gateway.0.address(v6, gateway.1));
            netdev::add_route(name, network, prefix_len, gateway)?;
        }
        Ok(())
    };
    host.run(add).map_err(|error| Error::Worker(format!("{}: {error}", host.name())))
}

fn has_v6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// Has the kernel of the calling thread's namespace hand on.
fn forwarding() -> std::io::Result<()> {
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    match has_v6() {
        true => fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1"),
        false => Ok(()),
    }
}

/// Has the kernel of the calling thread's namespace say nothing of itself: the interfaces are
/// another's.
fn speechless() {
    let _ = fs::write("/proc/sys/net/ipv4/ip_forward", "0");
    for name in ["all", IN_INTERFACE, OUT_INTERFACE] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Between, HostsConfig};
    use super::*;
    use crate::privilege;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn the_kernel_hands_on_between_the_hosts_over_both_families() {
        if !privilege::may_make_namespaces() {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        }
        let between = Between::Router { veth: true };
        let config = HostsConfig { mtu: 1500, offload: true, super_segment_bytes: None, between };
        let hosts = Hosts::set_up("ms-test", config).unwrap();
        hosts.configure_routed(Router::Kernel).unwrap();
        for v6 in [false, true] {
            let bind = move |path: Path, number| {
                let address = path.address(v6, number);
                move || UdpSocket::bind((address, 0)).unwrap()
            };
            let far = hosts.far().run(bind(Path::FromRouter, 2));
            let near = hosts.near().run(bind(Path::ToRouter, 1));
            far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            near.send_to(b"by way of", far.local_addr().unwrap()).unwrap();
            let mut buffer = [0; 64];
            let (bytes, from) = far.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..bytes], from), (&b"by way of"[..], near.local_addr().unwrap()));
        }
        let handed_on = hosts.counters().unwrap().router;
        let out = handed_on.iter().find(|one| one.name == OUT_INTERFACE).unwrap();
        assert!(out.tx_packets >= 2, "{out:?}");
    }
}
