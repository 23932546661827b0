//! Serves the files below a directory over HTTP/1.1: GET and HEAD, directory listings, keep-alive.
//!
//! ```text
//! cargo run --release --example http_file_server -- --tap ms0 --address 10.70.0.2/24 \
//!     --host-address 10.70.0.1/24 --root .
//! curl http://10.70.0.2:8070/
//! ```
//! One thread serves all connections; each is a small state machine that never blocks. Who does not
//! send a whole request within 30 s, or takes nothing of an answer for as long, is closed.

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use millstream::SocketId;
use millstream::local::{Stack, TcpListener, TcpStream};
use support::{Interrupted, LAST_MOMENT, Options, StatsLine, Sweep, announce, fail, parsed};

/// A request's header must fit.
const REQUEST_BYTES: usize = 16 * 1024;
/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 128 * 1024;
/// Open connections; further ones are closed at once.
const CLIENTS: usize = 4096;

/// A request, from its beginning or the end of the response before, and each part of a response may
/// take so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The part of a response that is still to send.
struct Response {
    head: Vec<u8>,
    body: Body,
    keep_alive: bool,
}

enum Body {
    Nothing,
    File { file: File, left: u64 },
}

impl Response {
    fn text(status: &str, kind: &str, text: &str, head_only: bool, keep_alive: bool) -> Self {
        let mut head = head(status, kind, text.len() as u64, keep_alive);
        if !head_only {
            head.extend_from_slice(text.as_bytes());
        }
        Self { head, body: Body::Nothing, keep_alive }
    }

    fn error(status: &str, head_only: bool, keep_alive: bool) -> Self {
        Self::text(
            status,
            "text/plain; charset=utf-8",
            &format!("{status}\n"),
            head_only,
            keep_alive,
        )
    }
}

fn head(status: &str, kind: &str, len: u64, keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "HTTP/1.1 {status}\r\nServer: millstream\r\nContent-Type: {kind}\r\n\
         Content-Length: {len}\r\nConnection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    response: Option<Response>,
    chunk: Vec<u8>,
    /// Sent of `chunk`.
    sent: usize,
    /// When it is closed, unless it gets on.
    until: Instant,
}

/// Why a client is not served on for now.
enum Pause {
    /// It must read or write first.
    Wait,
    /// It is done.
    Close,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        let until = Instant::now() + PATIENCE;
        Self { stream, request: Vec::new(), response: None, chunk: Vec::new(), sent: 0, until }
    }

    /// Goes on until it would block; false when the connection is over.
    fn serve(&mut self, root: &Path) -> bool {
        loop {
            let step = match self.response.is_some() {
                true => self.send(),
                false => self.receive(root),
            };
            match step {
                Ok(()) => {}
                Err(Pause::Wait) => return true,
                Err(Pause::Close) => return false,
            }
        }
    }

    fn receive(&mut self, root: &Path) -> Result<(), Pause> {
        if let Some(end) = find_end(&self.request) {
            let request: Vec<u8> = self.request.drain(..end).collect();
            self.response = Some(answer(&String::from_utf8_lossy(&request), root));
            return Ok(());
        }
        if self.request.len() > REQUEST_BYTES {
            self.response =
                Some(Response::error("431 Request Header Fields Too Large", false, false));
            return Ok(());
        }
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Pause::Close),
            Ok(len) => {
                self.request.extend_from_slice(&bytes[..len]);
                Ok(())
            }
            Err(error) => Err(pause(&error)),
        }
    }

    fn send(&mut self) -> Result<(), Pause> {
        while self.sent < self.chunk.len() {
            match self.stream.write(&self.chunk[self.sent..]) {
                Ok(len) => {
                    self.sent += len;
                    self.until = Instant::now() + PATIENCE;
                }
                Err(error) => return Err(pause(&error)),
            }
        }
        match self.fill() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // The length that was promised cannot be kept.
            Err(_) => return Err(Pause::Close),
        }
        let keep_alive = self.response.take().is_some_and(|response| response.keep_alive);
        if keep_alive { Ok(()) } else { Err(Pause::Close) }
    }

    /// Reads the next part of the response; returns true if there is one. The head goes with the
    /// first of the file, as one write.
    fn fill(&mut self) -> io::Result<bool> {
        self.sent = 0;
        self.chunk.clear();
        let Some(response) = &mut self.response else { return Ok(false) };
        self.chunk.append(&mut response.head);
        if let Body::File { file, left } = &mut response.body {
            let want = (CHUNK_BYTES as u64).min(*left);
            if file.take(want).read_to_end(&mut self.chunk)? as u64 != want {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *left -= want;
        }
        Ok(!self.chunk.is_empty())
    }
}

