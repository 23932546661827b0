//! Measures the stack alone over an in-memory pair, both ends in one thread, and over a TAP device
//! with the kernel's sockets at the other end.
//!
//! ```text
//! cargo run --release --example bench -- pair-bulk [--offload] [--packets] [--queued] [--seconds N] [--mtu N]
//! cargo run --release --example bench -- pair-rr | pair-udp [--offload] [--queued] [--connected N] [--rounds N]
//! cargo run --release --example bench -- tap-send | tap-receive | tap-rr [--no-offload] [--net] [--napi M] [--no-rps]
//!     [--no-take-back] [--[no-]io-uring]
//! cargo run --release --example bench -- udp-pps --link tap|packet|ring|xdp --direction send|receive [--drain]
//! ```
//! `--turn-bytes N` bounds what a turn sends and what is written between two
//! ([`millstream::tuning::Tuning::transmit_turn_bytes`],
//! [`millstream::tuning::Tuning::write_turn_bytes`]); `--direct-bytes N` is
//! [`millstream::tuning::Tuning::direct_read_bytes`] (a huge number: never); `--queued` has a
//! pair's readers read what is queued behind a turn, instead of having their buffers ready in it;
//! `--calls N` has `pair-bulk` write N calls, send them and take a turn at either end, instead of
//! writing as long as bytes are taken; `--connected N` has `pair-udp` send to N sockets (64,000 at
//! most) of one port in turn, each connected to a peer of its own; `--control NAME` is the
//! congestion control of the kernel's sockets (cubic). `--stages N` times the stages of one turn in
//! N and shows where the time goes (N defaults to 16). `--live NAME` publishes the engines under
//! this name (docs/live.md). `--drain` leaves the floods out of what is received, and the kernel's
//! sockets. `--rounds N` ends a pair after N rounds of 16 turns (bulk) or 256 transactions (rr) or
//! 1,024 datagrams instead of by time: what callgrind counts for N and for 2 N differs by N rounds.
//!
//! The TAP ones bind the stack to CPU 0 and the kernel's side to CPU 1; run them in a network
//! namespace of their own (`unshare -n`).

#[macro_use]
#[path = "support/line.rs"]
mod line;
#[path = "support/bench_options.rs"]
mod bench_options;
#[path = "support/processor.rs"]
mod processor;
#[path = "support/udp_pps/mod.rs"]
mod udp_pps;
#[path = "support/words.rs"]
mod words;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millstream::link::{Link, PairConfig, Tap, TapConfig, pair};
use millstream::packet::{Packet, Pool, PoolConfig};
use millstream::{Engine, EngineConfig, Error, SocketId, local, net};
use millstream_link::sys::pin_current_thread;
use nix::sys::socket::{setsockopt, sockopt};

use bench_options::Options;
use processor::{busy_seconds, own_seconds};
use words::fail;

fn main() {
    let (what, o) = Options::read(std::env::args().skip(1));
    match what.as_str() {
        "pair-bulk" => pair_bulk(&o),
        "pair-rr" => pair_rr(&o),
        "pair-udp" => pair_udp(&o),
        "tap-send" | "tap-receive" | "tap-rr" => tap(&o, &what),
        "udp-pps" => {
            if let Err(error) = udp_pps::run(&o.udp) {
                fail(&error.to_string());
            }
        }
        "--help" | "-h" => words::help(include_str!("bench.rs")),
        _ => fail("pair-bulk, pair-rr, pair-udp, tap-send, tap-receive, tap-rr or udp-pps; --help"),
    }
}

fn config(pool: &Pool, o: &Options) -> EngineConfig {
    let mut config = EngineConfig::new(pool.clone());
    config.tcp.send_buffer_bytes = o.buffer;
    config.tcp.recv_buffer_bytes = o.buffer;
    config.busy_poll = Duration::from_micros(o.busy_poll_us);
    config.stage_sample = o.stages;
    config.live = o.live.as_deref().map(Into::into);
    config.limits.tuning.transmit_turn_bytes = o.turn_bytes;
    config.limits.tuning.write_turn_bytes = o.turn_bytes;
    config.limits.tuning.direct_read_bytes = o.direct_bytes;
    config
}

fn engine(pool: &Pool, o: &Options, link: impl Link + 'static, address: &str) -> Engine {
    let mut engine = Engine::new(config(pool, o)).unwrap_or_else(|error| fail(&error.to_string()));
    let link = engine.add_link(Box::new(link)).expect("a link");
    engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
    engine
}

