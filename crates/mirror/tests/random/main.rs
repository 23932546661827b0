//! Random steps of `ip` on a namespace of its own: after each fifty, engines that follow it choose
//! as the kernel does.
//!
//! One mirror has a large receive buffer, one a buffer of 4 KiB, and one is opened anew for each
//! comparison. They are compared with what the kernel answers for 200 addresses (kind, link, next
//! hops with their shares, MTU), and by the addresses and neighbours of their engines.
//! `MIRROR_STEPS` and `MIRROR_SEED` choose how much; what fails is repeated with the seed that is
//! told.

mod kernel;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millstream::link::{PairConfig, PairEnd, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::route::{LinkId, Prefix, Reject, Route, State};
use millstream::wire::ethernet::MacAddr;
use millstream::{Engine, EngineConfig};
use millstream_mirror::{Mirror, MirrorConfig};
use nix::sched::{CloneFlags, unshare};

use kernel::{Answer, Kernel};
use steps::{Random, Steps};

const PATIENCE: Duration = Duration::from_secs(60);
/// The kernel announces some changes before it has made them: that is read a second later.
const SETTLED: Duration = Duration::from_millis(1200);
const STEPS_A_ROUND: usize = 50;
/// d0 to d2 are links; d3 is not mapped.
const LINKS: u32 = 3;
const INTERFACES: u32 = 4;
const HASHES: u32 = 512;

/// An engine, and the mirror that it follows by.
struct Follower {
    name: &'static str,
    engine: Engine,
    mirror: Mirror,
    /// By link.
    mapped: [Option<u32>; LINKS as usize],
    _ends: Vec<PairEnd>,
}

/// By link and gateway, how many of `HASHES` flows go there.
type Shares = BTreeMap<(u16, Option<IpAddr>), u32>;

fn index(n: u32) -> Option<u32> {
    nix::net::if_::if_nametoindex(format!("d{n}").as_str()).ok()
}

impl Follower {
    fn new(name: &'static str, pool: &Pool, receive_buffer_bytes: usize) -> Self {
        let mut engine = Engine::new(EngineConfig::new(pool.clone())).expect("an engine");
        let mut config = MirrorConfig::new().receive_buffer_bytes(receive_buffer_bytes);
        let mut ends = Vec::new();
        let mut mapped = [None; LINKS as usize];
        for n in 0..LINKS {
            let (near, far) = pair(PairConfig::default()).expect("a pair");
            let link = engine.add_link(Box::new(near)).expect("a link");
            ends.push(far);
            mapped[n as usize] = index(n);
            if let Some(index) = index(n) {
                config = config.link(index, link);
            }
        }
        let mirror = Mirror::open(&config).expect("a mirror");
        Self { name, engine, mirror, mapped, _ends: ends }
    }

    /// Interfaces that are others by now are mapped anew.
    fn map(&mut self) {
        for n in 0..LINKS {
            let (was, is) = (self.mapped[n as usize], index(n));
            if was != is {
                if let Some(was) = was {
                    self.mirror.map(&mut self.engine, was, None);
                }
                if let Some(is) = is {
                    self.mirror.map(&mut self.engine, is, Some(LinkId(n as u16)));
                }
                self.mapped[n as usize] = is;
            }
        }
    }

    fn poll(&mut self) {
        self.mirror.poll(&mut self.engine).expect("a poll");
    }

    fn synchronize(&mut self) {
        let begun = Instant::now();
        let done = self.mirror.synchronize(&mut self.engine, PATIENCE);
        done.unwrap_or_else(|error| panic!("{}: {error}: {:?}", self.name, self.mirror));
        let took = begun.elapsed();
        if took > Duration::from_secs(10) {
            println!("{} took {took:?} to synchronize: {:?}", self.name, self.mirror);
        }
    }

    /// Polls until the kernel is done with what it has announced.
    fn settle(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < SETTLED {
            self.mirror.wait(Duration::from_millis(50)).expect("waited");
            self.poll();
        }
        self.synchronize();
    }

    fn link_of(&self, interface: u32) -> Option<LinkId> {
        let at = self.mapped.iter().position(|mapped| *mapped == Some(interface))?;
        Some(LinkId(at as u16))
    }

    /// The routes that packets to an address take, each with how many of `HASHES` flows take it.
    fn chosen(&mut self, addr: IpAddr) -> (Option<Route>, Shares) {
        let reader = self.engine.routes().table().expect("its own").reader();
        let mut shares = Shares::new();
        for hash in 0..HASHES {
            let route = reader.lookup_flow(addr, || hash << 23 | 1 << 22);
            if let Some(route) = route.filter(|route| route.reject.is_none()) {
                *shares.entry((route.link.0, route.gateway)).or_default() += 1;
            }
        }
        (reader.lookup(addr).copied(), shares)
    }

