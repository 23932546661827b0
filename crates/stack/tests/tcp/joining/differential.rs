//! Two hosts, one with the fast path and one without, or with all shortcuts but one, are sent the
//! same: their applications read the same, and they send the same.
//!
//! Where packets come one in a turn, and no reader waits, every segment sent is compared, whole.
//! Elsewhere two things may differ lawfully. The window: data in a reader's memory hold none of the
//! receive buffer's. And when and how often data are acknowledged: what a reader that waits has is
//! read as it comes, so that an ACK which a read brings forward goes a turn sooner. There what is
//! acknowledged is compared once all delayed ACKs are over.

use std::time::Duration;

use millstream::tuning::FastPath;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};
use proptest::prelude::*;

use super::host::{Host, bytes, one_hop_less};
use super::{Event, Stream, event};
use crate::common;

/// One step: the peer sends, oddly by another way, and the application writes and reads.
#[derive(Clone, Debug)]
struct Step {
    events: Vec<(Event, bool)>,
    writes: usize,
    reads: bool,
    posted: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let events = prop::collection::vec((event(), prop::bool::weighted(0.1)), 1..24);
    let posted = prop::sample::select(vec![0, 0, 700, 10_300, 50_000]);
    (events, 0..1500_usize, prop::bool::weighted(0.8), posted)
        .prop_map(|(events, writes, reads, posted)| Step { events, writes, reads, posted })
}

