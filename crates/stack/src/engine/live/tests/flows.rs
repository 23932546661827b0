//! Tests of the answers about sampled packets of single flows.

use millstream_live::Record;

use super::talking::{Talking, address};
use super::*;
use crate::SocketId;
use crate::engine::events::packet_trace::FLOWS;
use crate::engine::live::id::Id;

/// The answer about a flow.
struct Told {
    flow: Record,
    stages: Vec<Record>,
}

impl Told {
    /// Returns how many packets were counted in a stage of the way in.
    fn counted(&self, stage: &str) -> u64 {
        let is_of =
            |line: &&Record| line.get("way") == Some("in") && line.get("stage") == Some(stage);
        self.stages.iter().filter(is_of).filter_map(|line| line.number("count")).sum()
    }
}

/// Returns the answer about a flow; `None` where the question is refused.
fn ask(talking: &mut Talking, id: SocketId, sample: &str) -> Option<Told> {
    let all = pages(&mut talking.engine, &format!("stages {} {sample}", Id(id)));
    let flow = lines(&all, "flow").next()?;
    assert!(all.last().is_some_and(|page| page.ends_with("end\n")), "{all:?}");
    Some(Told { flow, stages: lines(&all, "stage").collect() })
}

fn later(talking: &mut Talking, time: Duration) {
    talking.engine.cx.now += time;
    let now = talking.engine.cx.now;
    talking.engine.cx.end_leases(now);
}

#[test]
fn the_packets_of_one_flow_alone_are_counted_since_somebody_asks() {
    let mut talking = Talking::new(2);
    let [one, other] = [talking.sockets[0], talking.sockets[1]];
    let told = ask(&mut talking, one, "1").expect("told");
    assert_eq!((told.flow.number("sample"), told.flow.number("traces")), (Some(1), Some(0)));
    talking.talk(0, 20);
    talking.talk(1, 30);
    let told = ask(&mut talking, one, "1").expect("told");
    assert_eq!((told.counted("receive_queue"), told.counted("ingress")), (20, 20));
    assert_eq!(ask(&mut talking, other, "1").expect("told").counted("receive_queue"), 0);
    talking.talk(1, 5);
    assert_eq!(ask(&mut talking, other, "1").expect("told").counted("receive_queue"), 5);
    // The times of all flows have both.
    let all = talking.engine.cx.sink.packets.tracer().expect("on").residence.stages();
    let most = all.map(|(_, times)| times.total()).max();
    assert_eq!(most, Some(55));
}

#[test]
fn a_connection_is_counted_both_ways() {
    let there = Temporary::new("flow");
    let (mut near, mut far, [client, server]) = world(&there);
    let question = format!("stages {} 1", Id(client));
    pages(&mut near, &question);
    for _ in 0..10 {
        near.tcp(client).write(b"question").expect("room");
        settle(&mut near, &mut far);
        far.tcp(server).read(&mut [0; 64]).expect("data");
        far.tcp(server).write(b"answer").expect("room");
        settle(&mut near, &mut far);
        near.tcp(client).read(&mut [0; 64]).expect("data");
    }
    let all = pages(&mut near, &question);
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for line in lines(&all, "stage") {
        *counts.entry(line.get("stage").expect("one").to_owned()).or_default() +=
            line.number("count").expect("a number");
    }
    for stage in ["receive_queue", "reassembly", "send_queue", "link_queue", "unacknowledged"] {
        assert_eq!(counts.get(stage), Some(&10), "{stage}: {counts:?}");
    }
}

#[test]
fn few_flows_are_counted_at_once_and_each_while_somebody_asks() {
    let mut talking = Talking::new(FLOWS + 1);
    let all = talking.sockets.clone();
    let (last, others) = all.split_last().expect("sockets");
    for &id in others {
        assert!(ask(&mut talking, id, "1").is_some());
    }
    assert!(ask(&mut talking, *last, "1").is_none(), "as many are counted as may be");
    // One is asked for again, which the others are not.
    later(&mut talking, Duration::from_millis(1900));
    ask(&mut talking, others[0], "1");
    later(&mut talking, Duration::from_millis(200));
    let is_counted = |id| talking.engine.cx.sink.packets.flow(id).is_some();
    assert_eq!((is_counted(others[0]), is_counted(others[1])), (true, false));
    assert!(ask(&mut talking, *last, "1").is_some());
}

#[test]
fn who_asks_for_fewer_packets_takes_nothing_from_others() {
    let mut talking = Talking::new(1);
    let id = talking.sockets[0];
    ask(&mut talking, id, "1");
    talking.talk(0, 10);
    pages(&mut talking.engine, "traces 1 1000");
    let told = ask(&mut talking, id, "1").expect("told");
    assert_eq!((told.counted("receive_queue"), told.flow.number("sample")), (10, Some(1)));
}

#[test]
fn nothing_is_sampled_for_what_is_no_flow() {
    let mut talking = Talking::new(1);
    let id = talking.sockets[0];
    talking.engine.sockets().tcp_listen(address(0), 1).expect("a listener");
    for wrong in ["tcp0.0 1", "listen0.0 1", "udp0.9 1", "udp0.0 0", "udp0.0 x", "x", ""] {
        let all = pages(&mut talking.engine, &format!("stages {wrong}"));
        assert!(all[0].starts_with("error "), "{wrong}: {all:?}");
    }
    assert!(!talking.engine.cx.sink.packets.is_on());
    let told = ask(&mut talking, id, "").expect("told");
    assert_eq!((told.flow.number("sample"), told.flow.get("traces")), (Some(0), None));
}

#[test]
fn what_was_counted_of_a_closed_socket_is_told_for_a_while() {
    let mut talking = Talking::new(1);
    let id = talking.sockets[0];
    ask(&mut talking, id, "1");
    talking.talk(0, 3);
    talking.engine.close(id);
    assert_eq!(ask(&mut talking, id, "1").expect("told").counted("receive_queue"), 3);
    later(&mut talking, Duration::from_secs(3));
    assert!(ask(&mut talking, id, "1").is_none());
}
