//! How fast a TAP device gives a stream of the kernel's without offloads, whoever reads it: packets
//! of MTU 1500 are read and summed, what came in order is acknowledged, and that is all. There is
//! no stack, and nobody gets the data.
//!
//! `cargo run --release -p millstream-link --example tcp_reader -- [SECONDS]`, with CAP_NET_ADMIN.
//! Reads on CPU 0; the kernel's sender is a thread on CPU 1.

use std::hint::black_box;
use std::io::Write;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant as Wall};

use millstream_link::netdev::{self, Namespace};
use millstream_link::{Link, NapiMode, Tap, TapConfig};
use millstream_packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream_wire::arp::{self, ArpOperation, ArpPacket};
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

type Failure = Box<dyn std::error::Error>;

const NEAR: [u8; 4] = [10, 71, 0, 1];
const FAR: [u8; 4] = [10, 71, 0, 2];
const PORT: u16 = 5001;
const OUR_PORT: u16 = 40_000;
/// Where Ethernet ends.
const L3: usize = 14;
/// Where the IPv4 header ends that we write, and the kernel does.
const L4: usize = 34;
/// Payload acknowledged at once.
const ACK_BYTES: u32 = 64 * 1448;
/// An ACK waits no longer for that much.
const ACK_WAIT: Duration = Duration::from_micros(60);
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_SHIFT: u8 = 10;

/// The state of the one connection.
struct Reader {
    tap: Tap,
    pool: Pool,
    batch: PacketBatch,
    peer_mac: MacAddr,
    /// What is expected next; zero before the handshake.
    next: SeqNumber,
    seq: SeqNumber,
    /// The peer's clock, as last seen.
    echo: u32,
    begin: Wall,
    payload: u64,
    packets: u64,
}

impl Reader {
    fn emit(&mut self, flags: TcpFlags, options: TcpOptions) -> Result<(), Failure> {
        let window = match flags == TcpFlags::SYN {
            true => u16::MAX,
            false => (WINDOW_BYTES >> WINDOW_SHIFT) as u16,
        };
        let (src_port, dst_port, seq, ack) = (OUR_PORT, PORT, self.seq, self.next);
        let header = TcpHeader { src_port, dst_port, seq, ack, flags, window, urgent: 0, options };
        let (src, dst): (IpAddr, IpAddr) = (NEAR.into(), FAR.into());
        let len = header.header_len();
        let mut frame = [0; 128];
        self.ethernet(EtherType::IPV4).emit(&mut frame);
        IpHeader::new(src, dst, Protocol::TCP, len).emit(&mut frame[L3..]);
        header.emit(&mut frame[L4..]);
        let mut sum = Accumulator::new(ip::pseudo_header_sum(src, dst, Protocol::TCP, len));
        sum.add(&frame[L4..L4 + len]);
        frame[L4 + 16..L4 + 18].copy_from_slice(&sum.finish());
        self.send(&frame[..L4 + len])
    }

    fn ethernet(&self, ethertype: EtherType) -> EthernetHeader {
        EthernetHeader::new(self.peer_mac, self.tap.capabilities().mac, ethertype)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(&self.pool, 64, frame)?;
        drop(batch.push(packet));
        self.tap.transmit(Instant::ZERO, &self.pool, &mut batch)?;
        Ok(())
    }

    fn timestamps(&self) -> TcpOptions {
        let value = 1 + self.begin.elapsed().as_millis() as u32;
        let timestamps = Some(Timestamps { value, echo: self.echo });
        TcpOptions { timestamps, ..TcpOptions::NONE }
    }

    fn acknowledge(&mut self) -> Result<(), Failure> {
        self.emit(TcpFlags::ACK, self.timestamps())
    }

    /// Takes one batch; how many packets there were.
    fn read(&mut self) -> Result<usize, Failure> {
        let count = self.tap.receive(Instant::ZERO, &self.pool, &mut self.batch)?;
        while let Some(packet) = self.batch.pop() {
            let frame = packet.head();
            match EthernetHeader::parse(frame) {
                Ok((header, L3)) if header.ethertype == EtherType::ARP => {
                    self.answer(&frame[L3..])?
                }
                Ok((header, L3)) if header.ethertype == EtherType::IPV4 => self.take(frame)?,
                _ => {}
            }
        }
        Ok(count)
    }

    fn answer(&mut self, question: &[u8]) -> Result<(), Failure> {
        let asked = ArpPacket::parse(question).map_err(|reason| format!("{reason:?}"))?;
        if asked.operation != ArpOperation::Request || asked.target_ip.octets() != NEAR {
            return Ok(());
        }
        let mut frame = [0; L3 + arp::PACKET_LEN];
        self.ethernet(EtherType::ARP).emit(&mut frame);
        let answer = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: self.tap.capabilities().mac,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        answer.emit(&mut frame[L3..]);
        self.send(&frame)
    }