/// Two engines with one open connection.
fn connected(o: &Options) -> (Engine, SocketId, Engine, SocketId) {
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let link = PairConfig { offload: o.offload, mtu: o.mtu, ..PairConfig::default() };
    let (a, b) = pair(link).unwrap_or_else(|error| fail(&error.to_string()));
    let mut a = engine(&pool, o, a, "10.0.0.1/24");
    let mut b = engine(&pool, o, b, "10.0.0.2/24");
    let addr: SocketAddr = "10.0.0.2:9".parse().expect("an address");
    let listener = b.sockets().tcp_listen(addr, 1).expect("listen");
    let client = a.sockets().tcp_connect(addr).expect("connect");
    let server = loop {
        for engine in [&mut a, &mut b] {
            let now = engine.refresh_time();
            engine.turn(now);
        }
        if let Ok((id, _)) = b.listener(listener).accept() {
            break id;
        }
    };
    a.tcp(client).set_nodelay(true).expect("nodelay");
    b.tcp(server).set_nodelay(true).expect("nodelay");
    (a, client, b, server)
}

/// The time of the next turn. Rounds that are counted go by a clock of their own, 10 µs a turn: an
/// emulator's slowness is none of theirs.
fn time(engine: &mut Engine, o: &Options) -> millstream::packet::Instant {
    match o.rounds {
        u64::MAX => engine.refresh_time(),
        _ => engine.now() + Duration::from_micros(10),
    }
}

/// Takes a turn and reads, as a read that waits does.
fn turn_and_read(
    engine: &mut Engine,
    o: &Options,
    now: millstream::packet::Instant,
    id: SocketId,
    buffer: &mut [u8],
) -> Result<usize, Error> {
    if o.queued {
        engine.turn(now);
    } else if let (_, len @ 1..) = engine.turn_reading(now, id, buffer) {
        return Ok(len);
    }
    engine.tcp(id).read(buffer)
}

/// Reads what there is, as packets or into `buffer`; how many bytes.
fn read_all(
    engine: &mut Engine,
    o: &Options,
    now: millstream::packet::Instant,
    id: SocketId,
    buffer: &mut [u8],
) -> u64 {
    let mut moved = 0;
    if o.packets {
        engine.turn(now);
        while let Ok(Some(packet)) = engine.tcp(id).read_packet(1 << 20) {
            moved += packet.len() as u64;
        }
        return moved;
    }
    if let Ok(len) = turn_and_read(engine, o, now, id, buffer) {
        moved += len as u64;
        while let Ok(len) = engine.tcp(id).read(buffer) {
            moved += len as u64;
        }
    }
    moved
}

/// Writes packets of 60,000 bytes until one is refused, which waits for the next time.
fn write_packets(engine: &mut Engine, id: SocketId, waiting: &mut Option<Packet>) {
    loop {
        let packet = match waiting.take() {
            Some(packet) => packet,
            None => match engine.pool().alloc_chain(0, 60_000) {
                Some(mut packet) => {
                    drop(packet.commit(60_000));
                    packet
                }
                None => break,
            },
        };
        if let Err((packet, _)) = engine.tcp(id).write_packet(packet) {
            *waiting = Some(packet);
            break;
        }
    }
}

fn pair_bulk(o: &Options) {
    let (mut a, client, mut b, server) = connected(o);
    let data = vec![7_u8; o.call];
    let mut sink = vec![0_u8; o.call];
    let mut waiting = None;
    let (mut moved, start, cpu) = (0_u64, Instant::now(), own_seconds());
    let limit = Duration::from_secs_f64(o.seconds);
    for _ in (0..o.rounds).take_while(|_| start.elapsed() < limit) {
        for _ in 0..16 {
            if o.packets {
                write_packets(&mut a, client, &mut waiting);
            } else if o.calls == 0 {
                while a.tcp(client).write(&data) == Ok(data.len()) {}
            } else {
                for _ in 0..o.calls {
                    let _ = a.tcp(client).write(&data);
                }
                a.flush();
            }
            let now = time(&mut a, o);
            if o.calls == 0 {
                a.turn(now);
            }
            moved += read_all(&mut b, o, now, server, &mut sink);
            if o.calls != 0 {
                a.turn(now);
            }
        }
    }
    // One thread: its own processor time, whatever else the machine does.
    let seconds = own_seconds() - cpu;
    something(moved);
    let segments = moved as f64 / (o.mtu - 52) as f64;
    line!(
        "pair-bulk: {:.1} Gb/s, {:.0} ns per MTU-sized segment, {:.3} s/GB, rx packets {}",
        moved as f64 * 8e-9 / seconds,
        seconds * 1e9 / segments,
        seconds / (moved as f64 * 1e-9),
        b.stats().rx_packets,
    );
    if let Ok(info) = a.tcp(client).info() {
        let (again, cwnd, rtt) = (info.retransmits, info.cwnd_bytes, info.srtt_us);
        line!("segments sent again {again}, congestion window {cwnd} bytes, round trip {rtt} µs");
    }
    line!("{}", a.inspect().memory());
    for engine in [&a, &b].into_iter().filter(|_| o.stages != 0) {
        show_stages(engine.stats());
    }
}

