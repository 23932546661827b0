//! Taking memory back from connections while it is short.
//!
//! All connections are looked at, a bounded number in each turn, round and round as long as that
//! gives anything. What lies out of order gives way first: the peer has it still (RFC 2018 section
//! 8). Where memory is critical connections are reset that hold more than their peers have lately
//! shown to take ([`Paces`](crate::engine::memory::pace::Paces)): those with the largest excess
//! first. One round finds the largest of all, the next resets those with half as much or more.

use std::time::Duration;

use millstream_packet::Instant;

use crate::engine::Held;
use crate::engine::context::Context;
use crate::engine::tcp::table::TcpTable;
use crate::stats::MemoryPressure;
use crate::tuning::{EVICT_AFTER, EVICT_SCARCE_AFTER, RECLAIM_CONNECTIONS, RECLAIM_PAUSE};

/// Slots without a connection that a turn passes for one with one.
const EMPTY_SLOTS: usize = 4;

/// See the module text.
#[derive(Default)]
pub(in crate::engine) struct Reclaim {
    /// The slot that is looked at next.
    hand: u32,
    /// When; `None` without pressure.
    due: Option<Instant>,
    /// Excess of a connection that is reset in this round, at least; none is in the first.
    at_least: Option<usize>,
    /// The largest of one which might have been.
    most: usize,
    /// This round gave something back.
    any: bool,
}

impl Reclaim {
    /// When it goes on, while memory is short.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// All were looked at: the next round begins at once if that is of use.
    fn end_round(&mut self, now: Instant) {
        let narrows = self.most != 0 && self.at_least.is_none_or(|least| least > self.most / 2);
        self.at_least = (self.most != 0).then_some(self.most / 2);
        let pause = if self.any || narrows { Duration::ZERO } else { RECLAIM_PAUSE };
        self.due = Some(now + pause);
        (self.hand, self.most, self.any) = (0, 0, false);
    }
}

impl Reclaim {
    /// A turn begins: how full the pool is, and if memory is short, some connections are looked at.
    #[inline]
    pub fn look_in_turn(&mut self, cx: &mut Context, table: &mut TcpTable) {
        let freed = table.take_freed();
        if freed != 0 {
            cx.account.sub(Held::Tcp, freed);
        }
        cx.account.look_in_turn(&cx.pool);
        if cx.account.is_pressed() {
            self.reclaim_some(cx, table);
        } else if self.due.is_some() {
            *self = Reclaim::default();
        }
    }

    #[cold]
    fn reclaim_some(&mut self, cx: &mut Context, table: &mut TcpTable) {
        if self.due.is_some_and(|due| due > cx.now) {
            return;
        }
        self.due = Some(cx.now);
        cx.account.tune_paces(cx.now);
        let (mut looks, mut passes) = (RECLAIM_CONNECTIONS, RECLAIM_CONNECTIONS * EMPTY_SLOTS);
        while looks != 0 && passes != 0 {
            let slot = self.hand;
            if slot as usize >= table.sockets.slots() {
                self.end_round(cx.now);
                return;
            }
            self.hand += 1;
            passes -= 1;
            looks -= usize::from(self.reclaim_from(cx, table, slot));
        }
    }

    /// Takes from one connection what it can do without; whether there is one.
    fn reclaim_from(&mut self, cx: &mut Context, table: &mut TcpTable, slot: u32) -> bool {
        let account = &mut cx.account;
        let Some(socket) = table.sockets.get_mut(slot) else { return false };
        let held = socket.conn.held_bytes();
        if held == 0 {
            socket.conn.prune_early(0);
            return true;
        }
        let passed = socket.passed();
        let moving = account.pace(socket.id, passed, cx.now);
        let is_critical = account.level() == MemoryPressure::Critical;
        if socket.conn.early_held_bytes() != 0 {
            // The bytes that are given back now have been acknowledged selectively: a sender that
            // relies on that may stand still.
            let keeps_share = moving.is_so() || !is_critical && moving.may_be();
            let keep = match keeps_share {
                true => account.share(socket.conn.receive_held_bytes(), usize::MAX),
                false if is_critical => 0,
                false => account.minimum(),
            };
            let pruned = socket.conn.prune_early(keep);
            cx.stats.tcp_pruned_bytes += pruned as u64;
            self.any |= pruned != 0;
        }
        let patience = if account.is_scarce() { EVICT_SCARCE_AFTER } else { EVICT_AFTER };
        let mut is_evicted = false;
        if is_critical
            && moving.excess != 0
            && moving.excess_for >= patience
            && !socket.conn.is_closed()
        {
            match self.at_least {
                Some(least) if moving.excess >= least => is_evicted = true,
                _ => self.most = self.most.max(moving.excess),
            }
        }
        if is_evicted {
            socket.conn.evict();
            cx.stats.tcp_evicted += 1;
            self.any = true;
        }
        socket.settle_memory(account);
        if is_evicted {
            account.look(&cx.pool);
            table.collect_events(slot, &mut cx.events);
            table.mark_dirty(slot);
        }
        true
    }
}
