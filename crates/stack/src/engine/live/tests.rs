//! Tests of what others see of an engine.

use millstream_link::{PairConfig, PairEnd, pair};
use millstream_live::{Segment, Snapshot};
use millstream_packet::{Pool, PoolConfig};
use millstream_tcp::{State, TimerKind};

use super::answers::Answer;
use super::id::Id;
use super::states::LOOKED_AT;
use super::*;
use crate::EngineConfig;

/// A directory that is removed with all that is in it.
pub(super) struct Temporary(std::path::PathBuf);

impl Temporary {
    pub fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("millstream-engine-{}-{name}", std::process::id())))
    }

    pub fn config(&self) -> LiveConfig {
        LiveConfig::new("test").directory(&self.0)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn engine(end: Option<PairEnd>, config: Option<LiveConfig>) -> Engine {
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let mut engine =
        Engine::new(EngineConfig { live: config, ..EngineConfig::new(pool) }).expect("an engine");
    if let Some(end) = end {
        let link = engine.add_link(Box::new(end)).expect("a link");
        engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    }
    engine
}

pub(super) fn read(engine: &Engine) -> Snapshot {
    let path = engine.inspect().live_path().expect("published");
    Segment::open(path, effective_uid()).expect("readable").read().expect("a snapshot")
}

#[test]
fn another_process_reads_what_the_engine_counts() {
    let there = Temporary::new("counts");
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), Some(there.config()));
    engine.sockets().tcp_listen("10.9.0.1:7".parse().expect("an address"), 4).expect("a listener");
    engine.sockets().tcp_connect("10.9.0.2:7".parse().expect("an address")).expect("a connection");
    let start = engine.refresh_time();
    engine.turn(start);
    engine.turn(start + Duration::from_millis(20));
    engine.turn(start + Duration::from_millis(40));
    let (seen, stats) = (read(&engine), engine.stats());
    assert_eq!(seen.total("turns"), Some(stats.turns - 1), "as of the begin of the last turn");
    assert_eq!(seen.total("tcp_active_opens"), Some(1));
    assert_eq!(seen.total("listeners"), Some(1));
    assert_eq!(seen.labelled("tcp_sockets", "state", "SYN-SENT"), Some(1));
    assert_eq!(seen.labelled("drops", "reason", "no_route"), Some(0));
    assert_eq!(seen.labelled("link_tx_packets", "link", "0"), Some(stats.tx_packets));
    assert_eq!(seen.total("link_drops"), Some(0));
    let served = seen.named("served_bytes").next().expect("a histogram");
    assert_eq!(served.1.len(), crate::Histogram::BUCKETS);
}

#[test]
fn links_that_come_and_go_are_named_from_then_on() {
    let there = Temporary::new("links");
    let mut engine = engine(None, Some(there.config()));
    let links = |engine: &Engine| read(engine).named("link_is_down").count();
    let mut now = engine.refresh_time();
    let mut publish = |engine: &mut Engine| {
        now += Duration::from_millis(10);
        engine.turn(now);
    };
    publish(&mut engine);
    assert_eq!(links(&engine), 0);
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let link = engine.add_link(Box::new(end)).expect("a link");
    publish(&mut engine);
    assert_eq!(links(&engine), 1);
    engine.links().remove(link).expect("removed");
    publish(&mut engine);
    assert_eq!(links(&engine), 0);
}

#[test]
fn every_link_that_may_be_in_use_fits() {
    let there = Temporary::new("many");
    let mut engine = engine(None, Some(there.config()));
    engine.cx.limits.links = usize::MAX;
    let mut others = Vec::new();
    for _ in 0..LINKS {
        let (end, other) = pair(PairConfig::default()).expect("a pair");
        others.push(other);
        let _ = engine.add_link(Box::new(end));
    }
    engine.turn(engine.now() + Duration::from_millis(10));
    assert!(engine.inspect().live_error().is_none());
    assert_eq!(read(&engine).named("link_mtu_bytes").count(), engine.ip.reach.links.used_count());
}

