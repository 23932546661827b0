//! ACKs that wait for the super-segments behind them: only while a link has more, or lends what it brings, and not for
//! long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream::link::{Link, PairConfig, PairEnd, forward_link, pair};
use millstream::packet::Instant;
use millstream::tuning::{
    GATHERED_ACK_LIMIT, GATHERED_ACK_PAUSE, HELD_ACK_LIMIT, TAP_HELD_ACK_PAUSE,
};
use millstream::{Engine, EngineConfig, SocketId};

use crate::common::{FAR, Mode, NEAR, both_modes, engine, pool};

both_modes!(
    nothing_is_held_when_the_link_has_no_more,
    super_segments_share_an_ack_while_the_link_has_more,
    an_ack_waits_for_a_few_turns_at_most,
    with_many_busy_connections_it_waits_for_half_as_many_turns,
    who_holds_an_ack_takes_its_next_turn_at_once,
    of_what_is_lent_an_ack_waits_while_the_link_is_empty_for_a_moment,
    a_buffer_of_fixed_size_does_not_hasten_the_ack_of_what_is_lent,
    of_what_is_lent_much_of_a_round_trip_is_acknowledged_at_once,
    of_what_is_lent_to_one_the_ack_waits_for_ever_more_up_to_the_limit,
    where_the_peer_stops_the_ack_comes_before_it_has_to,
    acks_of_several_are_gathered_once_their_windows_may_double,
    gathered_acks_go_once_much_has_come,
    while_turns_are_far_apart_an_ack_waits_as_long_as_a_delayed_one,
    an_ack_that_may_go_does_not_wait_behind_one_of_what_is_lent,
    an_engine_sends_the_ack_of_what_is_lent_before_it_sleeps,
    an_answer_takes_the_held_ack_along,
    the_end_of_a_stream_is_acknowledged_at_once,
    a_new_connection_is_acknowledged_segment_by_segment,
);

/// A pair's end that says of itself what it is told to.
struct Says {
    end: PairEnd,
    more: Arc<AtomicBool>,
    lends: Arc<AtomicBool>,
}

impl Link for Says {
    forward_link!(
        self => self.end; capabilities, receive, transmit, wait_fd, prepare_sleep, stats, name
    );

    fn has_more(&self) -> bool {
        self.more.load(Ordering::Relaxed)
    }

    fn places(&self) -> bool {
        self.lends.load(Ordering::Relaxed)
    }
}

/// A sender, a receiver behind a link that says whether it has more, and one connection in the middle of its life: the
/// first segments of it, which are acknowledged one by one, are over.
struct Hosts {
    near: Engine,
    far: Engine,
    from: SocketId,
    to: SocketId,
    more: Arc<AtomicBool>,
    lends: Arc<AtomicBool>,
    /// Of both engines from the handshake on; it stands still but in [`settle`](Self::settle): a pause of the machine
    /// would make the sender start slowly again, and a handshake of no time is a round trip that the later ones are
    /// longer than, which ends slow start (HyStart++).
    time: Instant,
}

/// Whole segments.
const PART: usize = 28 * 1448;

/// Takes turns of both, a tenth of a millisecond each, until neither has anything to do, and one more.
fn settle(near: &mut Engine, far: &mut Engine, time: &mut Instant) {
    let mut progress = true;
    while progress {
        *time += Duration::from_micros(100);
        let of = [&mut *near, &mut *far].map(|engine| engine.turn(*time).progress);
        progress = of.contains(&true);
    }
}

/// A connection between the two: its ends.
fn open(
    near: &mut Engine,
    far: &mut Engine,
    time: &mut Instant,
    address: &str,
) -> (SocketId, SocketId) {
    let address = address.parse().expect("an address");
    let listener = far.tcp_listen(address, 1).expect("listen");
    let from = near.tcp_connect(address).expect("connect");
    settle(near, far, time);
    (from, far.tcp_accept(listener).expect("a connection").0)
}

impl Hosts {
    fn new(mode: Mode) -> Self {
        Self::with_receiver(mode, |_| ())
    }

