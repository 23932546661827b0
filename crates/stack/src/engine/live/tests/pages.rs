//! Every answer, of an engine that has much to tell: no page of it is more than its part.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use millstream_live::Record;
use millstream_packet::Packet;
use millstream_route::{LinkId, Prefix, Reject, Route, RouteTable};
use millstream_wire::ethernet::MacAddr;

use super::*;
use crate::engine::live::answers::{PAGE_BYTES, STEPS};
use crate::{GroupFilter, SocketId};

/// The excess that a page may have over its bounds: the steps of things that are looked at
/// together, and the bytes of a line, or of the sums of an answer.
const STEPS_TOGETHER: usize = 128;
const LINE_BYTES: usize = 4 << 10;

/// A page with what it took.
fn pages_within_bounds(engine: &mut Engine, question: &str) -> Vec<String> {
    let (mut answer, mut pages) = (Answer::to(question), Vec::new());
    while !answer.is_over() {
        let mut page = String::new();
        answer.fill(engine, &mut page);
        assert!(answer.steps <= STEPS + STEPS_TOGETHER, "{question}: {} steps", answer.steps);
        assert!(page.len() <= PAGE_BYTES + LINE_BYTES, "{question}: {} bytes", page.len());
        // Whatever it counts as steps: it looks at no more.
        assert!(page.lines().count() <= STEPS, "{question}: {} lines", page.lines().count());
        pages.push(page);
        assert!(pages.len() < 10_000, "{question} ends");
    }
    pages
}

fn all_lines(pages: &[String], kind: &str) -> Vec<Record> {
    lines(pages, kind).collect()
}

/// An engine with a link to nobody.
fn alone() -> (Engine, LinkId, PairEnd) {
    let (end, other) = pair(PairConfig::default()).expect("a pair");
    let engine = engine(Some(end), None);
    let link = engine.ip.reach.links.used().next().expect("a link");
    (engine, link, other)
}

fn host(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(10, 9, 0, 0)) + number).into()
}

#[test]
fn routes_are_told_by_prefix_a_page_at_a_time() {
    const COUNT: u32 = 3000;
    let (mut engine, link, _other) = alone();
    let gateway = host(7);
    for number in 0..COUNT {
        let prefix =
            Prefix { addr: Ipv4Addr::from_bits(0x1400_0000 + number * 256).into(), len: 24 };
        engine.routes().add(prefix, Route::via(link, gateway)).expect("room");
    }
    // Several of one prefix, more than a page has.
    for metric in 1..=400 {
        let route = Route { metric, ..Route::via(link, host(1000 + metric)) };
        engine.routes().add("20.0.0.0/24".parse().expect("a prefix"), route).expect("room");
    }
    engine.routes().add(Prefix::DEFAULT_V6, Route::on_link(link)).expect("room");
    let nowhere = Route::rejecting(Reject::Blackhole);
    engine.routes().add("21.0.0.0/8".parse().expect("a prefix"), nowhere).expect("room");
    let all = pages_within_bounds(&mut engine, "route");
    let routes = all_lines(&all, "route");
    assert_eq!(routes.len(), engine.ip.reach.routing.len(), "each once");
    let of_one = routes.iter().filter(|route| route.get("prefix") == Some("20.0.0.0/24"));
    let places: Vec<u64> = of_one.filter_map(|route| route.number("place")).collect();
    assert_eq!(places, (0..=400).collect::<Vec<u64>>());
    assert_eq!(routes.last().and_then(|route| route.get("prefix")), Some("::/0"));
    // A part of the addresses.
    let all = pages_within_bounds(&mut engine, "route 20.1.0.0/16");
    assert_eq!(all_lines(&all, "route").len(), 256);
    let found = pages_within_bounds(&mut engine, "route get 20.0.5.9");
    let found = &all_lines(&found, "route")[0];
    assert_eq!(found.get("gateway"), Some("10.9.0.7"), "{found:?}");
    let found = &all_lines(&pages(&mut engine, "route get 21.0.5.9"), "route")[0];
    assert_eq!((found.get("type"), found.get("link")), (Some("blackhole"), None), "{found:?}");
    assert!(pages(&mut engine, "route get 99.0.0.1")[0].starts_with("error why=no%20route"));
}