#[test]
fn an_idle_engine_publishes_what_it_did_last_and_then_sleeps() {
    let there = Temporary::new("idle");
    let mut engine = engine(None, Some(there.config()));
    let start = engine.refresh_time();
    let first = engine.turn(start).next_deadline;
    assert_eq!(first, None, "nothing was done");
    // One turn of work, in the middle of the pause.
    engine.cx.stats.turns += 1;
    let due = start + Duration::from_millis(10);
    assert_eq!(engine.turn(start + Duration::from_millis(5)).next_deadline, Some(due));
    assert_eq!(engine.turn(due).next_deadline, None);
    assert_eq!(engine.turn(due + Duration::from_secs(1)).next_deadline, None);
}

#[test]
fn what_cannot_be_published_leaves_the_engine_as_it_is() {
    let there = Temporary::new("refused");
    std::fs::write(&there.0, "no directory").expect("a file");
    let mut engine = engine(None, Some(there.config()));
    assert!(matches!(engine.inspect().live_error(), Some(LiveError::Unsafe { .. })));
    assert_eq!(engine.inspect().live_path(), None);
    engine.turn(engine.now());
    std::fs::remove_file(&there.0).expect("removed");
    engine.set_live(Some(&there.config()));
    assert!(engine.inspect().live_error().is_none());
    engine.turn(engine.now());
    assert_eq!(read(&engine).sequence, 1);
    engine.set_live(None);
    assert_eq!(std::fs::read_dir(&there.0).expect("a directory").count(), 0);
}

#[test]
fn states_of_many_connections_are_counted_a_few_at_a_time() {
    let mut engine = engine(None, None);
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let link = engine.add_link(Box::new(end)).expect("a link");
    engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    let count = 3 * LOOKED_AT as usize;
    for _ in 0..count {
        engine
            .sockets()
            .tcp_connect("10.9.0.2:7".parse().expect("an address"))
            .expect("a connection");
    }
    // They ask for their neighbour and wait for an answer.
    while engine.turn(engine.now()).progress {}
    let mut states = States::default();
    for look in 0..3 {
        assert!(states.counted().is_none(), "look {look}");
        states.look(&engine);
    }
    let counted = states.counted().expect("all were looked at");
    assert_eq!(counted.states[State::SynSent as usize], count as u64);
    let armed = |kind: TimerKind| counted.timers[kind as usize];
    assert_eq!([TimerKind::Retransmit, TimerKind::TimeWait].map(armed), [count as u64, 0]);
}

#[test]
fn what_is_not_counted_yet_is_not_published_as_none() {
    let there = Temporary::new("uncounted");
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), Some(there.config()));
    for _ in 0..2 * LOOKED_AT {
        engine
            .sockets()
            .tcp_connect("10.9.0.2:7".parse().expect("an address"))
            .expect("a connection");
    }
    let mut now = engine.refresh_time();
    let mut seen = || {
        now += Duration::from_millis(10);
        engine.turn(now);
        let seen = read(&engine);
        let timers = seen.labelled("timers_armed", "kind", "retransmit");
        (seen.labelled("tcp_sockets", "state", "SYN-SENT"), timers.is_some())
    };
    assert_eq!(seen(), (None, false));
    let all = (Some(2 * u64::from(LOOKED_AT)), true);
    assert_eq!(seen(), all);
    // And as it was counted last while it is counted again.
    assert_eq!(seen(), all);
}

/// Two engines over a pair, and a connection: its socket at `near`, and at `far`.
fn connected(near: &mut Engine, far: &mut Engine) -> [crate::SocketId; 2] {
    let address = "10.9.0.2:7".parse().expect("an address");
    let listener = far.sockets().tcp_listen(address, 4).expect("a listener");
    let client = near.sockets().tcp_connect(address).expect("a connection");
    settle(near, far);
    [client, far.listener(listener).accept().expect("a connection").0]
}

fn settle(near: &mut Engine, far: &mut Engine) {
    let now = near.refresh_time().max(far.refresh_time());
    while near.turn(now).progress | far.turn(now).progress {}
}

/// An engine with a live name, one that it talks to, and a connection.
fn world(there: &Temporary) -> (Engine, Engine, [crate::SocketId; 2]) {
    let (end, other) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(Some(end), Some(there.config()));
    let mut far = engine(None, None);
    let link = far.add_link(Box::new(other)).expect("a link");
    far.add_address(link, "10.9.0.2/24".parse().expect("a prefix")).expect("an address");
    let ids = connected(&mut near, &mut far);
    (near, far, ids)
}

