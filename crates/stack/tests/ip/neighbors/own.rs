//! Our own addresses: checked, announced, and claimed by others.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::link::{Capabilities, Link, PairConfig, PairEnd, Shared, forward_link};
use millstream::packet::Instant;
use millstream::{AddressCheck, AddressState, Engine, Error};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::MacAddr;
use millstream_wire::ndp::{NdpMessage, NeighborAdvert, NeighborSolicitation, solicited_node};

use super::hub::{Frame, Hub, What, arp, gratuitous, mac, ndp};
use crate::common;

const V4: &str = "10.9.0.1";
const V6: &str = "fd09::1";
const SECOND: Duration = Duration::from_secs(1);

/// A link behind which there may be others.
fn shared() -> PairConfig {
    PairConfig { multi_access: true, ..PairConfig::default() }
}

fn checked(check: AddressCheck) -> Hub {
    let mut hub = Hub::new();
    hub.add(
        |config| (config.addresses.check_v4, config.addresses.check_v6) = (check, check),
        shared(),
    );
    // What is said of its link's own address.
    hub.pass(SECOND * 6);
    hub.take_heard();
    hub
}

/// Returns what was said about addresses, each with the milliseconds since `start`.
fn said(hub: &mut Hub, start: Instant) -> Vec<(u64, String)> {
    let all = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let text = |frame: Frame| match frame.what {
        What::Arp(ArpPacket { operation, sender_ip, target_ip, .. }) => {
            let to_all = if frame.to == MacAddr::BROADCAST { "all" } else { "one" };
            match (operation, sender_ip.is_unspecified()) {
                (ArpOperation::Request, true) => format!("{to_all}: probe {target_ip}"),
                (ArpOperation::Request, _) if sender_ip == target_ip => {
                    format!("{to_all}: announce {sender_ip}")
                }
                (ArpOperation::Request, _) => format!("{to_all}: ask {target_ip}"),
                (ArpOperation::Reply, _) => format!("{to_all}: answer {sender_ip}"),
            }
        }
        What::Ndp(src, NdpMessage::NeighborSolicitation(asked)) => {
            let source = if asked.source_ll.is_some() { " named" } else { "" };
            match src.is_unspecified() {
                true => format!("probe {}{source} {}", asked.target, asked.nonce.is_some()),
                false => format!("ask {}{source}", asked.target),
            }
        }
        What::Ndp(_, NdpMessage::NeighborAdvert(told)) => {
            let to_all = if frame.to == all { "all" } else { "one" };
            format!("{to_all}: announce {} {}", told.target, u8::from(told.override_flag))
        }
        _ => "data".to_owned(),
    };
    let heard = hub.take_heard().into_iter().filter(|(from, ..)| from.is_some());
    heard
        .map(|(_, at, frame)| (at.saturating_duration_since(start).as_millis() as u64, text(frame)))
        .collect()
}

fn state(hub: &Hub, ip: &str) -> Option<AddressState> {
    let found =
        hub.engines[0].inspect().address_infos().find(|info| info.prefix.addr.to_string() == ip);
    found.map(|info| info.state)
}

/// Returns true if sockets can have the address.
fn is_usable(hub: &mut Hub, ip: &str) -> bool {
    let local = if ip.contains(':') { format!("[{ip}]:0") } else { format!("{ip}:0") };
    let bound = hub.engines[0].sockets().udp_bind(local.parse().unwrap());
    assert!(bound.is_ok() || bound == Err(Error::AddrNotAvailable));
    bound.map(|socket| hub.engines[0].close(socket)).is_ok()
}

fn told(target: &str, mac: Option<MacAddr>, solicited: bool) -> NdpMessage {
    NdpMessage::NeighborAdvert(NeighborAdvert {
        router: false,
        solicited,
        override_flag: true,
        target: target.parse().unwrap(),
        target_ll: mac,
    })
}

