//! Heap memory, counted by the allocator: of connections that are idle or over, and for packets
//! handed on.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod flows;
mod forwarding;
mod requests;

use std::alloc::System;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use cap::Cap;
use common::{FAR, NEAR, config, engine, pool};
use millstream::link::{Faults, Medium, PairConfig, pair};
use millstream::local::{TcpListener, TcpStream};
use millstream::packet::{Instant, Pool, PoolConfig, PoolMemory};
use millstream::sim::Simulation;
use millstream::{Engine, Limits, SocketId};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The tests here count the same heap.
static ALONE: Mutex<()> = Mutex::new(());

const BATCH: usize = 1000;

struct Hosts {
    near: Engine,
    far: Engine,
    now: Instant,
}

impl Hosts {
    fn new(pool: &Pool, limits: &Limits) -> Self {
        let link = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
        let (near, far) = pair(link).expect("a pair");
        let limited = |seed| {
            let mut config = config(pool, seed);
            config.limits = limits.clone();
            config
        };
        let mut near = engine(limited(1), near, &NEAR);
        let far = engine(limited(2), far, &FAR);
        let now = near.refresh_time();
        Self { near, far, now }
    }

    fn settle(&mut self) {
        while self.near.turn(self.now).progress | self.far.turn(self.now).progress {}
        // As an application does.
        for engine in [&mut self.near, &mut self.far] {
            while engine.next_event().is_some() {}
        }
    }

    /// Opens connections, at most 16,000 to one address, and sends a little over each.
    fn open(&mut self, to: &str, count: usize) -> Vec<(SocketId, SocketId)> {
        let to: SocketAddr = to.parse().expect("an address");
        let listener = self.far.sockets().tcp_listen(to, BATCH).expect("listen");
        let mut open = Vec::with_capacity(count);
        while open.len() < count {
            let clients: Vec<SocketId> = (open.len()..count.min(open.len() + BATCH))
                .map(|_| self.near.sockets().tcp_connect(to).expect("connect"))
                .collect();
            self.settle();
            let mut by_port = std::collections::HashMap::new();
            while let Ok((server, peer)) = self.far.listener(listener).accept() {
                by_port.insert(peer.port(), server);
            }
            for client in clients {
                let port = self.near.tcp(client).addresses().expect("open").local.port();
                open.push((client, by_port[&port]));
                assert_eq!(self.near.tcp(client).write(b"a request"), Ok(9));
            }
            self.settle();
            for &(client, server) in &open[open.len() - by_port.len()..] {
                let mut bytes = [0; 16];
                assert_eq!(self.far.tcp(server).read(&mut bytes), Ok(9));
                assert_eq!(self.far.tcp(server).write(b"an answer"), Ok(9));
                self.settle();
                assert_eq!(self.near.tcp(client).read(&mut bytes), Ok(9));
            }
        }
        self.far.listener(listener).close();
        open
    }

    /// Moves time on until what is due comes seldom.
    fn fall_quiet(&mut self) {
        let end = self.now + Duration::from_secs(60);
        while self.now < end {
            self.settle();
            let due = [&mut self.near, &mut self.far].map(|e| e.turn(self.now).next_deadline);
            self.now = due.into_iter().flatten().min().unwrap_or(end).max(self.now);
        }
    }
}

/// The heap with two hosts for `limit` connections, of which none is open.
fn empty(pool: &Pool, limits: &Limits) -> (usize, Hosts) {
    let before = HEAP.allocated();
    let hosts = Hosts::new(pool, limits);
    (HEAP.allocated() - before, hosts)
}

