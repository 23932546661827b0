//! `events ID FROM`: events of a connection from this number on (docs/trace.md). It is watched from
//! the first question on, for as long as it is asked about.

use millstream_live::Fields;

use super::id::{Id, parse_id};
use crate::engine::Engine;
use crate::engine::events::connections::{Event, What};
use crate::socket::{SocketId, SocketKind};

/// Events of one page.
const EVENTS: usize = 16;

/// An answer that is made.
pub(super) struct ConnectionAnswer {
    id: SocketId,
    next: u64,
    is_begun: bool,
    /// Events that are gone.
    lost: u64,
}

impl ConnectionAnswer {
    /// To a question with these words; `None` where they are no connection and no number.
    pub fn to(id: &str, from: &str) -> Option<Self> {
        let id = parse_id(id).filter(|id| id.kind() == SocketKind::Tcp)?;
        let next = from.parse::<u64>().ok()?.max(1);
        Some(Self { id, next, is_begun: false, lost: 0 })
    }

    /// Makes the next page; whether it is the last.
    ///
    /// # Errors
    /// Why there is none.
    pub fn fill(&mut self, engine: &mut Engine, page: &mut String) -> Result<bool, &'static str> {
        let now = engine.cx.now;
        let Self { id, next, is_begun, lost } = self;
        let (watch, tcp) = (&mut engine.cx.sink.connections, &mut engine.tcp);
        let socket = tcp.table.by_id(*id).map(|(_, socket)| socket);
        if let (false, Some(socket)) = (std::mem::replace(is_begun, true), &socket)
            && !watch.watch(socket.observed(), now)
        {
            return Err("as many connections are watched as may be");
        }
        // The last events of a connection that is gone are told for a while.
        let (events, end) = watch.of(*id, *next).ok_or("no such connection")?;
        let mut left = EVENTS;
        for event in events.take(EVENTS) {
            *lost += event.number.saturating_sub(*next);
            *next = event.number + 1;
            left -= 1;
            show(event, page);
        }
        if left == 0 {
            return Ok(false);
        }
        let mut line = Fields::begin(page, "events");
        line.put("id", Id(*id)).put("next", end).put("lost", *lost);
        if let Some(socket) = socket {
            let ends = socket.conn.ends();
            line.put("local", ends.local).put("remote", ends.remote);
            line.put("congestion", socket.conn.info().congestion);
        }
        line.end();
        Ok(true)
    }
}

