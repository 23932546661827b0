//! `stages ID [N]`: how long the sampled packets of one flow were in each stage, since somebody
//! asked for it first (docs/trace.md). With N one packet in N is sampled, as for `traces`.

use millstream_live::bucket_least;

use super::{Done, NO_SUCH_SOCKET, Page, Pages, Refused, Written, us};
use crate::engine::Engine;
use crate::engine::events::packet_trace::{Flow, TracePoint};
use crate::engine::live::id::{Id, parse_id};
use crate::engine::live::traces::{end_closed, sample};
use crate::socket::{SocketId, SocketKind};

/// See the module text.
pub(super) struct FlowStages {
    id: SocketId,
    every: Option<u32>,
    is_begun: bool,
    /// The number that is shown next: of the buckets of all points, one after the other.
    next: usize,
}

impl FlowStages {
    /// The answer to a question with these words.
    pub fn to(id: &str, every: Option<&str>) -> Box<dyn Pages> {
        let Some(id) = parse_id(id) else { return Box::new(Refused(NO_SUCH_SOCKET)) };
        let every = match every.map(sample) {
            None => None,
            Some(Some(every)) => Some(every),
            Some(None) => return Box::new(Refused("not a number")),
        };
        Box::new(Self { id, every, is_begun: false, next: 0 })
    }

    /// Has the flow counted, and tells how much there is to tell.
    fn begin(&self, engine: &mut Engine, page: &mut Page) -> Result<(), &'static str> {
        let (id, now) = (self.id, engine.cx.now);
        // The counts of a socket that is gone are told for a while.
        if !is_open(engine, id) && engine.cx.sink.packets.flow(id).is_none() {
            return Err(NO_SUCH_SOCKET);
        }
        if let Some(every) = self.every {
            engine.cx.lease_packets(every);
        }
        let traces = &mut engine.cx.sink.packets;
        if traces.is_on() && !traces.ask_for_flow(id, now) {
            return Err("as many flows are counted as may be");
        }
        end_closed(engine);
        let traces = &engine.cx.sink.packets;
        let mut line = page.line("flow");
        line.put("id", Id(id)).put("sample", traces.every());
        if let Some(flow) = traces.flow(id) {
            line.put("since_us", us(flow.since, now)).put("traces", flow.traces);
        }
        line.end();
        Ok(())
    }
}

impl Pages for FlowStages {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.begin(engine, page)?;
        }
        let Some(flow) = engine.cx.sink.packets.flow(self.id) else { return Ok(Done::Last) };
        for (at, (point, bucket, count)) in buckets(flow).enumerate().skip(self.next) {
            if !page.is_left() {
                self.next = at;
                return Ok(Done::More);
            }
            page.spend(1);
            if count != 0 {
                let mut line = page.line("stage");
                line.put("way", point.direction().name()).put("stage", point.stage());
                line.put("least_ns", bucket_least(bucket)).put("count", count);
                line.end();
            }
        }
        Ok(Done::Last)
    }
}

/// Returns how many packets spent so long in each stage, by powers of two: the point that the stage
/// ends at, the power of two, and the number.
fn buckets(flow: &Flow) -> impl Iterator<Item = (TracePoint, usize, u64)> {
    flow.residence.stages().flat_map(|(point, times)| {
        let counts = times.buckets().iter().enumerate();
        counts.map(move |(bucket, &count)| (point, bucket, count))
    })
}

/// Returns true if packets of the socket can be followed now.
fn is_open(engine: &Engine, id: SocketId) -> bool {
    match id.kind() {
        SocketKind::Tcp => engine.tcp.table.sockets.get(id.slot()).is_some_and(|one| one.id == id),
        SocketKind::Udp => engine.udp.sockets.get(id.slot()).is_some_and(|one| one.id == id),
        SocketKind::Listener | SocketKind::Icmp => false,
    }
}
