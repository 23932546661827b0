//! What others see of an engine.

use std::time::Duration;

use millstream_link::{PairConfig, PairEnd, pair};
use millstream_live::{Segment, Snapshot};
use millstream_packet::{Pool, PoolConfig};

use super::*;
use crate::EngineConfig;

/// A directory that is removed with all that is in it.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("millstream-engine-{}-{name}", std::process::id())))
    }

    fn config(&self) -> LiveConfig {
        LiveConfig::new("test").directory(&self.0)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn engine(end: Option<PairEnd>, config: Option<LiveConfig>) -> Engine {
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let mut engine =
        Engine::new(EngineConfig { live: config, ..EngineConfig::new(pool) }).expect("an engine");
    if let Some(end) = end {
        let link = engine.add_link(Box::new(end)).expect("a link");
        engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    }
    engine
}

fn read(engine: &Engine) -> Snapshot {
    let path = engine.live_path().expect("published");
    Segment::open(path, effective_uid()).expect("readable").read().expect("a snapshot")
}

#[test]
fn another_process_reads_what_the_engine_counts() {
    let there = Temporary::new("counts");
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), Some(there.config()));
    engine.tcp_listen("10.9.0.1:7".parse().expect("an address"), 4).expect("a listener");
    engine.tcp_connect("10.9.0.2:7".parse().expect("an address")).expect("a connection");
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
    engine.remove_link(link).expect("removed");
    publish(&mut engine);
    assert_eq!(links(&engine), 0);
}

#[test]
fn every_link_that_may_be_in_use_fits() {
    let there = Temporary::new("many");
    let mut engine = engine(None, Some(there.config()));
    engine.limits.links = usize::MAX;
    let mut others = Vec::new();
    for _ in 0..LINKS {
        let (end, other) = pair(PairConfig::default()).expect("a pair");
        others.push(other);
        let _ = engine.add_link(Box::new(end));
    }
    engine.turn(engine.now() + Duration::from_millis(10));
    assert!(engine.live_error().is_none());
    assert_eq!(read(&engine).named("link_mtu_bytes").count(), engine.out.links.used_count());
}

#[test]
fn an_idle_engine_publishes_what_it_did_last_and_then_sleeps() {
    let there = Temporary::new("idle");
    let mut engine = engine(None, Some(there.config()));
    let start = engine.refresh_time();
    let first = engine.turn(start).next_deadline;
    assert_eq!(first, None, "nothing was done");
    // One turn of work, in the middle of the pause.
    engine.out.stats.turns += 1;
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
    assert!(matches!(engine.live_error(), Some(LiveError::Unsafe { .. })));
    assert_eq!(engine.live_path(), None);
    engine.turn(engine.now());
    std::fs::remove_file(&there.0).expect("removed");
    engine.set_live(Some(&there.config()));
    assert!(engine.live_error().is_none());
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
    let count = 3 * STATES as usize;
    for _ in 0..count {
        engine.tcp_connect("10.9.0.2:7".parse().expect("an address")).expect("a connection");
    }
    let mut states = States::default();
    for look in 0..3 {
        assert_eq!(states.of(State::SynSent), 0, "look {look}");
        states.look(&engine);
    }
    assert_eq!(states.of(State::SynSent), count as u64);
}
