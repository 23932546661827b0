//! `millstream impair` between two namespaces, seen from the kernels at its ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millstream_netlink::Netlink;
use millstream_testbed::namespace::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use nix::unistd::Pid;

use crate::common::{hosts_possible, wait_for};

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// Longest wait for events that are certain to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two namespaces and the command that joins them.
struct Joined {
    near: Namespace,
    far: Namespace,
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Joined {
    fn new(options: &[&str]) -> Self {
        let near = Namespace::create("ms-near").unwrap();
        let far = Namespace::create("ms-far").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_millstream"))
            .args(["impair", "ms-imp-a", "ms-imp-b", "--seed", "7"])
            .args(["--address-a", "10.9.0.1/24", "--address-b", "10.9.0.2/24"])
            .arg("--netns-a")
            .arg(near.path())
            .arg("--netns-b")
            .arg(far.path())
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("seed 7"));
        assert!(ready, "it did not begin");
        Self { near, far, child, lines }
    }

    /// Ends it by SIGINT and gives its rows: name, forth and back.
    fn summary(mut self) -> Summary {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        let text: Vec<String> = self.lines.by_ref().map_while(Result::ok).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{text:?}");
        assert_eq!(self.devices(), Vec::<String>::new(), "nothing stays");
        Summary(text)
    }

    /// Its devices, in both namespaces.
    fn devices(&self) -> Vec<String> {
        let names = || -> Vec<String> {
            let all = Netlink::route().unwrap().interfaces().unwrap();
            all.into_iter().map(|one| one.name).filter(|name| name.starts_with("ms-imp")).collect()
        };
        [self.near.run(names), self.far.run(names)].concat()
    }

