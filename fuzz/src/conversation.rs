//! A connection, begun in any state, under any sequence of segments, calls of its application and
//! time-outs. Beyond not panicking: what it sends and what it delivers is the
//! data of the streams, its timers do not spin, and no frame is lost.

use std::time::Duration;

use millstream_packet::{FRAME_SIZE_BYTES, Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream_tcp::{
    ConnError, Connection, Keepalive, PayloadSource, State, TransmitLimits, reset_for,
};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::{Input, pattern, pattern_bytes};

mod begin;

const ISN: SeqNumber = SeqNumber(0xffff_f000);
const PEER_ISN: SeqNumber = SeqNumber(0x7fff_ff00);

/// Segments sent after one call, in a row: more would be a loop without an end.
const BURST_LIMIT: usize = 20_000;

thread_local! {
    /// A pool that suffices, and one that is nearly always empty.
    static POOLS: [Pool; 2] = [2048, 16].map(|frames| {
        Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(frames) }).expect("a pool")
    });
}

/// Names of the states, LISTEN first.
pub const STATES: [&str; 11] = [
    "LISTEN",
    "CLOSED",
    "SYN-SENT",
    "SYN-RECV",
    "ESTAB",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "CLOSE-WAIT",
    "CLOSING",
    "LAST-ACK",
    "TIME-WAIT",
];

/// Segments that arrived in each of [`STATES`].
pub type Visits = [u32; STATES.len()];

/// Runs the conversation that `bytes` stand for.
pub fn run(bytes: &[u8]) -> Visits {
    POOLS.with(|pools| {
        let mut input = Input(bytes);
        let choice = input.byte();
        let pool = &pools[usize::from(choice & 15 == 15)];
        let way = match choice >> 4 {
            13 => Way::Queue,
            14 => Way::Early,
            _ => Way::Plain,
        };
        let mut peer = Peer::new(&mut input, pool, way);
        for _ in 0..300 {
            if input.is_empty() {
                break;
            }
            peer.step(&mut input);
        }
        peer.check_memory();
        let visits = peer.visits;
        drop(peer);
        assert_eq!(pool.stats().used_frames, 0, "frames were lost");
        visits
    })
}

/// How a connection comes about, beside its handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    /// Passive: from an entry of the SYN queue. Active: a Fast Open cookie is asked for.
    Queue,
    /// Passive: open early, with data from the SYN. Active: data goes with the SYN.
    Early,
}

struct Peer<'a> {
    pool: &'a Pool,
    connection: Connection,
    now: Instant,
    limits: TransmitLimits,
    /// Next sequence number that the connection expects, as it last said.
    rcv_nxt: SeqNumber,
    /// Where the peer's stream starts: the number after its SYN.
    stream: Option<SeqNumber>,
    /// Next sequence number that the connection will send.
    snd_nxt: SeqNumber,
    /// Last timestamp of the connection.
    stamp: u32,
    written: u32,
    read: u32,
    /// The most memory that the buffers may hold, as configured so far.
    buffers_bytes: usize,
    visits: Visits,
}

