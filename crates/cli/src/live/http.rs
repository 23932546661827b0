//! As much of HTTP as one page takes that is asked for again and again.
//!
//! Each client has a thread, so that none waits for another. There are `CLIENTS` at most, each for
//! `PATIENCE`; one more, and the oldest goes that has not asked yet.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_record::error::Error;

/// Bytes of a request, and time for it and for its answer.
const REQUEST_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients at the same time.
const CLIENTS: usize = 64;

type Page<'a> = &'a (dyn Fn() -> Result<String, String> + Sync);

/// The clients that are being served, by their number, the oldest first.
#[derive(Default)]
struct Clients(Mutex<VecDeque<(u64, TcpStream)>>);

impl Clients {
    fn list(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes one; where they are too many, the oldest loses its connection, and its thread ends.
    fn add(&self, number: u64, stream: &TcpStream) -> io::Result<()> {
        let copy = stream.try_clone()?;
        let mut list = self.list();
        list.push_back((number, copy));
        if list.len() > CLIENTS
            && let Some((_, oldest)) = list.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        Ok(())
    }

    fn remove(&self, number: u64) {
        self.list().retain(|(other, _)| *other != number);
    }
}

/// Serves `page` as `/metrics`, until the program is interrupted. Besides addresses and `localhost`
/// a client may call this host by these `names`.
pub fn serve(listener: &TcpListener, names: &[String], page: Page<'_>) -> Result<ExitCode, Error> {
    serve_for(listener, names, page, PATIENCE);
    Ok(ExitCode::SUCCESS)
}

fn serve_for(listener: &TcpListener, names: &[String], page: Page<'_>, patience: Duration) {
    let clients = Clients::default();
    // One page at a time is made, whoever asks.
    let page = (&Mutex::new(()), page);
    std::thread::scope(|scope| {
        for number in 0.. {
            // A client that cannot be accepted, or served, does not keep others from being served.
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if clients.add(number, &stream).is_err() {
                continue;
            }
            let clients = &clients;
            let serve = move || {
                let _ = answer(stream, names, page, patience);
                clients.remove(number);
            };
            if std::thread::Builder::new().spawn_scoped(scope, serve).is_err() {
                clients.remove(number);
            }
        }
    });
}

fn answer(
    mut stream: TcpStream,
    names: &[String],
    (one, page): (&Mutex<()>, Page<'_>),
    patience: Duration,
) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    let (status, body) = match asked(&request(&mut stream, patience)?, names) {
        Ok(()) => {
            let _one = one.lock().unwrap_or_else(PoisonError::into_inner);
            match page() {
                Ok(body) => ("200 OK", body),
                Err(why) => ("500 Internal Server Error", format!("{why}\n")),
            }
        }
        Err(status) => (status, format!("{status}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    write_by(&mut stream, head.as_bytes(), Instant::now() + patience)?;
    write_by(&mut stream, body.as_bytes(), Instant::now() + patience)
}

/// Writes all before a time, however slowly the client takes it.
fn write_by(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let written = stream.write(bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Reads a request up to its empty line.
fn request(stream: &mut TcpStream, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") && bytes.len() < REQUEST_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        // No time at all would be for ever.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut part)? {
            _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            0 => break,
            len => bytes.extend_from_slice(&part[..len]),
        }
    }
    Ok(bytes)
}

/// Returns an answer with an error for a request that is not one for the page.
fn asked(request: &[u8], names: &[String]) -> Result<(), &'static str> {
    let bad = "400 Bad Request";
    #[expect(clippy::disallowed_methods, reason = "a request is ASCII")]
    let text = std::str::from_utf8(request).map_err(|_| bad)?;
    let (head, _) = text.split_once("\r\n\r\n").ok_or(bad)?;
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, version @ ("HTTP/1.1" | "HTTP/1.0")] = words[..] else { return Err(bad) };
    let fields = lines.filter_map(|line| line.split_once(':'));
    let hosts = fields.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let hosts: Vec<&str> = hosts.map(|(_, value)| value.trim()).collect();
    match hosts[..] {
        [] if version == "HTTP/1.0" => {}
        [host] if is_this(host, names) => {}
        // A page of another name may have had that name lead here (DNS rebinding).
        [_] => return Err("421 Misdirected Request"),
        _ => return Err(bad),
    }
    if method != "GET" {
        return Err("405 Method Not Allowed");
    }
    let path = path.split('?').next().unwrap_or_default();
    if path == "/metrics" { Ok(()) } else { Err("404 Not Found") }
}

/// Returns whether a client means this server by a `Host` (RFC 9110 section 7.2): by an address,
/// which nobody else can have lead here, or by a name that is known.
fn is_this(host: &str, names: &[String]) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address, port),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let has_port = port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let known = |one: &str| name.trim_end_matches('.').eq_ignore_ascii_case(one);
    (port.is_empty() || has_port)
        && (name.parse::<IpAddr>().is_ok()
            || known("localhost")
            || names.iter().any(|one| known(one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_served() {
        let cases: [(&[u8], Result<(), &str>); 13] = [
            (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9184\r\n\r\n", Ok(())),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", Ok(())),
            (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", Err("404 Not Found")),
            (b"GET /metrics/../../etc HTTP/1.0\r\n\r\n", Err("404 Not Found")),
            (b"POST /metrics HTTP/1.0\r\n\r\n", Err("405 Method Not Allowed")),
            (b"GET /metrics HTTP/1.1\r\n\r\n", Err("400 Bad Request")),
            (b"GET /metrics HTTP/1.0\r\n", Err("400 Bad Request")),
            (b"GET /metrics HTTP/2\r\n\r\n", Err("400 Bad Request")),
            (b"\xff\xfe\r\n\r\n", Err("400 Bad Request")),
            (b"", Err("400 Bad Request")),
            (
                b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                Err("421 Misdirected Request"),
            ),
            (
                b"GET /metrics HTTP/1.0\r\nHost: evil.example\r\n\r\n",
                Err("421 Misdirected Request"),
            ),
            (
                b"GET /metrics HTTP/1.1\r\nHost: ::1\r\nHost: localhost\r\n\r\n",
                Err("400 Bad Request"),
            ),
        ];
        for (request, expected) in cases {
            assert_eq!(asked(request, &[]), expected, "{:?}", String::from_utf8_lossy(request));
        }
    }

    #[test]
    fn a_host_is_an_address_or_a_name_that_is_known() {
        let names = ["lab.example".to_owned()];
        for host in
            ["127.0.0.1", "[::1]:9184", "LOCALHOST:80", "localhost.", "Lab.Example:1", "192.0.2.7"]
        {
            assert!(is_this(host, &names), "{host}");
        }
        for host in [
            "",
            "x",
            "127.0.0.1.evil.example",
            "localhost:x",
            "[::1]x",
            "lab.example.evil",
            "1:2:3",
        ] {
            assert!(!is_this(host, &names), "{host}");
        }
    }

    /// More silent clients than have a thread, and one that asks: what it is told comes whoever
    /// else is there.
    #[test]
    fn silent_clients_keep_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // So long that whoever is waited for is waited for in vain.
        let patience = Duration::from_secs(3600);
        std::thread::spawn(move || {
            serve_for(&listener, &[], &|| Ok("page".to_owned()), patience);
        });
        let mut silent: Vec<TcpStream> =
            (0..2 * CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK") && told.ends_with("\r\n\r\npage"), "{told}");
        // The last of them still has its connection: it was not waited for.
        let last = silent.last_mut().unwrap();
        last.set_nonblocking(true).unwrap();
        assert_eq!(last.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
