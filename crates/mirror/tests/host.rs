//! A namespace's tables, changed by `ip`, and an engine that follows them.
//!
//! Each test has a network namespace of its own, which its thread takes with it. Where there is no
//! right to that, or no `ip`, a test says so and passes.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream::link::{Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::route::{LinkId, Prefix, Reject, Route, RouteTable, State};
use millstream::{Engine, EngineConfig};
use millstream_mirror::{Mirror, MirrorConfig, Unmapped};
use nix::sched::{CloneFlags, unshare};

const PATIENCE: Duration = Duration::from_secs(60);

/// An engine with a link for each of two interfaces, d0 and d1, of a new namespace; d2 is not
/// mapped.
struct Host {
    engine: Engine,
    _ends: Vec<PairEnd>,
}

/// A command of `ip`.
fn ip(command: &str) {
    let done = Command::new("ip").args(command.split_whitespace()).output().expect("ip runs");
    assert!(done.status.success(), "ip {command}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Waits until so many interfaces are in this state.
fn await_links(state: &str, number: usize) {
    loop {
        let shown = Command::new("ip").args(["-o", "link"]).output().expect("ip runs");
        let shown = String::from_utf8(shown.stdout).expect("text");
        if shown.lines().filter(|line| line.contains(state)).count() == number {
            return;
        }
    }
}

/// Many commands of `ip`, by one process.
fn ip_batch(commands: impl Iterator<Item = String>) {
    assert!(start_batch(commands).wait().expect("ip ends").success());
}

fn start_batch(commands: impl Iterator<Item = String>) -> Child {
    let mut ip = Command::new("ip");
    let mut ip = ip.args(["-force", "-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip runs");
    let mut input = ip.stdin.take().expect("a pipe");
    for command in commands {
        writeln!(input, "{command}").expect("ip reads");
    }
    ip
}

impl Host {
    fn new() -> Option<Self> {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("NOT RUN: no namespace of its own: {error}");
            return None;
        }
        if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
            println!("NOT RUN: no `ip`");
            return None;
        }
        for n in 0..3 {
            ip(&format!("link add d{n} type veth peer name e{n}"));
            // Addresses that appear by themselves a second later would be in the way.
            for end in [format!("d{n}"), format!("e{n}")] {
                ip(&format!("link set {end} addrgenmode none"));
                ip(&format!("link set {end} up"));
            }
        }
        // The kernel tells later that they are ready.
        await_links("state UP", 6);
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let (engine, _ends) = engine(EngineConfig::new(pool));
        Some(Self { engine, _ends })
    }

    fn config(&self) -> MirrorConfig {
        let config = MirrorConfig::new().interface("d0", LinkId(0)).expect("d0");
        config.interface("d1", LinkId(1)).expect("d1")
    }

    fn mirror(&mut self, config: &MirrorConfig) -> Mirror {
        let mut mirror = Mirror::open(config).expect("a mirror");
        self.follow(&mut mirror);
        mirror
    }

    fn follow(&mut self, mirror: &mut Mirror) {
        mirror.synchronize(&mut self.engine, PATIENCE).expect("synchronized");
    }

    fn lookup(&mut self, addr: &str) -> Option<Route> {
        self.engine
            .routes()
            .table()
            .expect("its own")
            .lookup(addr.parse().expect("an address"))
            .copied()
    }

    /// The engine's unicast routes as text.
    fn routes(&mut self) -> BTreeSet<String> {
        shown(self.engine.routes().table().expect("its own"))
    }
}

/// An engine with two links, and their far ends.
fn engine(config: EngineConfig) -> (Engine, Vec<PairEnd>) {
    let mut engine = Engine::new(config).expect("an engine");
    let mut ends = Vec::new();
    for _ in 0..2 {
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        engine.add_link(Box::new(near)).expect("a link");
        ends.push(far);
    }
    assert_eq!(Medium::Ethernet, PairConfig::default().medium);
    (engine, ends)
}

/// The unicast routes of a table as text.
fn shown(table: &RouteTable) -> BTreeSet<String> {
    let show = |(prefix, route): (Prefix, Route)| {
        let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        let (link, metric, weight) = (route.link.0, route.metric, route.weight);
        format!("{prefix}{via} dev d{link} metric {metric} weight {weight}")
    };
    table.iter().filter(|(_, route)| route.reject.is_none()).map(show).collect()
}

/// The address from which the kernel sends there.
fn kernel_source(to: &str) -> String {
    let shown = Command::new("ip").args(["route", "get", to]).output().expect("ip runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    let mut words = shown.split_whitespace().skip_while(|word| *word != "src");
    words.nth(1).unwrap_or_else(|| panic!("{to}: {shown}")).to_owned()
}

/// The same as the kernel has them by interfaces that are mapped, read from what `ip` prints.
fn kernel_routes() -> BTreeSet<String> {
    let mut routes = BTreeSet::new();
    for family in ["-4", "-6"] {
        let shown = Command::new("ip").args([family, "route", "show"]).output().expect("ip runs");
        let shown = String::from_utf8(shown.stdout).expect("text");
        let mut of = (String::new(), 0);
        for line in shown.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let after =
                |name: &str| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
            if !line.starts_with(char::is_whitespace) {
                let prefix = match words[0] {
                    "default" if family == "-4" => "0.0.0.0/0".to_owned(),
                    "default" => "::/0".to_owned(),
                    word => word.parse::<Prefix>().map_or(word.to_owned(), |p| p.to_string()),
                };
                of =
                    (prefix, after("metric").map_or(0, |metric| metric.parse().expect("a number")));
            }
            let dev = after("dev").filter(|dev| ["d0", "d1"].contains(dev));
            // Next hops of multipath routes by interfaces that are down are left out.
            if let Some(dev) = dev.filter(|_| !words.contains(&"dead")) {
                let via = after("via").filter(|via| *via != "inet6").or(after("inet6"));
                let via = via.map(|via| format!(" via {via}")).unwrap_or_default();
                let weight = after("weight").unwrap_or("1");
                routes.insert(format!("{}{via} dev {dev} metric {} weight {weight}", of.0, of.1));
            }
        }
    }
    routes
}

fn p(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

#[test]
fn routes_of_every_kind_are_followed_both_ways() {
    let Some(mut host) = Host::new() else { return };
    ip("addr add 10.0.0.1/24 dev d0");
    ip("addr add fd00::1/64 dev d0 nodad");
    ip("addr add 10.1.0.1/24 dev d1");
    ip("route add default via 10.0.0.254 metric 7 mtu 1400");
    ip("-6 route add fd09::/32 via fd00::9");
    let config = host.config();
    let mut mirror = host.mirror(&config);
    assert_eq!(host.routes(), kernel_routes());
    let gateway: IpAddr = "10.0.0.254".parse().unwrap();
    let default = Route { mtu: Some(1400), metric: 7, ..Route::via(LinkId(0), gateway) };
    assert_eq!(host.lookup("8.8.8.8"), Some(default));
    for command in [
        "route add blackhole 10.9.1.0/24",
        "route add unreachable 10.9.2.0/24",
        "-6 route add prohibit fd0a::/64",
        "route add throw 10.9.3.0/24",
        "route add 10.2.0.0/16 nexthop via 10.0.0.2 dev d0 weight 3 nexthop via 10.1.0.2 dev d1",
        "route add 10.10.0.0/16 nexthop via 10.0.0.2 dev d0 nexthop via 10.1.0.2 dev d1 weight 256",
        "-6 route add fd0c::/64 nexthop via fe80::2 dev d0 weight 4 nexthop via fe80::3 dev d1",
        "-6 route add fd0b::/64 nexthop via fe80::2 dev d0 nexthop via fe80::3 dev d1",
        "route add 10.3.0.0/16 via inet6 fe80::7 dev d1",
        "route add 10.4.0.0/16 via 10.0.0.4",
        "route add 10.5.0.0/16 dev d2",
        "route add 10.6.0.0/16 nexthop via 10.0.0.2 dev d0 nexthop dev d2",
        "route add 10.7.0.0/16 via 10.0.0.4 table 77",
        "route add 10.8.0.0/16 via 10.0.0.4 tos 0x10",
    ] {
        ip(command);
    }
    host.follow(&mut mirror);
    let nowhere = |reject| Some(Route::rejecting(reject));
    assert_eq!(host.lookup("10.9.1.1"), nowhere(Reject::Blackhole));
    assert_eq!(host.lookup("10.9.2.1"), nowhere(Reject::Unreachable));
    assert_eq!(host.lookup("10.9.3.1"), nowhere(Reject::Unreachable));
    let metric = 1024;
    let prohibit = Route { metric, ..Route::rejecting(Reject::Prohibit) };
    assert_eq!(host.lookup("fd0a::1"), Some(prohibit));
    // Packets that go by an interface that is not the engine's do not take the default route.
    assert_eq!(host.lookup("10.5.0.1"), nowhere(Reject::Unreachable));
    for left_out in ["10.7.0.1", "10.8.0.1"] {
        assert_eq!(host.lookup(left_out), Some(default));
    }
    let stats = mirror.stats();
    assert!(stats.routes_of_other_tables > 0);
    assert_eq!(stats.routes_selective, 1);
    let mut kernel = kernel_routes();
    kernel.retain(|route| !route.starts_with("10.8"));
    assert_eq!(host.routes(), kernel);
    // Flows share the ways of a multipath route.
    let reader = host.engine.routes().table().expect("its own").reader();
    let ways =
        (0..64_u32).map(|flow| reader.lookup_flow("10.2.0.1".parse().unwrap(), || flow << 26));
    assert_eq!(ways.flatten().map(|route| route.link).collect::<BTreeSet<_>>().len(), 2);
    for command in [
        "route replace 10.4.0.0/16 via 10.1.0.5 metric 0",
        "-6 route replace fd09::/32 via fd00::8",
        "-6 route del fd0b::/64 via fe80::2 dev d0",
        "route append 10.4.0.0/16 via 10.0.0.6",
        "route change 10.10.0.0/16 nexthop via 10.0.0.2 dev d0 weight 9 nexthop via 10.1.0.2 dev d1",
        "-6 route replace fd0c::/64 nexthop via fe80::2 dev d0 nexthop via fe80::3 dev d1 weight 2",
        "route del 10.2.0.0/16",
        "route del blackhole 10.9.1.0/24",
        "route del default",
    ] {
        ip(command);
    }
    host.follow(&mut mirror);
    assert_eq!(host.lookup("10.9.1.1"), None);
    let mut kernel = kernel_routes();
    // The kernel uses the first of those with the same metric, and so do we.
    kernel.retain(|route| !route.starts_with("10.8") && !route.contains("via 10.0.0.6"));
    assert_eq!(host.routes(), kernel);
    // Nothing is left of it but what is the engine's own.
    mirror.withdraw(&mut host.engine);
    assert_eq!(host.engine.routes().table().expect("its own").len(), 0);
}

#[test]
fn what_the_kernel_takes_silently_is_found_out() {
    let Some(mut host) = Host::new() else { return };
    for (n, dev) in ["d0", "d1"].iter().enumerate() {
        ip(&format!("addr add 10.{n}.0.1/24 dev {dev}"));
        ip(&format!("addr add fd0{n}::1/64 dev {dev} nodad"));
        ip(&format!("route add 10.2{n}.0.0/16 via 10.{n}.0.9"));
    }
    ip("route add 10.2.0.0/16 nexthop via 10.0.0.2 dev d0 nexthop via 10.1.0.2 dev d1");
    ip("nexthop add id 5 via 10.0.0.7 dev d0");
    ip("route add 10.30.0.0/16 nhid 5");
    let config = host.config();
    let mut mirror = host.mirror(&config);
    assert_eq!(host.routes(), kernel_routes());
    assert_eq!(host.lookup("10.30.0.1").and_then(|route| route.gateway), "10.0.0.7".parse().ok());
    for command in [
        "link set d1 down",
        "link set d1 up",
        "nexthop replace id 5 via 10.0.0.8 dev d0",
        "nexthop del id 5",
        "addr flush dev d0",
        "link del d1",
    ] {
        ip(command);
        host.follow(&mut mirror);
        assert_eq!(host.routes(), kernel_routes(), "{command}");
    }
}

#[test]
fn hops_come_alive_when_the_link_is_ready_which_is_after_it_is_up() {
    let Some(mut host) = Host::new() else { return };
    ip("link set lo up");
    for n in 0..2 {
        ip(&format!("addr add fd0{n}::1/64 dev d{n} nodad"));
    }
    ip("-6 route add 2001:db8::/48 nexthop via fe80::2 dev d0 nexthop via fe80::2 dev d1");
    // The carrier is there, and the link waits for another protocol.
    for command in ["link set d1 mode dormant", "link set d1 down", "link set d1 up"] {
        ip(command);
    }
    await_links("state DORMANT", 1);
    let config = host.config();
    let mut mirror = host.mirror(&config);
    let gateway = "fe80::2".parse().ok();
    let (one, both) =
        (BTreeSet::from([(0, gateway)]), BTreeSet::from([(0, gateway), (1, gateway)]));
    assert_eq!(ways(&mut host, "2001:db8::7"), one);
    let ready = "link set d1 mode default state up";
    ip(ready);
    host.follow(&mut mirror);
    assert_eq!(ways(&mut host, "2001:db8::7"), both);
    // Where the host is told to, it goes by a link's readiness at any time.
    let setting = "/proc/sys/net/ipv6/conf/d1/ignore_routes_with_linkdown";
    std::fs::write(setting, "1").expect("set");
    for (command, ways_then) in [("link set d1 mode dormant state dormant", one), (ready, both)] {
        ip(command);
        host.follow(&mut mirror);
        assert_eq!(ways(&mut host, "2001:db8::7"), ways_then, "{command}");
    }
}

#[test]
fn five_thousand_routes_come_change_and_go() {
    let Some(mut host) = Host::new() else { return };
    ip("addr add 10.0.0.1/24 dev d0");
    ip("addr add 10.1.0.1/24 dev d1");
    let config = host.config();
    let mut mirror = host.mirror(&config);
    let before = host.engine.routes().table().expect("its own").len();
    let route = |verb: &'static str, net: u8| {
        move |n: u32| format!("route {verb} 10.{}.{}.0/24 via 10.{net}.0.9", 100 + n / 250, n % 250)
    };
    ip_batch((0..5000).map(route("add", 0)));
    host.follow(&mut mirror);
    assert_eq!(host.engine.routes().table().expect("its own").len(), before + 5000);
    assert_eq!(host.lookup("10.119.249.1").map(|route| route.link), Some(LinkId(0)));
    ip_batch((0..5000).step_by(8).map(route("replace", 1)));
    host.follow(&mut mirror);
    assert_eq!(host.lookup("10.119.242.1").map(|route| route.link), Some(LinkId(1)));
    assert_eq!(host.engine.routes().table().expect("its own").len(), before + 5000);
    assert_eq!(host.routes(), kernel_routes());
    ip_batch((0..5000).map(|n| format!("route del 10.{}.{}.0/24", 100 + n / 250, n % 250)));
    host.follow(&mut mirror);
    assert_eq!(host.engine.routes().table().expect("its own").len(), before);
    assert_eq!(mirror.stats().overruns, 0);
}

#[test]
fn what_is_lost_by_an_overrun_is_found_out_and_nothing_stale_is_left() {
    let Some(mut host) = Host::new() else { return };
    ip("addr add 10.0.0.1/24 dev d0");
    let config = host.config().receive_buffer_bytes(4096);
    let mut mirror = host.mirror(&config);
    let route = |verb: &'static str| {
        move |n: u32| format!("route {verb} 10.{}.{}.0/24 via 10.0.0.9", 100 + n / 250, n % 250)
    };
    ip_batch((0..500).map(route("add")));
    host.follow(&mut mirror);
    assert_eq!(host.routes(), kernel_routes());
    // Some are heard of before the socket is full, some after; of those that go, most are not.
    ip_batch((0..400).map(route("del")).chain((500..900).map(route("add"))));
    host.follow(&mut mirror);
    assert_eq!(host.routes(), kernel_routes());
    assert!(mirror.stats().overruns >= 2, "{:?}", mirror.stats());
    // Read a message at a time, with changes between.
    for round in 0..20_u32 {
        let verb = if round % 2 == 0 { "del" } else { "add" };
        ip_batch((500..700).map(route(verb)));
        mirror.poll(&mut host.engine).expect("a poll");
    }
    host.follow(&mut mirror);
    assert_eq!(host.routes(), kernel_routes());
}