impl<'a> Peer<'a> {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..=6 => self.any_segment(input),
            7 => {
                let bytes = input.bytes(64);
                if let Ok((header, len)) = TcpHeader::parse(bytes) {
                    self.segment(header, &bytes[len..]);
                }
            }
            8 => self.advance(Duration::from_micros(u64::from(input.short()) * 100)),
            9 => self.fire(),
            10 | 11 => self.write(input),
            12 | 13 => self.read(input),
            14 => match input.byte() % 8 {
                0 => self.connection.shutdown_write(),
                1 => self.connection.close(),
                2 => self.connection.abort(),
                3 => self.connection.shutdown_read(),
                4 => self.advance(Duration::from_secs(u64::from(input.short()))),
                _ => {}
            },
            _ => self.knob(input),
        }
        let _ = self.connection.take_events();
        self.transmit();
        let _ = self.connection.info();
    }

    /// Limits count the memory held, whatever the sizes of the segments; one burst
    /// and one write may be under way beyond them.
    fn check_memory(&self) {
        let held = self.pool.stats().used_frames * (FRAME_SIZE_BYTES + 64);
        let limit = self.buffers_bytes + 2 * 70_000;
        assert!(held <= limit, "{held} bytes held, the limits are {limit}");
    }

    fn knob(&mut self, input: &mut Input<'_>) {
        match input.byte() % 6 {
            0 => {
                let seq = self.snd_nxt - usize::from(input.byte());
                self.connection.set_path_mtu(self.now, seq, input.short());
            }
            1 => {
                let seq = self.snd_nxt - usize::from(input.byte());
                let hard = input.byte() & 1 == 0;
                self.connection.on_icmp_error(self.now, seq, ConnError::HostUnreachable, hard);
            }
            2 => {
                let bytes = usize::from(input.short());
                self.buffers_bytes = self.buffers_bytes.max(3 * bytes.max(8192));
                self.connection.set_buffers(Some(bytes), Some(bytes * 2));
            }
            3 => self.connection.set_nodelay(input.byte() & 1 == 0),
            4 => {
                let keepalive = Keepalive { idle_s: 1, interval_s: 1, probes: 2 };
                let keepalive = (input.byte() & 1 == 0).then_some(keepalive);
                let config = self.connection.config().clone().keepalive(keepalive);
                self.connection.set_config(&config);
            }
            _ => self.limits.super_segment_bytes = u32::from(input.short()),
        }
    }

    /// A segment near what the connection expects; sometimes far from it.
    fn any_segment(&mut self, input: &mut Input<'_>) {
        let mut header = any_header(input);
        let (seq, ack) = (input.byte(), input.byte());
        header.seq = near(self.rcv_nxt, seq, input);
        header.ack = near(self.snd_nxt, ack, input);
        if let Some(stamps) = &mut header.options.timestamps {
            stamps.echo = self.stamp.wrapping_add(stamps.echo);
        }
        let len = input.length(66_000);
        let start = header.seq + usize::from(header.flags.syn());
        let stream = self.stream.unwrap_or(header.seq + 1);
        let payload = pattern_bytes(start.distance_from(stream), len);
        self.segment(header, &payload);
    }

    fn segment(&mut self, header: TcpHeader, payload: &[u8]) {
        // Whatever lies in the window is data of the stream, which begins behind the SYN that opens
        // the connection: an earlier one without an ACK may have been a stranger's.
        let before = self.connection.state();
        let flags = header.flags;
        let is_syn_ack = flags.syn() && flags.ack() && !flags.rst();
        let opens = before == State::SynSent || before == State::SynReceived && is_syn_ack;
        let start = header.seq + usize::from(flags.syn());
        let stream = self.stream.filter(|_| !opens).unwrap_or(header.seq + 1);
        let payload = pattern_bytes(start.distance_from(stream), payload.len());
        if let Some(reset) = reset_for(&header, payload.len()) {
            assert!(reset.flags.rst() && !header.flags.rst());
        }
        let packet = match payload.len() {
            0 => None,
            _ => match Packet::from_slice(self.pool, 0, &payload) {
                Ok(packet) => Some(packet),
                Err(_) => return,
            },
        };
        let place = STATES.iter().position(|name| *name == before.name());
        self.visits[place.expect("a state by its name")] += 1;
        self.connection.on_segment(
            self.now,
            &header,
            packet.into(),
            header.window as u8 & 3,
            self.pool,
        );
        if opens && self.connection.state() != before {
            self.stream = Some(header.seq + 1);
            self.rcv_nxt = header.seq + 1;
        }
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        if self.connection.next_deadline().is_some_and(|at| at <= self.now) {
            self.connection.on_timer(self.now);
        }
    }

    /// Lets the next timer run out. It must not ask to be called again at once.
    fn fire(&mut self) {
        let Some(at) = self.connection.next_deadline() else { return };
        self.now = self.now.max(at);
        for _ in 0..8 {
            self.connection.on_timer(self.now);
            self.transmit();
            match self.connection.next_deadline() {
                Some(at) if at <= self.now => {}
                _ => return,
            }
        }
        panic!("{:?}: a timer spins", self.connection.state());
    }

    fn write(&mut self, input: &mut Input<'_>) {
        let data = pattern_bytes(self.written, input.length(70_000));
        if let Ok(written) = self.connection.write(self.pool, &data) {
            assert!(written <= data.len());
            self.written += written as u32;
        }
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let mut out = vec![0; input.length(70_000)];
        let read = self.connection.read(&mut out);
        if let Ok(read) = read {
            for &byte in &out[..read] {
                assert_eq!(byte, pattern(self.read), "byte {} of what was received", self.read);
                self.read += 1;
            }
        }
    }

    /// Takes all segments that are due, and looks at each.
    fn transmit(&mut self) {
        for _ in 0..BURST_LIMIT {
            let mut batch = PacketBatch::new();
            let segment = self.connection.poll(self.now, self.pool, &self.limits, &mut batch);
            let Some(segment) = segment else { return };
            let header = segment.header;
            let mut bytes = [0; 60];
            header.emit(&mut bytes[..header.header_len()]);
            let (flags, len) = (header.flags, segment.payload_len as usize);
            assert_eq!(batch.iter().map(Packet::len).sum::<usize>(), len);
            if len > 0 {
                assert!(segment.segment_size > 0);
                let one = u32::from(segment.segment_size);
                let limit = match self.limits.payload {
                    PayloadSource::View => self.limits.super_segment_bytes.max(one),
                    _ => self.limits.segments as u32 * one,
                };
                assert!(len <= limit as usize, "{len} bytes of one decision");
                let first = header.seq + usize::from(flags.syn());
                let offset = first.distance_from(ISN + 1);
                assert!(offset as usize + len <= self.written as usize, "beyond what was written");
                for (offset, byte) in
                    (offset..).zip(batch.iter().flat_map(|packet| packet.slices().flatten()))
                {
                    assert_eq!(*byte, pattern(offset), "byte {offset} of what was sent");
                }
            }
            if !flags.rst() {
                let end = header.seq + header.sequence_len(len);
                self.snd_nxt = self.snd_nxt.max(end);
                if flags.ack() {
                    self.rcv_nxt = header.ack;
                }
            }
            if let Some(stamps) = header.options.timestamps {
                self.stamp = stamps.value;
            }
        }
        panic!("{:?}: segments without end", self.connection.state());
    }
}

