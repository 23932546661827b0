//! Several queues, polling inside our calls, and what is said where something cannot be had.

use super::*;

#[test]
fn large_frames_pass_through_every_queue_of_one_memory() {
    let Some(bench) = bench(9000, 2) else { return };
    let Some(mut links) = permitted(Xdp::open_queues(&bench.config(), &bench.pool, 2)) else {
        return;
    };
    let mut by_queue = [0; 2];
    for number in 0..16_u8 {
        // Each flow goes to a queue of its own choice.
        let host = socket(&bench.far, (IpAddr::from(HOST), 6100 + u16::from(number)).into());
        host.send_to(&vec![number; 8800], (IpAddr::from(OURS), 9)).unwrap();
        let found = (0..2000).find_map(|_| {
            for (queue, link) in links.iter_mut().enumerate() {
                let mut batch = PacketBatch::new();
                link.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap();
                if let Some(packet) = batch.drain().find(is_udp_v4) {
                    return Some((queue, packet));
                }
            }
            poll(&mut [], Some(Duration::from_millis(5))).unwrap();
            None
        });
        let (queue, packet) = found.expect("the frame");
        assert_eq!(payload(&packet), vec![number; 8800]);
        assert!(packet.frame_count() > 1);
        by_queue[queue] += 1;
        let shape = datagram(&bench, 8700);
        let back = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
        send(&mut links[queue], &bench.pool, vec![shape.build(&bench.pool)]);
        assert_eq!(back.recv(&mut vec![0; 10_000]).unwrap(), 8700);
    }
    assert!(by_queue.iter().all(|&count| count > 0), "{by_queue:?}");
    drop(links);
    assert_eq!(bench.pool.stats().used_frames, 0);
}

#[test]
fn the_kernel_polls_inside_our_calls_when_asked_to() {
    let Some(bench) = bench(1500, 1) else { return };
    let poll_so = BusyPoll { time: Duration::from_micros(5), budget: 16 };
    let config = XdpConfig { busy_poll: Some(poll_so), ..bench.config() };
    let Some(mut link) = bench.open(&config) else { return };
    if let Some(note) = link.notes().iter().find(|note| note.contains("no busy polling")) {
        return println!("skipped: {note}");
    }
    let option = |level, name| {
        let (mut value, mut size) = (0_i32, 4);
        // SAFETY: the pointers are to a live int and its size.
        let got = unsafe {
            let fd = link.socket.fd.as_raw_fd();
            libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut size)
        };
        assert_eq!(got, 0);
        value
    };
    // SO_PREFER_BUSY_POLL and SO_BUSY_POLL; the budget cannot be read.
    assert_eq!([69, 46].map(|name| option(libc::SOL_SOCKET, name)), [1, 5]);
    let host = bench.far_socket(HOST);
    for round in 0..20_u8 {
        for _ in 0..10 {
            host.send_to(&[round; 60], (IpAddr::from(OURS), 9)).unwrap();
        }
        let got = receive(&mut link, &bench.pool, 10, is_udp_v4);
        assert_eq!(got.iter().map(payload).collect::<Vec<_>>(), vec![[round; 60]; 10]);
    }
    while link.receive(Instant::ZERO, &bench.pool, &mut PacketBatch::new()).unwrap() > 0 {}
    let before = link.stats().rx_syscalls;
    link.receive(Instant::ZERO, &bench.pool, &mut PacketBatch::new()).unwrap();
    assert!(link.stats().rx_syscalls > before, "a look that finds nothing is a call");
}

#[test]
fn a_refusal_says_why() {
    let Some(bench) = bench(1500, 2) else { return };
    let config = bench.config();
    let refusal = |config: &XdpConfig, queues| match Xdp::open_queues(config, &bench.pool, queues) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("queue {} of two", config.queue),
    };
    let Some(first) = bench.open(&config) else { return };
    assert!(refusal(&config, 1).contains("(the interface has another one)"));
    drop(first);
    let error = refusal(&config, 3);
    assert!(error.contains("queue 2 of ms0 (is there such a queue? several"), "{error}");
    let error = refusal(&XdpConfig { queue: 7, ..config }, 1);
    assert!(error.contains("queue 7 of ms0 (is there such a queue?)"), "{error}");
    let invalid = std::io::Error::from_raw_os_error(libc::EINVAL);
    assert!(open::why(&invalid, false, true).contains("multi-buffer of Linux 6.6"));
}