/// Every shortcut off alone, with its name.
fn each_off() -> [(&'static str, FastPath); 2] {
    let off = |name, turn_off: fn(&mut FastPath)| {
        let mut fast_path = FastPath::ALL;
        turn_off(&mut fast_path);
        (name, fast_path)
    };
    [
        off("flow cache", |path| path.flow_cache = false),
        off("direct placement", |path| path.direct_placement = false),
    ]
}

/// A strategy for the shortcuts that the second host lacks: all of them, or one.
fn other() -> impl Strategy<Value = Option<FastPath>> {
    let each = each_off().map(|(_, fast_path)| Some(fast_path));
    prop_oneof![2 => Just(None), 5 => prop::sample::select(each.to_vec())]
}

/// Both hosts, the peer's stream, and how much of theirs the peer has.
struct Two {
    hosts: [Host; 2],
    stream: Stream,
    written: usize,
}

impl Two {
    /// One with all shortcuts, and one with those of `other`, or without a fast path.
    fn new(v6: bool, other: Option<FastPath>) -> Self {
        let pool = common::pool();
        let with = |fast_path| Host::with_shortcuts(&pool, v6, fast_path, false);
        let other = other.map_or_else(|| Host::without_fast_path(&pool, v6), with);
        let hosts = [with(FastPath::ALL), other];
        Self { hosts, stream: Stream::default(), written: 0 }
    }

    /// Returns the packets that the peer sends to each host in a step; it acknowledges what was
    /// written before that.
    fn packets(&mut self, events: &[(Event, bool)]) -> [Vec<Vec<u8>>; 2] {
        let mut packets = [Vec::new(), Vec::new()];
        for &(event, is_odd) in events {
            let Some((at, len, flags)) = self.stream.take(event) else { continue };
            for (host, packets) in self.hosts.iter().zip(&mut packets) {
                let packet = host.answering(at, self.written, 512, flags, &bytes(at, len));
                packets.push(if is_odd { one_hop_less(packet) } else { packet });
            }
        }
        packets
    }

    /// Over links with offloads.
    fn offloaded(v6: bool, other: FastPath) -> Self {
        let pool = common::pool();
        let hosts = [FastPath::ALL, other].map(|fast_path| {
            let mut host = Host::with_shortcuts(&pool, v6, fast_path, true);
            host.wait(Duration::from_millis(10));
            host
        });
        Self { hosts, stream: Stream::default(), written: 0 }
    }

    fn write(&mut self, len: usize) {
        for host in &mut self.hosts {
            assert_eq!(host.engine.tcp(host.socket).write(&vec![7; len]), Ok(len));
        }
        self.written += len;
    }

    fn each<T>(&mut self, of: impl Fn(&mut Host) -> T) -> [T; 2] {
        self.hosts.each_mut().map(of)
    }

    /// The same, with what the peer sends to each.
    fn each_with<P, T>(&mut self, sent: [P; 2], of: impl Fn(&mut Host, P) -> T) -> [T; 2] {
        let [fast, slow] = &mut self.hosts;
        let [to_fast, to_slow] = sent;
        [of(fast, to_fast), of(slow, to_slow)]
    }
}

/// The segments that a turn sends, numbered from the host's first byte, and without PSH: a burst of
/// several segments ends with one for its own sake, and there are no bursts without the fast path.
fn turn(host: &mut Host, packets: &[Vec<u8>]) -> Vec<TcpHeader> {
    let mut sent = host.turn(packets);
    for header in &mut sent {
        header.seq = SeqNumber(header.seq.0.wrapping_sub(host.begin.0));
        header.flags.remove(TcpFlags::PSH);
    }
    sent
}

fn read_all(host: &mut Host) {
    let mut buffer = [0; 10_000];
    while let Ok(n @ 1..) = host.engine.tcp(host.socket).read(&mut buffer) {
        host.got.extend_from_slice(&buffer[..n]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn one_by_one_the_same_segments_are_sent(
        v6: bool,
        other in other(),
        steps in prop::collection::vec(step(), 1..6),
    ) {
        let mut two = Two::new(v6, other);
        for Step { events, writes, reads, .. } in steps {
            let packets = two.packets(&events);
            two.write(writes);
            let [to_fast, to_slow] = &packets;
            for sent in to_fast.iter().zip(to_slow) {
                let sent: [&Vec<u8>; 2] = sent.into();
                let [fast, slow] =
                    two.each_with(sent, |host, sent| turn(host, std::slice::from_ref(sent)));
                prop_assert_eq!(fast, slow);
                if reads {
                    two.each(read_all);
                    prop_assert_eq!(two.hosts[0].got.len(), two.hosts[1].got.len());
                }
            }
            two.each(read_all);
            for wait_ms in [0, 600] {
                two.each(|host| host.wait(Duration::from_millis(wait_ms)));
                let [fast, slow] = two.each(|host| turn(host, &[]));
                prop_assert_eq!(fast, slow);
            }
        }
        let ends = two.each(|host| host.engine.tcp(host.socket).info().expect("open"));
        let [fast, slow] = two.hosts;
        prop_assert!(fast.got == slow.got && fast.got == bytes(0, fast.got.len()));
        prop_assert_eq!(ends[0].bytes_received, ends[1].bytes_received);
        prop_assert_eq!(ends[0].bytes_acked, ends[1].bytes_acked);
        prop_assert_eq!(ends[0].cwnd_bytes, ends[1].cwnd_bytes);
        prop_assert_eq!(ends[0].srtt_us, ends[1].srtt_us);
    }

    #[test]
    fn many_at_once_come_to_the_same(
        v6: bool,
        other in other(),
        steps in prop::collection::vec(step(), 1..10),
    ) {
        let mut two = Two::new(v6, other);
        let mut last = [None; 2];
        for Step { events, writes, reads, posted } in steps {
            let packets = two.packets(&events);
            two.write(writes);
            // So that neither's window closes.
            let reads = reads || two.stream.next - two.hosts[0].got.len() > 20_000;
            let said = two.each_with(packets, |host, sent| match reads {
                true => host.step_waiting(&sent, posted),
                false => host.step(&sent, false),
            });
            for (last, said) in last.iter_mut().zip(said) {
                *last = said.concat().pop().map(|(acked, ..)| acked).or(*last);
            }
            prop_assert_eq!(last[0], last[1]);
            prop_assert_eq!(two.hosts[0].got.len(), two.hosts[1].got.len());
        }
        let [fast, slow] = two.hosts;
        prop_assert!(fast.got == slow.got && fast.got == bytes(0, fast.got.len()));
    }
}

/// Returns the bytes that the link has put where a read of each host waits.
fn placed(two: &mut Two) -> [u64; 2] {
    two.each(|host| host.engine.stats().tcp_rx_direct_bytes)
}

/// Super-segments over a link that puts them where a read waits: the same is read and acknowledged
/// without each shortcut.
#[test]
fn what_a_link_places_comes_to_the_same() {
    let sizes = [20_000, 40_000, 20_500, 700, 30_000, 60_000, 20_000, 17_000];
    for ((name, fast_path), v6) in
        each_off().into_iter().flat_map(|off| [(off, false), (off, true)])
    {
        let mut two = Two::offloaded(v6, fast_path);
        for (step, len) in sizes.into_iter().chain(sizes).enumerate() {
            let mut events = vec![(Event::Data(len, false), false)];
            match step {
                3 => events.insert(0, (Event::Twice, false)),
                5 => events.insert(0, (Event::Lose(300), false)),
                6 => events.push((Event::Again, false)),
                _ => {}
            }
            let packets = two.packets(&events);
            two.write(100);
            let said = two.each_with(packets, |host, sent| host.step_waiting(&sent, 100_000));
            let ends = said.map(|said| said.concat().pop());
            assert_eq!(ends[0], ends[1], "without {name}, step {step}");
            assert!(two.hosts[0].got == two.hosts[1].got, "without {name}, step {step}");
        }
        let whole = 2 * sizes.iter().sum::<usize>() + 300;
        assert!(two.hosts[0].got == bytes(0, whole), "{} bytes", two.hosts[0].got.len());
        let [with, without] = placed(&mut two);
        assert!(with > 100_000, "{with} bytes placed");
        let places = fast_path.flow_cache && fast_path.direct_placement;
        assert_eq!(without > 0, places, "without {name}");
    }
}