/// From a station's link address to the groups of the engine.
fn to_all(station: u8, src: &str, message: &NdpMessage) -> Vec<u8> {
    match message {
        NdpMessage::NeighborSolicitation(asked) => {
            let group = solicited_node(asked.target);
            let bits = group.octets();
            let to = MacAddr([0x33, 0x33, bits[12], bits[13], bits[14], bits[15]]);
            ndp(mac(station), to, src, &group.to_string(), message)
        }
        _ => ndp(mac(station), MacAddr([0x33, 0x33, 0, 0, 0, 1]), src, "ff02::1", message),
    }
}

fn probe(target: &str, nonce: Option<[u8; 6]>) -> NdpMessage {
    NdpMessage::NeighborSolicitation(NeighborSolicitation {
        target: target.parse().unwrap(),
        source_ll: None,
        nonce,
    })
}

fn owned(list: &[(u64, &str)]) -> Vec<(u64, String)> {
    list.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
}

#[test]
fn an_address_is_announced_twice_or_three_times_where_others_may_be() {
    let mut hub = checked(AddressCheck::WhileUsed);
    let start = hub.now;
    hub.address(0, "10.9.0.1/24");
    assert!(is_usable(&mut hub, V4));
    hub.pass(SECOND * 20);
    let v4 = owned(&[(0, "all: announce 10.9.0.1"), (2000, "all: announce 10.9.0.1")]);
    assert_eq!(said(&mut hub, start), v4);
    let start = hub.now;
    hub.address(0, "fd09::1/64");
    assert!(is_usable(&mut hub, V6));
    assert_eq!(state(&hub, V6), Some(AddressState::Optimistic));
    hub.pass(SECOND * 20);
    let v6 = owned(&[
        (0, "probe fd09::1 true"),
        (1000, "all: announce fd09::1 1"),
        (2000, "all: announce fd09::1 1"),
        (3000, "all: announce fd09::1 1"),
    ]);
    assert_eq!(said(&mut hub, start), v6);
    assert_eq!(state(&hub, V6), Some(AddressState::Preferred));
}

#[test]
fn what_a_link_brings_along_is_announced_too() {
    let mut hub = Hub::new();
    let start = hub.now;
    hub.add(|_| {}, shared());
    hub.pass(SECOND * 9);
    let said: Vec<_> = said(&mut hub, start).into_iter().map(|(at, _)| at).collect();
    assert_eq!(said, [0, 1000, 2000, 3000]);
}

#[test]
fn nothing_is_said_on_a_link_without_others() {
    for link in [PairConfig::default(), shared()] {
        let is_quiet = !link.multi_access;
        let mut hub = Hub::new();
        hub.add(
            |config| {
                (config.addresses.check_v4, config.addresses.check_v6) =
                    (AddressCheck::Off, AddressCheck::Off);
                if !is_quiet {
                    (config.addresses.announcements_v4, config.addresses.announcements_v6) = (0, 0);
                }
            },
            link,
        );
        hub.address(0, "10.9.0.1/24");
        hub.address(0, "fd09::1/64");
        hub.pass(SECOND * 9);
        assert_eq!(said(&mut hub, Instant::ZERO), []);
        assert_eq!(state(&hub, V6), Some(AddressState::Preferred));
        // Bridges that may be between are told which groups to let through.
        assert_eq!(hub.reports.is_empty(), is_quiet);
    }
}