fn pause(error: &io::Error) -> Pause {
    if error.kind() == io::ErrorKind::WouldBlock { Pause::Wait } else { Pause::Close }
}

/// Where the header of the first request ends.
fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The response to a request's header.
fn answer(request: &str, root: &Path) -> Response {
    let mut lines = request.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return Response::error("400 Bad Request", false, false);
    };
    if !version.starts_with("HTTP/1.") {
        return Response::error("505 HTTP Version Not Supported", false, false);
    }
    let mut keep_alive = version != "HTTP/1.0";
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "connection" if value.eq_ignore_ascii_case("close") => keep_alive = false,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => keep_alive = true,
            // A request's body would be taken for the next request.
            "content-length" | "transfer-encoding" if value != "0" => {
                return Response::error("413 Content Too Large", false, false);
            }
            _ => {}
        }
    }
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Response::error("501 Not Implemented", false, false),
    };
    let Some(path) = local_path(target, root) else {
        return Response::error("403 Forbidden", head_only, keep_alive);
    };
    file_response(&path, root, target, head_only, keep_alive)
}

/// The file that a request's target names: below `root`, or nothing.
fn local_path(target: &str, root: &Path) -> Option<PathBuf> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_decode(path)?;
    let mut local = root.to_path_buf();
    for part in Path::new(decoded.trim_start_matches('/')).components() {
        match part {
            Component::Normal(name) => local.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(local)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        };
        if byte == 0 {
            return None;
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

fn file_response(
    path: &Path,
    root: &Path,
    target: &str,
    head_only: bool,
    keep_alive: bool,
) -> Response {
    // Symbolic links must not lead out.
    let Ok(path) = path.canonicalize() else {
        return Response::error("404 Not Found", head_only, keep_alive);
    };
    if !path.starts_with(root) {
        return Response::error("403 Forbidden", head_only, keep_alive);
    }
    if path.is_dir() {
        let index = path.join("index.html");
        if index.is_file() {
            return file_response(&index, root, target, head_only, keep_alive);
        }
        let html = "text/html; charset=utf-8";
        return match listing(&path, target) {
            Ok(page) => Response::text("200 OK", html, &page, head_only, keep_alive),
            Err(_) => Response::error("403 Forbidden", head_only, keep_alive),
        };
    }
    // Looked at before it is opened: to open a pipe may wait for ever.
    if !path.is_file() {
        return Response::error("403 Forbidden", head_only, keep_alive);
    }
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Ok((meta, file)) if meta.is_file() => {
            let head = head("200 OK", kind_of(&path), meta.len(), keep_alive);
            let body = match head_only {
                true => Body::Nothing,
                false => Body::File { file, left: meta.len() },
            };
            Response { head, body, keep_alive }
        }
        _ => Response::error("403 Forbidden", head_only, keep_alive),
    }
}

fn listing(path: &Path, target: &str) -> io::Result<String> {
    let mut names: Vec<String> = fs::read_dir(path)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let slash = if entry.path().is_dir() { "/" } else { "" };
            Some(format!("{}{slash}", entry.file_name().to_string_lossy()))
        })
        .collect();
    names.sort();
    let base = target.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let title = escape(base);
    let mut page = format!("<!DOCTYPE html><title>{title}/</title><h1>{title}/</h1><ul>\n");
    for name in names {
        let (link, name) = (percent_encode(&name), escape(&name));
        let _ = writeln!(page, "<li><a href=\"{title}/{link}\">{name}</a></li>");
    }
    page.push_str("</ul>\n");
    Ok(page)
}