#[test]
fn a_small_buffer_outlives_a_flood_of_changes() {
    let Some(mut host) = Host::new() else { return };
    for n in 0..2 {
        ip(&format!("addr add 10.{n}.0.1/24 dev d{n}"));
    }
    let config = host.config().receive_buffer_bytes(4096);
    let mut mirror = host.mirror(&config);
    let change = |n: u32| match n % 4 {
        0 => format!("link set d1 {}", if n.is_multiple_of(8) { "down" } else { "up" }),
        1 => format!("link set e2 {}", if n % 8 == 1 { "down" } else { "up" }),
        _ => format!("route replace 10.5.{}.0/24 via 10.0.0.{}", n % 9, 2 + n % 5),
    };
    let mut flood = start_batch((0..4000).map(change));
    while flood.try_wait().expect("ip ends").is_none() {
        mirror.poll(&mut host.engine).expect("a poll");
    }
    host.follow(&mut mirror);
    assert_eq!(host.routes(), kernel_routes());
    let stats = mirror.stats();
    println!("{stats:?}");
    assert!(stats.overruns > 0, "{stats:?}");
    // It comes to rest, and asks for no poll.
    let begun = std::time::Instant::now();
    while mirror.poll(&mut host.engine).expect("a poll").more || mirror.deadline().is_some() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", mirror.stats());
        mirror.wait(Duration::from_millis(100)).expect("waited");
    }
    assert_eq!(host.routes(), kernel_routes());
}

