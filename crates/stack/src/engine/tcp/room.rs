//! Connections that give way: those of peers that do nothing, where new ones find no room, and
//! orphans, where there are too many.
//!
//! No order is kept for it. The best of a sample gives way, drawn where a stranger cannot know it:
//! a peer that fills a table is the one found there.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use millstream_tcp::State;

use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::sources::Counted;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::orphans::patience;
use crate::engine::tcp::segment::send_bare;
use crate::socket::SocketId;
use crate::tuning::{
    CONNECTION_SAMPLE, NO_ROOM_PAUSE, ORPHAN_SAMPLE, ORPHANS_TURN, SOURCE_SHARE, STILL,
};

/// The reason why a connection may give way, from the first to the last that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    /// An orphan of which the peer has everything, and has not closed its side.
    Delivered,
    /// An orphan whose peer takes nothing, or little of what it holds, or whose source has many.
    Stuck,
    /// Nothing was exchanged since the peer opened it.
    Unused,
    /// Nothing is exchanged any more, and its source has many.
    Idle,
    /// Its source has many.
    OneOfMany,
}

/// A connection that may give way; of two the lesser one does: by what it lacks, then by the source
/// that has more beyond its share, then by the time that it has stood still, or would take to
/// deliver what it holds.
type Candidate = (Lack, Reverse<usize>, Reverse<Duration>, u32);

/// Which limit on orphans is exceeded.
#[derive(Clone, Copy)]
enum TooMany {
    OfSource(usize),
    InAll,
    Bytes,
}

impl TcpLayer {
    /// Makes room in the table of connections for one more; its source has `newcomers` connections
    /// already. Returns false when none gives way. For a source with more than its share only
    /// orphans give way, and connections that exchanged nothing, of sources with as many.
    pub(in crate::engine) fn make_room(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        newcomers: usize,
    ) -> bool {
        let found = self.sample_orphans(cx, None, patience(0, 1));
        let found = found.or_else(|| self.sample_others(cx, newcomers));
        let Some((lack, .., slot)) = found else {
            // One of a source with more than its share may only not be who is made room for.
            if self.beyond_share(cx, newcomers) == 0 {
                self.table.note_no_room(cx.now + NO_ROOM_PAUSE);
            }
            return false;
        };
        let stats = &mut cx.stats;
        *match lack {
            Lack::Delivered | Lack::Stuck => &mut stats.tcp_orphans_displaced,
            Lack::Unused => &mut stats.tcp_unused_displaced,
            Lack::Idle | Lack::OneOfMany => &mut stats.tcp_idle_displaced,
        } += 1;
        self.displace(cx, reach, slot);
        !self.table.is_full()
    }

    /// The application has closed a connection: if it is not over, it is an orphan, and others may
    /// have to give way.
    pub(in crate::engine) fn note_orphan(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        id: SocketId,
    ) {
        let Some((slot, socket)) = self.table.by_id(id) else { return };
        let (peer, held) = (socket.conn.ends().remote.ip(), socket.conn.send_held_bytes());
        let (acked, _) = socket.conn.memory_passed();
        if matches!(socket.conn.state(), State::Closed | State::TimeWait)
            || self.table.orphans.get(slot).is_some()
        {
            return;
        }
        self.table.orphans.insert(slot, cx.now, held, acked);
        self.table.sources.add(peer, Counted::Orphans);
        for _ in 0..ORPHANS_TURN {
            let (orphans, sources, tuning) =
                (&self.table.orphans, &self.table.sources, &cx.limits.tuning);
            let of_source = sources.count(peer, Counted::Orphans);
            let counts = [
                (TooMany::OfSource(sources.place(peer)), of_source, tuning.orphans_per_source),
                (TooMany::InAll, orphans.len(), cx.limits.orphans),
                (TooMany::Bytes, orphans.held_bytes(), cx.account.part(tuning.orphan_part)),
            ];
            let beyond = counts.into_iter().find(|(_, count, limit)| count > limit);
            let Some((too_many, count, limit)) = beyond else { return };
            if !self.reduce_orphans(cx, reach, too_many, patience(count, limit)) {
                return;
            }
        }
    }

    /// Has one of too many orphans give way; returns false when none does.
    fn reduce_orphans(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        too_many: TooMany,
        patience: Duration,
    ) -> bool {
        let found = self.sample_orphans(cx, Some(too_many), patience);
        let Some((.., slot)) = found else { return false };
        let stats = &mut cx.stats;
        *match too_many {
            TooMany::OfSource(_) => &mut stats.tcp_orphans_over_source,
            TooMany::InAll => &mut stats.tcp_orphans_over_number,
            TooMany::Bytes => &mut stats.tcp_orphans_over_memory,
        } += 1;
        self.displace(cx, reach, slot);
        true
    }

