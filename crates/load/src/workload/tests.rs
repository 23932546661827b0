use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig};

use super::*;
use crate::transport::{KernelNetwork, LocalNetwork};

fn task(workload: &str, levels: &[(&str, &str)]) -> Task {
    let task = Task::new(Workload::of(workload).unwrap(), levels.iter().copied());
    assert_eq!(task.check(), Ok(()));
    task
}

/// Bulk data on so many connections from the near and from the far host, which are as many or none.
fn stream(near_sends: usize, far_sends: usize, message_bytes: usize, zero_copy: bool) -> Task {
    let direction = match (near_sends, far_sends) {
        (_, 0) => "send",
        (0, _) => "recv",
        _ => "both",
    };
    let (streams, bytes) = (near_sends.max(far_sends).to_string(), message_bytes.to_string());
    let api = if zero_copy { "zero-copy" } else { "copy" };
    let levels =
        [("direction", direction), ("streams", &streams), ("message_bytes", &bytes), ("api", api)];
    task("tcp_stream", &levels)
}

/// Runs a task over the kernel's loopback.
fn over_loopback(task: &Task) -> ((Counts, Outcome), (Counts, Outcome)) {
    let kernel = || KernelNetwork::new().unwrap();
    over(task, Ipv4Addr::LOCALHOST.into(), kernel, kernel)
}

/// Runs a task between two of Millstream's engines, joined in memory.
fn over_memory(task: &Task) -> ((Counts, Outcome), (Counts, Outcome)) {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let [near, far]: [Box<dyn Link>; 2] = {
        let (near, far) = pair(PairConfig::default()).unwrap();
        [Box::new(near), Box::new(far)]
    };
    let host = |link, address: &str| {
        let (pool, address) = (pool.clone(), address.parse().unwrap());
        move || {
            let mut engine = Engine::new(EngineConfig::new(pool)).unwrap();
            let link = engine.add_link(link).unwrap();
            engine.add_address(link, address).unwrap();
            LocalNetwork::new(engine, link)
        }
    };
    let near = host(near, "10.9.0.1/24");
    over(task, Ipv4Addr::new(10, 9, 0, 2).into(), near, host(far, "10.9.0.2/24"))
}

/// Strangers come before the other end does, and stay: one says nothing, one too little, one
/// something else, one goes.
fn strangers(network: &mut dyn Network, address: IpAddr, ports: &Ports) {
    let wrong = Ticket::fresh().unwrap();
    for port in [ports.near_sends, ports.far_sends].into_iter().filter(|&port| port != 0) {
        let to = SocketAddr::new(address, port);
        let [_silent, short, gone] = [(); 3].map(|()| network.connect(to).unwrap());
        crate::transport::write_all(network, short, &[0; 3]).unwrap();
        network.close(gone);
        wrong.connect(network, to).unwrap();
    }
    for &port in ports.datagrams.iter().take(1) {
        let socket = datagrams::bound_to(network, (address, port).into()).unwrap();
        let long = [0xff; 2000];
        network
            .send_datagrams(socket, &[&wrong.greeting(), &wrong.greeting()[..20], &long])
            .unwrap();
    }
}

/// Runs a task for a moment and gives what both ends counted at the very end; strangers come first.
fn over<N: Network>(
    task: &Task,
    address: IpAddr,
    near_network: impl FnOnce() -> N + Send + 'static,
    far_network: impl FnOnce() -> N + Send + 'static,
) -> ((Counts, Outcome), (Counts, Outcome)) {
    let (tell, told) = std::sync::mpsc::channel();
    let (near, far) = (Arc::new(Progress::default()), Arc::new(Progress::default()));
    let progress = far.clone();
    let (at_near, at_far) = (task.clone(), task.clone());
    let server = thread::spawn(move || {
        let mut network = far_network();
        let listening = listen(at_far, &mut network, address).unwrap();
        tell.send(listening.ports.clone()).unwrap();
        let outcome = listening.accept(&mut network).unwrap().run(&mut network, &progress);
        network.finish(Duration::from_millis(100));
        outcome.unwrap()
    });
    let ports = told.recv().unwrap();
    let progress = near.clone();
    let client = thread::spawn(move || {
        let mut network = near_network();
        strangers(&mut network, address, &ports);
        let session = connect(at_near, &mut network, address, &ports).unwrap();
        let outcome = session.run(&mut network, &progress);
        network.finish(Duration::from_millis(100));
        outcome.unwrap()
    });
    let now = monotonic_ns();
    near.set_window(now, now + 1_000_000_000);
    let busy = |p: &Progress| p.counts().sent_bytes + p.counts().received_bytes > 0;
    while !(busy(&near) && busy(&far)) {
        thread::sleep(Duration::from_millis(1));
    }
    near.stop();
    far.stop();
    let (client, server) = (client.join().unwrap(), server.join().unwrap());
    ((near.counts(), client), (far.counts(), server))
}

#[test]
fn every_byte_of_a_stream_arrives_in_each_direction_and_number() {
    for (near_sends, far_sends, zero_copy) in
        [(1, 0, false), (0, 1, true), (1, 1, false), (5, 0, true), (0, 5, false), (3, 3, true)]
    {
        let task = stream(near_sends, far_sends, 10_000, zero_copy);
        let ((near, near_end), (far, far_end)) = over_loopback(&task);
        assert_eq!(near.sent_bytes, far.received_bytes, "{task:?}");
        assert_eq!(far.sent_bytes, near.received_bytes, "{task:?}");
        assert_eq!(near.sent_bytes > 0, near_sends > 0, "{task:?}");
        assert_eq!(far.sent_bytes > 0, far_sends > 0, "{task:?}");
        assert_eq!(near_end.tcp_info.len(), near_sends + far_sends);
        assert!(far_end.tcp_info.iter().all(|info| info.fields.contains_key("srtt_us")));
    }
}