#[test]
fn no_more_routes_are_held_than_may_be_and_room_is_used_again() {
    let Some(mut host) = Host::new() else { return };
    ip("addr add 10.0.0.1/24 dev d0");
    let config = host.config().routes_limit(50).unmapped(Unmapped::LeftOut);
    let mut mirror = host.mirror(&config);
    let route = |verb: &'static str| move |n: u32| format!("route {verb} 10.5.{n}.0/24 dev d0");
    ip_batch((0..200).map(route("add")));
    host.follow(&mut mirror);
    assert_eq!(mirror.stats().routes, 50);
    assert!(mirror.stats().routes_refused > 0);
    assert!(host.engine.routes().table().expect("its own").len() <= 50);
    ip_batch((0..190).map(route("del")));
    host.follow(&mut mirror);
    assert_eq!(host.routes(), kernel_routes());
}

#[test]
fn addresses_and_neighbors_are_followed() {
    let Some(mut host) = Host::new() else { return };
    ip("addr add 10.0.0.1/24 dev d0");
    let config = host.config();
    let mut mirror = host.mirror(&config);
    let has = |host: &Host, link: u16, prefix: &str| {
        host.engine.inspect().addresses().any(|own| own == (Some(LinkId(link)), p(prefix)))
    };
    assert!(has(&host, 0, "10.0.0.1/24"));
    for command in [
        "addr add 10.0.0.2/24 dev d0",
        "addr add 10.7.0.1/32 dev d1",
        // The kernel keeps this route when the address goes that is in it.
        "addr add 10.8.0.1/24 dev d1 noprefixroute",
        "route add 10.8.0.0/24 dev d1",
        "addr add fd01::1/64 dev d1 nodad",
        "neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev d0 nud permanent",
        "neigh add 10.0.0.8 lladdr 02:00:00:00:00:08 dev d0 nud stale",
        "neigh add fd01::9 lladdr 02:00:00:00:00:09 dev d1 nud permanent",
        "neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev d2 nud permanent",
    ] {
        ip(command);
    }
    host.follow(&mut mirror);
    for (link, prefix) in
        [(0, "10.0.0.2/24"), (1, "10.7.0.1/32"), (1, "10.8.0.1/24"), (1, "fd01::1/64")]
    {
        assert!(has(&host, link, prefix), "{prefix}");
    }
    assert_eq!(host.routes(), kernel_routes());
    let states = |host: &Host| -> BTreeSet<(String, State)> {
        host.engine.inspect().neighbors().map(|n| (n.ip.to_string(), n.state)).collect()
    };
    let expected =
        [("10.0.0.9", State::Static), ("10.0.0.8", State::Stale), ("fd01::9", State::Static)];
    let expected = expected.map(|(ip, state)| (ip.to_owned(), state));
    assert_eq!(states(&host), expected.into_iter().collect());
    for command in [
        "neigh del 10.0.0.9 dev d0",
        "neigh replace fd01::9 lladdr 02:00:00:00:00:19 dev d1 nud stale",
        "addr del 10.0.0.2/24 dev d0",
        "addr del fd01::1/64 dev d1",
        "addr del 10.8.0.1/24 dev d1",
    ] {
        ip(command);
    }
    host.follow(&mut mirror);
    assert!(!has(&host, 0, "10.0.0.2/24") && has(&host, 0, "10.0.0.1/24"));
    assert!(!has(&host, 1, "fd01::1/64"));
    assert_eq!(host.routes(), kernel_routes());
    let fd01 = host.engine.inspect().neighbors().find(|n| n.ip.is_ipv6()).expect("known");
    assert_eq!((fd01.state, fd01.mac.expect("known").0[5]), (State::Stale, 0x19));
    assert!(!states(&host).iter().any(|(ip, _)| ip == "10.0.0.9"));
    // An address that is removed before the interface becomes another link's is taken from the
    // former.
    ip("addr add 10.0.0.3/24 dev d0");
    host.follow(&mut mirror);
    assert!(has(&host, 0, "10.0.0.3/24"));
    ip("addr del 10.0.0.3/24 dev d0");
    mirror.poll(&mut host.engine).expect("a poll");
    // The interface is another link from now on, then none.
    let d0 = nix::net::if_::if_nametoindex("d0").expect("d0");
    mirror.map(&mut host.engine, d0, Some(LinkId(1)));
    assert!(has(&host, 1, "10.0.0.1/24") && !has(&host, 0, "10.0.0.3/24"));
    assert_eq!(host.lookup("10.0.0.77").map(|route| route.link), Some(LinkId(1)));
    mirror.map(&mut host.engine, d0, None);
    assert!(!has(&host, 1, "10.0.0.1/24"));
    mirror.withdraw(&mut host.engine);
    assert_eq!(
        (
            host.engine.routes().table().expect("its own").len(),
            host.engine.inspect().neighbors().count()
        ),
        (0, 0)
    );
    // The addresses left are the links' own.
    assert!(host.engine.inspect().addresses().all(|(_, own)| p("fe80::/10").contains(own.addr)));
}