    /// The receiver being set as one likes.
    fn with_receiver(mode: Mode, set: impl FnOnce(&mut EngineConfig)) -> Self {
        let pool = pool();
        let [more, lends] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let offload = PairConfig { offload: true, ..PairConfig::default() };
        let (near, far) = pair(offload).expect("a pair");
        let far = Says { end: far, more: more.clone(), lends: lends.clone() };
        let mut near_config = mode.config(&pool, 1);
        // Who sends makes one super-segment of what it writes, also where the receiver is to be without a fast path.
        near_config.tcp.fast_path = true;
        let mut near = engine(near_config, near, &NEAR);
        let mut far_config = mode.config(&pool, 2);
        set(&mut far_config);
        let mut far = engine(far_config, far, &FAR);
        let mut time = near.now().max(far.now());
        let (from, to) = open(&mut near, &mut far, &mut time, "10.9.0.2:7");
        let mut hosts = Self { near, far, from, to, more, lends, time };
        hosts.grow();
        hosts
    }

    /// The congestion window grows to what the tests have under mode.
    fn grow(&mut self) {
        for _ in 0..40 {
            assert_eq!(self.near.tcp_write(self.from, &[7; 6 * PART]), Ok(6 * PART));
            // The reader reads all along: what nobody reads counts against the window.
            let mut progress = true;
            while progress {
                self.time += Duration::from_micros(100);
                progress = self.near.turn(self.time).progress | self.far.turn(self.time).progress;
                self.read();
            }
        }
        // The last may be a small one, whose ACK is delayed.
        while self.unacknowledged() != 0 {
            self.settle();
        }
    }

    /// Another connection: the windows of both have grown to what they have beside each other, and all others.
    fn beside(&mut self) -> (SocketId, SocketId) {
        let mut other = open(&mut self.near, &mut self.far, &mut self.time, "10.9.0.2:8");
        for _ in 0..2 {
            self.grow();
            self.swap(&mut other);
        }
        other
    }

    /// Goes on with the other of two connections, both ends given.
    fn swap(&mut self, other: &mut (SocketId, SocketId)) {
        (self.from, self.to, *other) = (other.0, other.1, (self.from, self.to));
    }

    fn settle(&mut self) {
        settle(&mut self.near, &mut self.far, &mut self.time);
    }

    /// Sends one super-segment.
    fn send(&mut self) {
        let segments = self.near.stats().tcp_tx_segments;
        assert_eq!(self.near.tcp_write(self.from, &[7; PART]), Ok(PART));
        self.near_turn();
        assert_eq!(self.near.stats().tcp_tx_segments - segments, 1, "one super-segment");
    }

    fn read(&mut self) {
        while let Ok(1..) = self.far.tcp_read(self.to, &mut [0; PART]) {}
    }

    /// The receiver's next turn: ACKs that it sent in it.
    fn far_turn(&mut self) -> u64 {
        let before = self.far.stats().tcp_tx_pure;
        self.far.turn(self.time);
        self.far.stats().tcp_tx_pure - before
    }

    fn near_turn(&mut self) {
        self.near.turn(self.time);
    }

    fn unacknowledged(&mut self) -> u64 {
        self.near_turn();
        let info = self.near.tcp_info(self.from).expect("open");
        info.bytes_sent - info.bytes_acked
    }

    fn says(&self, more: bool) {
        self.more.store(more, Ordering::Relaxed);
    }
}

fn nothing_is_held_when_the_link_has_no_more(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    for _ in 0..10 {
        hosts.send();
        assert_eq!(hosts.far_turn(), 1);
        assert_eq!(hosts.unacknowledged(), 0);
        hosts.read();
    }
}

