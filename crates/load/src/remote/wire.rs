//! The bytes of a control connection: over TCP, or over a pair of sockets whose other end has the
//! standard input and output of who speaks.
//!
//! ```text
//! server  magic 8 | version 2 | nonce 32
//! client  magic 8 | version 2 | nonce 32 | proof 32
//! server  verdict 1 | proof 32
//! then    length 4 | code 32 | message of `length` bytes, in JSON
//! ```
//!
//! Numbers are in network order. A proof is the HMAC-SHA-256 (RFC 2104) of a word for its side and
//! both nonces, its key the token; the same with another word is the key of the codes, each of
//! which is the HMAC of the direction, the number of the message in it, and the message. Nothing of
//! a fixed length is followed by more, and no memory is taken for a message before its length is
//! checked.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;
use socket2::{Socket, TcpKeepalive};

use super::{Token, VERSION};

/// Longest time that a side may take to prove that it has the token.
pub(super) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that a message may wait for a peer that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server, which says something each second.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest request.
pub(super) const REQUEST_BYTES: usize = 64 << 10;
/// Longest answer: it has what the probes of a whole run saw.
pub(super) const ANSWER_BYTES: usize = 64 << 20;

const MAGIC: [u8; 8] = *b"mstrserv";
const HELLO_BYTES: usize = 8 + 2 + 32;

type Code = [u8; 32];

/// The server's answer to the proof of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome = 0,
    OtherVersion = 1,
    WrongToken = 2,
    Busy = 3,
}

/// The side that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Writes messages.
pub(super) struct Sender {
    stream: Socket,
    key: Code,
    side: Side,
    count: u64,
}

/// Reads messages.
pub(super) struct Receiver {
    stream: Socket,
    key: Code,
    from: Side,
    count: u64,
    most_bytes: usize,
}

fn code(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

fn bytes(mac: Hmac<Sha256>) -> Code {
    mac.finalize().into_bytes().into()
}

fn nonce() -> io::Result<Code> {
    let mut nonce = Code::default();
    std::fs::File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn no_serve() -> io::Error {
    bad("it is no `millstream serve`")
}

/// Returns `error` in words, where it is that the peer has gone or took longer than `patience`.
fn in_words(patience: Duration) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            let why = format!("it says nothing for {} s", patience.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, why)
        }
        kind @ (io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe) => io::Error::new(kind, "it has gone"),
        _ => error,
    }
}

/// Fills `buffer` before `deadline`, however slowly the peer sends.
fn read_by(stream: &mut Socket, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn hello(nonce: &Code) -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..10].copy_from_slice(&VERSION.to_be_bytes());
    hello[10..].copy_from_slice(nonce);
    hello
}

/// The version and nonce of a hello.
fn heard(hello: &[u8; HELLO_BYTES]) -> io::Result<(u16, Code)> {
    if hello[..8] != MAGIC {
        return Err(no_serve());
    }
    let mut nonce = Code::default();
    nonce.copy_from_slice(&hello[10..]);
    Ok((u16::from_be_bytes([hello[8], hello[9]]), nonce))
}

/// Asks a server, which has so long to answer; after this both have proved to know the token.
pub(super) fn ask(
    mut stream: Socket,
    token: &Token,
    patience: Duration,
) -> io::Result<(Sender, Receiver)> {
    let deadline = Instant::now() + patience;
    let mut theirs = [0; HELLO_BYTES];
    read_by(&mut stream, &mut theirs, deadline).map_err(in_words(patience))?;
    let (version, server) = heard(&theirs)?;
    if version != VERSION {
        return Err(bad(format!("it speaks version {version}, and this is version {VERSION}")));
    }
    let client = nonce()?;
    let (key, nonces) = (token.bytes(), [&server[..], &client[..]].concat());
    stream.set_write_timeout(Some(SEND_TIMEOUT))?;
    stream.write_all(&hello(&client))?;
    stream.write_all(&bytes(code(key, &[b"client", &nonces])))?;
    let mut answer = [0; 33];
    read_by(&mut stream, &mut answer, deadline).map_err(in_words(patience))?;
    match answer[0] {
        1 => return Err(bad("it speaks another version")),
        2 => return Err(bad("it has another token")),
        _ => {}
    }
    // Busy is believed only of who knows the token, too.
    let proof = code(key, &[b"server", &answer[..1], &nonces]);
    proof.verify_slice(&answer[1..]).map_err(|_| bad("it does not know the token"))?;
    match answer[0] {
        0 => ends(stream, bytes(code(key, &[b"session", &nonces])), Side::Client),
        3 => Err(io::Error::new(io::ErrorKind::ResourceBusy, "it does another run")),
        _ => Err(bad("it answers oddly")),
    }
}

