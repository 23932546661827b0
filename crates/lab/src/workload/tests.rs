use super::*;
use crate::transport::KernelNetwork;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Runs a task over the kernel's loopback for a moment and gives what both
/// ends counted at the very end.
fn over_loopback(task: Task) -> ((Counts, Outcome), (Counts, Outcome)) {
    let address: IpAddr = Ipv4Addr::LOCALHOST.into();
    let (tell, told) = std::sync::mpsc::channel();
    let (near, far) = (Arc::new(Progress::default()), Arc::new(Progress::default()));
    let progress = far.clone();
    let server = thread::spawn(move || {
        let mut network = KernelNetwork::new().unwrap();
        let listening = task.listen(&mut network, address).unwrap();
        tell.send(listening.ports).unwrap();
        listening.accept(&mut network).unwrap().run(&mut network, &progress).unwrap()
    });
    let ports = told.recv().unwrap();
    let progress = near.clone();
    let client = thread::spawn(move || {
        let mut network = KernelNetwork::new().unwrap();
        let session = task.connect(&mut network, address, ports).unwrap();
        session.run(&mut network, &progress).unwrap()
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
    for (near_sends, far_sends) in [(1, 0), (0, 1), (1, 1), (5, 0), (0, 5), (3, 3)] {
        let task = Task::Stream { near_sends, far_sends, message_bytes: 10_000 };
        let ((near, near_end), (far, far_end)) = over_loopback(task);
        assert_eq!(near.sent_bytes, far.received_bytes, "{task:?}");
        assert_eq!(far.sent_bytes, near.received_bytes, "{task:?}");
        assert_eq!(near.sent_bytes > 0, near_sends > 0, "{task:?}");
        assert_eq!(far.sent_bytes > 0, far_sends > 0, "{task:?}");
        assert_eq!(near_end.tcp_info.len(), near_sends + far_sends);
        assert!(far_end.tcp_info.iter().all(|info| info.fields.contains_key("srtt_us")));
    }
}

#[test]
fn transactions_are_counted_and_timed_at_the_asking_end() {
    let task = Task::RequestResponse { request_bytes: 100, response_bytes: 3000 };
    let ((near, near_end), (far, _)) = over_loopback(task);
    assert!(near.transactions > 0);
    assert_eq!(near.transactions, far.transactions);
    assert_eq!(near.received_bytes, near.transactions * 3000);
    assert_eq!(far.received_bytes, near.transactions * 100);
    let latency = near_end.latency_ns.unwrap();
    assert!(latency.len() <= near.transactions && latency.max() < 60_000_000_000);
}

#[test]
fn the_window_decides_which_latencies_are_kept() {
    let progress = Progress::default();
    assert!(!progress.in_window(1, 2), "no window yet");
    progress.set_window(10, 20);
    assert!(progress.in_window(10, 20));
    assert!(!progress.in_window(9, 12) && !progress.in_window(12, 21));
}