    fn take(&mut self, frame: &[u8]) -> Result<(), Failure> {
        let ip =
            ip::parse(&frame[L3..], frame.len() - L3).map_err(|reason| format!("{reason:?}"))?;
        let segment = &frame[L4..L3 + ip.packet_len()];
        if ip.protocol != Protocol::TCP {
            return Ok(());
        }
        let mut sum = Accumulator::new(0);
        sum.add(segment);
        black_box(sum.sum());
        let (header, len) = TcpHeader::parse(segment).map_err(|reason| format!("{reason:?}"))?;
        if header.flags.contains(TcpFlags::SYN) {
            self.next = header.seq;
        } else if header.seq != self.next {
            return Err("a packet was lost: the queue is too short for the window".into());
        }
        let payload = segment.len() - len;
        self.next.0 = self.next.0.wrapping_add(header.sequence_len(payload) as u32);
        self.echo = header.options.timestamps.map_or(self.echo, |stamps| stamps.value);
        self.payload += payload as u64;
        self.packets += u64::from(payload != 0);
        Ok(())
    }

    /// Reads until `end` after the beginning.
    fn run(&mut self, end: Duration) -> Result<(), Failure> {
        let (mut acknowledged, mut at) = (self.next, Wall::now());
        while self.begin.elapsed() < end {
            let count = self.read()?;
            let waiting = self.next.0.wrapping_sub(acknowledged.0);
            if waiting >= ACK_BYTES || (count == 0 && waiting != 0 && at.elapsed() >= ACK_WAIT) {
                self.acknowledge()?;
                (acknowledged, at) = (self.next, Wall::now());
            }
        }
        Ok(())
    }
}

/// Binds the calling thread to a CPU, if there is such a one.
fn bind(cpu: usize) {
    // SAFETY: an all-zero set is an empty one, and the pointer is to a live one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Has the listener's connections use cubic. Set on a connection that began with BBR it would go on
/// pacing.
fn use_cubic(listener: &TcpListener) -> Result<(), Failure> {
    let cubic = c"cubic";
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    // SAFETY: the pointer is to five readable bytes.
    let done =
        unsafe { libc::setsockopt(listener.as_raw_fd(), level, name, cubic.as_ptr().cast(), 5) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

/// Takes one connection and writes to it as fast as it goes.
fn write_forever(listener: &TcpListener) -> Result<(), Failure> {
    bind(1);
    let (mut stream, _) = listener.accept()?;
    let data = vec![7; 128 << 10];
    loop {
        stream.write_all(&data)?;
    }
}

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |word| word.parse());
    let Some(seconds) = seconds.ok().filter(|seconds| (0.01..=3600.0).contains(seconds)) else {
        eprintln!("tcp_reader [SECONDS]: for how long to read, 0.01 to 3600 [default: 1]");
        return ExitCode::from(2);
    };
    if let Err(error) = read_for(seconds) {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn read_for(seconds: f64) -> Result<(), Failure> {
    let namespace = Namespace::create()?;
    let tap = Tap::open(&TapConfig {
        netns: Some(namespace.path()),
        vnet_hdr: false,
        offload: false,
        host_addresses: vec![(FAR.into(), 24)],
        napi: NapiMode::Auto,
        ..TapConfig::default()
    })?;
    tap.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let name = tap.name().to_owned();
    let peer_mac = namespace.run(|| netdev::mac(&name))??;
    let listener = namespace.run(|| TcpListener::bind((IpAddr::from(FAR), PORT)))??;
    use_cubic(&listener)?;
    std::thread::spawn(move || write_forever(&listener).is_ok());
    bind(0);
    let mut reader = Reader {
        tap,
        pool: Pool::new(PoolConfig::default())?,
        batch: PacketBatch::new(),
        peer_mac,
        next: SeqNumber(0),
        seq: SeqNumber(1),
        echo: 0,
        begin: Wall::now(),
        payload: 0,
        packets: 0,
    };
    let mss = Some(1460);
    let offer = TcpOptions { mss, window_scale: Some(WINDOW_SHIFT), ..reader.timestamps() };
    reader.emit(TcpFlags::SYN, offer)?;
    while reader.next == SeqNumber(0) {
        if reader.begin.elapsed() > Duration::from_secs(3) {
            return Err("the kernel does not answer".into());
        }
        reader.read()?;
    }
    reader.seq.0 += 1;
    reader.acknowledge()?;
    let warm = Duration::from_millis(200);
    reader.run(warm)?;
    (reader.payload, reader.packets) = (0, 0);
    reader.run(warm + Duration::from_secs_f64(seconds))?;
    let time = reader.begin.elapsed() - warm;
    println!(
        "{:.2} Gb/s, {:.0} ns a packet",
        reader.payload as f64 * 8e-9 / time.as_secs_f64(),
        time.as_nanos() as f64 / reader.packets as f64
    );
    Ok(())
}