/// RFC 4861, 7.2.1, RFC 3810, 6: whoever snoops learns of the groups by which we are asked for.
#[test]
fn routers_are_told_of_the_groups_of_own_addresses() {
    let mut hub = checked(AddressCheck::BeforeUse);
    let local = hub.engines[0].inspect().address_infos().next().expect("of its link").prefix.addr;
    let group = |ip: IpAddr| match ip {
        IpAddr::V6(ip) => IpAddr::from(solicited_node(ip)),
        IpAddr::V4(_) => unreachable!("IPv6"),
    };
    assert_eq!(std::mem::take(&mut hub.reports), [(0, group(local)); 2]);
    hub.address(0, "fd09::1/64");
    hub.address(0, "10.9.0.1/24");
    // Also while the address is being checked.
    hub.pass(SECOND * 6);
    let own = group(V6.parse().unwrap());
    assert_eq!(std::mem::take(&mut hub.reports), [(0, own); 2]);
    let link = hub.engines[0].inspect().links().next().expect("a link").id;
    hub.engines[0].links().remove_address(link, V6.parse().unwrap()).expect("removed");
    hub.pass(SECOND * 6);
    assert_eq!(hub.reports, [(0, own); 2], "it is left");
}

/// A peer that sends all the time follows to the station that has the address now: of a program
/// that starts again, and of a link that was removed and added.
#[test]
fn a_peer_finds_whoever_begins_again_at_a_new_station() {
    for (ip, peer, wait) in [(V4, "10.9.0.2/24", 0), (V6, "fd09::2/64", 1000)] {
        let (prefix, to, any) = match ip == V4 {
            true => ("10.9.0.1/24", "10.9.0.1:9", "0.0.0.0:0"),
            false => ("fd09::1/64", "[fd09::1]:9", "[::]:0"),
        };
        let mut hub = checked(AddressCheck::WhileUsed);
        hub.address(0, prefix);
        hub.add(|_| {}, shared());
        hub.address(1, peer);
        hub.pass(SECOND * 5);
        let socket = hub.engines[1].sockets().udp_bind(any.parse().unwrap()).unwrap();
        let send = |hub: &mut Hub| {
            hub.take_heard();
            hub.engines[1].udp(socket).send(b"to you", Some(to.parse().unwrap())).unwrap();
            hub.settle();
            let frames = hub.take_from(1).into_iter();
            frames.filter(|frame| matches!(frame.what, What::Ip(_))).map(|f| f.to).next_back()
        };
        assert_eq!(send(&mut hub), Some(mac(0)));
        hub.begin_again(0, mac(7), shared());
        hub.address(0, prefix);
        hub.pass(Duration::from_millis(wait));
        assert_eq!(send(&mut hub), Some(mac(7)), "{ip}");
        let link = hub.engines[0].inspect().links().next().unwrap().id;
        hub.engines[0].links().remove(link).unwrap();
        let end = hub.port(0, mac(8), shared());
        hub.engines[0].add_link(Box::new(end)).unwrap();
        hub.address(0, prefix);
        hub.pass(Duration::from_millis(wait));
        assert_eq!(send(&mut hub), Some(mac(8)), "{ip}");
    }
}

/// An interface that somebody sets down, and up, or gives another link address.
struct Interface {
    end: PairEnd,
    capabilities: Capabilities,
    is_down: Arc<AtomicBool>,
    mac: Arc<Mutex<MacAddr>>,
}

impl Link for Interface {
    forward_link!(self => self.end; receive, transmit, wait_fd, prepare_sleep, stats, name);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    fn refresh(&mut self) -> bool {
        let before = std::mem::replace(&mut self.capabilities.mac, *self.mac.lock().unwrap());
        self.capabilities.mac != before
    }
}