    /// Returns whether the engine's routes to an address are as the kernel's one.
    fn fits(&self, whole: &kernel::Found, first: Option<Route>, shares: &Shares) -> bool {
        let alive = || whole.hops.iter().filter(|hop| !hop.is_dead);
        let link = |hop: &kernel::Hop| self.link_of(hop.interface).map(|link| link.0);
        let ways = alive().filter_map(|hop| Some((link(hop)?, hop.gateway)));
        let ways: BTreeSet<_> = ways.collect();
        let has: BTreeSet<_> = shares.keys().copied().collect();
        let weight = |way: &(u16, Option<IpAddr>)| -> u32 {
            let same = alive().filter(|hop| (link(hop), hop.gateway) == (Some(way.0), way.1));
            same.map(|hop| hop.weight).sum()
        };
        let all: u32 = ways.iter().map(weight).sum();
        let is_share = |(way, share): (&_, &u32)| {
            (weight(way) * HASHES).abs_diff(share * all) <= all * HASHES / 64
        };
        let reject = first.and_then(|route| route.reject);
        match ways.len() {
            0 => reject == Some(Reject::Unreachable),
            _ if !whole.is_vague() && first.is_none_or(|route| route.mtu != whole.mtu) => false,
            // Hops without gateways do not share.
            2.. if ways.iter().any(|(_, gateway)| gateway.is_none()) => {
                !has.is_empty() && has.is_subset(&ways)
            }
            7.. => has.len() == 6 && has.is_subset(&ways),
            _ => has == ways && shares.iter().all(is_share),
        }
    }

    /// Returns what is different from the kernel for an address, if something is.
    fn difference(&mut self, kernel: &mut Kernel, addr: IpAddr) -> Option<String> {
        if self.engine.inspect().addresses().any(|(_, own)| own.addr == addr) {
            return None;
        }
        let (whole, taken) = kernel.get(addr);
        let (first, shares) = self.chosen(addr);
        let reject = first.and_then(|route| route.reject);
        let is_right = match &whole {
            Answer::Refused(errno) => match -*errno {
                libc::EINVAL => reject == Some(Reject::Blackhole),
                libc::EACCES => reject == Some(Reject::Prohibit),
                libc::EHOSTUNREACH => reject == Some(Reject::Unreachable),
                // Behind a throw there is nothing, which is unreachable.
                libc::ENETUNREACH if kernel.is_thrown(addr) => reject == Some(Reject::Unreachable),
                libc::ENETUNREACH => first.is_none(),
                _ => false,
            },
            // The host's own, or no single host's.
            Answer::Unforwarded => true,
            Answer::Route(whole) => self.fits(whole, first, &shares),
        };
        let is_right = is_right
            || kernel.listed_by_objects(addr, &taken).any(|it| self.fits(it, first, &shares));
        // Nobody can follow a route that the kernel's own list leaves out.
        if is_right || kernel.is_hidden(addr, &whole) {
            return None;
        }
        let (name, held) = (self.name, self.engine.routes().table().expect("its own"));
        let held: Vec<_> = held.iter().filter(|(prefix, _)| prefix.contains(addr)).collect();
        Some(format!(
            "{name}: {addr}\n  kernel: {whole:?}\n  takes: {taken:?}\n  engine: {first:?}\n  {shares:?}\n  has {held:?}"
        ))
    }

