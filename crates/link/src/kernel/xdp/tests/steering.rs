//! Which packets a program of flows takes, by packets sent from the other end as they are.

use super::*;

/// Where the payload says its number.
const MARK: &[u8] = b"number ";

/// An Ethernet frame of one Internet packet.
struct Frame {
    to: IpAddr,
    protocol: u8,
    port: u16,
    /// Flags and offset of an IPv4 fragment.
    fragment: u16,
    /// Bytes of IPv4 options, or of a destination options header of IPv6.
    options: usize,
    tagged: bool,
}

impl Frame {
    fn to(to: &str, protocol: u8, port: u16) -> Self {
        let to = to.parse().unwrap();
        Self { to, protocol, port, fragment: 0, options: 0, tagged: false }
    }

    fn bytes(&self, mac: MacAddr, number: usize) -> Vec<u8> {
        let mut transport = vec![0, 9];
        transport.extend(self.port.to_be_bytes());
        transport.resize(if self.protocol == 6 { 20 } else { 8 }, 0);
        transport.extend(MARK);
        transport.push(number as u8);
        let mut frame = mac.0.to_vec();
        frame.extend([2, 0, 0, 0, 0, 9]);
        if self.tagged {
            frame.extend([0x81, 0, 0, 5]);
        }
        match self.to {
            IpAddr::V4(to) => {
                let header = 20 + self.options;
                frame.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
                frame.extend(((header + transport.len()) as u16).to_be_bytes());
                frame.extend([0, 1]);
                frame.extend(self.fragment.to_be_bytes());
                frame.extend([64, self.protocol, 0, 0]);
                frame.extend(HOST);
                frame.extend(to.octets());
                frame.resize(frame.len() + self.options, 1);
            }
            IpAddr::V6(to) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(((self.options + transport.len()) as u16).to_be_bytes());
                frame.extend([if self.options == 0 { self.protocol } else { 60 }, 64]);
                frame.extend("fd70::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
                frame.extend(to.octets());
                if self.options != 0 {
                    frame.extend([self.protocol, (self.options / 8 - 1) as u8, 1]);
                    frame.push((self.options - 4) as u8);
                    frame.resize(frame.len() + self.options - 4, 0);
                }
            }
        }
        frame.extend(transport);
        frame
    }
}

/// Packets, whether the program takes them, and whether it does where it is asked for ports
/// instead.
fn table() -> Vec<(Frame, bool, bool)> {
    let (ours, others) = ("10.70.0.2", "10.70.0.9");
    let (ours_v6, others_v6) = ("fd70::2", "fd70::9");
    let fragment = |fragment, to, protocol| Frame { fragment, ..Frame::to(to, protocol, 80) };
    vec![
        (Frame::to(ours, 17, 1), true, false),
        (Frame::to(ours, 6, 1), true, false),
        (Frame::to(ours, 132, 80), true, false),
        (Frame::to(others, 17, 1), false, false),
        (Frame::to(others, 6, 80), false, true),
        (Frame::to(others, 17, 80), false, false),
        (Frame::to(others, 17, 53), false, true),
        (Frame::to(others, 6, 53), false, false),
        (Frame::to(ours_v6, 6, 1), true, false),
        (Frame::to(others_v6, 6, 80), false, true),
        (Frame::to(others_v6, 17, 53), false, true),
        (Frame::to(others_v6, 17, 54), false, false),
        // Whole, with a flag that says so.
        (fragment(0x4000, others, 6), false, true),
        (fragment(0x2000, ours, 6), true, false),
        (fragment(0x2000, others, 6), false, false),
        (fragment(10, others, 6), false, false),
        (Frame { options: 8, ..Frame::to(others, 6, 80) }, false, true),
        (Frame { options: 40, ..Frame::to(ours, 17, 1) }, true, false),
        // Ports are not looked for behind an extension header, the address is where it always is.
        (Frame { options: 8, ..Frame::to(others_v6, 6, 80) }, false, false),
        (Frame { options: 8, ..Frame::to(ours_v6, 6, 80) }, true, false),
        // Tagged frames go to the kernel.
        (Frame { tagged: true, ..Frame::to(ours, 17, 1) }, false, false),
        (Frame { tagged: true, ..Frame::to(ours_v6, 6, 80) }, false, false),
    ]
}

#[test]
fn flows_are_told_by_address_and_by_port() {
    let Some(bench) = bench(1500, 1) else { return };
    let mac = bench.near.run(|| netdev::mac("ms0").unwrap()).unwrap();
    let whole = |address: &str| FlowMatch { address: Some(address.parse().unwrap()), port: None };
    let port = |protocol, port| FlowMatch { address: None, port: Some((protocol, port)) };
    let addresses = vec![whole("10.70.0.2"), whole("fd70::2")];
    let ports = vec![port(Protocol::TCP, 80), port(Protocol::UDP, 53)];
    let steer = Steer::Flows(addresses.clone());
    let Some(mut link) = bench.open(&XdpConfig { steer, ..bench.config() }) else { return };
    let far = RawConfig {
        interface: "ms1".into(),
        netns: Some(bench.far.path()),
        ..RawConfig::default()
    };
    let mut far = RawLink::open(&far).unwrap();
    for (flows, is_by_port) in [(addresses, false), (ports, true)] {
        link.steering().set(&Steer::Flows(flows)).unwrap();
        let table = table();
        for (number, (frame, ..)) in table.iter().enumerate() {
            let bytes = frame.bytes(mac, number);
            let mut batch = PacketBatch::new();
            batch.push(Packet::from_slice(&bench.pool, 64, &bytes).unwrap()).unwrap();
            far.transmit(Instant::ZERO, &bench.pool, &mut batch).unwrap();
            assert!(batch.is_empty());
        }
        let wanted: Vec<usize> = table
            .iter()
            .enumerate()
            .filter(|(_, (_, address, port))| if is_by_port { *port } else { *address })
            .map(|(number, _)| number)
            .collect();
        let numbers = |packets: Vec<Packet>| -> Vec<usize> {
            packets.iter().map(|packet| usize::from(*bytes(packet).last().unwrap())).collect()
        };
        let is_marked = |packet: &Packet| bytes(packet).windows(MARK.len()).any(|it| it == MARK);
        let got = receive(&mut link, &bench.pool, wanted.len(), is_marked);
        assert_eq!(numbers(got), wanted, "by port: {is_by_port}");
        // Packets come in order: what is left would be the last ones of the table.
        let mut batch = PacketBatch::new();
        link.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap();
        assert_eq!(numbers(batch.drain().filter(is_marked).collect()), []);
    }
}
