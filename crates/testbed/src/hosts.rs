//! Two hosts on one machine: private network namespaces `near` (the system under test) and `far`
//! (its peer), joined by a veth pair, by a TAP device that a Millstream worker holds, or by two of
//! them with the impaired path between, on which either host may be either stack. A third host may
//! stand between them, `router`.
//!
//! ```text
//!   near                                far
//!   kernel     ms-near 10.70.0.1 ─────── ms-far   10.70.0.2  kernel
//!   Millstream         10.71.0.1 ─────── ms-tap   10.71.0.2  kernel
//!   either     ms-left 10.72.0.1 ─ ··· ─ ms-right 10.72.0.2  either
//!
//!   near                     router                              far
//!   ms-near 10.73.0.1 ─ ms-in 10.73.0.2  ms-out 10.74.0.1 ─ ms-far 10.74.0.2
//! ```
//!
//! Settings of TCP are those of the namespace in which the program was started; a note names what
//! could not be had. Everything is gone when [`Hosts`] is dropped or the process ends.

mod routed;
mod settings;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_link::netdev;
use millstream_netlink::{Interface, MaxSizes, Netlink, OFFLOAD_FEATURES, set_features};
use millstream_record::error::Error;

use crate::namespace::Namespace;
pub use routed::{Router, steer_from};
use settings::Settings;

/// The kernel's interface in the near host.
pub const NEAR_INTERFACE: &str = "ms-near";
/// The kernel's interface towards the near kernel, in the far host.
pub const FAR_INTERFACE: &str = "ms-far";
/// The far host's interface towards Millstream.
pub const TAP_INTERFACE: &str = "ms-tap";
/// The near host's interface to the impaired path.
pub const LEFT_INTERFACE: &str = "ms-left";
/// The far host's interface to the impaired path.
pub const RIGHT_INTERFACE: &str = "ms-right";
/// The router's interface to the near host, where a veth pair joins them.
pub const IN_INTERFACE: &str = "ms-in";
/// The router's interface to the far host.
pub const OUT_INTERFACE: &str = "ms-out";
/// Length of every IPv4 prefix.
pub const PREFIX_V4: u8 = 24;
/// Length of every IPv6 prefix.
pub const PREFIX_V6: u8 = 64;

/// A link between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The veth pair between the two kernels.
    Veth,
    /// The TAP device between Millstream and the far kernel.
    Tap,
    /// Two TAP devices with faults between them.
    Impaired,
    /// The link from the near host, number 1, to the router, number 2.
    ToRouter,
    /// The link from the router, number 1, to the far host, number 2.
    FromRouter,
}

impl Path {
    /// Interface of the host at its far end whose counters prove the path.
    pub fn far_interface(self) -> &'static str {
        match self {
            Path::Veth | Path::FromRouter => FAR_INTERFACE,
            Path::ToRouter => IN_INTERFACE,
            Path::Tap => TAP_INTERFACE,
            Path::Impaired => RIGHT_INTERFACE,
        }
    }

    /// Address of the near host on this link.
    pub fn near_address(self, v6: bool) -> IpAddr {
        self.address(v6, 1)
    }

    /// Address of the far host on this link.
    pub fn far_address(self, v6: bool) -> IpAddr {
        self.address(v6, 2)
    }

    /// Address of a host on this link: 1 is near, 2 far, 3 the rival, 4 its peer.
    pub fn address(self, v6: bool, host: u8) -> IpAddr {
        let net = match self {
            Path::Veth => 0,
            Path::Tap => 1,
            Path::Impaired => 2,
            Path::ToRouter => 3,
            Path::FromRouter => 4,
        };
        if v6 {
            Ipv6Addr::new(0xfd70, 0, 0, net, 0, 0, 0, u16::from(host)).into()
        } else {
            Ipv4Addr::new(10, 70 + net as u8, 0, host).into()
        }
    }
}

