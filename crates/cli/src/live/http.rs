//! As much of HTTP as one page takes that is asked for again and again.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millstream_lab::error::Error;

/// Bytes of a request, and time for it and for its answer. One is served after the other.
const REQUEST_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves `page` as `/metrics`, until the program is interrupted.
pub fn serve(
    listener: &TcpListener,
    page: impl Fn() -> Result<String, String>,
) -> Result<ExitCode, Error> {
    loop {
        // Who cannot be accepted, or served, is not served; others are.
        match listener.accept() {
            Ok((stream, _)) => drop(answer(stream, &page)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn answer(mut stream: TcpStream, page: &impl Fn() -> Result<String, String>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match asked(&request(&mut stream)?) {
        Ok(()) => match page() {
            Ok(body) => ("200 OK", body),
            Err(why) => ("500 Internal Server Error", format!("{why}\n")),
        },
        Err(status) => (status, format!("{status}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads a request up to its empty line.
fn request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
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

/// Whether a request is one for the page; otherwise what is answered.
fn asked(request: &[u8]) -> Result<(), &'static str> {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| "400 Bad Request")?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        _ if !request.windows(4).any(|end| end == b"\r\n\r\n") => Err("400 Bad Request"),
        ["GET", path, "HTTP/1.1" | "HTTP/1.0"] => {
            let path = path.split('?').next().unwrap_or_default();
            if path == "/metrics" { Ok(()) } else { Err("404 Not Found") }
        }
        [_, _, "HTTP/1.1" | "HTTP/1.0"] => Err("405 Method Not Allowed"),
        _ => Err("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_served() {
        let cases: [(&[u8], Result<(), &str>); 8] = [
            (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Ok(())),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", Ok(())),
            (b"GET / HTTP/1.1\r\n\r\n", Err("404 Not Found")),
            (b"GET /metrics/../../etc HTTP/1.1\r\n\r\n", Err("404 Not Found")),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Err("405 Method Not Allowed")),
            (b"GET /metrics HTTP/1.1\r\n", Err("400 Bad Request")),
            (b"\xff\xfe\r\n\r\n", Err("400 Bad Request")),
            (b"", Err("400 Bad Request")),
        ];
        for (request, expected) in cases {
            assert_eq!(asked(request), expected, "{:?}", String::from_utf8_lossy(request));
        }
    }
}