    /// Returns the orphan of a sample that gives way, as there are too many, or to a new
    /// connection. Looks at the memory that they hold. An orphan that would deliver all of it
    /// within `patience` gives way to a new connection alone, and only if its source has more than
    /// its share.
    fn sample_orphans(
        &mut self,
        cx: &mut Context,
        too_many: Option<TooMany>,
        patience: Duration,
    ) -> Option<Candidate> {
        let mut found: Option<Candidate> = None;
        for _ in 0..ORPHAN_SAMPLE {
            let drawn = self.table.draw();
            let slot = self.table.orphans.pick(drawn)?;
            let Some(socket) = self.table.sockets.get(slot) else { continue };
            let conn = &socket.conn;
            let (held, (acked, _)) = (conn.send_held_bytes(), conn.memory_passed());
            let Some(orphan) = self.table.orphans.look(slot, held, acked, cx.now) else { continue };
            let ip = conn.ends().remote.ip();
            if let Some(TooMany::OfSource(place)) = too_many
                && place != self.table.sources.place(ip)
            {
                continue;
            }
            let still = conn.still_for(cx.now).min(cx.now.saturating_duration_since(orphan.since));
            let count = self.beyond_share(cx, self.table.sources.count(ip, Counted::Orphans));
            let lack = match conn.state() {
                State::FinWait2 => Lack::Delivered,
                State::Closed | State::TimeWait => continue,
                _ if still >= STILL || orphan.takes >= patience => Lack::Stuck,
                _ if count != 0 && too_many.is_none() => Lack::Stuck,
                _ => continue,
            };
            let candidate = (lack, Reverse(count), Reverse(still.max(orphan.takes)), slot);
            found = Some(found.map_or(candidate, |best| best.min(candidate)));
        }
        found
    }

    /// Returns the connections of a source, where they are more than its share of all; else 0.
    fn beyond_share(&self, cx: &mut Context, count: usize) -> usize {
        if count > cx.limits.connections / SOURCE_SHARE { count } else { 0 }
    }

    /// Returns the connection of a sample that gives way, of those that peers have opened and the
    /// application has not closed.
    fn sample_others(&mut self, cx: &mut Context, newcomers: usize) -> Option<Candidate> {
        let newcomers = self.beyond_share(cx, newcomers);
        let slots = self.table.sockets.slots() as u64;
        let mut found: Option<Candidate> = None;
        for _ in 0..CONNECTION_SAMPLE.min(slots as usize) {
            let slot = (self.table.draw() % slots) as u32;
            let Some(socket) = self.table.sockets.get(slot) else { continue };
            if !socket.passive || !socket.in_flows || socket.detached || socket.half_open {
                continue;
            }
            let ip = socket.conn.ends().remote.ip();
            let count = self.beyond_share(cx, self.table.sources.count(ip, Counted::Connections));
            let still = socket.conn.still_for(cx.now);
            let lack = match socket.conn.has_exchanged() {
                _ if count < newcomers => continue,
                false => Lack::Unused,
                true if count == 0 || newcomers != 0 => continue,
                true if still >= STILL => Lack::Idle,
                true => Lack::OneOfMany,
            };
            let candidate = (lack, Reverse(count), Reverse(still), slot);
            found = Some(found.map_or(candidate, |best| best.min(candidate)));
        }
        found
    }

    /// Ends a connection at once. The peer is told by a reset, unless it has everything and only
    /// never closed its side; the application, if it has the connection, as of any other end.
    fn displace(&mut self, cx: &mut Context, reach: &mut IpReach, slot: u32) {
        let has_places = !self.table.sockets.is_full();
        let Some(socket) = self.table.sockets.get_mut(slot) else { return };
        let listener = socket.listener;
        let is_held = !socket.detached && listener.is_none();
        let is_silent = socket.detached && socket.conn.state() == State::FinWait2;
        let (tuple, scope) = (socket.conn.tuple(), socket.scope);
        socket.conn.abort();
        let hop = reach.next_hop(tuple.remote.ip(), Some(scope)).filter(|_| !is_silent);
        cx.stats.tcp_resets += u64::from(hop.is_some());
        // Where the link takes nothing now the reset goes later: a peer that only reads would never
        // hear of it otherwise.
        let is_put_off = (has_places || is_held)
            && hop.as_ref().is_some_and(|hop| reach.room(cx, hop.link) == 0);
        if let Some(hop) = hop
            && !is_put_off
            && let Some(reset) = self.tx.last_segment(&cx.pool, socket, cx.now)
        {
            send_bare(cx, reach, hop, &tuple, &reset.header);
        }
        if is_held {
            self.table.collect_events(slot, &mut cx.events);
            self.table.forget_flow(slot);
        } else if is_put_off {
            socket.settle_memory(&mut cx.account);
            self.table.let_go(slot);
        } else {
            self.table.remove(slot);
        }
        if is_put_off {
            self.table.mark_dirty(slot);
        }
        if let Some(listener) = listener {
            self.table.trim_ready(listener.get());
        }
    }