/// The hosts and links that are to be made.
#[derive(Clone, Copy, Debug)]
pub struct HostsConfig {
    /// Largest IP packet of the links, bytes.
    pub mtu: u32,
    /// Checksum and segmentation offload of the veth pair.
    pub offload: bool,
    /// Bytes of the longest super-segment that the veth pair passes whole; `None` leaves that to
    /// the kernel.
    pub super_segment_bytes: Option<u32>,
    /// The link or the router between the two hosts.
    pub between: Between,
}

/// The link or the router between the two hosts when they are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// No link: a worker or the runner makes the devices.
    Nothing,
    /// A veth pair that joins the kernels.
    Veth,
    /// A third host.
    Router {
        /// True for a veth pair from the router to each of the two; else the router makes TAP
        /// devices there itself.
        veth: bool,
    },
}

/// The interfaces of all hosts at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Interfaces of the near host.
    pub near: Vec<Interface>,
    /// Interfaces of the far host.
    pub far: Vec<Interface>,
    /// Interfaces of the router.
    pub router: Vec<Interface>,
}

/// Two hosts; see the module's promise.
pub struct Hosts {
    near: Namespace,
    far: Namespace,
    router: Option<Namespace>,
    config: HostsConfig,
    settings: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Hosts {
    /// Makes the hosts and the veth pairs. `label` starts the names of the
    /// namespaces' threads.
    pub fn set_up(label: &str, config: HostsConfig) -> Result<Self, Error> {
        let near = Namespace::create(&format!("{label}-near"))?;
        let far = Namespace::create(&format!("{label}-far"))?;
        let has_router = matches!(config.between, Between::Router { .. });
        let router = has_router.then(|| Namespace::create(&format!("{label}-router")));
        let router = router.transpose()?;
        let users = Settings::here();
        let (mut settings, mut notes) = (Vec::new(), Vec::new());
        for (host, namespace) in [("near", &near), ("far", &far)] {
            let wanted = users.clone();
            let had = namespace.run(move || {
                let _ = netdev::set_up("lo");
                wanted.apply()
            });
            let facts = had.facts.into_iter();
            settings.extend(facts.map(|(key, value)| (format!("{host}.{key}"), value)));
            notes.extend(had.refused.iter().map(|what| format!("In the {host} host {what}.")));
        }
        let mut hosts = Self { near, far, router, config, settings, notes };
        match config.between {
            Between::Nothing | Between::Router { veth: false } => {}
            Between::Veth => {
                join_by_veth((&hosts.near, NEAR_INTERFACE), (&hosts.far, FAR_INTERFACE))?;
                hosts.configure(&hosts.near, NEAR_INTERFACE, Path::Veth, &[1])?;
                hosts.configure(&hosts.far, FAR_INTERFACE, Path::Veth, &[2])?;
                hosts.lengthen_super_segments();
            }
            Between::Router { veth: true } => hosts.join_router()?,
        }
        Ok(hosts)
    }

    /// Has the veth pair pass the super-segments that are wanted, or notes why it does not.
    fn lengthen_super_segments(&mut self) {
        let Some(bytes) = self.config.super_segment_bytes else { return };
        for (host, name) in [(&self.near, NEAR_INTERFACE), (&self.far, FAR_INTERFACE)] {
            let set = host.run(move || lengthen(name, bytes));
            if let Err(error) = set {
                let what = format!("{name} keeps to super-segments of 64 KiB");
                self.notes.push(format!("{what}, as {bytes} bytes are refused: {error}"));
            }
        }
    }

    /// Addresses, MTU and state of the far end of a TAP device that a worker
    /// has opened in the far namespace.
    pub fn configure_tap(&self) -> Result<(), Error> {
        self.configure(&self.far, TAP_INTERFACE, Path::Tap, &[2])
    }

    /// Brings up the ends of the impaired path, each with those of its addresses that the kernel
    /// has; the others are Millstream's.
    pub fn configure_impaired(&self, left: &[u8], right: &[u8]) -> Result<(), Error> {
        self.configure(&self.near, LEFT_INTERFACE, Path::Impaired, left)?;
        self.configure(&self.far, RIGHT_INTERFACE, Path::Impaired, right)
    }

    fn configure(
        &self,
        host: &Namespace,
        name: &'static str,
        path: Path,
        numbers: &[u8],
    ) -> Result<(), Error> {
        let config = self.config;
        let numbers = numbers.to_vec();
        host.run(move || {
            if !config.offload && config.is_veth(path) {
                set_features(name, OFFLOAD_FEATURES, false)?;
            }
            // A host talks of itself to nobody: no router is asked for, nothing is announced.
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_ra"), "0");
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/router_solicitations"), "0");
            netdev::set_mtu(name, config.mtu as usize)?;
            netdev::set_up(name)?;
            for number in numbers {
                netdev::set_address(name, path.address(false, number), PREFIX_V4)?;
                if std::path::Path::new("/proc/sys/net/ipv6").exists() {
                    netdev::set_address(name, path.address(true, number), PREFIX_V6)?;
                }
            }
            Ok(())
        })
        .map_err(Error::host(format!("configure {name} in {}", host.name())))
    }

    /// The system under test.
    pub fn near(&self) -> &Namespace {
        &self.near
    }

    /// Its peer.
    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// The third host between them, where there is one.
    pub fn router(&self) -> Option<&Namespace> {
        self.router.as_ref()
    }

    /// The settings of the kernel that are in force, as `far.sysctl...` facts.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Returns a sentence for each thing that was asked of the hosts and is not so.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The counters of every interface of all hosts.
    pub fn counters(&self) -> Result<Counters, Error> {
        let read = || Netlink::route()?.interfaces();
        Ok(Counters {
            near: self.near.run(read).map_err(Error::host("read the near interfaces"))?,
            far: self.far.run(read).map_err(Error::host("read the far interfaces"))?,
            router: match &self.router {
                Some(router) => {
                    router.run(read).map_err(Error::host("read the router's interfaces"))?
                }
                None => Vec::new(),
            },
        })
    }
}

impl HostsConfig {
    /// Returns true when this link is a veth pair.
    fn is_veth(&self, path: Path) -> bool {
        match path {
            Path::Veth => true,
            Path::Tap | Path::Impaired => false,
            Path::ToRouter | Path::FromRouter => self.between == Between::Router { veth: true },
        }
    }
}

/// Makes a veth pair between two hosts, with these names in them.
fn join_by_veth(
    (here, name): (&Namespace, &'static str),
    (there, peer): (&Namespace, &'static str),
) -> Result<(), Error> {
    let path = there.path().to_owned();
    here.run(move || {
        let there = netdev::Namespace::open(&path)?;
        netdev::add_veth(name, peer, Some(&there), 0).map_err(io::Error::from)
    })
    .map_err(Error::host("make a veth pair"))
}

/// Has an interface send and merge super-segments of so many bytes (“BIG TCP”), over IPv4 and IPv6.
///
/// # Errors
/// When the kernel refuses them, or does not know them (before Linux 6.3 it ignores those of IPv4).
fn lengthen(name: &str, bytes: u32) -> io::Result<()> {
    if netdev::gso_max_sizes(name)?.v4.is_none() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it takes Linux 6.3"));
    }
    netdev::set_gso_max_sizes(name, MaxSizes::both(bytes))?;
    netdev::set_gro_max_sizes(name, MaxSizes::both(bytes)).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege;
    use std::net::{TcpListener, TcpStream};

    fn hosts(offload: bool, mtu: u32) -> Option<Hosts> {
        of(HostsConfig { mtu, offload, super_segment_bytes: None, between: Between::Veth })
    }

    fn of(config: HostsConfig) -> Option<Hosts> {
        if !privilege::may_make_namespaces() {
            eprintln!("skipped: network namespaces are not permitted here");
            return None;
        }
        Some(Hosts::set_up("ms-test", config).unwrap())
    }

    #[test]
    fn the_kernels_reach_each_other_over_both_families_and_nothing_stays() {
        let Some(hosts) = hosts(true, 1400) else { return };
        for v6 in [false, true] {
            let address = Path::Veth.far_address(v6);
            let listener = hosts.far().run(move || TcpListener::bind((address, 0)).unwrap());
            let to = listener.local_addr().unwrap();
            let stream = hosts.near().run(move || TcpStream::connect(to).unwrap());
            assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
            assert_eq!(stream.local_addr().unwrap().ip(), Path::Veth.near_address(v6));
        }
        let far = hosts.counters().unwrap().far;
        let tested = far.iter().find(|i| i.name == FAR_INTERFACE).unwrap();
        assert!(tested.rx_packets >= 4 && tested.up && tested.mtu == 1400, "{tested:?}");
        let (near, far) = (hosts.near().path().to_owned(), hosts.far().path().to_owned());
        drop(hosts);
        assert!(!near.exists() && !far.exists());
    }

    #[test]
    fn longer_super_segments_pass_the_pair_or_a_note_says_why_not() {
        let longest = |hosts: &Hosts| {
            let Counters { near, far, .. } = hosts.counters().unwrap();
            let of =
                |all: &[Interface], name| all.iter().find(|i| i.name == name).unwrap().gso_max.v4;
            [of(&near, NEAR_INTERFACE), of(&far, FAR_INTERFACE)]
        };
        for (bytes, is_possible) in [(262_144, true), (u32::MAX, false)] {
            let asked = Some(bytes);
            let between = Between::Veth;
            let config =
                HostsConfig { mtu: 1500, offload: true, super_segment_bytes: asked, between };
            let Some(hosts) = of(config) else { return };
            let found = longest(&hosts);
            match found.contains(&None) || !is_possible {
                true => {
                    assert_eq!(hosts.notes().len(), 2, "{found:?}");
                    assert!(hosts.notes()[0].contains("are refused"), "{:?}", hosts.notes());
                    assert!(found.iter().all(|bytes| bytes.is_none_or(|bytes| bytes == 65_536)));
                }
                false => assert_eq!((found, hosts.notes()), ([asked; 2], &[][..])),
            }
        }
    }

    #[test]
    fn without_offload_no_packet_is_larger_than_the_mtu() {
        use std::io::{Read, Write};
        let Some(hosts) = hosts(false, 1500) else { return };
        let address = Path::Veth.far_address(false);
        let listener = hosts.far().run(move || TcpListener::bind((address, 0)).unwrap());
        let to = listener.local_addr().unwrap();
        let mut stream = hosts.near().run(move || TcpStream::connect(to).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let writer = std::thread::spawn(move || stream.write_all(&vec![7; 4 << 20]).unwrap());
        let mut data = Vec::new();
        peer.read_to_end(&mut data).unwrap();
        writer.join().unwrap();
        let far = hosts.counters().unwrap().far;
        let tested = far.iter().find(|i| i.name == FAR_INTERFACE).unwrap();
        assert!(tested.rx_bytes / tested.rx_packets <= 1514, "{tested:?}");
    }

    /// A run that claims the veth pair while its bytes go over loopback.
    #[test]
    fn a_wrong_path_is_found_out() {
        use crate::integrity::{Claim, check};
        use std::io::{Read, Write};
        let Some(hosts) = hosts(true, 1500) else { return };
        let before = hosts.counters().unwrap();
        let moved = hosts.far().run(|| {
            let listener = TcpListener::bind((Path::Veth.far_address(false), 0)).unwrap();
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let writer = std::thread::spawn(move || stream.write_all(&vec![7; 1 << 20]).unwrap());
            let mut data = Vec::new();
            peer.read_to_end(&mut data).unwrap();
            writer.join().unwrap();
            data.len() as u64
        });
        let after = hosts.counters().unwrap();
        let claim = Claim { to_far_bytes: moved, ..Claim::default() };
        let (proof, reasons) = check(claim, &before, &after, FAR_INTERFACE, Some(NEAR_INTERFACE));
        assert!(!proof.agrees && proof.counted_bytes < moved, "{proof:?}");
        assert!(
            reasons.iter().any(|r| r.contains("far/lo, which is not under test")),
            "{reasons:?}"
        );
    }
}