/// A name as a part of a target, with the slash that it may end with.
fn percent_encode(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("txt" | "md" | "rs" | "toml") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        _ => "application/octet-stream",
    }
}

fn run(stack: &Stack, root: &Path, port: u16, stats: &mut StatsLine) -> io::Result<()> {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let listener = TcpListener::bind(stack, any, 1024)?;
    listener.set_nonblocking(true)?;
    announce(&format!("on port {port}, HTTP"));
    let mut clients: HashMap<SocketId, Client> = HashMap::new();
    let mut events = Vec::new();
    let interrupted = Interrupted::of(stack);
    let mut sweep = Sweep::new();
    while !interrupted.is_set() {
        events.clear();
        stack.wait(stats.patience_with(clients.len()), &mut events)?;
        stats.tick(stack)?;
        if let Some(now) = sweep.due() {
            clients.retain(|_, client| client.until > now);
        }
        for event in &events {
            if event.id == listener.id() {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    // The end of a response shall not wait for the ACK of its beginning (Nagle).
                    stream.set_nodelay(true)?;
                    let mut client = Client::new(stream);
                    if clients.len() < CLIENTS && client.serve(root) {
                        clients.insert(client.stream.id(), client);
                    }
                }
            } else if clients.get_mut(&event.id).is_some_and(|client| !client.serve(root)) {
                clients.remove(&event.id);
            }
        }
    }
    drop((clients, listener));
    stack.shutdown_within(LAST_MOMENT);
    Ok(())
}

fn main() {
    let (mut port, mut root) = (8070, PathBuf::from("."));
    let own = "  --port N               of TCP [default: 8070]\n  --root DIR             what is served [default: .]";
    let options = Options::parse(include_str!("http_file_server.rs"), own, |option, value| {
        match option {
            "--port" => port = parsed(option, &value()),
            "--root" => root = value().into(),
            _ => return false,
        }
        true
    });
    let root = root
        .canonicalize()
        .unwrap_or_else(|error| fail(&format!("--root {}: {error}", root.display())));
    options.serve(|stack, stats| run(stack, &root, port, stats));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A folder that is gone at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ms-http-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path.canonicalize().expect("its path"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// First line and text of an answer.
    fn get(target: &str, root: &Path) -> (String, String) {
        let response = answer(&format!("GET {target} HTTP/1.1\r\n\r\n"), root);
        let mut text = String::from_utf8(response.head).expect("text");
        if let Body::File { mut file, .. } = response.body {
            file.read_to_string(&mut text).expect("a file");
        }
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
    }

    #[test]
    fn what_a_listing_names_can_be_had_whatever_its_name() {
        let folder = Folder::new("names");
        let names = ["50% off.txt", "a?b#c", "plain.txt", "\"<&>'", "größe", "a+b:c"];
        fs::create_dir(folder.0.join("in %20 it")).expect("a folder");
        for name in names {
            fs::write(folder.0.join("in %20 it").join(name), name).expect("a file");
        }
        let links = |target: &str| -> Vec<String> {
            let (_, page) = get(target, &folder.0);
            let link = |part: &str| Some(part.split_once('"')?.0.replace("&amp;", "&"));
            page.split("href=\"").skip(1).filter_map(link).collect()
        };
        let outer = links("/");
        assert_eq!(outer.len(), 1, "{outer:?}");
        let inner = links(&outer[0]);
        let mut found: Vec<String> = inner.iter().map(|link| get(link, &folder.0).1).collect();
        found.sort();
        let mut expected = names.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{inner:?}");
    }

    #[test]
    fn what_is_no_file_keeps_nobody_waiting() {
        let folder = Folder::new("pipe");
        let pipe = folder.0.join("pipe");
        assert!(
            std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success()
        );
        let (tell, told) = mpsc::channel();
        let root = folder.0.clone();
        std::thread::spawn(move || tell.send(get("/pipe", &root).0));
        let line = told.recv_timeout(Duration::from_secs(10));
        assert_eq!(line.as_deref(), Ok("HTTP/1.1 403 Forbidden"));
    }
}