    /// Returns true if a peer has as many connections as one source may, `unfinished` handshakes
    /// among them.
    pub(in crate::engine) fn has_its_share(
        &self,
        cx: &mut Context,
        peer: IpAddr,
        unfinished: usize,
    ) -> bool {
        let count = self.table.sources.count(peer, Counted::Connections);
        count + unfinished >= cx.limits.connections_per_source
    }

    /// Returns true if a listener's accept queue has no place for a connection of `peer`.
    pub(in crate::engine) fn accept_queue_is_full(
        &self,
        cx: &mut Context,
        listener: u32,
        peer: IpAddr,
    ) -> bool {
        let waiting = self.table.sources.count(peer, Counted::Waiting);
        let listener = self.table.listeners.slots.get(listener);
        listener.is_some_and(|l| l.is_full_for(waiting, cx.limits.tuning.backlog_reserve_percent))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use millstream_link::{Medium, PairConfig, pair};
    use millstream_packet::{Pool, PoolConfig};

    use crate::EngineConfig;
    use crate::engine::Engine;

    /// Whatever becomes of connections, nothing stays counted of those that are gone.
    #[test]
    fn what_is_counted_is_there() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let link = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
        let (near, far) = pair(link).unwrap();
        let address: SocketAddr = "10.9.0.2:7".parse().unwrap();
        let mut hosts = [(1, near), (2, far)].map(|(last, end)| {
            let mut config = EngineConfig::new(pool.clone());
            config.seed = Some([last; 32]);
            config.limits.connections = if last == 2 { 24 } else { 1000 };
            config.limits.orphans = 6;
            config.limits.tuning.orphan_part = pool.limit_bytes() / 20_000;
            config.tcp.fast_open = true;
            let mut engine = Engine::new(config).unwrap();
            let link = engine.add_link(Box::new(end)).unwrap();
            engine.add_address(link, format!("10.9.0.{last}/24").parse().unwrap()).unwrap();
            engine
        });
        let mut listener = hosts[1].sockets().tcp_listen(address, 8).unwrap();
        let (mut open, mut now) = ([Vec::new(), Vec::new()], hosts[0].cx.now.max(hosts[1].cx.now));
        let mut dice = 1u64;
        let mut draw = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % sides
        };
        for _ in 0..20_000 {
            let side = draw(2) as usize;
            let at = |open: &Vec<_>, n: u64| (!open.is_empty()).then(|| n as usize % open.len());
            match draw(12) {
                0..=2 => open[0].extend(hosts[0].sockets().tcp_connect(address).ok()),
                3..=4 => {
                    open[1].extend(hosts[1].listener(listener).accept().ok().map(|(id, _)| id))
                }
                5..=6 => {
                    if let Some(which) = at(&open[side], draw(99)) {
                        let id = open[side].swap_remove(which);
                        match draw(4) {
                            0 => hosts[side].tcp(id).abort(),
                            _ => hosts[side].tcp(id).close(),
                        }
                    }
                }
                7 => {
                    if let Some(which) = at(&open[side], draw(99)) {
                        let _ = hosts[side].tcp(open[side][which]).write(&[7; 3000]);
                    }
                }
                8 => {
                    if let Some(which) = at(&open[side], draw(99)) {
                        let _ = hosts[side].tcp(open[side][which]).read(&mut [0; 9000]);
                    }
                }
                9 if draw(300) == 0 => {
                    hosts[1].close(listener);
                    listener = hosts[1].sockets().tcp_listen(address, 8).unwrap();
                }
                10 => now += Duration::from_millis(1 << draw(12)),
                _ => {
                    hosts[side].turn(now);
                }
            }
        }
        for (host, open) in hosts.iter_mut().zip(open) {
            open.into_iter().for_each(|id| host.close(id));
        }
        hosts[1].close(listener);
        for _ in 0..4000 {
            now += Duration::from_millis(100);
            for host in &mut hosts {
                host.turn(now);
            }
        }
        let stats = hosts[1].stats();
        assert!(stats.tcp_orphans_displaced + stats.tcp_unused_displaced > 20, "{stats:?}");
        assert!(stats.tcp_orphans_over_number + stats.tcp_orphans_over_memory > 20, "{stats:?}");
        for host in &hosts {
            assert_eq!(
                host.inspect().connection_count(),
                0,
                "{:?}",
                host.inspect().sockets().collect::<Vec<_>>()
            );
            assert!(host.tcp.table.sources.is_empty());
            assert_eq!((host.tcp.table.orphans.len(), host.tcp.table.orphans.held_bytes()), (0, 0));
        }
    }
}