#[test]
fn one_table_follows_the_host_for_several_engines() {
    let Some(host) = Host::new() else { return };
    for (dev, mac) in [("d0", "02:00:00:00:09:00"), ("d1", "02:00:00:00:09:01")] {
        let net = &dev[1..];
        ip(&format!("addr add 10.{net}.0.1/24 dev {dev}"));
        ip(&format!("neigh add 10.{net}.0.9 lladdr {mac} dev {dev}"));
    }
    ip("route add 192.0.2.0/24 via 10.0.0.9");
    let mut table = RouteTable::new();
    let of_routes = host.config().addresses(false).neighbors(false);
    let mut routes = Mirror::open(&of_routes).expect("a mirror");
    routes.synchronize(&mut table, PATIENCE).expect("synchronized");
    assert_eq!(shown(&table), kernel_routes());
    let pool = host.engine.pool().clone();
    let mut engines = [(); 2].map(|()| {
        let (mut engine, ends) = engine(EngineConfig::new(pool.clone()).routes(table.reader()));
        let mut stations = Mirror::open(&host.config().routes(false)).expect("a mirror");
        stations.synchronize(&mut engine, PATIENCE).expect("synchronized");
        let socket =
            engine.sockets().udp_bind("0.0.0.0:9".parse().expect("an address")).expect("bind");
        (engine, ends, socket)
    });
    // By which link each engine sends there, with the address and to the neighbour that the host
    // has there.
    let mut by = || {
        engines.each_mut().map(|(engine, _, socket)| {
            let sent = |engine: &Engine| {
                [0, 1].map(|link| {
                    engine.inspect().link_stats(LinkId(link)).expect("a link").tx_packets
                })
            };
            let now = engine.refresh_time();
            while engine.turn(now).progress {}
            let before = sent(engine);
            let to = "192.0.2.1:9".parse().expect("an address");
            engine.udp(*socket).send(b"x", Some(to)).expect("sent");
            while engine.turn(now).progress {}
            let now = sent(engine);
            [now[0] - before[0], now[1] - before[1]]
        })
    };
    assert_eq!(by(), [[1, 0]; 2]);
    ip("route change 192.0.2.0/24 via 10.1.0.9");
    routes.synchronize(&mut table, PATIENCE).expect("synchronized");
    assert_eq!(by(), [[0, 1]; 2]);
    assert_eq!(shown(&table), kernel_routes());
    // The owner's second interface is no link any more, and what goes there is unreachable.
    let d1 = nix::net::if_::if_nametoindex("d1").expect("d1");
    routes.map(&mut table, d1, None);
    let to = "192.0.2.1".parse().expect("an address");
    let nowhere = table.lookup(to).and_then(|route| route.reject);
    assert_eq!(nowhere, Some(Reject::Unreachable));
    // A target that cannot be given all that is followed is refused.
    let [(first, ..), _] = &mut engines;
    let mut of_all = Mirror::open(&host.config()).expect("a mirror");
    let refused = [of_all.poll(first), of_all.poll(&mut table)];
    for refused in refused {
        assert_eq!(refused.map_err(|error| error.kind()), Err(std::io::ErrorKind::InvalidInput));
    }
    routes.withdraw(&mut table);
    assert!(table.is_empty());
}

