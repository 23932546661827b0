//! What a subscriber sees of a connection's life.

use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};
use millstream_wire::tcp::{TcpFlags, TcpHeader};

use super::harness::{Net, Path};
use crate::{Payload, State};

/// Keeps each event as a line: what happened, then its fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream::tcp"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().expect("lines").push(line.what + &line.fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    what: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.what = format!("{value:?}:"),
            name => self.fields += &format!(" {name}={value:?}"),
        }
    }
}

impl Lines {
    /// What `run` has to tell.
    fn told_by(run: impl FnOnce()) -> Lines {
        let lines = Lines::default();
        // Where there is one subscriber, a place that another thread comes to first is taken for
        // one that nobody listens to; where there are two, both are asked.
        let _second = Dispatch::new(Lines::default());
        dispatcher::with_default(&Dispatch::new(lines.clone()), run);
        lines
    }

    /// The events of the end at `local` of what is called `what`, in their order.
    fn of(&self, local: &str, what: &str) -> Vec<String> {
        let (what, local) = (format!("{what}:"), format!(" local={local} "));
        let lines = self.0.lock().expect("lines");
        lines.iter().filter(|l| l.starts_with(&what) && l.contains(&local)).cloned().collect()
    }
}

fn states(lines: &Lines, local: &str) -> Vec<String> {
    let to = |line: String| line.split("to=").nth(1).expect("a state").replace('"', "");
    lines.of(local, "state").into_iter().map(to).collect()
}

const CLIENT: &str = "10.0.0.1:1001";
const SERVER: &str = "10.0.0.2:1002";

#[test]
fn a_subscriber_sees_states_losses_time_outs_and_drops() {
    let lines = Lines::told_by(|| {
        let mut net = Net::new(Path { loss: 0.03, ..Path::default() }, 5);
        net.transfer([300_000, 0], Duration::from_secs(60));
        net.path.loss = 1.0;
        let pool = net.pool.clone();
        assert_eq!(net.side(1).write(&pool, b"into the void"), Ok(13));
        net.run_until(Duration::from_secs(3), |_| false);
        assert!(net.side(1).info().timeouts > 0);
        // from far beyond the window
        let now = net.now;
        let client = net.side(0);
        let (seq, flags) = (client.receiving.rcv.seq(1 << 30), TcpFlags::RST);
        let header = TcpHeader { seq, flags, ..TcpHeader::default() };
        client.on_segment(now, &header, Payload::None, 0, &pool);
        client.abort();
    });
    assert_eq!(states(&lines, CLIENT)[..3], ["SYN-SENT", "ESTAB", "FIN-WAIT-1"]);
    assert_eq!(states(&lines, CLIENT).last().expect("an end"), State::Closed.name());
    assert_eq!(states(&lines, SERVER), ["SYN-RECV", "ESTAB", "CLOSE-WAIT"]);
    assert!(!lines.of(CLIENT, "segments marked lost").is_empty());
    let windows = lines.of(CLIENT, "congestion window");
    assert!(windows.iter().any(|line| line.contains("cause=\"loss\"")), "{windows:?}");
    assert!(lines.of(SERVER, "retransmission time-out")[0].contains("outstanding_bytes=13"));
    assert!(lines.of(SERVER, "congestion window")[0].contains("cause=\"time-out\""));
    assert!(lines.of(CLIENT, "segment dropped").last().expect("one").contains("tcp_out_of_window"));
    assert!(lines.of(CLIENT, "connection failed")[0].contains("error="));
}

#[test]
fn nothing_is_traced_of_data_in_order() {
    let lines = Lines::told_by(|| {
        Net::new(Path::default(), 6).transfer([1 << 20, 0], Duration::from_secs(30));
    });
    let all = lines.0.lock().expect("lines");
    assert!(all.iter().all(|line| line.starts_with("state:")), "{all:?}");
    assert!(!all.is_empty());
}
