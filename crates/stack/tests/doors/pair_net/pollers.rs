//! Pollers: who enters and leaves, and how they are woken.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::time::Duration;

use millstream::link::PairConfig;
use millstream::net::{Poller, UdpSocket};
use millstream_link::sys::{self, PollEntry};

use super::waits::PATIENCE;
use super::{far_addr, stacks};

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn another_thread_ends_the_wait_of_a_poller() {
    let (near, _far) = stacks(PairConfig::default());
    let poller = Poller::new(&near);
    let mut events = Vec::new();
    // Before, and meanwhile.
    poller.wake();
    poller.wait(None, &mut events).expect("a wait");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                poller.wake();
                std::thread::yield_now();
            }
        });
        poller.wait(None, &mut events).expect("a wait");
    });
    assert!(events.is_empty());
}

/// Returns true if the descriptor can be read within `time`.
fn can_be_read(poller: &Poller, time: Duration) -> bool {
    let descriptor = poller.descriptor().expect("a descriptor").as_raw_fd();
    sys::poll(&mut [PollEntry::readable(descriptor)], Some(time)).expect("a poll") != 0
}

/// Takes all news of a poller, until its descriptor says that there is no more.
fn news(poller: &Poller) -> Vec<usize> {
    let mut events = Vec::new();
    for _ in 0..100 {
        poller.wait(Some(Duration::ZERO), &mut events).expect("a wait");
        if !can_be_read(poller, Duration::ZERO) {
            return events.into_iter().map(|(token, _)| token).collect();
        }
    }
    panic!("it can be read for ever");
}

#[test]
fn a_poller_is_waited_for_by_its_descriptor() {
    let (near, far) = stacks(PairConfig::default());
    let poller = Poller::new(&far);
    let socket = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    poller.add(&socket, 1).expect("add");
    assert!(can_be_read(&poller, Duration::ZERO), "it is named at the beginning");
    assert_eq!(news(&poller), [1]);
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    for _ in 0..100 {
        client.send_to(b"news", far_addr(53)).expect("send");
        assert!(can_be_read(&poller, PATIENCE));
        assert_eq!(news(&poller), [1]);
        assert_eq!(socket.recv(&mut [0; 8]).expect("the datagram"), 4);
    }
    poller.wake();
    assert!(can_be_read(&poller, Duration::ZERO));
    assert!(news(&poller).is_empty());
}

#[test]
fn a_socket_goes_from_one_poller_to_another() {
    let (near, far) = stacks(PairConfig::default());
    let [first, second] = [(); 2].map(|()| Poller::new(&far));
    let socket = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    first.add(&socket, 1).expect("add");
    assert_eq!(kind(second.add(&socket, 2)), Some(ErrorKind::InvalidInput), "it has one");
    assert_eq!(kind(second.remove(&socket)), Some(ErrorKind::InvalidInput), "that is another");
    first.remove(&socket).expect("remove");
    second.add(&socket, 2).expect("add");
    assert_eq!((news(&first), news(&second)), (vec![], vec![2]));
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    client.send_to(b"news", far_addr(53)).expect("send");
    assert!(can_be_read(&second, PATIENCE));
    assert_eq!((news(&first), news(&second)), (vec![], vec![2]));
    drop(second);
    first.add(&socket, 3).expect("the other is gone");
    assert_eq!(news(&first), [3]);
}