#[test]
fn an_interface_that_comes_up_or_has_another_address_is_announced_anew() {
    let mut hub = checked(AddressCheck::WhileUsed);
    let link = hub.engines[0].inspect().links().next().unwrap().id;
    hub.engines[0].links().remove(link).unwrap();
    let end = hub.port(0, mac(0), shared());
    let (is_down, set) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(mac(0))));
    let interface = Interface {
        capabilities: end.capabilities().clone(),
        end,
        is_down: Arc::clone(&is_down),
        mac: Arc::clone(&set),
    };
    hub.engines[0].add_link(Box::new(interface)).unwrap();
    hub.address(0, "10.9.0.1/24");
    hub.address(0, "fd09::1/64");
    hub.pass(SECOND * 9);
    let announced = |hub: &mut Hub, start| {
        let said = said(hub, start);
        let of = |what: &str| -> Vec<u64> {
            said.iter().filter(|(_, text)| text.contains(what)).map(|(at, _)| *at).collect()
        };
        (of("announce 10.9.0.1"), of("announce fd09::1 1"), of("announce fe80"))
    };
    hub.take_heard();
    is_down.store(true, Ordering::Relaxed);
    hub.pass(SECOND);
    let start = hub.now;
    // It is looked at though nobody calls.
    let due = hub.engines[0].turn(hub.now).next_deadline.unwrap();
    assert!(due <= hub.now + Duration::from_millis(100));
    is_down.store(false, Ordering::Relaxed);
    hub.pass(SECOND * 9);
    let (v4, v6, local) = announced(&mut hub, start);
    assert!(v4[0] <= 100, "{v4:?}");
    let after = |times: &[u64]| times.iter().map(|at| v4[0] + at).collect::<Vec<_>>();
    assert_eq!(v4, after(&[0, 2000]));
    assert_eq!((v6, local), (after(&[0, 1000, 2000]), after(&[0, 1000, 2000])));
    let start = hub.now;
    *set.lock().unwrap() = mac(7);
    hub.pass(SECOND * 9);
    let (v4, v6, local) = announced(&mut hub, start);
    let after = |times: &[u64]| times.iter().map(|at| v4[0] + at).collect::<Vec<_>>();
    assert_eq!(v4, after(&[0, 2000]));
    assert_eq!((v6, local), (after(&[0, 1000, 2000]), after(&[0, 1000, 2000])));
    assert_eq!(hub.engines[0].inspect().links().next().unwrap().mac, mac(7));
}

#[test]
fn what_was_learnt_of_neighbours_goes_with_the_carrier_and_is_asked_for_anew() {
    let mut hub = checked(AddressCheck::WhileUsed);
    let link = hub.engines[0].inspect().links().next().unwrap().id;
    hub.engines[0].links().remove(link).unwrap();
    let end = hub.port(0, mac(0), shared());
    let is_down = Arc::new(AtomicBool::new(false));
    let interface = Interface {
        capabilities: end.capabilities().clone(),
        end,
        is_down: Arc::clone(&is_down),
        mac: Arc::new(Mutex::new(mac(0))),
    };
    let link = hub.engines[0].add_link(Box::new(interface)).unwrap();
    hub.address(0, "10.9.0.1/24");
    hub.pass(SECOND * 9);
    let engine = &mut hub.engines[0];
    let [learnt, by_hand] = ["10.9.0.77", "10.9.0.78"].map(|text| text.parse().unwrap());
    engine.links().suggest_neighbor(link, learnt, mac(7)).unwrap();
    engine.links().add_neighbor(link, by_hand, mac(8)).unwrap();
    let socket = engine.sockets().udp_bind("10.9.0.1:9".parse().unwrap()).unwrap();
    let send = |hub: &mut Hub| {
        let before = hub.engines[0].stats().neighbor_solicits;
        hub.engines[0].udp(socket).send(b"x", Some((learnt, 9).into())).unwrap();
        hub.pass(Duration::from_millis(50));
        hub.engines[0].stats().neighbor_solicits - before
    };
    assert_eq!(send(&mut hub), 0, "known");
    is_down.store(true, Ordering::Relaxed);
    hub.pass(Duration::from_millis(200));
    let known =
        |hub: &Hub| hub.engines[0].inspect().neighbors().map(|it| it.ip).collect::<Vec<_>>();
    assert_eq!(known(&hub), [by_hand]);
    assert!(hub.engines[0].inspect().links().next().unwrap().is_down);
    is_down.store(false, Ordering::Relaxed);
    hub.pass(Duration::from_millis(200));
    assert!(!hub.engines[0].inspect().links().next().unwrap().is_down);
    assert_eq!(send(&mut hub), 1, "asked for");
}