/// Readers of another's table have no list of it: what they have is told, and who has the list.
#[test]
fn of_another_s_table_single_routes_are_told() {
    let mut table = RouteTable::new();
    let (_, link, _other) = alone();
    table.insert("20.0.0.0/8".parse().expect("a prefix"), Route::via(link, host(7))).expect("room");
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let config = EngineConfig::new(pool).routes(table.reader());
    let mut engine = Engine::new(config).expect("an engine");
    assert!(pages(&mut engine, "route")[0].starts_with("error why=the%20route%20table"));
    let found = &all_lines(&pages(&mut engine, "route get 20.0.5.9"), "route")[0];
    assert_eq!(found.get("gateway"), Some("10.9.0.7"), "{found:?}");
    assert_eq!(engine.ip.reach.routing.len(), 1);
}

#[test]
fn neighbours_are_told_with_what_waits_for_them() {
    const COUNT: u32 = 500;
    let (mut engine, link, _other) = alone();
    let now = engine.now();
    for number in 10..10 + COUNT {
        let mac = MacAddr([2, 0, 0, 0, (number >> 8) as u8, number as u8]);
        let set = engine.ip.reach.neighbors.set_static(now, link, host(number), mac);
        assert!(set.expect("room").is_empty());
    }
    let packet = Packet::from_slice(&engine.cx.pool, 0, &[7; 100]).expect("frames");
    let _ = engine.ip.reach.neighbors.resolve(now, link, host(7), packet);
    let all = pages_within_bounds(&mut engine, "neigh");
    let neighbors = all_lines(&all, "neighbor");
    assert_eq!(neighbors.len(), COUNT as usize + 1);
    assert!(all.len() > COUNT as usize / 128, "{} pages", all.len());
    let unknown = neighbors.iter().find(|one| one.get("address") == Some("10.9.0.7")).expect("it");
    assert_eq!((unknown.get("state"), unknown.get("lladdr")), (Some("INCOMPLETE"), None));
    assert_eq!((unknown.number("probes"), unknown.number("pending_packets")), (Some(1), Some(1)));
    assert!(unknown.number("due_us").is_some_and(|us| us > 0), "{unknown:?}");
    let known = neighbors.iter().find(|one| one.get("address") == Some("10.9.0.10")).expect("it");
    assert_eq!(known.get("state"), Some("PERMANENT"));
    assert_eq!((known.get("lladdr"), known.get("due_us")), (Some("02:00:00:00:00:0a"), None));
    assert_eq!(all_lines(&all, "neighbors")[0].number("entries"), Some(u64::from(COUNT) + 1));
}

#[test]
fn links_are_told_with_those_that_have_failed() {
    let mut engine = engine(None, None);
    engine.cx.limits.links = usize::MAX;
    let mut others = Vec::new();
    for _ in 0..40 {
        let (end, other) = pair(PairConfig::default()).expect("a pair");
        engine.add_link(Box::new(end)).expect("a link");
        others.push(other);
    }
    let broken = millstream_link::LinkError::Invalid("of no use".into());
    engine.ip.reach.links.fail(LinkId(3), broken, 0);
    let all = pages_within_bounds(&mut engine, "links");
    let links = all_lines(&all, "link");
    assert_eq!(links.len(), 40);
    assert_eq!((links[3].get("state"), links[4].get("state")), (Some("failed"), Some("up")));
    assert!(links[3].get("why").is_some());
}

#[test]
fn the_pool_is_told_holder_by_holder_and_sums_are_those_of_all() {
    let mut engine = engine(None, None);
    let pool = engine.cx.pool.clone();
    let holders: Vec<_> = (0..300).map(|at| pool.holder(&format!("holder-{at}"))).collect();
    let _used = Packet::from_slice(&pool, 0, &[7; 100]).expect("frames");
    let all = pages_within_bounds(&mut engine, "pool");
    assert!(all.len() > 2, "{} pages", all.len());
    assert!(all_lines(&all, "holder").len() >= holders.len());
    let (told, stats) = (&all_lines(&all, "pool")[0], pool.stats());
    assert_eq!(told.number("used_frames"), Some(stats.used_frames as u64));
    assert_eq!(told.number("cached_frames"), Some(stats.cached_frames() as u64));
    assert_eq!(all_lines(&all, "thread").len(), stats.caches.len());
}