/// A number near `base`: in most cases from it on, at or just beside it.
fn near(base: SeqNumber, how: u8, input: &mut Input<'_>) -> SeqNumber {
    match how {
        0..=127 => base,
        128..=159 => base + usize::from(how - 127),
        160..=191 => base - usize::from(how - 159),
        192..=219 => base + usize::from(input.short()),
        220..=239 => base - usize::from(input.short()),
        240..=247 => base + usize::from(how - 239) * 1460,
        _ => SeqNumber(input.word()),
    }
}

/// Flags, window and options.
fn any_header(input: &mut Input<'_>) -> TcpHeader {
    let (flags, options, window) = (input.byte(), input.byte(), input.short());
    let mut header = TcpHeader {
        src_port: 5000,
        dst_port: 80,
        flags: TcpFlags(flags) | if options & 1 == 0 { TcpFlags::ACK } else { TcpFlags::NONE },
        window,
        ..TcpHeader::default()
    };
    if options & 2 == 0 {
        let (value, echo) = (u32::from(input.byte()), input.byte() as i8 as u32);
        header.options.timestamps = Some(Timestamps { value: value << (options >> 4), echo });
    }
    if header.flags.syn() {
        let mss = (options & 4 == 0).then(|| input.short());
        let window_scale = (options & 8 == 0).then(|| input.byte());
        let sack_permitted = options & 16 == 0;
        header.options = TcpOptions { mss, window_scale, sack_permitted, ..header.options };
    } else if options & 4 != 0 {
        header.urgent = u16::from(options);
        let mut left = ISN + 1 + input.length(20_000);
        for _ in 0..=options >> 6 {
            let right = left + input.length(20_000);
            let _ = header.options.sack.push(left, right);
            left = right + input.length(20_000);
        }
    }
    header
}