/// Returns the engine's routes to an address, of several flows.
fn ways(host: &mut Host, to: &str) -> BTreeSet<(u16, Option<IpAddr>)> {
    let reader = host.engine.routes().table().expect("its own").reader();
    let to = to.parse().expect("an address");
    let ways = (0..64_u32).filter_map(|flow| reader.lookup_flow(to, || flow << 26));
    ways.map(|route| (route.link.0, route.gateway)).collect()
}

#[test]
fn of_equal_routes_the_first_counts_in_whichever_order_they_were_told() {
    let Some(mut host) = Host::new() else { return };
    for n in 0..2 {
        ip(&format!("addr add 10.{n}.0.1/24 dev d{n}"));
        ip(&format!("addr add fd0{n}::1/64 dev d{n} nodad"));
    }
    for command in [
        "link set lo up",
        "nexthop add id 1 via fd00::4 dev d0",
        "nexthop add id 2 via fd01::2 dev d1",
        "-6 nexthop add id 3 blackhole",
    ] {
        ip(command);
    }
    let config = host.config();
    let mut followed = host.mirror(&config);
    for command in [
        // In IPv6 the last to come is the last of equals, even where it is to be the first.
        "-6 route add blackhole 2001:db8:1::/48",
        "-6 route append 2001:db8:1::/48 via fd00::4",
        "-6 route add 2001:db8:2::/48 nhid 1",
        "-6 route prepend 2001:db8:2::/48 nhid 2",
        "-6 route add 2001:db8:3::/48 via fd00::4",
        "-6 route append 2001:db8:3::/48 dev d1",
        "-6 route append 2001:db8:3::/48 via fd01::4",
        // A router's preference (RFC 4191) goes before that.
        "-6 route add 2001:db8:4::/48 dev d0",
        "-6 route append 2001:db8:4::/48 dev d1 pref high",
        // Replaced is the first of its kind.
        "-6 route add 2001:db8:5::/48 dev d0",
        "-6 route append 2001:db8:5::/48 via fd00::4",
        "-6 route replace 2001:db8:5::/48 via fd01::4",
        "-6 route add 2001:db8:6::/48 nhid 3",
        "-6 route append 2001:db8:6::/48 nhid 1",
        // It replaces the first by one that it has already, and so it has two.
        "-6 route add 2001:db8:7::/48 dev d0",
        "-6 route append 2001:db8:7::/48 dev d1",
        "-6 route replace 2001:db8:7::/48 dev d1",
        "-6 route add 2001:db8:8::/48 dev d0",
        "-6 route append prohibit 2001:db8:8::/48",
        "-6 route replace blackhole 2001:db8:8::/48",
        "route add unreachable 10.9.0.0/16",
        "route prepend throw 10.9.0.0/16",
        "route prepend 10.9.0.0/16 via 10.0.0.4",
        "route prepend 10.9.0.0/16 via 10.1.0.4",
        "route del 10.9.0.0/16 via 10.1.0.4",
    ] {
        ip(command);
    }
    host.follow(&mut followed);
    let gateway = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
    let check = |host: &mut Host| {
        for to in ["2001:db8:1::7", "2001:db8:6::7", "2001:db8:8::7"] {
            let reject = host.lookup(to).and_then(|route| route.reject);
            assert_eq!(reject, Some(Reject::Blackhole), "{to}");
        }
        assert_eq!(ways(host, "2001:db8:2::7"), [(0, gateway("fd00::4"))].into());
        let both = [(0, gateway("fd00::4")), (1, gateway("fd01::4"))];
        assert_eq!(ways(host, "2001:db8:3::7"), both.into());
        assert_eq!(ways(host, "2001:db8:4::7"), [(1, None)].into());
        assert_eq!(ways(host, "2001:db8:5::7"), [(0, None)].into());
        assert_eq!(ways(host, "10.9.0.7"), [(0, gateway("10.0.0.4"))].into());
    };
    check(&mut host);
    assert_eq!(followed.stats().reads, 1);
    followed.withdraw(&mut host.engine);
    let mut read = host.mirror(&config);
    check(&mut host);
    ip("-6 route del 2001:db8:7::/48 dev d1");
    host.follow(&mut read);
    assert_eq!(ways(&mut host, "2001:db8:7::7"), [(1, None)].into());
    // A route that the kernel's list has left out until now: it lay between those that share flows.
    ip("-6 route del 2001:db8:3::/48 via fd00::4 dev d0");
    host.follow(&mut read);
    assert_eq!(ways(&mut host, "2001:db8:3::7"), [(1, None)].into());
}