/// Held memory by holder, once what a peer that does not read and an application have left there is
/// known.
#[test]
fn the_pool_is_told_with_what_the_queues_hold() {
    let (mut near, mut far) = joined();
    let listener =
        far.sockets().tcp_listen("10.9.0.2:7".parse().expect("an address"), 4).expect("room");
    let id = near
        .sockets()
        .tcp_connect("10.9.0.2:7".parse().expect("an address"))
        .expect("a connection");
    settle(&mut near, &mut far);
    let (server, _) = far.listener(listener).accept().expect("a connection");
    let mut written = 0;
    while let Ok(count @ 1..) = near.tcp(id).write(&[7; 60_000]) {
        written += count;
        settle(&mut near, &mut far);
    }
    let talking =
        near.sockets().udp_bind("10.9.0.1:9".parse().expect("an address")).expect("a socket");
    let from = far.sockets().udp_bind("10.9.0.2:9".parse().expect("an address")).expect("a socket");
    for _ in 0..5 {
        let to = "10.9.0.1:9".parse().expect("an address");
        far.udp(from).send(&[7; 700], Some(to)).expect("room");
        settle(&mut near, &mut far);
    }
    let packet = Packet::from_slice(&near.cx.pool, 0, &[7; 100]).expect("frames");
    let (now, link) = (near.now(), LinkId(0));
    let _ = near.ip.reach.neighbors.resolve(now, link, host(77), packet);
    let held = |engine: &mut Engine, name: &str, key: &str| {
        let all = all_lines(&pages_within_bounds(engine, "pool"), "holder");
        let mut found = all.iter().filter(|one| one.get("name") == Some(name));
        found.find_map(|one| one.number(key).filter(|number| *number != 0)).unwrap_or(0)
    };
    let (sends, receives) = (
        near.tcp(id).info().expect("open").send_queue_bytes,
        far.tcp(server).info().expect("open").recv_queue_bytes,
    );
    assert_eq!(held(&mut near, "tcp-send", "payload_bytes"), sends);
    assert_eq!(held(&mut far, "tcp-receive", "payload_bytes"), receives);
    assert!(sends > 0 && receives > 0 && sends + receives >= written as u64);
    assert!(held(&mut near, "tcp-send", "held_bytes") >= sends);
    assert!(held(&mut far, "tcp-receive", "held_bytes") >= receives);
    assert!(held(&mut near, "datagrams", "held_bytes") >= 5 * 700);
    assert!(held(&mut near, "neighbours", "held_bytes") >= 100);
    assert_eq!(near.tcp(id).state(), Ok(millstream_tcp::State::Established));
    assert!(near.udp(talking).recv(&mut [0; 999]).is_ok());
}

#[test]
fn groups_are_told_with_who_listens_to_which_sources() {
    let (mut engine, link, _other) = alone();
    let sources: Vec<IpAddr> = (0..64).map(|at| host(100 + at)).collect();
    for number in 0..120u16 {
        let local = SocketAddr::from(([0, 0, 0, 0], 7000 + number));
        let id = engine.sockets().udp_bind(local).expect("a socket");
        let filter = GroupFilter::Include(sources.clone());
        let group = "239.1.2.3".parse().expect("a group");
        engine.udp(id).set_group_filter(group, Some(link), filter).expect("joined");
    }
    let all = pages_within_bounds(&mut engine, "groups");
    let groups = all_lines(&all, "group");
    let of_one: Vec<_> =
        groups.iter().filter(|one| one.get("group") == Some("239.1.2.3")).collect();
    assert!(of_one.len() == 120 && all.len() > 2, "{} in {}", of_one.len(), all.len());
    assert_eq!(of_one[119].get("socket"), Some("udp119.0"));
    assert_eq!(of_one[119].get("mode"), Some("include"));
    assert_eq!(of_one[119].get("sources").map(|all| all.split(',').count()), Some(64));
}

/// Engines of which one has a listener with a backlog of 4, and the other has opened so many
/// connections to it. The last step of those beyond the backlog is not heard.
fn crowded(count: usize) -> (Engine, Engine, SocketId) {
    let (mut near, mut far) = joined();
    let address = "10.9.0.2:7".parse().expect("an address");
    let listener = far.sockets().tcp_listen(address, 4).expect("a listener");
    for _ in 0..count {
        near.sockets().tcp_connect(address).expect("a connection");
    }
    settle(&mut near, &mut far);
    (near, far, listener)
}

/// Two engines over a pair.
fn joined() -> (Engine, Engine) {
    let (end, other) = pair(PairConfig::default()).expect("a pair");
    let (near, mut far) = (engine(Some(end), None), engine(None, None));
    let link = far.add_link(Box::new(other)).expect("a link");
    far.add_address(link, "10.9.0.2/24".parse().expect("a prefix")).expect("an address");
    (near, far)
}