fn show(event: &Event, page: &mut String) {
    let mut line = Fields::begin(page, "event");
    line.put("number", event.number).put("time_ns", event.at.as_nanos());
    line.put("name", event.name);
    match &event.what {
        What::Change { from, to } => {
            line.put("old", from).put("new", to);
        }
        What::Counted { trigger, count } => {
            line.put("trigger", trigger).put("count", count);
        }
        What::Metrics(metrics) => {
            let numbers = [
                ("congestion_window", metrics.cwnd_bytes),
                ("bytes_in_flight", metrics.in_flight_bytes),
                ("pacing_rate", metrics.pacing_rate_bytes_per_s),
                ("smoothed_rtt_us", metrics.srtt_us),
                ("min_rtt_us", metrics.min_rtt_us),
                ("rtt_variance_us", metrics.rttvar_us),
                ("rto_us", metrics.rto_us),
                ("send_window", metrics.snd_wnd_bytes),
                ("receive_window", metrics.rcv_wnd_bytes),
            ];
            for (key, number) in numbers {
                line.put(key, number);
            }
            if let Some(ssthresh) = metrics.ssthresh_bytes {
                line.put("ssthresh", ssthresh);
            }
        }
    }
    line.end();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_link::{PairConfig, pair};
    use millstream_live::Record;
    use millstream_packet::{Instant, Pool, PoolConfig};

    use super::*;
    use crate::EngineConfig;
    use crate::engine::live::answers::Answer;

    /// An engine with a connection to another one that may fall silent.
    struct World {
        near: Engine,
        far: Engine,
        now: Instant,
        client: SocketId,
    }

    impl World {
        fn new() -> Self {
            let pool = Pool::new(PoolConfig::default()).expect("memory");
            let (end, other) = pair(PairConfig::default()).expect("a pair");
            let mut near = engine(&pool, end, "10.9.0.1/24");
            let mut far = engine(&pool, other, "10.9.0.2/24");
            let now = near.refresh_time();
            let address = "10.9.0.2:7".parse().expect("an address");
            far.sockets().tcp_listen(address, 1).expect("a listener");
            let client = near.sockets().tcp_connect(address).expect("a connection");
            let mut world = Self { near, far, now, client };
            world.settle();
            world
        }

        fn settle(&mut self) {
            while self.near.turn(self.now).progress | self.far.turn(self.now).progress {}
        }

        fn ask(&mut self, from: u64) -> Vec<Record> {
            ask(&mut self.near, &format!("events {} {from}", Id(self.client)))
        }
    }

    fn engine(pool: &Pool, end: millstream_link::PairEnd, address: &str) -> Engine {
        let mut engine = Engine::new(EngineConfig::new(pool.clone())).expect("an engine");
        let link = engine.add_link(Box::new(end)).expect("a link");
        engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
        engine
    }

    fn ask(engine: &mut Engine, question: &str) -> Vec<Record> {
        let (mut answer, mut page, mut all) = (Answer::to(question), String::new(), Vec::new());
        while !answer.is_over() {
            answer.fill(engine, &mut page);
            assert!(page.lines().count() <= EVENTS + 2, "a page is bounded");
            all.extend(page.lines().map(Record::parse));
        }
        all
    }

    fn names(all: &[Record]) -> Vec<&str> {
        all.iter().filter_map(|line| line.get("name")).collect()
    }

    #[test]
    fn what_happens_to_a_connection_is_told_while_somebody_asks() {
        let mut world = World::new();
        assert!(!world.near.cx.sink.connections.is_on());
        let first = world.ask(1);
        assert_eq!(names(&first), ["recovery:metrics_updated"], "where it stands");
        assert!(first[0].number("congestion_window").is_some_and(|bytes| bytes >= 1460));
        assert_eq!(first[1].number("next"), Some(2));
        // Its peer falls silent: time-outs.
        world.near.tcp(world.client).write(b"hello").expect("room");
        for _ in 0..100 {
            world.now += Duration::from_millis(50);
            world.near.turn(world.now);
            world.ask(2);
        }
        let all = world.ask(2);
        let timers: Vec<_> = all.iter().filter_map(|line| line.get("trigger")).collect();
        assert!(timers.contains(&"rto_expired"), "{all:?}");
        let told = names(&all);
        assert!(told.contains(&"recovery:congestion_state_updated"), "{told:?}");
        assert!(told.contains(&"recovery:marked_for_retransmit"), "{told:?}");
        // It hears again, and closes.
        world.now += Duration::from_secs(1);
        world.settle();
        let next = all.iter().find_map(|line| line.number("next")).expect("a number");
        world.near.tcp(world.client).shutdown_write().expect("it is open");
        world.settle();
        let all = world.ask(next);
        let states: Vec<_> = all.iter().filter_map(|line| line.get("new")).collect();
        assert!(states.ends_with(&["FIN-WAIT-2"]), "{all:?}");
        // Nobody asks any more.
        world.near.cx.end_leases(world.now + Duration::from_secs(3));
        assert!(!world.near.cx.sink.connections.is_on());
    }

    #[test]
    fn few_connections_are_watched_and_none_that_is_not_there() {
        let mut world = World::new();
        for question in ["events", "events tcp0.0", "events udp0.0 1", "events tcp77.0 1"] {
            assert_eq!(ask(&mut world.near, question)[0].kind, "error", "{question}");
        }
        let refused = (0..5).filter(|_| {
            let other = "10.9.0.2:7".parse().expect("an address");
            let id = world.near.sockets().tcp_connect(other).expect("a connection");
            ask(&mut world.near, &format!("events {} 1", Id(id)))[0].kind == "error"
        });
        assert_eq!(refused.count(), 1, "four are watched");
    }
}