fn super_segments_share_an_ack_while_the_link_has_more(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    hosts.says(true);
    let limit = hosts.far.limits().tuning.held_ack_bytes;
    assert_eq!(limit / PART, 6, "the seventh goes beyond the limit");
    let mut acks = Vec::new();
    for _ in 0..12 {
        hosts.send();
        hosts.send();
        acks.push(hosts.far_turn());
        hosts.read();
    }
    assert_eq!(acks, [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(hosts.unacknowledged(), 0);
}

fn an_ack_waits_for_a_few_turns_at_most(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    hosts.says(true);
    hosts.send();
    let turns = hosts.far.limits().tuning.held_ack_turns;
    for turn in 0..turns {
        assert_eq!(hosts.far_turn(), 0, "turn {turn}");
    }
    assert_eq!(hosts.far_turn(), 1);
    assert_eq!(hosts.unacknowledged(), 0);
}

fn with_many_busy_connections_it_waits_for_half_as_many_turns(mode: Mode) {
    const OTHERS: usize = 39;
    let mut hosts = Hosts::new(mode);
    let others = "10.9.0.2:8".parse().expect("an address");
    hosts.far.tcp_listen(others, OTHERS).expect("listen");
    for _ in 0..OTHERS {
        hosts.near.tcp_connect(others).expect("connect");
    }
    hosts.settle();
    hosts.says(true);
    hosts.send();
    let turns = OTHERS as u32 / 2 + 1;
    assert!(turns > hosts.far.limits().tuning.held_ack_turns);
    for turn in 0..turns {
        assert_eq!(hosts.far_turn(), 0, "turn {turn}");
    }
    assert_eq!(hosts.far_turn(), 1);
    assert_eq!(hosts.unacknowledged(), 0);
}

fn who_holds_an_ack_takes_its_next_turn_at_once(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    hosts.says(true);
    hosts.send();
    assert_eq!(hosts.far_turn(), 0);
    assert!(hosts.far.turn(hosts.time).progress, "it must not sleep");
    hosts.says(false);
    assert_eq!(hosts.far_turn(), 1, "the link ran dry");
    assert_eq!(hosts.unacknowledged(), 0);
}

/// Hosts whose receiver has its packets from the peer's memory, and how many super-segments go for little of a round
/// trip.
fn lent(mode: Mode) -> (Hosts, usize) {
    lent_to(mode, |_| ())
}

/// The receiver being set as one likes.
fn lent_to(mode: Mode, set: impl FnOnce(&mut EngineConfig)) -> (Hosts, usize) {
    let mut hosts = Hosts::with_receiver(mode, set);
    hosts.lends.store(true, Ordering::Relaxed);
    let info = hosts.far.tcp_info(hosts.to).expect("open");
    let little = info.rcv_space_bytes as usize / 4 / PART;
    assert_ne!(little, 0, "{} bytes a round trip", info.rcv_space_bytes);
    (hosts, little)
}

fn of_what_is_lent_an_ack_waits_while_the_link_is_empty_for_a_moment(mode: Mode) {
    let (mut hosts, _) = lent(mode);
    hosts.send();
    assert_eq!(hosts.far_turn(), 0);
    let received = hosts.time;
    hosts.time = received + (TAP_HELD_ACK_PAUSE - Duration::from_nanos(1));
    assert!(hosts.far.turn(hosts.time).progress, "it must not sleep");
    assert_ne!(hosts.unacknowledged(), 0);
    hosts.time = received + TAP_HELD_ACK_PAUSE;
    assert_eq!(hosts.far_turn(), 1);
    assert_eq!(hosts.unacknowledged(), 0);
}

fn a_buffer_of_fixed_size_does_not_hasten_the_ack_of_what_is_lent(mode: Mode) {
    let fixed = |config: &mut EngineConfig| config.tcp.recv_auto_tune = false;
    let (mut hosts, little) = lent_to(mode, fixed);
    for _ in 0..little {
        hosts.send();
        assert_eq!(hosts.far_turn(), 0);
        hosts.read();
    }
}

fn of_what_is_lent_much_of_a_round_trip_is_acknowledged_at_once(mode: Mode) {
    let (mut hosts, little) = lent(mode);
    for _ in 0..little {
        hosts.send();
        assert_eq!(hosts.far_turn(), 0);
        hosts.read();
    }
    hosts.send();
    assert_eq!(hosts.far_turn(), 1);
    assert_eq!(hosts.unacknowledged(), 0);
}

/// Hosts whose receiver acknowledges what is lent by one to four super-segments, two at first.
fn lent_by_segments(mode: Mode) -> Hosts {
    let (hosts, _) = lent_to(mode, |config| {
        config.limits.tuning.held_ack_bytes = PART;
        config.limits.tuning.tap_held_ack_bytes = 2 * PART;
        config.limits.tuning.tap_held_ack_most_bytes = 4 * PART;
    });
    hosts.says(true);
    hosts
}

/// How many super-segments the next ACK is for, which the peer does not stop before.
fn until_acknowledged(hosts: &mut Hosts) -> usize {
    for sent in 1..100 {
        hosts.send();
        let acks = hosts.far_turn();
        hosts.read();
        if acks != 0 {
            assert_eq!(hosts.unacknowledged(), 0);
            return sent;
        }
    }
    panic!("no ACK");
}

fn of_what_is_lent_to_one_the_ack_waits_for_ever_more_up_to_the_limit(mode: Mode) {
    let mut hosts = lent_by_segments(mode);
    let acks: Vec<_> = (0..9).map(|_| until_acknowledged(&mut hosts)).collect();
    assert_eq!(acks, [2, 3, 3, 3, 4, 4, 4, 4, 4]);
}

fn where_the_peer_stops_the_ack_comes_before_it_has_to(mode: Mode) {
    let mut hosts = lent_by_segments(mode);
    (0..8).for_each(|_| _ = until_acknowledged(&mut hosts));
    for _ in 0..6 {
        for _ in 0..3 {
            hosts.send();
            assert_eq!(hosts.far_turn(), 0);
            hosts.read();
        }
        hosts.time += TAP_HELD_ACK_PAUSE;
        assert_eq!(hosts.far_turn(), 1, "nothing more came");
        assert_eq!(hosts.unacknowledged(), 0);
    }
    let acks: Vec<_> = (0..6).map(|_| until_acknowledged(&mut hosts)).collect();
    assert_eq!(acks, [2; 6], "half of three super-segments");
}

/// Hosts whose receiver has its packets from the peer's memory, another connection as busy as theirs among many, and
/// how many super-segments let the window of one double.
fn lent_by_many(mode: Mode) -> (Hosts, (SocketId, SocketId), usize) {
    lent_by_many_to(mode, |_| ())
}

/// The receiver being set as one likes.
fn lent_by_many_to(
    mode: Mode,
    set: impl FnOnce(&mut EngineConfig),
) -> (Hosts, (SocketId, SocketId), usize) {
    const OTHERS: usize = 200;
    let (mut hosts, _) = lent_to(mode, set);
    let others = "10.9.0.2:9".parse().expect("an address");
    hosts.far.tcp_listen(others, OTHERS).expect("listen");
    for _ in 0..OTHERS {
        hosts.near.tcp_connect(others).expect("connect");
    }
    let other = hosts.beside();
    hosts.says(true);
    let window = hosts.far.tcp_info(hosts.to).expect("open").rcv_wnd_limit_bytes as usize;
    assert!(window < 8 * PART, "{window} bytes");
    (hosts, other, window.div_ceil(2 * PART))
}

fn acks_of_several_are_gathered_once_their_windows_may_double(mode: Mode) {
    let (mut hosts, mut other, half) = lent_by_many(mode);
    for more in [true, false] {
        hosts.says(more);
        for _ in 0..half {
            hosts.send();
            assert_eq!(hosts.far_turn(), 0);
            hosts.read();
        }
        assert_ne!(hosts.unacknowledged(), 0);
        hosts.swap(&mut other);
    }
    hosts.time += TAP_HELD_ACK_PAUSE;
    assert_eq!(hosts.far_turn(), 0, "the peer may be at the last ones");
    hosts.time += GATHERED_ACK_PAUSE - TAP_HELD_ACK_PAUSE;
    assert_eq!(hosts.far_turn(), 2, "when nothing more comes");
    for _ in 0..2 {
        assert_eq!(hosts.unacknowledged(), 0);
        hosts.swap(&mut other);
    }
    assert_eq!(hosts.far_turn(), 0, "each once");
}

fn gathered_acks_go_once_much_has_come(mode: Mode) {
    let (mut hosts, mut other, half) = lent_by_many_to(mode, |config| {
        config.limits.tuning.gathered_ack_bytes = 4 * PART as u64;
    });
    for _ in 0..half {
        hosts.send();
        assert_eq!(hosts.far_turn(), 0);
        hosts.read();
    }
    hosts.swap(&mut other);
    let mut came = 0;
    while hosts.far_turn() == 0 {
        // Little of its window: this one's ACK is not due.
        assert_eq!(hosts.near.tcp_write(hosts.from, &[7; 3 * 1448]), Ok(3 * 1448));
        hosts.near_turn();
        hosts.read();
        came += 3 * 1448;
        assert!(came <= 4 * PART, "{came} bytes");
    }
    assert!(came + 2 * PART > 4 * PART, "{came} bytes");
    hosts.swap(&mut other);
    assert_eq!(hosts.unacknowledged(), 0);
}

/// A stream whose ACK is held while the link has more, another connection, and how many super-segments that takes.
fn held_among_two(mode: Mode) -> (Hosts, (SocketId, SocketId), usize) {
    let mut hosts = Hosts::new(mode);
    let other = hosts.beside();
    hosts.says(true);
    (hosts, other, 1)
}

/// The same, of what is lent.
fn lent_among_two(mode: Mode) -> (Hosts, (SocketId, SocketId), usize) {
    let held = held_among_two(mode);
    held.0.lends.store(true, Ordering::Relaxed);
    held
}

/// An application with one engine does its own work between two turns. Whatever an ACK is held for, and although every
/// turn brings something, the peer does not wait for it for longer than for a delayed one, or for gathered ones.
fn while_turns_are_far_apart_an_ack_waits_as_long_as_a_delayed_one(mode: Mode) {
    let kinds: [(fn(Mode) -> _, Duration); 3] = [
        (held_among_two, HELD_ACK_LIMIT),
        (lent_among_two, HELD_ACK_LIMIT),
        (lent_by_many, GATHERED_ACK_LIMIT),
    ];
    for (begin, limit) in kinds {
        let (mut hosts, mut other, count) = begin(mode);
        for _ in 0..count {
            hosts.send();
            assert_eq!(hosts.far_turn(), 0);
            hosts.read();
        }
        hosts.swap(&mut other);
        // The peer's clock stands still: it would send again what is not acknowledged.
        let begin = hosts.time;
        for part in [3, 1] {
            assert_eq!(hosts.near.tcp_write(hosts.from, b"more"), Ok(4));
            hosts.near.turn(begin);
            hosts.time += limit / 4 * part;
            assert_eq!(hosts.far_turn(), u64::from(part == 1), "{part}");
            hosts.read();
        }
        hosts.swap(&mut other);
        hosts.near.turn(begin);
        let info = hosts.near.tcp_info(hosts.from).expect("open");
        assert_eq!(info.bytes_sent, info.bytes_acked);
    }
}

fn an_ack_that_may_go_does_not_wait_behind_one_of_what_is_lent(mode: Mode) {
    let (mut hosts, mut other, _) = lent_among_two(mode);
    hosts.send();
    assert_eq!(hosts.far_turn(), 0);
    hosts.read();
    hosts.swap(&mut other);
    hosts.lends.store(false, Ordering::Relaxed);
    hosts.send();
    assert_eq!(hosts.far_turn(), 0, "the link has more");
    hosts.says(false);
    assert_eq!(hosts.far_turn(), 1);
    assert_eq!(hosts.unacknowledged(), 0);
    hosts.swap(&mut other);
    assert_ne!(hosts.unacknowledged(), 0, "the link has been empty for no time");
}

fn an_engine_sends_the_ack_of_what_is_lent_before_it_sleeps(mode: Mode) {
    let (mut hosts, _) = lent(mode);
    hosts.far.set_busy_poll(Duration::ZERO);
    hosts.send();
    while hosts.unacknowledged() != 0 {
        hosts.far.run_once(Some(Duration::from_secs(20))).expect("a turn");
        assert_eq!(hosts.far.stats().sleeps, 0);
    }
}

fn an_answer_takes_the_held_ack_along(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    hosts.says(true);
    hosts.send();
    assert_eq!(hosts.far_turn(), 0);
    assert_eq!(hosts.far.tcp_write(hosts.to, b"answer"), Ok(6));
    assert_eq!(hosts.far_turn(), 0, "no ACK without data");
    assert_eq!(hosts.unacknowledged(), 0);
    for _ in 0..10 {
        assert_eq!(hosts.far_turn(), 0, "and none later");
    }
}

fn the_end_of_a_stream_is_acknowledged_at_once(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    hosts.says(true);
    hosts.send();
    assert_eq!(hosts.far_turn(), 0);
    hosts.near.tcp_shutdown_write(hosts.from).expect("open");
    hosts.near_turn();
    assert_eq!(hosts.far_turn(), 1);
}

fn a_new_connection_is_acknowledged_segment_by_segment(mode: Mode) {
    let mut hosts = Hosts::new(mode);
    hosts.says(true);
    let address = "10.9.0.2:8".parse().expect("an address");
    let listener = hosts.far.tcp_listen(address, 1).expect("listen");
    let fresh = hosts.near.tcp_connect(address).expect("connect");
    hosts.settle();
    hosts.far.tcp_accept(listener).expect("a connection");
    for _ in 0..8 {
        assert_eq!(hosts.near.tcp_write(fresh, &[1; 3000]), Ok(3000));
        hosts.near_turn();
        assert_eq!(hosts.far_turn(), 1, "slow start wants its ACKs");
        hosts.near_turn();
    }
}