#[test]
fn a_listener_tells_who_waits_and_whose_handshake_is_not_finished() {
    let (_near, mut far, _listener) = crowded(10);
    let all = pages_within_bounds(&mut far, "queue listen0.0");
    let queues = all_lines(&all, "queue");
    let (accept, syn) = (&queues[0], &queues[1]);
    assert_eq!((accept.get("side"), accept.number("connections")), (Some("accept"), Some(4)));
    assert_eq!((syn.get("side"), syn.number("handshakes")), (Some("syn"), Some(6)));
    let all = pages_within_bounds(&mut far, "queue listen0.0 -v");
    let waiting = all_lines(&all, "waiting");
    assert_eq!(waiting.len(), 4);
    assert!(waiting.iter().all(|one| one.get("state") == Some("ESTAB")), "{waiting:?}");
    let unfinished = all_lines(&all, "socket");
    assert_eq!(unfinished.len(), 6);
    assert!(unfinished.iter().all(|one| one.get("listener") == Some("listen0.0")));
    assert!(pages(&mut far, "queue listen9.0")[0].starts_with("error "));
}

#[test]
fn what_has_no_socket_is_told_where_all_are_asked_for() {
    let (mut near, mut far, listener) = crowded(6);
    // Both ends close one of the open connections, this one first.
    let accepted = far.listener(listener).accept().expect("a connection").0;
    far.tcp(accepted).close();
    settle(&mut near, &mut far);
    for slot in 0..6 {
        let id = SocketId::new(crate::SocketKind::Tcp, slot, 0);
        let is_it =
            near.tcp.table.by_id(id).is_some_and(|(_, one)| one.conn.state() == State::CloseWait);
        if is_it {
            near.tcp(id).close();
        }
    }
    settle(&mut near, &mut far);
    let states = |pages: &[String], state: &str| {
        lines(pages, "socket").filter(|one| one.get("state") == Some(state)).count()
    };
    let all = pages_within_bounds(&mut far, "ss -a");
    assert_eq!((states(&all, "SYN-RECV"), states(&all, "TIME-WAIT")), (2, 1), "{all:?}");
    let due = all_lines(&all, "socket").into_iter().filter_map(|one| one.number("due_us"));
    assert!(due.clone().count() == 3 && due.into_iter().all(|us| us > 0));
    let sockets = pages_within_bounds(&mut far, "ss");
    assert_eq!((states(&sockets, "SYN-RECV"), states(&sockets, "TIME-WAIT")), (0, 0));
}

#[test]
fn echo_sockets_and_their_queues_are_told() {
    let (mut engine, ..) = alone();
    let id = engine.sockets().icmp_bind(77).expect("a socket");
    for seq in 0..3 {
        let packet = Packet::from_slice(&engine.cx.pool, 0, &[7; 100]).expect("frames");
        let socket = engine.echo.by_id(id).expect("it");
        let (from, to) = (host(2), host(1));
        let echo =
            crate::engine::datagram::echo_table::Echo { from, to, identifier: 7, seq, packet };
        socket.queue.push_back(echo);
    }
    let all = pages_within_bounds(&mut engine, "ss");
    let socket = &all_lines(&all, "socket")[0];
    assert_eq!((socket.get("id"), socket.number("identifier")), (Some("icmp0.0"), Some(77)));
    assert_eq!(socket.number("recv_q"), Some(3));
    let all = pages_within_bounds(&mut engine, "queue icmp0.0 -v");
    assert_eq!(all_lines(&all, "segment").len(), 3);
    let all = pages_within_bounds(&mut engine, "census");
    assert_eq!(all_lines(&all, "sizes")[0].number("segments"), Some(3));
}