/// Engines that share a device have one link address: one speaks for it.
#[test]
fn of_engines_that_share_a_device_one_announces() {
    let mut hub = Hub::new();
    let ends = vec![hub.port(0, mac(0), shared()), hub.port(1, mac(0), shared())];
    let links = Shared::over(ends).unwrap();
    for (station, link) in links.into_iter().enumerate() {
        let mut engine = Engine::new(common::config(&hub.pool, station as u8)).unwrap();
        engine.turn(hub.now);
        let link = engine.add_link(Box::new(link)).unwrap();
        engine.add_address(link, "10.9.0.1/24".parse().unwrap()).unwrap();
        hub.engines.push(engine);
    }
    hub.pass(SECOND * 9);
    let spoke: Vec<_> = hub.take_heard().into_iter().map(|(from, ..)| from.unwrap()).collect();
    assert_eq!(spoke, [0; 6]);
    assert!(hub.reports.iter().all(|(from, _)| *from == 0), "{:?}", hub.reports);
    for engine in &hub.engines {
        let states: Vec<_> = engine.inspect().address_infos().map(|info| info.state).collect();
        assert_eq!(states, [AddressState::Preferred; 2]);
        assert_eq!(engine.stats().address_conflicts, 0);
    }
}

#[test]
fn what_is_being_checked_is_held_and_counted_and_ends_with_its_link() {
    let mut hub = Hub::new();
    let check = AddressCheck::BeforeUse;
    hub.add(
        |config| {
            (config.addresses.check_v4, config.addresses.check_v6) = (check, check);
            config.limits.addresses = 3;
        },
        shared(),
    );
    let link = hub.engines[0].inspect().links().next().unwrap().id;
    let mut add = |prefix: &str| hub.engines[0].add_address(link, prefix.parse().unwrap());
    assert_eq!([add("10.9.0.1/24"), add("fd09::1/64")], [Ok(()), Ok(())]);
    assert_eq!(add("10.9.0.1/24"), Err(Error::AddrInUse));
    assert_eq!(add("10.9.0.2/24"), Err(Error::Limit("addresses")));
    hub.pass(SECOND);
    hub.engines[0].links().remove(link).unwrap();
    assert_eq!(hub.engines[0].inspect().address_infos().count(), 0);
    assert_eq!(hub.engines[0].turn(hub.now).next_deadline, None);
}

