//! The size of datagrams behind a path that carries less than the link, and the hop limit of what goes to groups.

mod common;
#[path = "common/icmp_error.rs"]
mod icmp_error;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use common::{NEAR, config, engine, pool};
use icmp_error::{Bytes, about};
use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch};
use millstream::wire::ip::{self, Version};
use millstream::{DatagramToSend, Engine, Error, Fragmentation, SocketId};

struct World {
    engine: Engine,
    wire: PairEnd,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let link = PairConfig { offload: false, medium: Medium::Ip, ..PairConfig::default() };
        let (near, wire) = pair(link).expect("a pair");
        let mut engine = engine(config(&pool(), 1), near, &NEAR);
        let now = engine.refresh_time();
        Self { engine, wire, now }
    }

    fn sent(&mut self) -> Vec<Bytes> {
        while self.engine.turn(self.now).progress {}
        let mut batch = PacketBatch::new();
        self.wire.receive(self.now, self.engine.pool(), &mut batch).expect("a batch");
        let bytes = |packet: Packet| packet.slices().flatten().copied().collect();
        std::iter::from_fn(|| batch.pop()).map(bytes).collect()
    }

    /// A router says that `packet` is too big.
    fn too_big(&mut self, packet: &[u8], mtu: u16) {
        let (kind, code) = match ip::parse_quoted(packet).expect("an IP packet").version() {
            Version::V4 => (3, 4),
            Version::V6 => (2, 0),
        };
        let bytes = about(packet, (kind, code, mtu.into()));
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(self.engine.pool(), 0, &bytes).expect("frames");
        assert!(batch.push(packet).is_ok());
        self.wire.transmit(self.now, self.engine.pool(), &mut batch).expect("sent");
        while self.engine.turn(self.now).progress {}
    }

    fn socket(&mut self, peer: Option<SocketAddr>) -> SocketId {
        let socket = self.engine.udp_bind("[::]:0".parse().expect("any")).expect("bind");
        self.engine.udp_set_fragmentation(socket, Fragmentation::Never).expect("a socket");
        if let Some(peer) = peer {
            self.engine.udp_connect(socket, peer).expect("connect");
        }
        socket
    }
}

fn peer(is_v6: bool, last: u8) -> SocketAddr {
    let text = if is_v6 { format!("[fd09::{last}]:9") } else { format!("10.9.0.{last}:9") };
    text.parse().expect("an address")
}

#[test]
fn what_the_path_does_not_carry_is_refused_and_nothing_else() {
    for (is_v6, is_connected) in [(false, false), (false, true), (true, false), (true, true)] {
        eprintln!("IPv6 {is_v6}, connected {is_connected}");
        let mut world = World::new();
        let to = peer(is_v6, 2);
        let socket = world.socket(is_connected.then_some(to));
        let named = (!is_connected).then_some(to);
        let fits = 1280 - 8 - if is_v6 { 40 } else { 20 };
        let data = [7; 1400];
        // By the long way, by the way to find headers, and by those.
        for _ in 0..3 {
            world.engine.udp_send(socket, &data, named).expect("sent");
        }
        let packets = world.sent();
        assert_eq!((packets.len(), world.engine.path_mtu(to.ip())), (3, Ok(1500)));
        world.too_big(&packets[2], 1280);
        assert_eq!(world.engine.path_mtu(to.ip()), Ok(1280));
        for _ in 0..2 {
            assert_eq!(world.engine.udp_recv(socket, &mut [0; 9]), Err(Error::WouldBlock));
            let refused = Err(Error::MessageTooLong);
            assert_eq!(world.engine.udp_send(socket, &data, named), refused);
            assert_eq!(world.engine.udp_send(socket, &data[..fits + 1], named), refused);
            world.engine.udp_send(socket, &data[..fits], named).expect("sent");
            let list =
                [fits, fits, 1400].map(|len| DatagramToSend { data: &data[..len], to: named });
            assert_eq!(world.engine.udp_send_many(socket, &list), Ok(2));
            let segmented = world.engine.udp_send_segmented(socket, &data, 1300, named);
            assert_eq!(segmented, refused);
        }
        assert_eq!(world.sent().len(), 6);
        // Not to others.
        let other = world.socket(None);
        world.engine.udp_send(other, &data, Some(peer(is_v6, 3))).expect("sent");
        assert_eq!(world.sent().len(), 1);
        // RFC 1191, 6.3: for ten minutes.
        world.now += Duration::from_secs(599);
        world.engine.turn(world.now);
        assert_eq!(world.engine.udp_send(socket, &data, named), Err(Error::MessageTooLong));
        world.now += Duration::from_secs(1);
        world.engine.turn(world.now);
        assert_eq!(world.engine.path_mtu(to.ip()), Ok(1500));
        world.engine.udp_send(socket, &data, named).expect("sent");
        assert_eq!(world.sent().len(), 1);
    }
}

