//! The cost of open connections while nothing happens on them: memory each, and work for the one
//! that is busy.
//!
//! ```text
//! cargo run --release --example idle -- [--connections 1000000] [--ipv6] [--sample 10000] [--transactions 10000]
//! ```
//! Two engines over an in-memory pair, in one thread, open that many connections; time is moved on
//! until all are quiet. The growth of the process counts both ends. Then data goes both ways
//! through a sample of the connections, drawn at random, and one of them exchanges single bytes:
//! under callgrind with `--toggle-collect='*busy*'` that says what a transaction costs beside so
//! many idle connections.

#[path = "support/words.rs"]
mod words;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millstream::link::{PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig, Error, SocketId};
use words::{at_least, fail, next, refuse, within};

/// Connections opened at once; as many ports are used towards one port of the far end, at most.
const BATCH: usize = 1000;
const PORTS: usize = 16_000;
/// Both ends of so many take some twenty gigabytes; beyond, memory is what runs out.
const MOST_CONNECTIONS: usize = 10_000_000;
/// Time between two batches: ten thousand connections come in a second.
const PAUSES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

struct Options {
    connections: usize,
    sample: usize,
    transactions: usize,
    ipv6: bool,
}

/// Both ends, with the names of each connection there.
struct Ends {
    near: Engine,
    far: Engine,
    clients: Vec<SocketId>,
    servers: Vec<SocketId>,
    /// The time, which is moved on faster than the clock.
    now: millstream::packet::Instant,
}

fn main() {
    let mut options =
        Options { connections: 1_000_000, sample: 10_000, transactions: 10_000, ipv6: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let option = word.as_str();
        match option {
            "--connections" => options.connections = next(option, &mut words),
            "--sample" => options.sample = next(option, &mut words),
            "--transactions" => options.transactions = next(option, &mut words),
            "--ipv6" => options.ipv6 = true,
            "--help" | "-h" => words::help(include_str!("idle.rs")),
            other => fail(&format!("unknown option {other}; try --help")),
        }
    }
    refuse([
        within("--connections", options.connections, 1..=MOST_CONNECTIONS),
        at_least("--transactions", options.transactions, 1),
    ]);
    let mut ends = ends(&options);
    let before = resident_bytes();
    let start = Instant::now();
    ends.open(&options);
    let opened = resident_bytes();
    println!("{} connections open after {:.1?}", options.connections, start.elapsed());
    ends.fall_quiet();
    let quiet = resident_bytes();
    let each =
        |bytes: usize| bytes.saturating_sub(before) as f64 / (2 * options.connections) as f64;
    println!(
        "resident bytes per connection and end, all tables included: {:.0}; just opened: {:.0}",
        each(quiet),
        each(opened)
    );
    println!("both ends together: {:.1} MiB", (quiet.saturating_sub(before)) as f64 / 1048576.0);
    ends.prove_alive(options.sample);
    println!("data went both ways through {} of them", options.sample.min(options.connections));
    let start = Instant::now();
    ends.busy(options.transactions);
    let each = start.elapsed().as_nanos() as f64 / options.transactions as f64;
    println!("one busy among them: {each:.0} ns per transaction of one byte");
}

fn ends(options: &Options) -> Ends {
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let engine = |link, addresses: [&str; 2]| {
        let mut config = EngineConfig::new(pool.clone());
        config.limits.connections = options.connections;
        // all of them come from one address
        config.limits.connections_per_source = options.connections;
        config.limits.syn_queue = 2 * BATCH;
        config.limits.tuning.half_open_per_source = 2 * BATCH;
        let mut engine = Engine::new(config).expect("an engine");
        let link = engine.add_link(Box::new(link)).expect("a link");
        for address in addresses {
            engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
        }
        engine
    };
    let mut near = engine(near, ["10.0.0.1/24", "fd00::1/64"]);
    let far = engine(far, ["10.0.0.2/24", "fd00::2/64"]);
    let now = near.refresh_time();
    // Written to, so that they count as there before.
    let names = || {
        let mut names = vec![0_u64; options.connections];
        names.fill(1);
        drop(names);
        Vec::with_capacity(options.connections)
    };
    Ends { near, far, clients: names(), servers: names(), now }
}

impl Ends {
    /// Takes turns of both until neither has anything to do.
    fn settle(&mut self) {
        loop {
            let near = self.near.turn(self.now).progress;
            let far = self.far.turn(self.now).progress;
            if !near && !far {
                return;
            }
        }
    }

    /// Lets time pass, and takes the news as an application does.
    fn pass(&mut self, pauses: u32) {
        for _ in 0..pauses {
            self.now += PAUSE;
            self.settle();
        }
        for engine in [&mut self.near, &mut self.far] {
            while engine.next_event().is_some() {}
        }
    }

    fn open(&mut self, options: &Options) {
        let ip = if options.ipv6 { "fd00::2" } else { "10.0.0.2" };
        let ip = ip.parse().expect("an address");
        let mut port = 1000;
        let mut by_port = vec![None; 1 << 16];
        while self.clients.len() < options.connections {
            port += 1;
            let to = SocketAddr::new(ip, port);
            let listener = self.far.sockets().tcp_listen(to, 2 * BATCH).expect("listen");
            let many = PORTS.min(options.connections - self.clients.len());
            for start in (0..many).step_by(BATCH) {
                for _ in start..many.min(start + BATCH) {
                    self.clients.push(self.near.sockets().tcp_connect(to).expect("connect"));
                }
                self.settle();
                while let Ok((server, peer)) = self.far.listener(listener).accept() {
                    by_port[usize::from(peer.port())] = Some(server);
                }
                for &client in &self.clients[self.servers.len()..] {
                    let port = self.near.tcp(client).addresses().expect("open").local.port();
                    self.servers.push(by_port[usize::from(port)].take().expect("accepted"));
                }
                self.pass(PAUSES);
            }
        }
    }

    /// Moves time on until nothing is due any more but what comes seldom.
    fn fall_quiet(&mut self) {
        let end = self.now + Duration::from_secs(300);
        loop {
            self.settle();
            let due = [&mut self.near, &mut self.far].map(|e| e.turn(self.now).next_deadline);
            match due.into_iter().flatten().min() {
                Some(due) if due < end => self.now = self.now.max(due),
                _ => return,
            }
        }
    }

    /// One byte each way through `count` connections, drawn at random.
    fn prove_alive(&mut self, count: usize) {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..count {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random % self.clients.len() as u64) as usize;
            self.exchange(at, random as u8);
        }
    }

    fn exchange(&mut self, at: usize, byte: u8) {
        let (client, server) = (self.clients[at], self.servers[at]);
        let mut got = [0];
        assert_eq!(self.near.tcp(client).write(&[byte]), Ok(1));
        self.near.turn(self.now);
        self.far.turn(self.now);
        assert_eq!((self.far.tcp(server).read(&mut got), got), (Ok(1), [byte]));
        assert_eq!(self.far.tcp(server).write(&[!byte]), Ok(1));
        self.far.turn(self.now);
        self.near.turn(self.now);
        assert_eq!((self.near.tcp(client).read(&mut got), got), (Ok(1), [!byte]));
        assert_eq!(self.near.tcp(client).read(&mut got), Err(Error::WouldBlock));
    }

    /// One connection is busy.
    #[inline(never)]
    fn busy(&mut self, transactions: usize) {
        let at = self.clients.len() / 2;
        for number in 0..transactions {
            self.now += Duration::from_micros(1);
            self.exchange(at, number as u8);
        }
    }
}

/// Memory of this process that is in use.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