/// With more connections than are recorded, the record has those that send, at either end.
#[test]
fn the_state_that_is_kept_is_of_the_connections_that_send() {
    let most = limits::TCP_INFO_CONNECTIONS;
    let (near_sends, far_sends) = (most + 2, most + 2);
    let task = stream(near_sends, far_sends, 10_000, false);
    let ((_, near), (_, far)) = over_loopback(&task);
    assert_eq!((near.sending, far.sending), (near_sends, far_sends));
    let numbers = |outcome: &Outcome| -> Vec<usize> {
        outcome.tcp_info.iter().map(|info| info.connection as usize).collect()
    };
    assert_eq!(numbers(&near), (0..most).collect::<Vec<_>>());
    assert_eq!(numbers(&far), (near_sends..near_sends + most).collect::<Vec<_>>());
}

#[test]
fn packets_handed_over_are_as_many_bytes_as_arrive() {
    for (near_sends, far_sends) in [(1, 0), (0, 1), (3, 3)] {
        for message_bytes in [10_000, 131_072] {
            let task = stream(near_sends, far_sends, message_bytes, true);
            let ((near, _), (far, _)) = over_memory(&task);
            assert_eq!(near.sent_bytes, far.received_bytes, "{task:?}");
            assert_eq!(far.sent_bytes, near.received_bytes, "{task:?}");
            // A longer one is cut to whole segments once their size is known.
            let is_cut = message_bytes > 100_000;
            assert!(is_cut || near.sent_bytes % message_bytes as u64 == 0, "whole messages");
        }
    }
}

#[test]
fn transactions_are_counted_and_timed_at_the_asking_end() {
    let task = task("tcp_rr", &[("request_bytes", "100"), ("response_bytes", "3000")]);
    let ((near, near_end), (far, _)) = over_loopback(&task);
    assert!(near.transactions > 0);
    assert_eq!(near.transactions, far.transactions);
    assert_eq!(near.received_bytes, near.transactions * 3000);
    assert_eq!(far.received_bytes, near.transactions * 100);
    let latency = near_end.latency_ns.unwrap();
    assert!(latency.len() <= near.transactions && latency.max() < 60_000_000_000);
}

#[test]
fn a_connection_for_each_transaction_is_counted_at_both_ends() {
    let task = task("tcp_crr", &[("request_bytes", "10"), ("response_bytes", "3000")]);
    for ((near, near_end), (far, _)) in [over_loopback(&task), over_memory(&task)] {
        assert!(near.transactions > 0);
        assert_eq!(near.transactions, far.transactions);
        assert_eq!(near.received_bytes, near.transactions * 3000);
        assert!(near_end.latency_ns.unwrap().len() <= near.transactions);
    }
}

#[test]
fn datagrams_arrive_in_each_direction_and_from_several_threads() {
    let one = |direction| {
        task(
            "udp_stream",
            &[("direction", direction), ("datagram_bytes", "100"), ("send_mbit", "50")],
        )
    };
    let several = task("udp_pps", &[("direction", "both"), ("threads", "2")]);
    for (task, near_sends, far_sends) in [(one("send"), 1, 0), (one("recv"), 0, 1), (several, 2, 2)]
    {
        let ((near, _), (far, _)) = over_loopback(&task);
        for (sent, received, sends) in [
            (near.sent_bytes, far.received_bytes, near_sends),
            (far.sent_bytes, near.received_bytes, far_sends),
        ] {
            assert_eq!((sent > 0, received > 0), (sends > 0, sends > 0), "{task:?}");
            assert!(received <= sent, "{task:?}: {received} of {sent}");
        }
    }
    let task = task("udp_stream", &[("datagram_bytes", "1000"), ("send_mbit", "50")]);
    let ((near, _), (far, _)) = over_memory(&task);
    assert!(far.received_bytes > 0 && far.received_bytes <= near.sent_bytes);
}

#[test]
fn an_answer_in_datagrams_is_that_to_its_request() {
    let task = task("udp_rr", &[("request_bytes", "1"), ("response_bytes", "500")]);
    for ((near, near_end), (far, _)) in [over_loopback(&task), over_memory(&task)] {
        assert!(near.transactions > 0 && near.transactions <= far.transactions);
        assert_eq!(near.received_bytes, near.transactions * 500);
        assert!(near_end.counters.contains_key("transactions_repeated"));
    }
}

#[test]
fn a_soak_checks_every_byte_of_either_stack_beside_its_disk() {
    let task =
        task("soak", &[("direction", "both"), ("message_bytes", "100000"), ("disk_mib", "1")]);
    for ((near, near_end), (far, far_end)) in [over_loopback(&task), over_memory(&task)] {
        for (sent, received, end) in [
            (near.sent_bytes, far.received_bytes, &far_end),
            (far.sent_bytes, near.received_bytes, &near_end),
        ] {
            assert_eq!((sent, sent > 0), (received, true));
            let counted = |name: &str| end.counters[name];
            assert_eq!((counted("checked_bytes"), counted("wrong_bytes")), (sent as f64, 0.0));
        }
        assert!(near_end.counters["disk_written_bytes"] > 0.0);
        assert!(!far_end.counters.contains_key("disk_written_bytes"));
    }
}

#[test]
fn the_window_decides_which_latencies_are_kept() {
    let progress = Progress::default();
    assert!(!progress.in_window(1, 2), "no window yet");
    progress.set_window(10, 20);
    assert!(progress.in_window(10, 20));
    assert!(!progress.in_window(9, 12) && !progress.in_window(12, 21));
}