/// Claims of another station about an IPv4 address while it is probed, and whether the address is
/// usable then.
#[test]
fn an_ipv4_address_that_is_checked_before_use() {
    let request = ArpOperation::Request;
    let says: [(&str, Option<Vec<u8>>); 7] = [
        ("nothing", None),
        ("that it is another's", Some(gratuitous(mac(9), "10.9.0.9"))),
        ("that it is ours", Some(gratuitous(mac(0), V4))),
        ("our own probe", Some(arp(MacAddr::BROADCAST, request, (mac(0), "0.0.0.0"), V4))),
        ("taken: announced", Some(gratuitous(mac(9), V4))),
        ("taken: answered", Some(arp(mac(0), ArpOperation::Reply, (mac(9), V4), "0.0.0.0"))),
        ("taken: probed", Some(arp(MacAddr::BROADCAST, request, (mac(9), "0.0.0.0"), V4))),
    ];
    for (name, frame) in says {
        let mut hub = checked(AddressCheck::BeforeUse);
        let start = hub.now;
        hub.address(0, "10.9.0.1/24");
        assert_eq!(state(&hub, V4), Some(AddressState::Tentative));
        assert!(!is_usable(&mut hub, V4), "{name}");
        // The last probe is sent after 5 s at the latest, and its answer awaited for 2 s.
        hub.pass(SECOND * 3);
        assert!(!is_usable(&mut hub, V4), "{name}");
        // Nor does it answer for it.
        hub.say(&arp(MacAddr::BROADCAST, request, (mac(9), "10.9.0.9"), V4));
        frame.iter().for_each(|frame| hub.say(frame));
        hub.pass(SECOND * 9);
        let is_taken = name.starts_with("taken");
        assert_eq!(is_usable(&mut hub, V4), !is_taken, "{name}");
        let said = said(&mut hub, start);
        let at = |what: &str| -> Vec<u64> {
            said.iter().filter(|(_, text)| text.starts_with(what)).map(|(at, _)| *at).collect()
        };
        assert!(at("all: ask").is_empty() && at("one").is_empty(), "{name}: {said:?}");
        let (probes, announced) = (at("all: probe"), at("all: announce"));
        assert!(probes[0] <= 1000, "{name}: {said:?}");
        assert!(probes.windows(2).all(|pair| (1000..=2001).contains(&(pair[1] - pair[0]))));
        if is_taken {
            assert_eq!((state(&hub, V4), announced.len()), (Some(AddressState::Duplicated), 0));
            let info =
                hub.engines[0].inspect().address_infos().find(|info| info.conflicts == 1).unwrap();
            assert_eq!(info.claimed.unwrap().0, Some(mac(9)));
            assert_eq!(hub.engines[0].stats().addresses_duplicated, 1);
            // It may be tried again.
            hub.address(0, "10.9.0.1/24");
            hub.pass(SECOND * 12);
            assert!(is_usable(&mut hub, V4), "{name}");
        } else {
            assert_eq!((probes.len(), announced.len()), (3, 2), "{name}: {said:?}");
            let waited = announced[0] - probes[2];
            assert_eq!((waited, announced[1] - announced[0]), (2000, 2000), "{name}");
        }
    }
}

/// RFC 5227, 2.1.1, RFC 4862, 5.4.2: after a power failure all stations begin at once.
#[test]
fn stations_that_begin_together_do_not_probe_together() {
    for prefix in ["10.9.0", "fd09:"] {
        let mut hub = Hub::new();
        for _ in 0..4 {
            let check = AddressCheck::BeforeUse;
            hub.add(
                |config| (config.addresses.check_v4, config.addresses.check_v6) = (check, check),
                shared(),
            );
        }
        hub.pass(SECOND * 6);
        hub.take_heard();
        let start = hub.now;
        for station in 0..4 {
            let end = if prefix.contains(':') { ":5/64" } else { ".5/24" };
            hub.address(
                station,
                &format!("{prefix}{end}").replace('5', &(5 + station).to_string()),
            );
        }
        hub.pass(SECOND * 2);
        let heard = hub.take_heard();
        let first = |station| {
            let found = heard.iter().find(|(from, ..)| *from == Some(station));
            found.unwrap().1.saturating_duration_since(start).as_millis()
        };
        let times = [0, 1, 2, 3].map(first);
        assert!(times.iter().all(|time| *time <= 1001), "{times:?}");
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 4, "{times:?}");
    }
}

