//! Segments joined before they are read mean what they mean one by one: the same bytes,
//! acknowledged the same way at the same time. So do those that are copied to a read that waits.
//! And an engine with its fast path does what one without it does (`differential`).

mod differential;
mod forwarding;
mod host;
mod waiting;

use host::{Answer, Host, MSS, bytes, one_hop_less};
use millstream_wire::Malformed;
use millstream_wire::tcp::TcpFlags;
use proptest::prelude::*;

use crate::common;

/// The peer's next action.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Sends so many new bytes, with PSH or without.
    Data(usize, bool),
    /// Loses so many.
    Lose(usize),
    /// Sends again what was lost first.
    Again,
    /// Sends the last bytes twice.
    Twice,
    /// Says nothing new.
    Ack,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Data(MSS, false)),
        2 => Just(Event::Data(MSS, true)),
        2 => (1..MSS, any::<bool>()).prop_map(|(len, push)| Event::Data(len, push)),
        1 => (1..2 * MSS).prop_map(Event::Lose),
        2 => Just(Event::Again),
        1 => Just(Event::Twice),
        1 => Just(Event::Ack),
    ]
}

/// The peer's stream: byte `i` is a function of `i`.
#[derive(Default)]
struct Stream {
    next: usize,
    lost: Vec<(usize, usize)>,
    last: (usize, usize),
}