/// The pages of an answer.
fn pages(engine: &mut Engine, question: &str) -> Vec<String> {
    let (mut answer, mut pages) = (Answer::to(question), Vec::new());
    while !answer.is_over() {
        let mut page = String::new();
        answer.fill(engine, &mut page);
        pages.push(page);
        assert!(pages.len() < 10_000, "it ends");
    }
    pages
}

fn lines<'a>(
    pages: &'a [String],
    kind: &'a str,
) -> impl Iterator<Item = millstream_live::Record> + 'a {
    let lines = pages.iter().flat_map(|page| page.lines()).map(millstream_live::Record::parse);
    lines.filter(move |line| line.kind == kind)
}

#[test]
fn a_queue_is_told_piece_by_piece_and_counted_a_page_at_a_time() {
    const WRITES: usize = 50;
    let there = Temporary::new("queue");
    let (mut near, mut far, [client, server]) = world(&there);
    for _ in 0..WRITES {
        assert_eq!(far.tcp(server).write(&[7; 1000]), Ok(1000));
        settle(&mut near, &mut far);
    }
    let all = pages(&mut near, "ss");
    let socket = lines(&all, "socket").find(|line| line.get("state") == Some("ESTAB")).expect("it");
    assert_eq!(socket.number("recv_q"), Some(50_000));
    let question = format!("queue {} -v", socket.get("id").expect("an id"));
    let all = pages(&mut near, &question);
    let segments: Vec<_> = lines(&all, "segment").collect();
    assert!(segments.len() >= WRITES / 2, "{}", segments.len());
    let sum = |key| segments.iter().filter_map(|line| line.number(key)).sum::<u64>();
    assert_eq!(sum("payload_bytes"), 50_000);
    let queue = lines(&all, "queue").find(|line| line.get("side") == Some("receive")).expect("it");
    assert_eq!(queue.number("payload_bytes"), Some(50_000));
    // Over a pair it has views of what the other end holds, and stands for no less than its bytes.
    assert_eq!(queue.number("held_bytes"), Some(sum("held_bytes").max(50_000)));
    assert!(queue.get("flags").expect("words").contains("readable"), "{queue:?}");
    // No page looks at more than its part.
    for page in &all {
        assert!(page.lines().filter(|line| line.starts_with("segment ")).count() <= 256);
    }
    let all = pages(&mut near, "census");
    let counted = lines(&all, "sizes").next().expect("it");
    assert_eq!(counted.number("segments"), Some(segments.len() as u64));
    assert_eq!(counted.number("held_bytes"), Some(sum("held_bytes")));
    // What the other end keeps for a retransmission is referred to by both.
    let all = pages(&mut near, "census -x");
    let exact: Vec<_> = lines(&all, "exact").collect();
    let bytes = exact.iter().map(|one| {
        one.number("payload_bytes").expect("a size") * one.number("count").expect("a count")
    });
    assert_eq!(bytes.sum::<u64>(), 50_000);
    assert!(exact.iter().all(|one| one.get("side") == Some("receive")), "{exact:?}");
    near.tcp(client).abort();
    settle(&mut near, &mut far);
    assert!(pages(&mut near, &question)[0].starts_with("error "));
}

#[test]
fn a_queue_tells_the_most_that_it_held_and_at_how_much_a_writer_is_told() {
    let there = Temporary::new("water");
    let (mut near, mut far, [client, _]) = world(&there);
    let marks = |near: &mut Engine| {
        let all = pages(near, &format!("queue {}", Id(client)));
        let queue = lines(&all, "queue").find(|line| line.get("side") == Some("send")).expect("it");
        ["payload_bytes", "held_bytes", "high_water_bytes", "low_water_bytes"]
            .map(|key| queue.number(key).expect("a number"))
    };
    let low = near.cx.limits.tuning.unsent_bytes as u64 / 2;
    assert_eq!(marks(&mut near), [0, 0, 0, low]);
    assert_eq!(near.tcp(client).write(&[7; 30_000]), Ok(30_000));
    let [payload, held, high, _] = marks(&mut near);
    assert!(payload == 30_000 && held >= 30_000 && high == held, "{payload} {held} {high}");
    while marks(&mut near)[0] != 0 {
        settle(&mut near, &mut far);
    }
    assert_eq!(marks(&mut near), [0, 0, high, low], "it was that full");
    assert_eq!(near.tcp(client).write(&[7; 100]), Ok(100));
    assert_eq!(marks(&mut near)[2], high, "less is no more");
}