/// RFC 4862, 5.4.3 and 5.4.4, RFC 7527.
#[test]
fn an_ipv6_address_that_is_checked() {
    use AddressCheck::{BeforeUse, Optimistic, WhileUsed};
    let other = Some([9; 6]);
    let asks = |source_ll| {
        NdpMessage::NeighborSolicitation(NeighborSolicitation {
            target: V6.parse().unwrap(),
            source_ll,
            nonce: None,
        })
    };
    let says: [(&str, Option<Vec<u8>>); 9] = [
        ("nothing", None),
        ("another's is told", Some(to_all(9, "fe80::9", &told("fd09::9", Some(mac(9)), false)))),
        ("ours is told, as we tell it", Some(to_all(0, V6, &told(V6, Some(mac(0)), false)))),
        ("asked, to be sent to", Some(to_all(9, "fe80::9", &asks(Some(mac(9)))))),
        ("taken: told by him", Some(to_all(9, V6, &told(V6, Some(mac(9)), false)))),
        ("taken: told", Some(to_all(9, "fe80::9", &told(V6, Some(mac(9)), false)))),
        ("taken: told, not where", Some(to_all(9, "fe80::9", &told(V6, None, false)))),
        ("taken: probed", Some(to_all(9, "::", &probe(V6, None)))),
        ("taken: probed, by another nonce", Some(to_all(9, "::", &probe(V6, other)))),
    ];
    for check in [BeforeUse, Optimistic, WhileUsed] {
        for (name, frame) in &says {
            let mut hub = checked(check);
            hub.address(0, "fd09::1/64");
            let mut wait = 0;
            while hub.take_from(0).is_empty() {
                hub.pass(Duration::from_millis(1));
                wait += 1;
            }
            assert!(wait <= if check == BeforeUse { 1001 } else { 1 });
            assert_eq!(is_usable(&mut hub, V6), check != BeforeUse, "{check:?} {name}");
            frame.iter().for_each(|frame| hub.say(frame));
            hub.settle();
            let is_taken = name.starts_with("taken");
            if is_taken {
                assert!(!is_usable(&mut hub, V6), "{check:?} {name}");
            }
            if check == BeforeUse {
                // It answers nobody.
                assert_eq!(said(&mut hub, Instant::ZERO), [], "{name}");
            }
            hub.pass(SECOND);
            assert_eq!(is_usable(&mut hub, V6), !is_taken, "{check:?} {name}");
            let became = if is_taken { AddressState::Duplicated } else { AddressState::Preferred };
            assert_eq!(state(&hub, V6), Some(became), "{check:?} {name}");
            let stats = hub.engines[0].stats();
            assert_eq!(stats.addresses_duplicated, u64::from(is_taken), "{check:?} {name}");
        }
    }
}

#[test]
fn a_probe_that_comes_back_is_no_conflict() {
    for check in [AddressCheck::BeforeUse, AddressCheck::WhileUsed] {
        let mut hub = checked(check);
        hub.address(0, "fd09::1/64");
        let own = loop {
            hub.pass(Duration::from_millis(1));
            if let [Frame { what: What::Ndp(_, message), .. }] = hub.take_from(0)[..] {
                break message;
            }
        };
        hub.say(&to_all(0, "::", &own));
        hub.pass(SECOND * 3);
        assert_eq!(state(&hub, V6), Some(AddressState::Preferred));
        assert_eq!(hub.engines[0].stats().addresses_duplicated, 0);
    }
}

#[test]
fn connections_of_an_address_that_is_another_s_are_reset() {
    let mut hub = checked(AddressCheck::WhileUsed);
    hub.add(|_| {}, shared());
    hub.address(1, "fd09::2/64");
    hub.pass(SECOND * 5);
    hub.address(0, "fd09::1/64");
    let listener = hub.engines[1].sockets().tcp_listen("[::]:80".parse().unwrap(), 1).unwrap();
    let (udp, tcp) = (
        hub.engines[0].sockets().udp_bind("[fd09::1]:9".parse().unwrap()).unwrap(),
        hub.engines[0].sockets().tcp_connect("[fd09::2]:80".parse().unwrap()).unwrap(),
    );
    hub.pass(Duration::from_millis(10));
    assert_eq!(hub.engines[0].tcp(tcp).connected(), Ok(true));
    let far = hub.engines[1].listener(listener).accept().unwrap().0;
    hub.say(&to_all(9, V6, &told(V6, Some(mac(9)), false)));
    hub.settle();
    let read = hub.engines[0].tcp(tcp).read(&mut [0]);
    assert!(!matches!(read, Ok(_) | Err(Error::WouldBlock)), "{read:?}");
    let sent = hub.engines[0].udp(udp).send(b"not mine", Some("[fd09::2]:9".parse().unwrap()));
    assert_eq!(sent, Err(Error::AddrNotAvailable));
    assert_eq!(hub.engines[1].tcp(far).read(&mut [0]), Err(Error::ConnectionReset));
}