/// The nonces that clients prove themselves by. None comes twice, and nobody foresees one.
pub(super) struct Challenges {
    secret: Code,
    count: u64,
}

impl Challenges {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { secret: nonce()?, count: 0 })
    }

    pub(super) fn next(&mut self) -> Code {
        self.count += 1;
        bytes(code(&self.secret, &[&self.count.to_be_bytes()]))
    }
}

/// A connection whose client has proved nothing yet.
pub(super) struct Unproved {
    stream: Socket,
    nonce: Code,
    said: [u8; HELLO_BYTES + 32],
    len: usize,
}

impl Unproved {
    /// Sends the challenge.
    pub(super) fn greet(mut stream: Socket, nonce: Code) -> io::Result<Self> {
        stream.write_all(&hello(&nonce))?;
        Ok(Self { stream, nonce, said: [0; HELLO_BYTES + 32], len: 0 })
    }

    pub(super) fn stream(&self) -> &Socket {
        &self.stream
    }

    /// Reads what there is, and returns whether the client has said all. What no client says is an
    /// error at once.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        while self.len < self.said.len() {
            match self.stream.read(&mut self.said[self.len..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.len += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let begun = self.len.min(MAGIC.len());
            if self.said[..begun] != MAGIC[..begun] {
                return Err(no_serve());
            }
        }
        Ok(true)
    }

    /// Looks at the proof of a client that has said all. `take` says whether there is room for it,
    /// once it knows the token.
    pub(super) fn judge(
        self,
        token: &Token,
        take: impl FnOnce() -> bool,
    ) -> io::Result<(Sender, Receiver)> {
        let Self { mut stream, nonce: server, said, .. } = self;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PROOF_TIMEOUT))?;
        let (theirs, proof) = said.split_at(HELLO_BYTES);
        let (version, client) = heard(theirs.try_into().expect("so long"))?;
        let (key, nonces) = (token.bytes(), [&server[..], &client[..]].concat());
        let refuse = |stream: &mut Socket, verdict: Verdict, why: &str| {
            let mut answer = [0; 33];
            answer[0] = verdict as u8;
            let _ = stream.write_all(&answer);
            bad(why)
        };
        if version != VERSION {
            return Err(refuse(&mut stream, Verdict::OtherVersion, "another version"));
        }
        if code(key, &[b"client", &nonces]).verify_slice(proof).is_err() {
            return Err(refuse(&mut stream, Verdict::WrongToken, "another token"));
        }
        let verdict = if take() { Verdict::Welcome } else { Verdict::Busy };
        let mut answer = vec![verdict as u8];
        answer.extend(bytes(code(key, &[b"server", &[verdict as u8], &nonces])));
        stream.write_all(&answer)?;
        if verdict == Verdict::Busy {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another run is going"));
        }
        ends(stream, bytes(code(key, &[b"session", &nonces])), Side::Server)
    }
}

/// Both directions of a connection whose sides know each other.
fn ends(stream: Socket, key: Code, side: Side) -> io::Result<(Sender, Receiver)> {
    let (from, most_bytes, patience) = match side {
        Side::Client => (Side::Server, ANSWER_BYTES, Some(SILENCE)),
        Side::Server => (Side::Client, REQUEST_BYTES, None),
    };
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(Some(SEND_TIMEOUT))?;
    let sender = Sender { stream: stream.try_clone()?, key, side, count: 0 };
    Ok((sender, Receiver { stream, key, from, count: 0, most_bytes }))
}

