//! `traces FROM [N]`: sampled packets whose traces have ended, from this number on (docs/trace.md).
//!
//! With N one packet in N is sampled while somebody asks so: for a while from the question on. Of
//! several N the smallest holds. An engine that samples of its own accord goes on as it does.

use millstream_live::Fields;

use super::id::Id;
use crate::engine::Engine;
use crate::engine::events::packet_trace::{Direction, PacketTrace};
use crate::socket::SocketKind;

/// Traces of one page.
const TRACES: usize = 16;

/// An answer that is made.
pub(super) struct Traces {
    next: u64,
    /// One packet in how many is to be sampled, if that is asked for and was not heard yet.
    every: Option<u32>,
    /// Traces that are gone.
    lost: u64,
}

impl Traces {
    /// To a question with these numbers; `None` where they are none.
    pub fn to(from: &str, every: Option<&str>) -> Option<Self> {
        let every = match every {
            None => None,
            Some(every) => Some(sample(every)?),
        };
        Some(Self { next: from.parse::<u64>().ok()?.max(1), every, lost: 0 })
    }

    /// Makes the next page; whether it is the last.
    pub fn fill(&mut self, engine: &mut Engine, page: &mut String) -> bool {
        if let Some(every) = self.every.take() {
            engine.cx.lease_packets(every);
        }
        end_closed(engine);
        let mut left = TRACES;
        for trace in engine.inspect().packet_traces(self.next).take(TRACES) {
            self.lost += trace.number.saturating_sub(self.next);
            self.next = trace.number + 1;
            left -= 1;
            show(trace, page);
        }
        if left == 0 {
            return false;
        }
        let traces = &engine.cx.sink.packets;
        let mut line = Fields::begin(page, "traces");
        line.put("next", traces.ended() + 1).put("lost", self.lost);
        line.put("sample", traces.every());
        line.end();
        true
    }
}

/// One packet in how many is to be sampled; `None` where the word is no such number.
pub(super) fn sample(word: &str) -> Option<u32> {
    word.parse().ok().filter(|&every| every != 0)
}

fn show(trace: &PacketTrace, page: &mut String) {
    let mut line = Fields::begin(page, "trace");
    line.put("number", trace.number).put("way", trace.direction().name());
    line.put("transport", trace.transport()).put("bytes", trace.bytes);
    if let Some(socket) = trace.socket {
        line.put("id", Id(socket)).put("position", trace.position);
    }
    if let Some((local, remote)) = trace.ends {
        line.put("local", local).put("remote", remote);
    }
    line.put("end", trace.end.name());
    for (point, time) in trace.reached() {
        line.put(point.name(), time.as_nanos());
    }
    line.end();
}

/// Ends what was sampled of sockets that are gone, or that nobody reads any more.
pub(in crate::engine) fn end_closed(engine: &mut Engine) {
    let Engine { cx, tcp, udp, .. } = engine;
    cx.sink.packets.end_closed(|id, way| match (id.kind(), way) {
        (SocketKind::Udp, _) => udp.by_id(id).is_ok(),
        (_, Direction::In) => tcp.table.by_id(id).is_some_and(|(_, socket)| !socket.detached),
        (_, Direction::Out) => {
            tcp.table.by_id(id).is_some_and(|(_, socket)| !socket.conn.is_closed())
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::events::packet_trace::{KEPT, LEASE};
    use crate::engine::live::answers::Answer;
    use crate::engine::live::tests::talking::Talking;
    use millstream_live::Record;

    impl Talking {
        fn ask(&mut self, question: &str) -> Vec<Record> {
            let (mut answer, mut page, mut all) = (Answer::to(question), String::new(), Vec::new());
            while !answer.is_over() {
                answer.fill(&mut self.engine, &mut page);
                let lines: Vec<_> = page.lines().map(Record::parse).collect();
                assert!(lines.len() <= TRACES + 2, "a page is bounded");
                all.extend(lines);
            }
            assert_eq!(all.pop().expect("an end").kind, "end");
            all
        }
    }

    #[test]
    fn packets_are_sampled_for_as_long_as_somebody_asks() {
        let mut talking = Talking::new(1);
        talking.talk(0, 3);
        let none = talking.ask(&format!("traces {} 1", u64::MAX));
        assert_eq!(none.len(), 1, "{none:?}");
        assert_eq!((none[0].number("next"), none[0].number("sample")), (Some(1), Some(1)));
        talking.talk(0, 100);
        let all = talking.ask("traces 1 1");
        let ways_in: Vec<_> = all.iter().filter(|line| line.get("way") == Some("in")).collect();
        assert_eq!(ways_in.len(), 100);
        assert!(ways_in.iter().all(|line| line.get("end") == Some("complete")), "{all:?}");
        let last = all.last().expect("a line");
        let next = last.number("next").expect("a number");
        assert_eq!((next, last.number("lost")), (all.len() as u64, Some(0)));
        talking.talk(0, KEPT);
        let late = talking.ask(&format!("traces {next}"));
        assert_eq!(late.len(), KEPT + 1);
        let (first, last) = (&late[0], late.last().expect("a line"));
        assert_eq!(first.number("number"), last.number("lost").map(|lost| next + lost));
        let engine = &mut talking.engine;
        engine.cx.end_leases(engine.cx.now + LEASE);
        assert!(!engine.cx.sink.packets.is_on(), "nobody has asked for long");
        // Numbers go on.
        let again = talking.ask(&format!("traces {} 1", u64::MAX));
        assert_eq!(again[0].number("next"), last.number("next"));
    }

    #[test]
    fn an_engine_that_samples_of_its_own_accord_goes_on() {
        let mut talking = Talking::new(1);
        talking.engine.set_packet_sample(7);
        let said = talking.ask("traces 1 1");
        assert_eq!(said[0].number("sample"), Some(7));
        let later = talking.engine.cx.now + 2 * LEASE;
        talking.engine.cx.end_leases(later);
        assert_eq!(talking.engine.cx.sink.packets.every(), 7);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let mut talking = Talking::new(1);
        for question in ["traces", "traces x", "traces 1 0", "traces 1 -1", "traces 1 1 1"] {
            let mut page = String::new();
            Answer::to(question).fill(&mut talking.engine, &mut page);
            assert!(page.starts_with("error "), "{question}: {page}");
        }
        assert!(!talking.engine.cx.sink.packets.is_on());
    }
}
