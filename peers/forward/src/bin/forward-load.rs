//! The load of the forwarders, over the kernel's sockets.
//!
//! `serve ADDRESS` answers each connection: it takes all it is sent, or sends until it is refused,
//! as the first byte says. `drive ADDRESS up|down STREAMS SECONDS PID` has so many connections there,
//! and prints what came of it, with the processor time and memory of the forwarder PID.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a call.
const CALL: usize = 128 << 10;
/// The load runs so long before it is measured.
const WARM_UP: Duration = Duration::from_secs(1);

type Failed = Box<dyn std::error::Error>;

fn take_all(mut stream: &TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; CALL];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            len => count.fetch_add(len as u64, Ordering::Relaxed),
        };
    }
}

fn send_on(mut stream: &TcpStream, count: &AtomicU64) -> io::Result<()> {
    let buffer = vec![0; CALL];
    loop {
        count.fetch_add(stream.write(&buffer)? as u64, Ordering::Relaxed);
    }
}

fn serve(address: &str) -> Result<(), Failed> {
    let listener = TcpListener::bind(address)?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let (mut what, unused) = ([0], AtomicU64::new(0));
            stream.read_exact(&mut what)?;
            match &what {
                b"u" => take_all(&stream, &unused),
                _ => send_on(&stream, &unused),
            }
        })?;
    }
    Ok(())
}

/// Clock ticks of processor time that a process has used, and its memory in KiB: now, and at most.
fn used(pid: &str) -> Result<(u64, u64, u64), Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    Ok((fields[11].parse::<u64>()? + fields[12].parse::<u64>()?, kib("VmRSS:"), kib("VmHWM:")))
}

fn drive(address: &str, way: &str, streams: usize, seconds: f64, pid: &str) -> Result<(), Failed> {
    let (count, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (_, idle, _) = used(pid)?;
    let mut open = Vec::new();
    for _ in 0..streams {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&way.as_bytes()[..1])?;
        open.push(stream);
    }
    for stream in open {
        let (count, over, is_up) = (Arc::clone(&count), Arc::clone(&over), way == "up");
        thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let ended = if is_up { send_on(&stream, &count) } else { take_all(&stream, &count) };
            if !over.load(Ordering::Relaxed) {
                eprintln!("a stream ended early: {ended:?}");
            }
        })?;
    }
    thread::sleep(WARM_UP);
    let look = || Ok::<_, Failed>((Instant::now(), count.load(Ordering::Relaxed), used(pid)?));
    let (began, first, (ticks, ..)) = look()?;
    thread::sleep(Duration::from_secs_f64(seconds));
    let (ended, last, (ticks_then, _, high)) = look()?;
    over.store(true, Ordering::Relaxed);
    let (bytes, time) = (last - first, (ended - began).as_secs_f64());
    let cpu = (ticks_then - ticks) as f64 / 100.0;
    println!(
        "{{\"gbps\": {}, \"cpu_s_per_gb\": {}, \"idle_kib\": {idle}, \"high_kib\": {high}}}",
        bytes as f64 * 8e-9 / time,
        cpu / (bytes as f64 * 1e-9)
    );
    Ok(())
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address] => serve(address),
        ["drive", address, way, streams, seconds, pid] => {
            drive(address, way, streams.parse()?, seconds.parse()?, pid)
        }
        _ => Err("serve ADDRESS, or drive ADDRESS up|down STREAMS SECONDS PID".into()),
    }
}