#[test]
fn an_address_of_two_interfaces_stays_while_one_has_it() {
    let Some(mut host) = Host::new() else { return };
    for command in [
        "addr add 10.0.0.1/24 dev d0",
        "addr add 10.0.0.1/16 dev d0",
        "addr add 10.0.0.1/24 dev d1",
    ] {
        ip(command);
    }
    let config = host.config();
    let mut mirror = host.mirror(&config);
    let has = |host: &Host| {
        let own = "10.0.0.1".parse::<IpAddr>().expect("an address");
        host.engine.inspect().addresses().find(|(_, has)| has.addr == own).map(|(link, _)| link)
    };
    for (command, link) in [
        ("addr del 10.0.0.1/16 dev d0", Some(Some(LinkId(0)))),
        ("addr del 10.0.0.1/24 dev d0", Some(Some(LinkId(1)))),
        ("addr del 10.0.0.1/24 dev d1", None),
    ] {
        ip(command);
        host.follow(&mut mirror);
        assert_eq!(has(&host), link, "{command}");
    }
}

#[test]
fn a_neighbor_that_the_host_takes_away_is_asked_for_anew() {
    let Some(mut host) = Host::new() else { return };
    ip("addr add 10.0.0.1/24 dev d0");
    let config = host.config();
    let mut mirror = host.mirror(&config);
    let known = |host: &Host| -> BTreeSet<String> {
        host.engine.inspect().neighbors().map(|neighbor| neighbor.ip.to_string()).collect()
    };
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let mac = millstream::wire::ethernet::MacAddr([2, 0, 0, 0, 0, 9]);
    // The engine has found 9 and 8 by itself, and 7 is the application's.
    for n in [9, 8] {
        let suggested =
            host.engine.links().suggest_neighbor(LinkId(0), address(&format!("10.0.0.{n}")), mac);
        suggested.expect("taken");
    }
    host.engine.links().add_neighbor(LinkId(0), address("10.0.0.7"), mac).expect("taken");
    assert_eq!(known(&host).len(), 3);
    // One that the kernel knew as well fails; of two it never knew the address, and they go.
    ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev d0 nud stale");
    ip("neigh add 10.0.0.8 dev d0 nud none");
    ip("neigh add 10.0.0.7 dev d0 nud none");
    host.follow(&mut mirror);
    assert_eq!(known(&host).len(), 3);
    ip("neigh change 10.0.0.9 dev d0 nud failed");
    host.follow(&mut mirror);
    assert_eq!(known(&host), ["10.0.0.7".to_owned(), "10.0.0.8".to_owned()].into());
    ip("neigh del 10.0.0.8 dev d0");
    ip("neigh del 10.0.0.7 dev d0");
    host.follow(&mut mirror);
    assert_eq!(known(&host), ["10.0.0.7".to_owned()].into());
    // With the carrier of its link all of them go, and one that comes back with another address is
    // used at once.
    ip("neigh add 10.0.0.6 lladdr 02:00:00:00:00:06 dev d0 nud reachable");
    host.follow(&mut mirror);
    assert!(known(&host).contains("10.0.0.6"));
    ip("link set e0 down");
    // The kernel takes them away a little later.
    let begun = std::time::Instant::now();
    while known(&host).contains("10.0.0.6") {
        assert!(begun.elapsed() < PATIENCE);
        mirror.wait(Duration::from_millis(100)).expect("waited");
        host.follow(&mut mirror);
    }
    ip("link set e0 up");
    ip("neigh replace 10.0.0.6 lladdr 02:00:00:00:00:16 dev d0 nud reachable");
    host.follow(&mut mirror);
    let six = host.engine.inspect().neighbors().find(|neighbor| neighbor.ip == address("10.0.0.6"));
    assert_eq!(six.and_then(|neighbor| neighbor.mac).map(|mac| mac.0[5]), Some(0x16));
}