/// RFC 5227, 2.4 (c): it stays ours, which is said once in ten seconds, whatever others claim.
#[test]
fn an_address_in_use_is_defended_and_whoever_claims_it_is_told_of() {
    for check in [AddressCheck::Off, AddressCheck::WhileUsed] {
        let mut hub = checked(check);
        hub.address(0, "10.9.0.1/24");
        hub.address(0, "fd09::1/64");
        hub.pass(SECOND * 9);
        let start = hub.now;
        hub.take_heard();
        let (request, reply) = (ArpOperation::Request, ArpOperation::Reply);
        let claims = [
            gratuitous(mac(9), V4),
            arp(MacAddr::BROADCAST, request, (mac(9), V4), "10.9.0.77"),
            arp(mac(0), reply, (mac(9), V4), "10.9.0.5"),
            to_all(9, V6, &told(V6, Some(mac(9)), false)),
            to_all(9, "fe80::9", &told(V6, Some(mac(9)), false)),
            // Our own, come back.
            gratuitous(mac(0), V4),
            to_all(0, V6, &told(V6, Some(mac(0)), false)),
        ];
        for _ in 0..250 {
            claims.iter().for_each(|claim| hub.say(claim));
            hub.pass(Duration::from_millis(100));
        }
        let said = said(&mut hub, start);
        let defence = |what: &str| owned(&[(0, what), (10_000, what), (20_000, what)]);
        let of = |what: &str| -> Vec<_> {
            said.iter().filter(|(_, text)| text.contains(what)).cloned().collect()
        };
        assert_eq!(of(V4), defence("all: announce 10.9.0.1"));
        assert_eq!(of(V6), defence("all: announce fd09::1 1"));
        assert_eq!(said.len(), 6, "{said:?}");
        let stats = hub.engines[0].stats();
        assert_eq!((stats.address_conflicts, stats.address_defences), (1250, 6));
        for (ip, count) in [(V4, 750), (V6, 500)] {
            let found =
                hub.engines[0].inspect().address_infos().find(|i| i.prefix.addr.to_string() == ip);
            let info = found.unwrap();
            assert_eq!((info.state, info.conflicts), (AddressState::Preferred, count));
            assert_eq!(info.claimed.unwrap().0, Some(mac(9)));
        }
    }
}

/// RFC 4429, 3.2 and 3.3.
#[test]
fn what_is_sent_from_an_optimistic_address_names_no_station() {
    let mut hub = checked(AddressCheck::Optimistic);
    let start = hub.now;
    hub.address(0, "fd09::1/64");
    let socket = hub.engines[0].sockets().udp_bind("[fd09::1]:0".parse().unwrap()).unwrap();
    hub.engines[0].udp(socket).send(b"who", Some("[fd09::2]:9".parse().unwrap())).unwrap();
    hub.settle();
    let asks = NdpMessage::NeighborSolicitation(NeighborSolicitation {
        target: V6.parse().unwrap(),
        source_ll: Some(mac(9)),
        nonce: None,
    });
    hub.say(&to_all(9, "fd09::9", &asks));
    hub.pass(SECOND);
    hub.say(&to_all(9, "fd09::9", &asks));
    hub.settle();
    let early = ["probe fd09::1 true", "ask fd09::2", "one: announce fd09::1 0"];
    let late = ["all: announce fd09::1 1", "ask fd09::2 named", "one: announce fd09::1 1"];
    let mut said: Vec<_> = said(&mut hub, start).into_iter().map(|(_, text)| text).collect();
    assert_eq!(said.drain(..3).collect::<Vec<_>>(), early);
    said.sort();
    assert_eq!(said, {
        let mut late = late;
        late.sort_unstable();
        late
    });
}
