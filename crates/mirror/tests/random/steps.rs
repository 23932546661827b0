//! Random steps: commands of `ip`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::INTERFACES;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Returns true once in so many.
    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// Interfaces with addresses, before the first step.
pub fn setup() -> Vec<String> {
    let mut commands = vec!["link set lo up".to_owned()];
    for n in 0..INTERFACES {
        commands.extend(create(n));
        commands.push(format!("addr add 10.{n}.0.1/24 dev d{n}"));
        commands.push(format!("addr add fd0{n}::1/64 dev d{n} nodad"));
    }
    commands
}

fn create(n: u32) -> [String; 3] {
    [
        format!("link add d{n} type veth peer name e{n}"),
        format!("link set e{n} up"),
        format!("link set d{n} up"),
    ]
}

const V4: [&str; 8] = [
    "10.64.0.0/16",
    "10.64.1.0/24",
    "10.64.1.128/25",
    "10.64.1.7/32",
    "10.65.0.0/16",
    "10.64.2.0/23",
    "10.1.0.128/25",
    "0.0.0.0/0",
];
const V6: [&str; 8] = [
    "2001:db8::/32",
    "2001:db8:1::/48",
    "2001:db8:1:1::/64",
    "2001:db8:1:1::7/128",
    "2001:db8:2::/48",
    "2001:db8:1:1:8000::/65",
    "fd01::8000:0/97",
    "::/0",
];

pub struct Steps {
    random: Random,
    /// The rest of a step that takes several.
    next: Vec<String>,
}