#[test]
fn datagrams_that_wait_are_told_and_counted_too() {
    const COUNT: usize = 1300;
    let mut engine = engine(None, None);
    let id = engine.sockets().udp_bind("0.0.0.0:9".parse().expect("an address")).expect("a socket");
    let from: std::net::SocketAddr = "10.9.0.2:9".parse().expect("an address");
    // 1,200 of one size, at four places of their frames, and of each other size one; views of one
    // frame are referred to together.
    let mut shared = Vec::new();
    for number in 0..COUNT {
        let (size, at) = if number < 1200 { (100, number % 4) } else { (number, 0) };
        let packet = millstream_packet::Packet::from_slice(&engine.cx.pool, at, &vec![7; size]);
        let packet = packet.expect("frames");
        if number == 1299 {
            shared.extend((0..2).map(|_| packet.view(&engine.cx.pool, 0, 9).expect("a view")));
        }
        let socket = engine.udp.sockets.get_mut(id.slot()).expect("it");
        socket.queue.push_back(crate::engine::datagram::udp_table::Datagram {
            from,
            packet,
            info: crate::DatagramInfo {
                to: from.ip(),
                link: millstream_route::LinkId(0),
                hop_limit: 64,
                traffic_class: 64,
            },
        });
    }
    let all = pages(&mut engine, "queue udp0.0 -v");
    assert_eq!((lines(&all, "segment").count(), all.len()), (COUNT, COUNT.div_ceil(256)));
    let all = pages(&mut engine, "census");
    assert_eq!(lines(&all, "sizes").next().expect("it").number("segments"), Some(COUNT as u64));
    assert!(all.len() >= COUNT / 512, "{} pages", all.len());
    let all = pages(&mut engine, "census -x");
    let keys = ["payload_bytes", "references", "least_offset_bytes", "most_offset_bytes", "count"];
    let exact: Vec<[u64; 5]> = lines(&all, "exact")
        .map(|one| keys.map(|key| one.number(key).expect("a number")))
        .collect();
    let sizes = [[100, 1, 0, 3, 1200]].into_iter();
    let sizes = sizes.chain((1200..1299).map(|size| [size, 1, 0, 0, 1]));
    assert_eq!(exact, sizes.chain([[1299, 3, 0, 0, 1]]).collect::<Vec<_>>());
    assert_eq!(lines(&all, "exact_others").next().and_then(|one| one.number("count")), Some(0));
}

#[test]
fn datagrams_that_a_socket_has_no_room_for_are_told_with_its_queue() {
    let mut talking = talking::Talking::new(1);
    let (engine, id) = (&mut talking.engine, talking.sockets[0]);
    engine.udp.sockets.get_mut(id.slot()).expect("it").limit_bytes = 1;
    for _ in 0..3 {
        engine.udp(id).send(b"hello", Some(talking::address(0))).expect("sent");
        while engine.turn(engine.now()).progress {}
    }
    for (question, kind) in [("queue udp0.0", "queue"), ("ss", "socket")] {
        let all = pages(engine, question);
        let line = lines(&all, kind).next().expect("it");
        assert_eq!((line.number("refused"), line.number("held_bytes")), (Some(3), Some(0)));
    }
}

#[test]
fn tables_are_walked_a_few_slots_at_a_time() {
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), None);
    for _ in 0..1000 {
        engine
            .sockets()
            .tcp_connect("10.9.0.2:7".parse().expect("an address"))
            .expect("a connection");
    }
    let all = pages(&mut engine, "ss");
    assert_eq!(lines(&all, "socket").count(), 1000);
    assert!(pages(&mut engine, "links")[0].contains("rx_ring="));
    assert!(pages(&mut engine, "pool").concat().contains("holder name=tcp-send"));
    for wrong in ["", "x", "queue", "queue tcp", "queue tcp9.9.9", "queue tcp-1.0", "queue tcp5.1"]
    {
        let all = pages(&mut engine, wrong);
        assert!(all.len() == 1 && all[0].starts_with("error "), "{wrong}: {all:?}");
    }
}

mod flows;
mod others;
mod pages;
pub(super) mod talking;