/// Sets what a control connection over TCP has: a message goes at once, and a peer that is gone
/// without a word is noticed in some ten seconds.
pub(super) fn over_tcp(stream: &Socket) -> io::Result<()> {
    let (idle, again) = (Duration::from_secs(3), Duration::from_secs(2));
    stream.set_tcp_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(idle).with_interval(again).with_retries(3);
    stream.set_tcp_keepalive(&probes)?;
    stream.set_tcp_user_timeout(Some(SEND_TIMEOUT))
}

fn of_message(key: &Code, side: Side, count: u64, message: &[u8]) -> Hmac<Sha256> {
    code(key, &[&[side as u8], &count.to_be_bytes(), message])
}

impl Sender {
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message).map_err(io::Error::other)?;
        let length = u32::try_from(text.len()).map_err(|_| bad("too long a message"))?;
        let code = bytes(of_message(&self.key, self.side, self.count, &text));
        self.count += 1;
        let mut frame = Vec::with_capacity(36 + text.len());
        frame.extend(length.to_be_bytes());
        frame.extend(code);
        frame.extend(text);
        self.stream.write_all(&frame)
    }

    /// Ends the connection; the other half hears of it.
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message. After an error there is none any more.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut head = [0; 36];
        self.stream.read_exact(&mut head).map_err(in_words(SILENCE))?;
        let (length, code) = head.split_at(4);
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        if length > self.most_bytes {
            return Err(bad(format!("a message of {length} bytes; {} at most", self.most_bytes)));
        }
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text).map_err(in_words(SILENCE))?;
        let expected = of_message(&self.key, self.from, self.count, &text);
        expected.verify_slice(code).map_err(|_| bad("a message that the peer has not sent"))?;
        self.count += 1;
        serde_json::from_slice(&text).map_err(|error| bad(format!("an odd message: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn joined() -> (Socket, Socket) {
        let (client, server) = UnixStream::pair().unwrap();
        (client.into(), server.into())
    }

    type Ends = io::Result<(Sender, Receiver)>;

    /// The server's side, which waits for its client.
    fn receive(server: Socket, token: &Token, take: impl FnOnce() -> bool) -> Ends {
        let mut unproved = Unproved::greet(server, Challenges::new()?.next())?;
        unproved.read()?;
        unproved.judge(token, take)
    }

    fn meet(ours: &str, theirs: &'static str, has_room: bool) -> (Ends, Ends) {
        let (client, server) = joined();
        let serving = thread::spawn(move || receive(server, &token(theirs), || has_room));
        let asked = ask(client, &token(ours), PROOF_TIMEOUT);
        (asked, serving.join().unwrap())
    }

    const RIGHT: &str = "the right token, long";

    #[test]
    fn sides_with_one_token_hear_each_other() {
        let (client, server) = meet(RIGHT, RIGHT, true);
        let ((mut to_server, mut from_server), (mut to_client, mut from_client)) =
            (client.unwrap(), server.unwrap());
        for text in ["one", "two"] {
            to_server.send(&text).unwrap();
            assert_eq!(from_client.receive::<String>().unwrap(), text);
            to_client.send(&text.len()).unwrap();
            assert_eq!(from_server.receive::<usize>().unwrap(), 3);
        }
        drop((to_server, from_server));
        assert!(from_client.receive::<String>().is_err());
    }

    #[test]
    fn another_token_or_no_room_is_said() {
        let (client, server) = meet("another token, long", RIGHT, true);
        assert!(client.err().unwrap().to_string().contains("another token"));
        assert!(server.is_err());
        let (client, server) = meet(RIGHT, RIGHT, false);
        assert_eq!(client.err().unwrap().kind(), io::ErrorKind::ResourceBusy);
        assert!(server.is_err());
    }

    /// An attacker who has read a whole connection cannot use any of it: the nonces of the next are
    /// others.
    #[test]
    fn a_proof_that_was_heard_is_worth_nothing_later() {
        let (mut attacker, server) = joined();
        let serving = thread::spawn(move || receive(server, &token(RIGHT), || true));
        let mut theirs = [0; HELLO_BYTES];
        attacker.read_exact(&mut theirs).unwrap();
        let nonces = [theirs[10..].to_vec(), vec![7; 32]].concat();
        let proof = bytes(code(token(RIGHT).bytes(), &[b"client", &nonces]));
        attacker.write_all(&hello(&[7; 32])).unwrap();
        attacker.write_all(&proof).unwrap();
        assert!(serving.join().unwrap().is_ok(), "the same code, fresh, is right");
        let (mut attacker, server) = joined();
        let serving = thread::spawn(move || receive(server, &token(RIGHT), || true));
        attacker.read_exact(&mut theirs).unwrap();
        attacker.write_all(&hello(&[7; 32])).unwrap();
        attacker.write_all(&proof).unwrap();
        assert!(serving.join().unwrap().is_err());
    }

    /// A server that does not know the token says welcome.
    #[test]
    fn who_only_says_welcome_is_not_believed() {
        for verdict in [0, 3, 9] {
            let (client, mut server) = joined();
            let asking = thread::spawn(move || ask(client, &token(RIGHT), PROOF_TIMEOUT));
            server.write_all(&hello(&[1; 32])).unwrap();
            server.read_exact(&mut [0; HELLO_BYTES + 32]).unwrap();
            let mut answer = [9; 33];
            answer[0] = verdict;
            server.write_all(&answer).unwrap();
            let error = asking.join().unwrap().err().unwrap();
            assert!(error.to_string().contains("does not know the token"), "{error}");
        }
    }

    /// One who sits on the path after both sides have proved themselves.
    #[test]
    fn messages_that_are_changed_repeated_turned_around_or_too_long_end_the_connection() {
        type Attack = fn(&mut Vec<u8>);
        let attacks: [Attack; 4] = [
            |frame| *frame.last_mut().unwrap() ^= 1,
            |frame| frame[4] ^= 1,
            |frame| frame.extend(frame.clone()),
            |frame| frame[..4].copy_from_slice(&(REQUEST_BYTES as u32 + 1).to_be_bytes()),
        ];
        for (at, attack) in attacks.into_iter().enumerate() {
            let (client, server) = meet(RIGHT, RIGHT, true);
            let ((to_server, _from_server), (_to_client, mut from_client)) =
                (client.unwrap(), server.unwrap());
            let text = serde_json::to_vec("hello").unwrap();
            let code = bytes(of_message(&to_server.key, Side::Client, 0, &text));
            let mut frame = (text.len() as u32).to_be_bytes().to_vec();
            frame.extend(code);
            frame.extend(text);
            attack(&mut frame);
            (&to_server.stream).write_all(&frame).unwrap();
            let is_repeated = at == 2;
            if is_repeated {
                assert_eq!(from_client.receive::<String>().unwrap(), "hello");
            }
            assert!(from_client.receive::<String>().is_err(), "attack {at}");
        }
        let (client, server) = meet(RIGHT, RIGHT, true);
        let ((to_server, mut from_server), (_to_client, _)) = (client.unwrap(), server.unwrap());
        let text = serde_json::to_vec("mine").unwrap();
        let own = bytes(of_message(&to_server.key, Side::Client, 0, &text));
        let mut frame = (text.len() as u32).to_be_bytes().to_vec();
        frame.extend(own);
        frame.extend(text);
        (&_to_client.stream).write_all(&frame).unwrap();
        assert!(from_server.receive::<String>().is_err(), "what the client sent is no answer");
    }

    #[test]
    fn garbage_and_silence_are_given_up() {
        let (mut garbage, server) = joined();
        garbage.write_all(&[b'x'; 200]).unwrap();
        assert!(receive(server, &token(RIGHT), || true).is_err());
        let (mut stream, peer) = joined();
        let begun = Instant::now();
        let deadline = begun + Duration::from_millis(30);
        let drip = thread::spawn(move || {
            let mut peer = peer;
            while peer.write_all(b"x").is_ok() && begun.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let error = read_by(&mut stream, &mut [0; 10_000], deadline).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "a drip does not put it off");
        drop(stream);
        drip.join().unwrap();
    }
}