impl Stream {
    /// Bytes and flags of the segment that an event makes, if one.
    fn take(&mut self, event: Event) -> Option<(usize, usize, TcpFlags)> {
        let plain = |(at, len)| Some((at, len, TcpFlags::ACK));
        match event {
            Event::Data(len, push) => {
                self.last = (self.next, len);
                self.next += len;
                let flags = if push { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK };
                Some((self.last.0, len, flags))
            }
            Event::Lose(len) => {
                self.lost.push((self.next, len));
                self.next += len;
                None
            }
            Event::Again if self.lost.is_empty() => None,
            Event::Again => {
                let (at, len) = self.lost[0];
                let now = len.min(MSS);
                self.lost[0] = (at + now, len - now);
                self.lost.retain(|(_, len)| *len > 0);
                plain((at, now))
            }
            Event::Twice => plain(self.last).filter(|(_, len, _)| *len > 0),
            Event::Ack => plain((self.next, 0)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn joined_segments_are_read_and_acknowledged_as_single_ones(
        v6: bool,
        posted in prop::sample::select(vec![0, 0, 700, 10_300, 50_000]),
        batches in prop::collection::vec((prop::collection::vec(event(), 1..40), any::<bool>()), 1..12),
    ) {
        let pool = common::pool();
        let (mut joined, mut single) = (Host::new(&pool, v6), Host::new(&pool, v6));
        let mut stream = Stream::default();
        let mut acked = [None; 2];
        let mut rest: Vec<(Vec<Event>, bool)> = batches;
        // At the end everything has arrived and been read.
        rest.extend((0..40).map(|_| (vec![Event::Again; 20], true)));
        for (events, reads) in rest {
            let mut packets = [Vec::new(), Vec::new()];
            for event in events {
                let Some((at, len, flags)) = stream.take(event) else { continue };
                packets[0].push(joined.segment(at, flags, &bytes(at, len)));
                let packet = single.segment(at, flags, &bytes(at, len));
                let is_odd = packets[1].len() % 2 == 1;
                packets[1].push(if is_odd { one_hop_less(packet) } else { packet });
            }
            let [whole, parts] = packets;
            // So that neither's window closes.
            let reads = reads || stream.next - joined.got.len() > 20_000;
            let ours = match reads {
                true => joined.step_waiting(&whole, posted),
                false => joined.step(&whole, false),
            };
            let theirs = single.step(&parts, reads);
            // A train counts as one of those that are acknowledged at once after a loss or at the
            // start: the answer may come sooner for it, never later.
            if !theirs[0].is_empty() {
                prop_assert_eq!(ours[0].last(), theirs[0].last());
            }
            let heard = |said: &[Vec<Answer>; 2]| said.iter().flatten().map(|answer| answer.0).max();
            acked = [acked[0].max(heard(&ours)), acked[1].max(heard(&theirs))];
            prop_assert_eq!(acked[0], acked[1]);
        }
        prop_assert_eq!(acked[0].unwrap_or(0) as usize, stream.next);
        prop_assert_eq!(&joined.got, &single.got);
        prop_assert_eq!(&joined.got, &bytes(0, joined.got.len()));
    }
}

#[test]
fn a_train_is_one_segment_and_acknowledged_as_many() {
    for v6 in [false, true] {
        let pool = common::pool();
        let mut host = Host::new(&pool, v6);
        let packets: Vec<_> =
            (0..20).map(|i| host.segment(i * MSS, TcpFlags::ACK, &bytes(i * MSS, MSS))).collect();
        let [at_once, _] = host.step(&packets, true);
        assert_eq!(host.got, bytes(0, 20 * MSS));
        assert_eq!(at_once[0].0, 20 * MSS as u32, "at once, not after a delay");
    }
}

#[test]
fn a_reader_that_waits_has_what_fits_and_the_rest_is_queued() {
    for (v6, posted) in [(false, 50_000), (true, 50_000), (false, 10_300)] {
        let pool = common::pool();
        let mut host = Host::new(&pool, v6);
        let packets: Vec<_> =
            (0..21).map(|i| host.segment(i * MSS, TcpFlags::ACK, &bytes(i * MSS, MSS))).collect();
        // The flow's headers are known from its first segment on.
        host.step(&packets[..1], true);
        let [at_once, _] = host.step_waiting(&packets[1..], posted);
        assert_eq!(host.got, bytes(0, 21 * MSS));
        assert_eq!(at_once.last().map(|answer| answer.0), Some(21 * MSS as u32));
    }
}

/// Segments that were dropped for their checksum.
fn damaged(host: &Host) -> u64 {
    host.engine.stats().malformed_by(Malformed::TcpChecksum)
}

/// A segment whose checksum is wrong never came (RFC 9293 3.1, MUST-3): not alone, and not between
/// others that join.
#[test]
fn what_a_wrong_checksum_carries_is_neither_read_nor_acknowledged() {
    let all = [(false, false), (false, true), (true, false), (true, true)];
    for ((v6, alone), posted) in all.into_iter().flat_map(|how| [(how, 0), (how, 50_000)]) {
        let pool = common::pool();
        let mut host = Host::new(&pool, v6);
        let first = host.segment(0, TcpFlags::ACK, &bytes(0, MSS));
        host.step(&[first], true);
        let mut packets: Vec<_> =
            (1..4).map(|i| host.segment(i * MSS, TcpFlags::ACK, &bytes(i * MSS, MSS))).collect();
        *packets[1].last_mut().expect("a byte") ^= 1;
        let answers: Vec<Answer> = match alone {
            true => packets
                .iter()
                .flat_map(|p| host.step_waiting(std::slice::from_ref(p), posted).concat())
                .collect(),
            false => host.step_waiting(&packets, posted).concat(),
        };
        let (first, third) = (2 * MSS as u32, (3 * MSS as u32, 4 * MSS as u32));
        let last = answers.last().expect("an answer");
        assert_eq!((last.0, last.3.as_slice()), (first, [third].as_slice()), "{answers:?}");
        assert_eq!(host.got, bytes(0, 2 * MSS));
        assert_eq!(damaged(&host), 1);
        // no checksum is no way round it
        let mut none = host.segment(2 * MSS, TcpFlags::ACK, &bytes(2 * MSS, MSS));
        let at = none.len() - MSS - 4;
        none[at..at + 2].fill(0);
        host.step_waiting(&[none], posted);
        assert_eq!((host.got.len(), damaged(&host)), (2 * MSS, 2));
    }
}