    fn socket(&self, host: &Namespace, address: IpAddr) -> UdpSocket {
        let socket = host.run(move || UdpSocket::bind((address, 0)).unwrap());
        setsockopt(&socket, RcvBufForce, &(16 << 20)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Summary(Vec<String>);

impl Summary {
    fn row(&self, name: &str) -> (u64, u64) {
        let line = self
            .0
            .iter()
            .find_map(|line| line.trim().strip_prefix(name).filter(|rest| rest.starts_with("  ")));
        let line = line.unwrap_or_else(|| panic!("no row '{name}' in {:#?}", self.0));
        let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }
}

#[test]
fn delay_and_loss_are_what_the_far_side_sees() {
    if !hosts_possible() {
        return;
    }
    const SENT: u32 = 3000;
    /// Sent last, until one has come: what was sent before it has come then, or never will.
    const END: u32 = SENT;
    let joined = Joined::new(&[
        "--delay",
        "20ms",
        "--a-to-b",
        "loss=10%,duplicate=5%",
        "--b-to-a",
        "delay=5ms",
    ]);
    let near = joined.socket(&joined.near, NEAR);
    let far = joined.socket(&joined.far, FAR);
    let to = far.local_addr().unwrap();
    // Resolve the neighbours, whatever is lost of it.
    let mut word = [0; 4];
    far.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    wait_for("a first datagram", || {
        near.send_to(&u32::MAX.to_be_bytes(), to).unwrap();
        far.recv_from(&mut [0; 4]).is_ok()
    });
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    // Where the machine takes the CPU from the bridge between its clock and its read, one has come
    // before its time.
    let mut delays = [(); 5].map(|()| {
        let begun = Instant::now();
        far.send_to(b"back", near.local_addr().unwrap()).unwrap();
        near.recv_from(&mut word).unwrap();
        begun.elapsed()
    });
    delays.sort();
    assert!(delays[2] >= Duration::from_millis(5), "{delays:?}");
    let begun = Instant::now();
    let ended = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&ended);
    let sender = std::thread::spawn(move || {
        for number in 0..SENT {
            near.send_to(&number.to_be_bytes(), to).unwrap();
            if number % 20 == 19 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        while !is_over.load(Ordering::Relaxed) {
            near.send_to(&END.to_be_bytes(), to).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut times = vec![0_u32; SENT as usize];
    let mut total = 0;
    loop {
        far.recv_from(&mut word).unwrap();
        match u32::from_be_bytes(word) {
            END => break,
            number @ 0..SENT => {
                assert!(begun.elapsed() >= Duration::from_millis(20), "{:?}", begun.elapsed());
                times[number as usize] += 1;
                total += 1;
            }
            // One of the first.
            _ => {}
        }
    }
    ended.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    let missing = times.iter().filter(|&&n| n == 0).count() as u64;
    let copies = total - (u64::from(SENT) - missing);
    let summary = joined.summary();
    // Beside the datagrams there is neighbour discovery.
    let (entered, _) = summary.row("entered");
    let others = entered - u64::from(SENT);
    let agrees = |seen: u64, said: u64| (seen..=seen + others).contains(&said);
    assert!(others < 200, "{entered} entered");
    let (lost, duplicated) = (summary.row("lost at random"), summary.row("duplicated"));
    assert!(agrees(missing, lost.0), "{missing} missing, {lost:?} lost");
    assert!(agrees(copies, duplicated.0), "{copies} copies, {duplicated:?} made");
    assert!((150..=450).contains(&missing), "about 10 % of {SENT}: {missing}");
    assert_eq!((lost.1, duplicated.1), (0, 0), "the way back is another");
    let passed = summary.row("passed on").0;
    // Some of the last datagrams, sent to find the end, may not have arrived.
    let under_way = summary.row("on the way at the end").0;
    assert_eq!(passed + under_way + lost.0, entered + duplicated.0);
    // The others may have been duplicated, too.
    assert!((total..=total + 2 * others).contains(&passed), "{total} arrived, {passed} passed on");
}

#[test]
fn kernel_tcp_gets_through_every_fault_unharmed() {
    if !hosts_possible() {
        return;
    }
    let joined = Joined::new(&[
        "--delay=2ms",
        "--jitter=1ms",
        "--loss=1%",
        "--reorder=5%",
        "--duplicate=1%",
        "--corrupt=0.5%",
        "--rate=400mbit",
        "--queue=512KiB",
    ]);
    let listener = joined.far.run(|| TcpListener::bind((FAR, 0)).unwrap());
    let to: SocketAddr = listener.local_addr().unwrap();
    let data: Vec<u8> = (0..4_000_000_u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    let expected = data.clone();
    let sender = std::thread::spawn({
        let mut stream = joined.near.run(move || TcpStream::connect(to).unwrap());
        move || stream.write_all(&data).unwrap()
    });
    let mut received = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == expected, "{} bytes arrived", received.len());
    let summary = joined.summary();
    for row in ["lost at random", "duplicated", "corrupted", "held back (reordered)"] {
        assert!(summary.row(row).0 > 0, "{row}");
    }
    let (entered, lost) = (summary.row("entered").0, summary.row("lost at random").0);
    let (full, copies) = (summary.row("dropped, queue full").0, summary.row("duplicated").0);
    let (passed, held) = (summary.row("passed on").0, summary.row("on the way at the end").0);
    assert_eq!(entered + copies, lost + full + passed + held);
}

#[test]
fn ping_sees_the_delay_of_both_ways() {
    if !hosts_possible() {
        return;
    }
    let joined = Joined::new(&["--delay", "20ms", "--quiet"]);
    let ping = || {
        let arguments = ["-n", "-c", "5", "-i", "0.2", "10.9.0.2"];
        Command::new("ping").args(arguments).output()
    };
    let Ok(output) = joined.near.run(ping) else {
        eprintln!("skipped: no ping(8) here");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let times = text.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next());
    let times: Vec<f64> = times.map(|time| time.parse().unwrap()).collect();
    assert!(times.len() == 5 && times.iter().all(|&ms| ms >= 40.0), "{text}");
}

#[test]
fn killed_it_leaves_no_device() {
    if !hosts_possible() {
        return;
    }
    let mut joined = Joined::new(&[]);
    assert_eq!(joined.devices(), ["ms-imp-a", "ms-imp-b"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", joined.child.id())).unwrap();
    if nix::unistd::geteuid().is_root() {
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "root is given up");
    }
    joined.child.kill().unwrap();
    joined.child.wait().unwrap();
    assert_eq!(joined.devices(), Vec::<String>::new());
}

#[test]
fn a_given_duration_ends_it() {
    if !hosts_possible() {
        return;
    }
    let Joined { child, .. } = &mut Joined::new(&["--duration", "0.3"]);
    assert_eq!(child.wait().unwrap().code(), Some(0), "the time given is kept to");
}

#[test]
fn what_is_refused_is_one_line_with_what_to_do() {
    let cases: [(&[&str], &str); 28] = [
        (&["a"], "<B>"),
        (&["a", "a"], "give two names"),
        (&["a", "b", "--delay", "20"], "write 20ms"),
        (&["a", "b", "--delay", "-1ms"], "'-1ms' is not a time"),
        (&["a", "b", "--loss", "-1%"], "write 1%"),
        (&["a", "b", "--a-to-b", "delay=1ms,delay=2ms"], "'--a-to-b' has delay twice"),
        (&["a", "b", "--b-to-a", "queue=8KB,queue=9packets"], "'--b-to-a' has queue twice"),
        (&["a", "b", "--reorder-by", "3ms"], "reorder-by without reorder"),
        (&["a", "b", "--a-to-b", "reorder-by=3ms"], "reorder-by without reorder"),
        (&["a", "b", "--reorder", "0%", "--reorder-by", "3ms"], "reorder-by without reorder"),
        (&["a", "b", "--queue", "8KB"], "queue without rate"),
        (&["a", "b", "--queue", "9packets", "--delay", "1ms"], "give a rate, as rate=100mbit"),
        (&["a", "b", "--b-to-a", "queue=9packets"], "queue without rate"),
        (&["a", "b", "--a-to-b", "rate=1gbit", "--b-to-a", "queue=8KB"], "queue without rate"),
        // A setting for both directions is of use in one, and one that is off is no use there: on
        // to the names.
        (&["a/b", "c", "--queue", "8KB", "--a-to-b", "rate=1gbit"], "cannot be the name"),
        (
            &["a/b", "c", "--reorder", "1%", "--reorder-by", "3ms", "--b-to-a", "reorder=0%"],
            "cannot be the name",
        ),
        (&["a", "b", "--loss", "1"], "write 1%"),
        (&["a", "b", "--rate", "1gb"], "write 1gbit"),
        (&["a", "b", "--seed", "-1"], "write a whole number"),
        (&["a", "b", "--queue", "7"], "write 256KB"),
        (&["a", "b", "--a-to-b", "lag=1s"], "allowed: delay, jitter"),
        (&["a", "b", "--netns-a", "no-such"], "ip netns add"),
        (&["a", "b", "--mtu", "-1"], "'-1' for '--mtu <BYTES>'"),
        (&["a", "b", "--mtu", "67"], "67 is not in 68..=65535"),
        (&["a", "b", "--mtu", "65535"], "MTU 65535: 68 to 65521 can be"),
        (
            &["a", "b", "--mtu", "576", "--address-a", "fd00::1/64"],
            "IPv6 takes an MTU of 1280 at least",
        ),
        (&["a/b", "c"], "cannot be the name"),
        (&["a", "b", "--address-a", "10.0.0.1"], "write 10.0.0.1/24"),
    ];
    for (arguments, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        let output = command.arg("impair").args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("millstream: ") && error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