/// RFC 6724 section 5, and what Linux makes of it: a ULA and a global address, a deprecated one,
/// scopes, labels, the first of a network.
#[test]
fn the_engine_sends_from_the_address_from_which_the_kernel_does() {
    let Some(mut host) = Host::new() else { return };
    for command in [
        "addr add 10.1.0.2/24 dev d0",
        "addr add 10.1.0.3/24 dev d0",
        "addr add 10.2.0.2/24 dev d0",
        "addr add 10.3.0.2/24 dev d1",
        "addr add fe80::2/64 dev d0 nodad",
        "addr add fe80::3/64 dev d1 nodad",
        "addr add fd00:1::2/64 dev d0 nodad",
        "addr add 2001:db8:1::2/64 dev d0 nodad",
        "addr add 2001:db8:2::2/64 dev d1 nodad",
        "addr add 2001:db8:3::2/64 dev d0 nodad preferred_lft 0",
        "addr add 2002:c633:6401::2/64 dev d0 nodad",
        "route add default via 10.2.0.1",
        "route add 10.77.0.0/16 via 10.1.0.9",
        "route add 10.78.0.0/16 dev d1",
        "route add default via fe80::1 dev d0",
        "route add 2001:db8:9::/48 via fe80::9 dev d1",
    ] {
        ip(command);
    }
    let config = host.config();
    let mut mirror = host.mirror(&config);
    let same = |host: &mut Host, mirror: &mut Mirror| {
        host.follow(mirror);
        // Look-ups go by the routes from the next turn on.
        let now = host.engine.refresh_time();
        host.engine.turn(now);
        [
            "10.1.0.9",
            "10.2.0.9",
            "10.3.0.9",
            "10.77.0.1",
            "10.78.0.1",
            "192.0.2.1",
            "fd00:1::9",
            "fd00:9::9",
            "2001:db8:1::9",
            "2001:db8:2::9",
            "2001:db8:3::9",
            "2001:db8:9::9",
            "2606:2800::1",
            "2002:c633:6402::1",
            "2001::1",
        ]
        .map(|to| {
            let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let engine = &mut host.engine;
            let socket = engine.sockets().udp_bind(any.parse().expect("an address")).expect("bind");
            let remote = std::net::SocketAddr::new(to.parse().expect("an address"), 9);
            engine.udp(socket).connect(remote).unwrap_or_else(|error| panic!("{to}: {error}"));
            let ours = engine.udp(socket).addresses().expect("a socket").0.ip().to_string();
            assert_eq!(ours, kernel_source(to), "to {to}");
            ours
        })
    };
    let before = same(&mut host, &mut mirror);
    assert_eq!((&*before[6], &*before[12]), ("fd00:1::2", "2001:db8:1::2"));
    ip("addr change 2001:db8:1::2/64 dev d0 preferred_lft 0");
    assert_ne!(same(&mut host, &mut mirror), before);
    ip("addr change 2001:db8:1::2/64 dev d0 preferred_lft forever");
    assert_eq!(same(&mut host, &mut mirror), before);
}