    /// The same of addresses and neighbours.
    fn other_difference(&self, kernel: &mut Kernel) -> Option<String> {
        let is_linked = |ip: &IpAddr| match ip {
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        };
        let kernels: BTreeSet<(LinkId, Prefix)> = kernel
            .addresses()
            .into_iter()
            .filter_map(|(interface, own)| Some((self.link_of(interface)?, own)))
            .filter(|(_, own)| !is_linked(&own.addr))
            .collect();
        let has = self.engine.inspect().addresses().filter_map(|(link, own)| Some((link?, own)));
        let has: BTreeSet<_> = has.filter(|(_, own)| !is_linked(&own.addr)).collect();
        let ips = |all: &BTreeSet<(LinkId, Prefix)>| -> BTreeSet<IpAddr> {
            all.iter().map(|(_, own)| own.addr).collect()
        };
        // An address that two interfaces have is one link's.
        if ips(&has) != ips(&kernels) || !has.is_subset(&kernels) {
            return Some(format!("{}: addresses {has:?}, kernel {kernels:?}", self.name));
        }
        let is_other = |ip: &IpAddr| !has.iter().any(|(_, own)| own.addr == *ip);
        let known: BTreeSet<(LinkId, IpAddr, MacAddr, bool)> = kernel
            .neighbors()
            .into_iter()
            .filter_map(|(interface, ip, mac, by_hand)| {
                Some((self.link_of(interface)?, ip, mac, by_hand))
            })
            .filter(|(_, ip, _, _)| is_other(ip))
            .collect();
        let has = self.engine.inspect().neighbors().filter(|neighbor| is_other(&neighbor.ip));
        let has: BTreeSet<_> =
            has.filter_map(|n| Some((n.link, n.ip, n.mac?, n.state == State::Static))).collect();
        (has != known).then(|| format!("{}: neighbours {has:?}, kernel {known:?}", self.name))
    }
}

/// A whole comparison: what is different, for each follower.
fn differences(followers: &mut [Follower], kernel: &mut Kernel, addrs: &[IpAddr]) -> Vec<String> {
    kernel.read();
    let mut all = Vec::new();
    for follower in followers {
        let other = follower.other_difference(kernel);
        let of_routes = addrs.iter().filter_map(|addr| follower.difference(kernel, *addr));
        all.extend(of_routes.take(3));
        all.extend(other);
    }
    all
}

fn start_batch(commands: &[String]) -> Child {
    let mut ip = Command::new("ip");
    let ip = ip.args(["-force", "-batch", "-"]).stdin(Stdio::piped());
    let mut ip = ip.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ip runs");
    let mut input = ip.stdin.take().expect("a pipe");
    for command in commands {
        // It ends by itself where a flush is disturbed; the rest is not done then.
        if writeln!(input, "{command}").is_err() {
            break;
        }
    }
    ip
}

fn has_namespace() -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("NOT RUN: no namespace of its own: {error}");
        return false;
    }
    if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("NOT RUN: no `ip`");
        return false;
    }
    // A router's choice does not depend on which neighbours it believes to be there.
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("forwards");
    std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").expect("asks nobody");
    true
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn engines_choose_as_the_kernel_after_random_steps() {
    if !has_namespace() {
        return;
    }
    let (steps, seed) = (setting("MIRROR_STEPS", 600), setting("MIRROR_SEED", 1));
    let (mut steps_of, mut random) = (Steps::new(seed), Random::new(!seed));
    let setup = steps::setup();
    assert!(start_batch(&setup).wait().expect("ip ends").success());
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let mut kernel = Kernel::open();
    let mut followers =
        vec![Follower::new("large", &pool, 8 << 20), Follower::new("small", &pool, 4096)];
    followers.iter_mut().for_each(Follower::synchronize);
    let (mut settled, mut before) = (0, Vec::new());
    for round in 0..steps as usize / STEPS_A_ROUND {
        let commands: Vec<String> = (0..STEPS_A_ROUND).map(|_| steps_of.draw()).collect();
        let mut ip = start_batch(&commands);
        // At times it is read while it changes, at times when it has.
        let eager = random.below(3);
        while ip.try_wait().expect("ip ends").is_none() {
            if eager == 0 {
                followers.iter_mut().for_each(Follower::poll);
            } else if eager == 1 {
                followers[random.below(2)].poll();
            }
        }
        followers.push(Follower::new("anew", &pool, 8 << 20));
        for follower in &mut followers {
            follower.map();
            follower.synchronize();
        }
        let addrs: Vec<IpAddr> = (0..200).map(|_| steps_of.draw_addr()).collect();
        let mut found = differences(&mut followers, &mut kernel, &addrs);
        // Differences that time makes may go with time.
        for _ in 0..5 {
            if found.is_empty() {
                break;
            }
            settled += 1;
            kernel.await_links();
            followers.iter_mut().for_each(Follower::settle);
            found = differences(&mut followers, &mut kernel, &addrs);
        }
        if !found.is_empty() {
            println!("the {STEPS_A_ROUND} steps before:\n{}\n", before.join("\n"));
            println!("the last steps:\n{}\n", commands.join("\n"));
            println!("the kernel has:\n{}", kernel::shown());
            panic!("seed {seed}, round {round}:\n{}", found.join("\n"));
        }
        followers.pop();
        before = commands;
    }
    let small = followers[1].mirror.stats();
    let Kernel { hidden, kinds, .. } = kernel;
    println!("seed {seed}: {steps} steps, settled {settled} times, {hidden} hidden, {kinds:?}");
    println!("{small:?}");
    assert!(steps < 500 || small.overruns > 0, "{small:?}");
}