#[test]
fn all_sockets_and_echoes_to_one_destination_know_its_path() {
    let mut world = World::new();
    let to = peer(false, 2);
    let (one, two) = (world.socket(Some(to)), world.socket(Some(to)));
    let echo = world.engine.icmp_bind(0).expect("a socket");
    for socket in [one, two, two, two] {
        world.engine.udp_send(socket, &[7; 1400], None).expect("sent");
    }
    world.engine.icmp_send_echo(echo, to.ip(), 1, &[7; 1400]).expect("sent");
    let packets = world.sent();
    // About an echo as about a datagram.
    world.too_big(&packets[4], 1300);
    let refused = Err(Error::MessageTooLong);
    for (mtu, len) in [(1300, 1273), (1000, 973)] {
        assert_eq!(world.engine.path_mtu(to.ip()), Ok(mtu));
        for socket in [one, two] {
            assert_eq!(world.engine.udp_send(socket, &vec![7; len], None), refused);
            world.engine.udp_send(socket, &vec![7; len - 1], None).expect("sent");
        }
        // It goes in fragments.
        world.sent();
        world.engine.icmp_send_echo(echo, to.ip(), 1, &vec![7; len]).expect("sent");
        let parts: Vec<usize> = world.sent().iter().map(Vec::len).collect();
        assert!(parts.len() == 2 && parts.iter().all(|&part| part <= mtu), "{parts:?}");
        world.too_big(&packets[0], 1000);
    }
}

#[test]
fn what_no_socket_has_sent_or_was_not_too_big_says_nothing() {
    let mut world = World::new();
    let to = peer(false, 2);
    let socket = world.socket(Some(to));
    world.engine.udp_send(socket, &[7; 1400], None).expect("sent");
    let sent = world.sent().remove(0);
    let mut of_another = sent.clone();
    of_another[21] ^= 1;
    world.too_big(&of_another, 600);
    let mut small = sent.clone();
    small[2..4].copy_from_slice(&500_u16.to_be_bytes());
    world.too_big(&small, 400);
    let mut impossible = sent.clone();
    impossible[2..4].copy_from_slice(&2000_u16.to_be_bytes());
    world.too_big(&impossible, 1400);
    assert_eq!(world.engine.path_mtu(to.ip()), Ok(1500));
    // No path carries less than 552 bytes, or 1,280 of IPv6.
    world.too_big(&sent, 60);
    assert_eq!(world.engine.path_mtu(to.ip()), Ok(552));
}

/// The hop limits of what a socket sends to a host and to a group, three times each.
fn hops(world: &mut World, socket: SocketId, host: SocketAddr, group: SocketAddr) -> Vec<u8> {
    for to in [host, group].into_iter().flat_map(|to| [to; 3]) {
        world.engine.udp_send(socket, b"hello", Some(to)).expect("sent");
    }
    world.engine.udp_send_segmented(socket, b"hello", 2, Some(group)).expect("sent");
    let header = |bytes: &Bytes| ip::parse(bytes, bytes.len()).expect("an IP packet");
    world.sent().iter().map(|bytes| header(bytes).hop_limit).collect()
}

#[test]
fn what_goes_to_a_group_stays_on_the_link_unless_asked_for() {
    for (host, group) in [("10.9.0.2:9", "224.0.0.251:5353"), ("[fd09::2]:9", "[ff02::fb]:5353")] {
        let [host, group]: [SocketAddr; 2] =
            [host, group].map(|to| to.parse().expect("an address"));
        let mut world = World::new();
        let socket = world.socket(None);
        assert_eq!(hops(&mut world, socket, host, group), [64, 64, 64, 1, 1, 1, 1, 1, 1]);
        world.engine.udp_set_hop_limits(socket, None, Some(9)).expect("set");
        assert_eq!(hops(&mut world, socket, host, group), [64, 64, 64, 9, 9, 9, 9, 9, 9]);
        world.engine.udp_set_hop_limits(socket, Some(3), None).expect("set");
        assert_eq!(hops(&mut world, socket, host, group), [3, 3, 3, 9, 9, 9, 9, 9, 9]);
        assert_eq!(world.engine.udp_hop_limits(socket), Ok([3, 9]));
        let refused = world.engine.udp_set_hop_limits(socket, None, Some(0));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        let echo = world.engine.icmp_bind(0).expect("a socket");
        let ip: IpAddr = group.ip();
        world.engine.icmp_send_echo(echo, ip, 1, b"anybody?").expect("sent");
        let echo = world.sent().remove(0);
        assert_eq!(ip::parse(&echo, echo.len()).expect("an IP packet").hop_limit, 1);
    }
}
