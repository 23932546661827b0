//! The far end: drives the load, measures a window of it, and proves by the device's counters which
//! way the bytes took.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use peers_common::{CALL_BYTES, busy_seconds, monotonic_seconds};

use crate::queue::unacknowledged;
use crate::use_cubic;

/// Longest silence before the run is given up.
const SILENCE: Duration = Duration::from_secs(4);
/// Transactions kept at most: above what a window can hold here.
const SAMPLES: usize = 1 << 24;

struct Arguments {
    role: String,
    listen: String,
    device: String,
    warm: Duration,
    window: Duration,
    /// Bytes given to or asked from the socket in one call.
    call: usize,
    spin: bool,
}

fn arguments() -> Result<Arguments> {
    let wrong = |what: String| Error::new(ErrorKind::InvalidInput, what);
    let mut words = std::env::args().skip(2);
    let mut a = Arguments {
        role: words.next().unwrap_or_default(),
        listen: String::new(),
        device: String::new(),
        warm: Duration::from_millis(300),
        window: Duration::from_secs(1),
        call: CALL_BYTES,
        spin: false,
    };
    while let Some(word) = words.next() {
        if word == "--spin" {
            a.spin = true;
            continue;
        }
        let value = words.next().unwrap_or_default();
        let seconds = || {
            let number = value.parse().map_err(|_| wrong(format!("{word} {value}")))?;
            Duration::try_from_secs_f64(number).map_err(|e| wrong(format!("{word} {value}: {e}")))
        };
        match word.as_str() {
            "--listen" => a.listen = value,
            "--device" => a.device = value,
            "--warm" => a.warm = seconds()?,
            "--window" => a.window = seconds()?,
            "--call" => {
                a.call = value.parse().map_err(|e| wrong(format!("{word} {value}: {e}")))?
            }
            _ => return Err(wrong(format!("unknown option {word}"))),
        }
    }
    Ok(a)
}

/// Listens, says `ready`, takes one connection, and prints one line of JSON about it.
pub fn run() -> Result<()> {
    let a = arguments()?;
    let listener = TcpListener::bind(&a.listen)?;
    use_cubic(&listener)?;
    println!("ready");
    std::io::stdout().flush()?;
    let stream = accept(&listener)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut data = vec![5_u8; a.call];
    match a.role.as_str() {
        "send" => bulk(&a, &stream, |mut stream| stream.read(&mut data)),
        "receive" => bulk(&a, &stream, |mut stream| stream.write(&data)),
        "echo" => transactions(&a, stream),
        other => Err(Error::new(ErrorKind::InvalidInput, format!("no role {other}"))),
    }
}

/// One connection, within [`SILENCE`].
fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let begin = Instant::now();
    while begin.elapsed() < SILENCE {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::TimedOut, "nobody connected"))
}

/// The machine at the beginning of the window.
struct Start {
    at: Instant,
    from_s: f64,
    busy_s: f64,
    counters: Counters,
}

impl Start {
    fn now(device: &str) -> Self {
        let (counters, busy_s) = (Counters::read(device), busy_seconds());
        Self { counters, busy_s, from_s: monotonic_seconds(), at: Instant::now() }
    }

    /// The fields every result has: length of the window and where it is on the monotonic clock,
    /// processor time, what the device carried.
    fn finish(&self, device: &str) -> String {
        let (seconds, busy_s) = (self.at.elapsed().as_secs_f64(), busy_seconds() - self.busy_s);
        let Counters([rx_bytes, rx_packets, tx_bytes, tx_packets]) =
            Counters::read(device).since(&self.counters);
        let (from_s, to_s) = (self.from_s, self.from_s + seconds);
        format!(
            "\"seconds\":{seconds:.6},\"from_s\":{from_s:.6},\"to_s\":{to_s:.6},\
             \"cpu_s\":{busy_s:.2},\"device\":\"{device}\",\
             \"rx_bytes\":{rx_bytes},\"rx_packets\":{rx_packets},\
             \"tx_bytes\":{tx_bytes},\"tx_packets\":{tx_packets}"
        )
    }
}

/// Bytes and packets of an interface: received, then sent.
struct Counters([u64; 4]);

impl Counters {
    fn read(device: &str) -> Self {
        let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        let line =
            table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        let fields: Vec<u64> =
            line.unwrap_or("").split_whitespace().filter_map(|f| f.parse().ok()).collect();
        Self([0, 1, 8, 9].map(|column| fields.get(column).copied().unwrap_or(0)))
    }

    fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_sub(before.0[i])))
    }
}

/// Calls `step` through warm-up and window, and counts the bytes of the window: of what is sent
/// those that the near end has acknowledged, as the kernel's send buffer may grow by megabytes
/// meanwhile.
fn bulk(
    a: &Arguments,
    stream: &TcpStream,
    mut step: impl FnMut(&TcpStream) -> Result<usize>,
) -> Result<()> {
    let mut turn = |end: Duration| {
        let (mut moved, begin) = (0_u64, Instant::now());
        while begin.elapsed() < end {
            match step(stream)? {
                0 => return Err(Error::new(ErrorKind::UnexpectedEof, "the near end closed")),
                len => moved += len as u64,
            }
        }
        Ok(moved)
    };
    turn(a.warm)?;
    let queued = unacknowledged(stream)?;
    let start = Start::now(&a.device);
    let moved = turn(a.window)?;
    let moved = (moved + queued).saturating_sub(unacknowledged(stream)?);
    let common = start.finish(&a.device);
    println!("{{\"bytes\":{moved},{common}}}");
    Ok(())
}

/// One byte to and fro, one at a time.
fn transactions(a: &Arguments, mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(a.spin)?;
    let warm = Instant::now();
    while warm.elapsed() < a.warm {
        transaction(&mut stream, a.spin)?;
    }
    let mut times: Vec<u32> = Vec::with_capacity(1 << 20);
    let start = Start::now(&a.device);
    let mut begin = start.at;
    while begin - start.at < a.window && times.len() < SAMPLES {
        transaction(&mut stream, a.spin)?;
        let end = Instant::now();
        times.push(u32::try_from((end - begin).as_nanos()).unwrap_or(u32::MAX));
        begin = end;
    }
    let common = start.finish(&a.device);
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"transactions\":{},\"p50_ns\":{},\"p99_ns\":{},{common}}}",
        times.len(),
        at(0.5),
        at(0.99)
    );
    Ok(())
}

fn transaction(stream: &mut TcpStream, spin: bool) -> Result<()> {
    let mut byte = [1];
    stream.write_all(&byte)?;
    let mut tries = 0_u32;
    loop {
        match stream.read(&mut byte) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(Error::new(ErrorKind::UnexpectedEof, "the near end closed")),
            Err(error) if spin && error.kind() == ErrorKind::WouldBlock && tries < 1 << 23 => {
                tries += 1
            }
            Err(error) => return Err(error),
        }
    }
}