#[test]
fn an_idle_connection_takes_a_kibibyte() {
    const COUNT: usize = 10_000;
    let _alone = ALONE.lock();
    let pool = pool();
    for to in ["10.9.0.2:80", "[fd09::2]:80"] {
        // What does not grow with connections: hosts that may have one.
        let (fixed, hosts) = empty(&pool, &Limits::default().connections(1));
        drop(hosts);
        let limits = Limits::default().connections(COUNT);
        let before = HEAP.allocated();
        let mut hosts = Hosts::new(&pool, &limits);
        let open = hosts.open(to, COUNT);
        let names = open.capacity() * size_of::<(SocketId, SocketId)>();
        hosts.fall_quiet();
        let held = HEAP.allocated() - before - fixed - names;
        let each = held / (2 * COUNT);
        println!("{to}: {each} bytes per connection and end, all tables included");
        assert!((512..=1024).contains(&each), "{each} bytes");
        // They live, and take no more once they are quiet again.
        for &(client, server) in open.iter().step_by(97) {
            assert_eq!(hosts.near.tcp(client).write(&[7; 5000]), Ok(5000));
            hosts.settle();
            assert_eq!(hosts.far.tcp(server).read(&mut [0; 8000]), Ok(5000));
        }
        hosts.fall_quiet();
        let again = (HEAP.allocated() - before - fixed - names) / (2 * COUNT);
        assert!(again <= 1024, "{again} bytes after new traffic");
    }
}

/// A machine with little memory: all is of the program's allocator, and an engine that never sleeps
/// has no descriptor, nor has a link in memory.
#[test]
fn hosts_may_have_no_map_of_their_own_and_no_descriptor() {
    let _alone = ALONE.lock();
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let (before, descriptors_before) = (HEAP.allocated(), descriptors());
    let config = PoolConfig { memory: PoolMemory::Allocator, ..PoolConfig::fixed(992) };
    let pool = Pool::new(config).expect("memory for a pool");
    assert!(HEAP.allocated() - before >= 4 << 20, "a chunk of frames and one of views");
    let mut hosts = Hosts::new(&pool, &Limits::default().connections(100));
    hosts.open("10.9.0.2:80", 100);
    assert_eq!(descriptors(), descriptors_before);
    drop((hosts, pool));
    assert!(HEAP.allocated() < before + (1 << 20), "all is given back");
}

#[test]
fn a_simulation_has_memory_of_the_allocator_alone() {
    let _alone = ALONE.lock();
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let (before, descriptors_before) = (HEAP.allocated(), descriptors());
    let simulation = Simulation::new(7).expect("a simulation");
    let [near, far] = [(); 2].map(|()| simulation.host().expect("a host"));
    let ends = ((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"));
    simulation.join(ends.0, ends.1, Faults::default()).expect("a link");
    let listener = TcpListener::bind(&far, "10.0.0.2:80", 1).expect("listen");
    let _client = TcpStream::connect(&near, "10.0.0.2:80").expect("connect");
    listener.accept().expect("a connection");
    assert_eq!(descriptors(), descriptors_before);
    assert!(HEAP.allocated() - before >= 6 << 20, "two chunks of frames and one of views");
}

#[test]
fn connections_in_time_wait_are_bounded_in_memory() {
    const LIMIT: usize = 8192;
    let count = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    let _alone = ALONE.lock();
    let pool = pool();
    let (fixed, hosts) = empty(&pool, &Limits::default().time_wait(1));
    drop(hosts);
    let before = HEAP.allocated();
    let limits = Limits::default().time_wait(LIMIT);
    let mut hosts = Hosts::new(&pool, &limits);
    for round in 0..count / BATCH {
        let open = hosts.open(&format!("10.9.0.2:{}", 1000 + round / 16), BATCH);
        for (client, _) in &open {
            hosts.near.tcp(*client).close();
        }
        hosts.settle();
        for (_, server) in &open {
            hosts.far.tcp(*server).close();
        }
        hosts.settle();
    }
    assert_eq!(
        (hosts.near.inspect().connection_count(), hosts.far.inspect().connection_count()),
        (LIMIT, 0)
    );
    assert_eq!(hosts.near.stats().tcp_time_wait_displaced as usize, count - LIMIT);
    // Slots of the connections that were open at once are kept for the next ones, at both ends.
    let held = HEAP.allocated() - before - fixed - 2 * BATCH * 1024;
    let each = held / LIMIT;
    println!("{each} bytes per connection in TIME-WAIT, all tables included");
    assert!(each <= 192, "{each} bytes");
}