impl Steps {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), next: Vec::new() }
    }

    /// The next step.
    pub fn draw(&mut self) -> String {
        if let Some(next) = self.next.pop() {
            return next;
        }
        match self.random.below(100) {
            0..64 => self.route(),
            64..80 => self.next_hop(),
            80..88 => self.neighbor(),
            88..94 => self.address(),
            _ => self.link(),
        }
    }

    /// An address that one of the prefixes may have, or none.
    pub fn draw_addr(&mut self) -> IpAddr {
        let n = self.random.below(4) as u16;
        let host = match self.random.below(3) {
            0 => 1 + self.random.below(254) as u16,
            _ => [1, 7, 9, 130, 200][self.random.below(5)],
        };
        match self.random.below(12) {
            0 => Ipv4Addr::new(10, n as u8, 0, host as u8).into(),
            1 => Ipv6Addr::new(0xfd00 | n, 0, 0, 0, 0, 0, 0x8000 * (n & 1), host).into(),
            2 => Ipv4Addr::new(198, 51, 100, host as u8).into(),
            3 => Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, host).into(),
            4 => Ipv4Addr::new(10, 65, 0, host as u8).into(),
            5..8 => Ipv4Addr::new(10, 64, n as u8, host as u8).into(),
            _ => {
                let half = if host > 128 { 0x8000 } else { 0 };
                Ipv6Addr::new(0x2001, 0xdb8, n & 3, n & 1, half, 0, 0, host).into()
            }
        }
    }

    fn device(&mut self) -> String {
        format!("d{}", self.random.below(INTERFACES as usize))
    }

    /// A gateway with its device.
    fn via(&mut self, v4: bool) -> String {
        let n = self.random.below(INTERFACES as usize);
        let host = 2 + self.random.below(3);
        let onlink = if self.random.one_in(8) { " onlink" } else { "" };
        match (v4, self.random.below(8)) {
            (true, 0) => format!("via inet6 fe80::{host} dev d{n}{onlink}"),
            (true, 1) => format!("via 203.0.113.{host} dev d{n} onlink"),
            (true, _) => format!("via 10.{n}.0.{host} dev d{n}{onlink}"),
            (false, 0..3) => format!("via fe80::{host} dev d{n}"),
            (false, _) => format!("via fd0{n}::{host} dev d{n}{onlink}"),
        }
    }

    fn route(&mut self) -> String {
        let v4 = self.random.one_in(2);
        let all = if v4 { V4 } else { V6 };
        // Most go to a few, so that there are several of each.
        let prefix = match self.random.below(3) {
            0 => all[self.random.below(8)],
            _ => all[self.random.below(3)],
        };
        if self.random.one_in(60) {
            let root = if v4 { "10.64.0.0/15" } else { "2001:db8:1::/48" };
            return format!("route flush root {root}");
        }
        let verb = match self.random.below(100) {
            0..20 => "add",
            20..42 => "append",
            42..55 => "prepend",
            55..68 => "replace",
            68..76 => "change",
            _ => "del",
        };
        // Among several default routes of IPv4 with one metric the kernel takes one whose
        // neighbour it believes to be there.
        let verb = match verb {
            "append" | "prepend" if v4 && prefix == "0.0.0.0/0" => "replace",
            verb => verb,
        };
        let mut command = format!("route {verb} ");
        let metric = ["", "", "", " metric 5", " metric 2000"][self.random.below(5)];
        match self.random.below(100) {
            0..40 => command += &format!("{prefix} {}", self.via(v4)),
            40..50 => command += &format!("{prefix} dev {}", self.device()),
            50..68 => {
                command += prefix;
                command += metric;
                for _ in 0..2 + self.random.below(2) {
                    let weight = 1 + self.random.below(4);
                    command += &format!(" nexthop {} weight {weight}", self.via(v4));
                }
                return command;
            }
            68..80 => {
                let kind = self.random.pick(&["blackhole", "unreachable", "prohibit", "throw"]);
                command += &format!("{kind} {prefix}");
            }
            80..92 => command += &format!("{prefix} nhid {}", self.object(v4)),
            _ if verb == "del" => command += prefix,
            _ => command += &format!("{prefix} {} metric 7", self.via(v4)),
        }
        command += metric;
        // Where routes share flows the kernel tells the first one's preference alone.
        let may_prefer = !v4 && !command.contains(" via ");
        if self.random.one_in(6) {
            command += [" mtu 1400", " mtu 1300", " proto static", " pref high", " pref low"]
                [self.random.below(if may_prefer { 5 } else { 3 })];
        }
        if v4 && self.random.one_in(12) {
            command += " src 10.0.0.1";
        }
        command
    }

    /// The number of a next-hop object: of IPv4 below 10, groups above 20.
    fn object(&mut self, v4: bool) -> usize {
        let base = if v4 { 1 } else { 11 };
        match self.random.below(3) {
            0 => base + 20 + self.random.below(2),
            _ => base + self.random.below(4),
        }
    }

    fn next_hop(&mut self) -> String {
        let v4 = self.random.one_in(2);
        let id = self.object(v4);
        let base = if v4 { 1 } else { 11 };
        let verb = self.random.pick(&["add", "add", "add", "replace", "replace", "replace", "del"]);
        match (verb, id) {
            ("del", _) => format!("nexthop del id {id}"),
            (_, 20..) => {
                let member = |random: &mut Random| {
                    format!("{},{}", base + random.below(4), 1 + random.below(3))
                };
                let (one, other) = (member(&mut self.random), member(&mut self.random));
                format!("nexthop {verb} id {id} group {one}/{other}")
            }
            // Without a family it is one of IPv4.
            _ if v4 && self.random.one_in(8) => format!("nexthop {verb} id {id} blackhole"),
            _ if self.random.one_in(8) && v4 => {
                format!("nexthop {verb} id {id} dev {}", self.device())
            }
            _ => {
                let via = self.via(v4).replace("inet6 ", "");
                format!("nexthop {verb} id {id} {via}")
            }
        }
    }

    fn neighbor(&mut self) -> String {
        let n = self.random.below(INTERFACES as usize);
        let host = 2 + self.random.below(4);
        let ip = match self.random.below(2) {
            0 => format!("10.{n}.0.{host}"),
            _ => format!("fd0{n}::{host}"),
        };
        let state =
            self.random.pick(&["permanent", "stale", "stale", "reachable", "failed", "delay"]);
        let mac = self.random.below(3);
        match self.random.below(10) {
            0..3 => format!("neigh del {ip} dev d{n}"),
            3 => format!("neigh flush dev d{n}"),
            _ => {
                let verb = self.random.pick(&["add", "replace", "replace", "change"]);
                format!("neigh {verb} {ip} lladdr 02:00:00:00:00:0{mac} dev d{n} nud {state}")
            }
        }
    }

    fn address(&mut self) -> String {
        let n = self.random.below(INTERFACES as usize);
        let host = 1 + self.random.below(3);
        let v4 = self.random.one_in(2);
        let verb = self.random.pick(&["add", "add", "replace", "del"]);
        // At times one of another interface.
        let of = if self.random.one_in(6) { self.random.below(INTERFACES as usize) } else { n };
        let extra = match self.random.below(8) {
            0 => " preferred_lft 0",
            1 => " noprefixroute",
            2 => " metric 300",
            _ => "",
        };
        let extra = if verb == "del" { "" } else { extra };
        if self.random.one_in(12) {
            let family = if v4 { "10.0.0.0/8" } else { "fd00::/8" };
            return format!("addr flush dev d{n} to {family}");
        }
        match (v4, self.random.below(8)) {
            (true, 0) => format!("addr {verb} 10.{n}.0.{host} peer 10.64.1.{host} dev d{of}"),
            (true, 1) => format!("addr {verb} 10.{n}.0.{host}/16 dev d{of}{extra}"),
            (true, _) => format!("addr {verb} 10.{n}.0.{host}/24 dev d{of}{extra}"),
            (false, 0) => format!("addr {verb} fd0{n}::{host}/48 dev d{of} nodad{extra}"),
            (false, _) => format!("addr {verb} fd0{n}::{host}/64 dev d{of} nodad{extra}"),
        }
    }

    fn link(&mut self) -> String {
        let n = self.random.below(INTERFACES as usize) as u32;
        match self.random.below(16) {
            // Links that are up are more likely.
            0..4 => {
                self.next.push(format!("link set d{n} up"));
                let between = self.route();
                self.next.push(between);
                format!("link set d{n} down")
            }
            4 => format!("link set d{n} down"),
            5..10 => format!("link set d{n} up"),
            10 => {
                self.next.extend(create(n).into_iter().rev());
                self.next.insert(0, format!("addr add 10.{n}.0.1/24 dev d{n}"));
                self.next.insert(0, format!("addr add fd0{n}::1/64 dev d{n} nodad"));
                format!("link del d{n}")
            }
            11 => format!("link set e{n} down"),
            12 => format!("link set e{n} up"),
            13 => format!("link set d{n} address 02:00:00:00:01:0{n}"),
            // Below 1280 there is no IPv6.
            _ => {
                format!(
                    "link set d{n} mtu {}",
                    self.random.pick(&["1500", "1500", "1500", "1400", "1280", "1200"])
                )
            }
        }
    }
}