#[test]
fn timers_are_counted_by_kind_and_told_one_by_one() {
    const COUNT: usize = 300;
    let (_near, mut far, _listener) = crowded(6);
    for _ in 0..COUNT {
        far.sockets().tcp_connect("10.9.0.1:9".parse().expect("an address")).expect("a connection");
    }
    // So many are served in a turn.
    for _ in 0..COUNT / 32 {
        far.turn(far.now());
    }
    let all = pages_within_bounds(&mut far, "timers");
    let kinds = all_lines(&all, "timers");
    let armed = |kind: &str| {
        let line = kinds.iter().find(|line| line.get("kind") == Some(kind)).expect("it");
        line.number("armed")
    };
    assert_eq!((armed("retransmit"), armed("syn_ack")), (Some(COUNT as u64), Some(2)));
    assert_eq!(armed("persist"), Some(0));
    assert_eq!(armed("fragments"), None, "only the first is known of");
    let due = all_lines(&all, "due").into_iter();
    let of_one = due.filter(|line| line.get("kind") == Some("retransmit"));
    assert_eq!(of_one.filter_map(|line| line.number("count")).sum::<u64>(), COUNT as u64);
    let all = pages_within_bounds(&mut far, "timers -v");
    let timers = all_lines(&all, "timer");
    let first = timers.iter().find(|one| one.get("kind") == Some("retransmit")).expect("it");
    assert!(first.get("of").is_some_and(|of| of.starts_with("tcp")), "{first:?}");
    assert!(first.number("due_us").is_some_and(|us| (1..=1_100_000).contains(&us)), "{first:?}");
    assert!(timers.len() > COUNT && all.len() > COUNT / 128);
}

#[test]
fn no_page_costs_more_because_more_is_there() {
    let (mut near, mut far) = joined();
    let address = "10.9.0.2:7".parse().expect("an address");
    let listener = far.sockets().tcp_listen(address, 4).expect("a listener");
    let id = near.sockets().tcp_connect(address).expect("a connection");
    settle(&mut near, &mut far);
    let server = far.listener(listener).accept().expect("a connection").0;
    for _ in 0..1000 {
        near.sockets()
            .tcp_connect("10.9.0.3:7".parse().expect("an address"))
            .expect("a connection");
    }
    for _ in 0..50 {
        far.tcp(server).write(&[7; 1000]).expect("written");
        settle(&mut near, &mut far);
    }
    let queue = format!("queue tcp{}.0", id.slot());
    let verbose = format!("{queue} -v");
    for question in ["ss", "ss -a", "census", "timers", "timers -v", &queue, &verbose, "pool"] {
        pages_within_bounds(&mut near, question);
    }
}

#[test]
fn prefixes_and_sockets_that_intercept_are_told() {
    let (mut engine, link, _other) = alone();
    let (all, within) = (Prefix::DEFAULT_V4, std::time::Duration::from_secs(1));
    let prefix = crate::LocalPrefix::new(all).answers_echo(true);
    engine.intercept().add_prefix(link, prefix).expect("a prefix");
    engine.intercept().tcp(all, 0, within).expect("a listener");
    engine.intercept().udp(all, 0, within).expect("a socket");
    engine.intercept().echo(all).expect("a socket");
    let pages = pages_within_bounds(&mut engine, "links");
    let told = &all_lines(&pages, "prefix")[0];
    let values = ["prefix", "may_send_from", "answers_echo"].map(|key| told.get(key));
    assert_eq!(values, [Some("0.0.0.0/0"), Some("0"), Some("1")]);
    let pages = pages_within_bounds(&mut engine, "ss");
    let sockets = all_lines(&pages, "socket");
    let intercept = sockets.iter().filter(|one| one.get("intercepts") == Some("0.0.0.0/0"));
    assert_eq!(intercept.count(), 3);
}

#[test]
fn the_first_deadline_of_intercepted_flows_is_told() {
    let (mut near, mut far) = joined();
    let prefix: Prefix = "10.9.0.128/25".parse().expect("a prefix");
    let local = crate::LocalPrefix::new(prefix).answers_neighbors(true);
    far.intercept().add_prefix(LinkId(0), local).expect("a prefix");
    far.intercept().udp(prefix, 0, std::time::Duration::from_secs(1)).expect("a socket");
    let first = |far: &mut Engine| {
        let all = pages_within_bounds(far, "timers");
        let kinds = all_lines(&all, "timers");
        kinds.iter().find(|line| line.get("kind") == Some("udp_flows"))?.number("first_us")
    };
    assert_eq!(first(&mut far), None);
    let socket = near.sockets().udp_bind("0.0.0.0:0".parse().expect("any")).expect("a socket");
    let to = "10.9.0.200:9".parse().expect("an address");
    near.udp(socket).send(b"?", Some(to)).expect("sent");
    settle(&mut near, &mut far);
    assert!(first(&mut far).is_some_and(|us| (1..=1_000_000).contains(&us)));
}