/// Ends the program where nothing has moved: no rate can be told of that.
fn something(moved: u64) {
    if moved == 0 {
        fail("nothing arrived; give it longer (--seconds, --rounds), or other options");
    }
}

/// Where an engine's time went, and how large its batches were.
fn show_stages(stats: &millstream::EngineStats) {
    line!("{}", stats.stages);
    for (name, sizes) in stats.batches.named() {
        let text: Vec<String> = sizes.counts().map(|(at, n)| format!("{at}:{n}")).collect();
        line!("{name:20} {}", text.join(" "));
    }
}

/// Datagrams of 64 bytes from one engine to the other.
fn pair_udp(o: &Options) {
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let link = PairConfig { offload: o.offload, mtu: o.mtu, ..PairConfig::default() };
    let (a, b) = pair(link).unwrap_or_else(|error| fail(&error.to_string()));
    let mut a = engine(&pool, o, a, "10.0.0.1/24");
    let mut b = engine(&pool, o, b, "10.0.0.2/24");
    let to: SocketAddr = "10.0.0.2:9".parse().expect("an address");
    let socket = |at: usize| {
        let port = 1024 + at as u16;
        let peer = SocketAddr::from(([10, 0, 0, 1], port));
        let sink = b.sockets().udp_bind(to).unwrap_or_else(|error| fail(&error.to_string()));
        if o.connected != 0 {
            b.udp(sink).connect(peer).expect("connect");
        }
        (a.sockets().udp_bind(peer).expect("bind"), sink)
    };
    let sockets: Vec<_> = (0..o.connected.max(1)).map(socket).collect();
    let mut next = sockets.iter().cycle();
    let (data, mut buffer, mut list) = ([7; 64], [0; 4096], Vec::new());
    let (mut done, start, cpu) = (0_u64, Instant::now(), own_seconds());
    let limit = Duration::from_secs_f64(o.seconds);
    for _ in (0..o.rounds).take_while(|_| start.elapsed() < limit) {
        let now = a.refresh_time();
        for _ in 0..16 {
            let batch = next.clone().take(millstream::packet::BATCH_LIMIT);
            for (from, _) in next.by_ref().take(millstream::packet::BATCH_LIMIT) {
                // Lost while the neighbour is not known.
                let _ = a.udp(*from).send(&data, Some(to));
            }
            a.flush();
            b.turn(now);
            for (_, sink) in batch.take(sockets.len()) {
                while let Ok(count) = b.udp(*sink).recv_many(&mut buffer, &mut list) {
                    done += count as u64;
                }
            }
        }
        // Neighbours are asked for, and answered, in turns.
        a.turn(now);
    }
    let seconds = own_seconds() - cpu;
    something(done);
    line!("pair-udp: {:.0} ns per datagram, {done} received", seconds * 1e9 / done as f64);
}

fn pair_rr(o: &Options) {
    let (mut a, client, mut b, server) = connected(o);
    let (mut done, start, cpu) = (0_u64, Instant::now(), own_seconds());
    let limit = Duration::from_secs_f64(o.seconds);
    let mut byte = [0];
    for _ in (0..o.rounds).take_while(|_| start.elapsed() < limit) {
        for _ in 0..256 {
            let now = time(&mut a, o);
            a.tcp(client).send(&byte).expect("write");
            while turn_and_read(&mut b, o, now, server, &mut byte) == Err(Error::WouldBlock) {}
            b.tcp(server).send(&byte).expect("write");
            while turn_and_read(&mut a, o, now, client, &mut byte) == Err(Error::WouldBlock) {
                b.turn(now);
            }
            done += 1;
        }
    }
    let seconds = own_seconds() - cpu;
    line!("pair-rr: {:.0} ns per transaction", seconds * 1e9 / done as f64);
    line!(
        "packets {} {}",
        a.stats().tx_packets as f64 / done as f64,
        b.stats().tx_packets as f64 / done as f64
    );
}

