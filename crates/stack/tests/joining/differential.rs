//! Two hosts, one with the fast path and one without, are sent the same: their applications read the same, and they send
//! the same.
//!
//! Where packets come one in a turn, and no reader waits, every segment sent is compared, whole. Elsewhere two things may
//! differ lawfully. The window: data in a reader's memory hold none of the receive buffer's. And when and how often data
//! are acknowledged: a joined segment counts as one of those that are acknowledged at once after a loss (RFC 5681 4.2),
//! and what a reader that waits has is read as it comes, so that an ACK which a read brings forward goes a turn sooner.
//! There what is acknowledged is compared once all delayed ACKs are over.

use std::time::Duration;

use millstream::wire::tcp::{SeqNumber, TcpFlags, TcpHeader};
use proptest::prelude::*;

use crate::common;
use crate::host::{Host, MSS, bytes, one_hop_less};
use crate::{Event, Stream, event};

/// What happens in a step: the peer sends, by another way where it is odd, and the application writes and reads.
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

/// Both hosts, the peer's stream, and how much of theirs the peer has.
struct Two {
    hosts: [Host; 2],
    stream: Stream,
    written: usize,
}

impl Two {
    fn new(v6: bool) -> Self {
        let pool = common::pool();
        let hosts = [Host::new(&pool, v6), Host::without_fast_path(&pool, v6)];
        Self { hosts, stream: Stream::default(), written: 0 }
    }

    /// What the peer sends to each in a step; it acknowledges what was written before that.
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

    fn write(&mut self, len: usize) {
        for host in &mut self.hosts {
            assert_eq!(host.engine.tcp_write(host.socket, &vec![7; len]), Ok(len));
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

/// The segments that a turn sends, numbered from the host's first byte, and without PSH: a burst of several segments ends
/// with one for its own sake, and there are no bursts without the fast path.
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
    while let Ok(n @ 1..) = host.engine.tcp_read(host.socket, &mut buffer) {
        host.got.extend_from_slice(&buffer[..n]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn one_by_one_the_same_segments_are_sent(
        v6: bool,
        steps in prop::collection::vec(step(), 1..6),
    ) {
        let mut two = Two::new(v6);
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
        let ends = two.each(|host| host.engine.tcp_info(host.socket).expect("open"));
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
        steps in prop::collection::vec(step(), 1..10),
    ) {
        let mut two = Two::new(v6);
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
        let stats = slow.engine.stats();
        prop_assert_eq!((stats.tcp_rx_merged, stats.tcp_rx_copied_bytes), (0, 0));
    }
}

/// The comparison is one: with the fast path segments are joined and placed, and without it none is.
#[test]
fn the_switch_turns_all_of_it_off() {
    let mut two = Two::new(false);
    let events = vec![(Event::Data(MSS, false), false); 20];
    for _ in 0..3 {
        let packets = two.packets(&events);
        two.each_with(packets, |host, sent| host.step_waiting(&sent, 10_300));
    }
    let counted = two.each(|host| {
        let stats = host.engine.stats();
        (stats.tcp_rx_merged, stats.tcp_rx_copied_bytes)
    });
    assert!(counted[0].0 > 20 && counted[0].1 > 10_000, "{counted:?}");
    assert_eq!(counted[1], (0, 0));
    assert!(two.hosts[0].got == two.hosts[1].got && two.hosts[0].got.len() == 60 * MSS);
}
