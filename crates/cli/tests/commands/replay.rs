//! `millstream replay` into a namespace, seen from a socket of its kernel.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use millstream_link::netdev;
use millstream_testbed::namespace::Namespace;

use crate::common::{Place, hosts_possible};

const PORT: u16 = 7000;

/// An IPv4 packet with a datagram for 10.9.1.1, without a UDP checksum.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let total = (28 + payload.len()) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 1, 2, 10, 9, 1, 1];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let mut sum: u32 =
        ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    for half in [6999, PORT, total - 20, 0] {
        ip.extend_from_slice(&half.to_be_bytes());
    }
    ip.extend_from_slice(payload);
    ip
}

/// A capture in the older format with nanoseconds: packets a second apart.
fn capture(link_type: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, link_type] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (second, packet) in packets.iter().enumerate() {
        for word in [second, 5, packet.len(), packet.len()] {
            file.extend_from_slice(&(word as u32).to_le_bytes());
        }
        file.extend_from_slice(packet);
    }
    file
}

fn on_ethernet(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xee, 2, 0, 0, 0, 0, 0xdd, 8, 0];
    frame.extend_from_slice(packet);
    frame
}

fn run(netns: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millstream"))
        .arg("replay")
        .args(arguments)
        .arg("--netns")
        .arg(netns)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn heard(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2000];
    let mut next = || socket.recv(&mut buffer).map(|n| buffer[..n].to_vec()).unwrap();
    (0..count).map(|_| next()).collect()
}

#[test]
fn into_a_device_with_and_without_ethernet_headers_and_round_again() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("replay");
    let payloads: Vec<Vec<u8>> = [&b"one"[..], b"two", b"three"].map(<[u8]>::to_vec).into();
    let packets: Vec<_> = payloads.iter().map(|payload| datagram(payload)).collect();
    let frames: Vec<_> = packets.iter().map(|packet| on_ethernet(packet)).collect();
    for (kind, link_type, packets, more) in
        [("ethernet", 1, frames, &["--to-mac", "device"][..]), ("ip", 101, packets, &[])]
    {
        let host = Namespace::create("ms-replay").unwrap();
        let file = place.folder.join(format!("{kind}.pcap"));
        std::fs::write(&file, capture(link_type, &packets)).unwrap();
        // Bound to any address: the device is not there yet.
        let socket = host.run(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let file = file.to_str().unwrap();
        let arguments = [
            &[
                file,
                "--tap",
                "ms-rep",
                "--address",
                "10.9.1.1/24",
                "--speed",
                "100",
                "--rounds",
                "2",
            ],
            more,
        ]
        .concat();
        let output = run(host.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains(": 6 packets, "), "{}", text(&output));
        assert_eq!(heard(&socket, 6), [&payloads[..], &payloads[..]].concat());
    }
}

#[test]
fn out_of_an_interface_as_fast_as_it_goes() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("replay-interface");
    let [near, far] = ["ms-rep-near", "ms-rep-far"].map(|name| Namespace::create(name).unwrap());
    let there = netdev::Namespace::open(far.path()).unwrap();
    near.run(move || {
        netdev::add_veth("ms0", "ms1", Some(&there), 1).unwrap();
        netdev::set_up("ms0").unwrap();
    });
    let mac = far.run(|| {
        netdev::set_up("ms1").unwrap();
        netdev::set_address("ms1", "10.9.1.1".parse().unwrap(), 24).unwrap();
        netdev::mac("ms1").unwrap()
    });
    let socket = far.run(|| UdpSocket::bind(("10.9.1.1", PORT)).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let payloads: Vec<Vec<u8>> = (0..100_u8).map(|i| vec![i; 1 + usize::from(i)]).collect();
    let frames: Vec<_> = payloads.iter().map(|p| on_ethernet(&datagram(p))).collect();
    let file = place.folder.join("many.pcap");
    std::fs::write(&file, capture(1, &frames)).unwrap();
    let arguments =
        [file.to_str().unwrap(), "--interface", "ms0", "--fast", "--to-mac", &mac.to_string()];
    let output = run(near.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(heard(&socket, 100), payloads);
}

/// Nobody has received anything, so it has not done what it was asked for.
#[test]
fn an_interface_that_is_down_and_takes_nothing_is_a_failure() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("replay-down");
    let host = Namespace::create("ms-rep-down").unwrap();
    host.run(|| netdev::add_veth("ms0", "ms1", None, 1).unwrap());
    let file = place.folder.join("down.pcap");
    std::fs::write(&file, capture(1, &[on_ethernet(&datagram(b"lost"))])).unwrap();
    let output = run(host.path(), &[file.to_str().unwrap(), "--interface", "ms0", "--fast"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("millstream: 'ms0' took none of the 1 packets"), "{text}");
}

/// Packets before the damage are counted, and the last line names the damage.
#[test]
fn a_capture_that_is_damaged_in_the_middle_is_replayed_up_to_there() {
    if !hosts_possible() {
        return;
    }
    let place = Place::new("replay-damaged");
    let file = place.folder.join("damaged.pcap");
    let mut bytes = capture(101, &[datagram(b"whole"), datagram(b"too")]);
    bytes.extend_from_slice(&[0xff; 16]);
    std::fs::write(&file, bytes).unwrap();
    let host = Namespace::create("damaged").unwrap();
    let output = run(host.path(), &[file.to_str().unwrap(), "--tap", "msd", "--fast"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("damaged.pcap: 2 packets, "), "{text}");
    assert!(text.lines().last().unwrap().ends_with("a block is too long"), "{text}");
}

#[test]
fn what_cannot_be_replayed_is_said_in_one_line() {
    let place = Place::new("replay-refused");
    let ip = place.folder.join("ip.pcap");
    std::fs::write(&ip, capture(101, &[datagram(b"x")])).unwrap();
    let junk = place.write("junk.pcap", "this is no capture");
    let (ip, junk) = (ip.to_str().unwrap(), junk.to_str().unwrap());
    let here = Path::new("/proc/self/ns/net");
    for (arguments, expected) in [
        (&["/nowhere.pcap", "--interface", "lo"][..], "open /nowhere.pcap"),
        (&[junk, "--interface", "lo"], "neither pcap-ng nor pcap"),
        (&[ip, "--interface", "lo"], "has no Ethernet headers"),
        (&[ip, "--interface", "lo", "--speed", "0"], "not a factor"),
        (&[ip, "--interface", "lo", "--rounds", "-1"], "write a whole number"),
        (&[ip, "--interface", "lo", "--address", "10.9.1.1/24"], "cannot be used with"),
        (&[ip], "required"),
    ] {
        let output = run(here, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(expected) && text.trim_end().lines().count() == 1, "{text}");
    }
}