/// A stream of either placement.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn tap(o: &Options, what: &str) {
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let tap = Tap::open(&TapConfig {
        vnet_hdr: o.offload,
        offload: o.offload,
        mtu: o.mtu,
        napi: o.napi,
        rps: o.rps,
        take_back: o.take_back,
        io_uring: o.io_uring,
        host_addresses: vec![("10.0.0.1".parse().expect("an address"), 24)],
        ..TapConfig::default()
    })
    .unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(2)
    });
    tap.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let kernel = std::net::TcpListener::bind("10.0.0.1:0").expect("bind");
    let addr = kernel.local_addr().expect("an address");
    // Before there is a connection: one that began with BBR, the system's default perhaps, would go
    // on pacing.
    let control = OsString::from(&o.control);
    setsockopt(&kernel, sockopt::TcpCongestion, &control)
        .unwrap_or_else(|error| fail(&words::refused_control(&o.control, error)));
    let limit = Duration::from_secs_f64(o.seconds);
    let (call, mode) = (o.call, what.to_string());
    let kernel_cpu = if o.same { 0 } else { 1 };
    let peer = std::thread::spawn(move || {
        pin(kernel_cpu);
        let stream = kernel.accept().expect("accept").0;
        kernel_side(&stream, &mode, call, limit)
    });
    let engine = engine(&pool, o, tap, "10.0.0.2/24");
    if o.net {
        let stack = net::StackBuilder::new().cpu(0).spawn(move || Ok(engine)).expect("a stack");
        let stream = net::TcpStream::connect(&stack, addr).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        our_side(stream, what, o, || stack.stats().ok());
        drop(stack);
    } else {
        pin(0);
        let stack = local::Stack::new(engine);
        let stream = local::TcpStream::connect(&stack, addr).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        our_side(stream, what, o, || Some(stack.engine().stats().clone()));
        stack.shutdown_within(Duration::from_secs(1));
    }
    drop(peer.join());
}

/// Keeps this thread on a CPU, or ends the program.
fn pin(cpu: usize) {
    pin_current_thread(cpu).unwrap_or_else(|error| {
        fail(&format!("CPU {cpu}: {error}; --same has both ends on CPU 0"))
    });
}

/// The kernel's end: the other half of what the stack does.
fn kernel_side(mut stream: &std::net::TcpStream, mode: &str, call: usize, limit: Duration) {
    stream.set_nodelay(true).expect("nodelay");
    let mut data = vec![0; call];
    let start = Instant::now();
    match mode {
        "tap-send" => while stream.read(&mut data).is_ok_and(|len| len != 0) {},
        "tap-receive" => {
            while start.elapsed() < limit && stream.write_all(&data).is_ok() {}
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
        _ => {
            while stream.read(&mut data[..1]).is_ok_and(|len| len != 0) {
                if stream.write_all(&data[..1]).is_err() {
                    break;
                }
            }
        }
    }
}

fn our_side(
    mut stream: impl Stream,
    what: &str,
    o: &Options,
    stats: impl Fn() -> Option<millstream::EngineStats>,
) {
    let mut data = vec![3_u8; o.call];
    let (start, busy, own) = (Instant::now(), busy_seconds(), own_seconds());
    let limit = Duration::from_secs_f64(o.seconds);
    let mut moved = 0_u64;
    let mut times = Vec::new();
    match what {
        "tap-send" => {
            while start.elapsed() < limit {
                stream.write_all(&data).expect("write");
                moved += data.len() as u64;
            }
        }
        "tap-receive" => {
            while let Ok(len) = stream.read(&mut data) {
                if len == 0 {
                    break;
                }
                moved += len as u64;
            }
        }
        _ => {
            while start.elapsed() < limit {
                let begin = Instant::now();
                stream.write_all(&data[..1]).expect("write");
                stream.read_exact(&mut data[..1]).expect("read");
                times.push(begin.elapsed().as_nanos() as u64);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let (busy, own) = (busy_seconds() - busy, own_seconds() - own);
    if times.is_empty() {
        something(moved);
        let gb = moved as f64 * 1e-9;
        line!(
            "{what}: {:.1} Gb/s, machine {:.3} s/GB, process {:.3} s/GB",
            gb * 8.0 / seconds,
            busy / gb,
            own / gb
        );
    } else {
        times.sort_unstable();
        let at = |share: f64| times[(times.len() as f64 * share) as usize] as f64 / 1000.0;
        line!(
            "{what}: {:.0}/s, p50 {:.1} us, p99 {:.1} us, process {:.2} cores",
            times.len() as f64 / seconds,
            at(0.5),
            at(0.99),
            own / seconds
        );
    }
    if let Some(stats) = stats() {
        show_engine(&stats);
        if o.stages != 0 {
            show_stages(&stats);
        }
    }
}

/// Prints the engine's counters since it began.
fn show_engine(s: &millstream::EngineStats) {
    line!(
        "turns {} idle {} sleeps {} rx {} ({:.0} B each) tx {} ({:.0} B each) pure {} \
         direct {} missed {} lent {} copied {} drops {:?}",
        s.turns,
        s.idle_turns,
        s.sleeps,
        s.rx_packets,
        s.rx_bytes as f64 / s.rx_packets.max(1) as f64,
        s.tx_packets,
        s.tx_bytes as f64 / s.tx_packets.max(1) as f64,
        s.tcp_tx_pure,
        s.tcp_rx_direct_bytes,
        s.tcp_rx_direct_missed,
        s.tcp_tx_zero_copy_bytes,
        s.tcp_tx_zero_copy_copied_bytes,
        s.drops_by_name().collect::<Vec<_>>()
    );
}
