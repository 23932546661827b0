use std::io::{ErrorKind, Read, Write};

use super::*;
use crate::local::{TcpListener, TcpStream, UdpSocket};

const FAR: &str = "10.0.0.2:80";

fn two(seed: u64, faults: Faults) -> (Simulation, Stack, Stack) {
    let simulation = Simulation::new(seed).unwrap();
    let (near, far) = (simulation.host().unwrap(), simulation.host().unwrap());
    simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), faults).unwrap();
    (simulation, near, far)
}

/// Moves a megabyte there over a bad path; returns the time it took and what the near end counted.
fn transfer(seed: u64) -> (Duration, String) {
    const BYTES: usize = 1 << 20;
    let delay = Duration::from_millis(20);
    let faults = Faults { loss: 0.05, duplicate: 0.02, delay, ..Faults::default() };
    let (simulation, near, far) = two(seed, faults);
    let listener = TcpListener::bind(&far, FAR, 1).unwrap();
    let mut client = TcpStream::connect(&near, FAR).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut buffer = [0; 8192];
    for _ in 0..BYTES / buffer.len() {
        client.write_all(&buffer).unwrap();
        server.read_exact(&mut buffer).unwrap();
    }
    drop(client);
    assert_eq!(server.read(&mut buffer).unwrap(), 0);
    let turns = near.engine().stats().turns;
    (simulation.now(), format!("{turns} turns"))
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let runs = [transfer(1), transfer(1), transfer(2)];
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[test]
fn timeouts_take_no_time_and_what_never_ends_is_an_error() {
    let begun = std::time::Instant::now();
    let (simulation, near, far) = two(1, Faults { loss: 1.0, ..Faults::default() });
    let _listener = TcpListener::bind(&far, FAR, 1).unwrap();
    let error = TcpStream::connect(&near, FAR).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(simulation.now() > Duration::from_secs(30), "{:?}", simulation.now());
    assert!(begun.elapsed() < simulation.now());
    let socket = UdpSocket::bind(&near, "10.0.0.1:9").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3600))).unwrap();
    let before = simulation.now();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(simulation.now() - before, Duration::from_secs(3600));
    socket.set_read_timeout(None).unwrap();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::Deadlock);
}

#[test]
fn a_shutdown_sees_through_what_was_written() {
    let (simulation, near, far) = two(3, Faults { loss: 0.1, ..Faults::default() });
    let listener = TcpListener::bind(&far, FAR, 1).unwrap();
    let mut client = TcpStream::connect(&near, FAR).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 30_000]).unwrap();
    assert!(near.shutdown().is_none());
    simulation.sleep(Duration::from_secs(1)).unwrap();
    let mut read = Vec::new();
    server.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), 30_000);
}

#[test]
fn mistakes_say_what_was_expected() {
    let (simulation, near, far) = two(1, Faults::default());
    let listener = TcpListener::bind(&near, "10.0.0.1:80", 1).unwrap();
    let told = [
        listener.accept().unwrap_err(),
        TcpListener::bind(&near, "10.0.0.7:80", 1).unwrap_err(),
        TcpStream::connect(&near, "192.0.2.1:80").unwrap_err(),
        simulation.join((&near, "here"), (&far, "10.0.1.2/24"), Faults::default()).unwrap_err(),
    ];
    for (told, expected) in told.iter().zip([
        "no timer is due",
        "not an address of this engine",
        "no route to the destination",
        "like 10.0.0.1/24",
    ]) {
        assert!(told.to_string().contains(expected), "{told}");
    }
}
