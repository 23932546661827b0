//! Streams whose every byte says where it belongs, beside a disk that is kept busy.
//!
//! Byte `n` of connection `c` in one direction is a byte of a 64-bit mix of `c`, the direction and
//! `n / 8`: one that is changed, missing, repeated or of another connection does not match. Every
//! byte is checked by the end that receives it, whether the stack copied it or placed it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{End, Lane, Outcome, Part, Progress, Tracker, Wrong, describe, monotonic_ns};
use crate::transport::Network;

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    let disk_mib = if part.end == End::Near { part.task.number("disk_mib") } else { 0 };
    let bytes = (part.task.number("message_bytes"), disk_mib);
    run(network, part.end, &part.lanes, bytes, progress)
}

/// Longest wait of a thread without anything ready before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Calls on one connection before the next has its turn.
const CALLS_PER_TURN: usize = 4;
/// Places with wrong bytes that an end tells of, and bytes of each.
const PLACES: usize = 8;
const PLACE_BYTES: usize = 8;
/// Memory that connections are read into while they are waited for.
const WAIT_BYTES: usize = 256 * 1024;

/// The eight bytes at `word * 8` of a stream (the finalizer of SplitMix64).
fn word(stream: u64, word: u64) -> [u8; 8] {
    let mut z = (word ^ stream.rotate_right(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// The bytes of `stream` from `at` on.
fn fill(stream: u64, at: u64, out: &mut [u8]) {
    let mut done = 0;
    while done < out.len() {
        let now = at + done as u64;
        let bytes = &word(stream, now / 8)[(now % 8) as usize..];
        let count = bytes.len().min(out.len() - done);
        out[done..done + count].copy_from_slice(&bytes[..count]);
        done += count;
    }
}

/// Returns how many bytes of `data` are not those of `stream` from `at` on, and where in it the
/// first is.
fn wrong(stream: u64, at: u64, data: &[u8]) -> (u64, Option<usize>) {
    let (mut done, mut wrong, mut first) = (0, 0, None);
    while done < data.len() {
        let now = at + done as u64;
        let right = &word(stream, now / 8)[(now % 8) as usize..];
        let count = right.len().min(data.len() - done);
        let found = &data[done..done + count];
        if found != &right[..count] {
            wrong += found.iter().zip(right).filter(|(a, b)| a != b).count() as u64;
            first = first.or_else(|| {
                found.iter().zip(right).position(|(a, b)| a != b).map(|within| done + within)
            });
        }
        done += count;
    }
    (wrong, first)
}

/// One connection of an end.
struct Stream {
    lane: Lane,
    name: u64,
    at: u64,
    wrong: u64,
    /// Where, of the first reads that brought any.
    places: Vec<Wrong>,
    ended: bool,
}

impl Stream {
    fn check(&mut self, data: &[u8]) {
        let (count, first) = wrong(self.name, self.at, data);
        self.wrong += count;
        if let Some(first) = first.filter(|_| self.places.len() < PLACES) {
            let seen = data[first..].iter().take(PLACE_BYTES).copied().collect::<Vec<u8>>();
            let mut expected = vec![0; seen.len()];
            let offset = self.at + first as u64;
            fill(self.name, offset, &mut expected);
            let (connection, at_ns) = (self.name, monotonic_ns());
            self.places.push(Wrong { connection, offset, at_ns, expected, seen });
        }
        self.at += data.len() as u64;
    }
}

/// All of an end.
struct Soak<'a> {
    network: &'a mut dyn Network,
    progress: &'a Progress,
    streams: Vec<Stream>,
    buffer: Vec<u8>,
    sent: u64,
    received: u64,
    stopped: bool,
}

fn run(
    network: &mut dyn Network,
    end: End,
    lanes: &[Lane],
    (message_bytes, disk_mib): (usize, usize),
    progress: &Progress,
) -> io::Result<Outcome> {
    let disk = Disk::open(disk_mib)?;
    std::thread::scope(|scope| {
        let users = disk.users(scope);
        let done = streams(network, end, lanes, message_bytes, progress);
        disk.over.store(true, Ordering::Relaxed);
        let mut outcome = done?;
        for user in users {
            user.join().map_err(|_| io::Error::other("the disk's thread panicked"))??;
        }
        disk.tell(&mut outcome.counters);
        Ok(outcome)
    })
}

fn streams(
    network: &mut dyn Network,
    end: End,
    lanes: &[Lane],
    message_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut by_conn = BTreeMap::new();
    let mut all = Vec::new();
    for (at, &lane) in lanes.iter().enumerate() {
        network.watch(lane.conn, !lane.sends, lane.sends)?;
        by_conn.insert(lane.conn, at);
        // The lanes of both ends are in one order: their number is the connection.
        let name = at as u64 + 1;
        all.push(Stream { lane, name, at: 0, wrong: 0, places: Vec::new(), ended: false });
    }
    let receives = lanes.iter().any(|lane| !lane.sends);
    progress.open_receivers(lanes.iter().filter(|lane| !lane.sends).count());
    let mut memory = vec![0; if receives { WAIT_BYTES } else { 0 }];
    let buffer = vec![0; message_bytes];
    let mut soak =
        Soak { network, progress, streams: all, buffer, sent: 0, received: 0, stopped: false };
    let (mut ready, mut pieces) = (Vec::new(), Vec::new());
    let (mut tracker, mut tcp_info) = (Tracker::new(), Vec::new());
    while soak.streams.iter().any(|stream| !stream.ended) {
        if !soak.stopped && progress.stopping() {
            tcp_info = describe(soak.network, end, lanes);
            soak.stop_sending()?;
        }
        soak.network.wait_read(LOOK, &mut memory, &mut ready, &mut pieces)?;
        tracker.look();
        for (conn, piece) in pieces.drain(..) {
            if let Some(&at) = by_conn.get(&conn) {
                soak.note_received(piece.len());
                soak.streams[at].check(&memory[piece]);
            }
        }
        for one in &ready {
            if let Some(&at) = by_conn.get(&one.conn)
                && !soak.streams[at].ended
            {
                soak.serve(at)?;
            }
        }
    }
    let wrong: u64 = soak.streams.iter().map(|stream| stream.wrong).sum();
    let mut places: Vec<Wrong> =
        soak.streams.iter_mut().flat_map(|stream| stream.places.drain(..)).collect();
    places.sort_by_key(|place| place.at_ns);
    places.truncate(PLACES);
    let checked = soak.received;
    let counters = [
        ("checked_bytes".to_owned(), checked as f64),
        ("wrong_bytes".to_owned(), wrong as f64),
        ("written_bytes".to_owned(), soak.sent as f64),
    ];
    let sending = lanes.iter().filter(|lane| lane.sends).count();
    let whereabouts = tracker.finish();
    let counters = counters.into();
    Ok(Outcome { tcp_info, sending, whereabouts, counters, wrong: places, ..Outcome::default() })
}

impl Soak<'_> {
    /// Ends the sending direction; from now on senders wait for the peer's end.
    fn stop_sending(&mut self) -> io::Result<()> {
        self.stopped = true;
        for stream in self.streams.iter().filter(|stream| stream.lane.sends && !stream.ended) {
            self.network.shutdown_write(stream.lane.conn)?;
            self.network.watch(stream.lane.conn, true, false)?;
        }
        Ok(())
    }

    fn note_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        self.progress.received_bytes.store(self.received, Ordering::Relaxed);
    }

    fn serve(&mut self, at: usize) -> io::Result<()> {
        for _ in 0..CALLS_PER_TURN {
            let stream = &mut self.streams[at];
            let conn = stream.lane.conn;
            let sends = stream.lane.sends && !self.stopped;
            let result = if sends {
                fill(stream.name, stream.at, &mut self.buffer);
                self.network.write(conn, &self.buffer)
            } else {
                self.network.read(conn, &mut self.buffer)
            };
            match result {
                Ok(0) if !sends => {
                    stream.ended = true;
                    self.network.close(conn);
                    return Ok(());
                }
                Ok(bytes) if sends => {
                    stream.at += bytes as u64;
                    self.sent += bytes as u64;
                    self.progress.sent_bytes.store(self.sent, Ordering::Relaxed);
                }
                Ok(bytes) => {
                    stream.check(&self.buffer[..bytes]);
                    self.note_received(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file without a name, of which nothing stays whatever ends the process.
struct Disk {
    file: Option<File>,
    bytes: u64,
    over: AtomicBool,
    read: AtomicU64,
    written: AtomicU64,
    seeks: AtomicU64,
}

/// Bytes of one call in order.
const RUN_BYTES: usize = 256 * 1024;
/// Bytes of one call at a place of its own.
const SEEK_BYTES: usize = 4096;

impl Disk {
    /// Makes a file of `mib` MiB in `TMPDIR`, or else in `/var/tmp`, which is on a disk more often
    /// than `/tmp`.
    fn open(mib: usize) -> io::Result<Self> {
        let folder = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let open = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .custom_flags(nix::fcntl::OFlag::O_TMPFILE.bits())
                .open(&folder)?;
            file.set_len((mib as u64) << 20)?;
            Ok(file)
        };
        let file = if mib > 0 { Some(open()?) } else { None };
        let zero = || AtomicU64::new(0);
        let bytes = (mib as u64) << 20;
        let over = AtomicBool::new(false);
        Ok(Self { file, bytes, over, read: zero(), written: zero(), seeks: zero() })
    }

    /// One thread writes in order and has each round written back, one reads in order, one reads
    /// here and there.
    fn users<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
    ) -> Vec<std::thread::ScopedJoinHandle<'scope, io::Result<()>>> {
        let Some(file) = &self.file else { return vec![] };
        let write = move || {
            let data = vec![0x77; RUN_BYTES];
            self.in_order(|at| {
                file.write_all_at(&data, at)?;
                if at + data.len() as u64 * 2 > self.bytes {
                    file.sync_data()?;
                }
                self.written.fetch_add(data.len() as u64, Ordering::Relaxed);
                Ok(())
            })
        };
        let read = move || {
            let mut data = vec![0; RUN_BYTES];
            self.in_order(|at| {
                self.read.fetch_add(file.read_at(&mut data, at)? as u64, Ordering::Relaxed);
                Ok(())
            })
        };
        let seek = move || {
            let mut data = vec![0; SEEK_BYTES];
            let mut turn = 0;
            while !self.over.load(Ordering::Relaxed) {
                turn += 1;
                let place = u64::from_le_bytes(word(0, turn)) % (self.bytes / SEEK_BYTES as u64);
                file.read_exact_at(&mut data, place * SEEK_BYTES as u64)?;
                self.seeks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(())
        };
        vec![scope.spawn(write), scope.spawn(read), scope.spawn(seek)]
    }

    /// Calls `one` for each piece of the file, round and round, for the first one in any case, with
    /// a rest so that a file in memory is no load of CPUs.
    fn in_order(&self, mut one: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
        let mut at = 0;
        loop {
            one(at)?;
            at = (at + RUN_BYTES as u64) % self.bytes;
            if self.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn tell(&self, counters: &mut BTreeMap<String, f64>) {
        if self.file.is_some() {
            for (name, value) in [
                ("disk_read_bytes", &self.read),
                ("disk_written_bytes", &self.written),
                ("disk_seeks", &self.seeks),
            ] {
                counters.insert(name.to_owned(), value.load(Ordering::Relaxed) as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::ops::Range;

    use super::*;
    use crate::transport::{Another, ConnId, ConnInfo, DatagramId, ListenerId, Ready};

    #[test]
    fn a_byte_out_of_place_is_found_wherever_it_is() {
        let mut data = vec![0; 1000];
        for at in [0, 3, 8, 1 << 40] {
            fill(2, at, &mut data);
            assert_eq!(wrong(2, at, &data), (0, None));
            assert!(wrong(2, at + 1, &data).0 > 900, "shifted by one");
            assert!(wrong(3, at, &data).0 > 900, "of another connection");
            for place in [0, 1, 7, 500, 999] {
                data[place] ^= 4;
                assert_eq!(wrong(2, at, &data), (1, Some(place)));
                data[place] ^= 4;
            }
        }
    }

    /// A network of which each wait gives pieces that do not follow each other: with gaps, the
    /// later one in front, and two connections in turns, as a stack may leave them.
    struct Scattered {
        at: [u64; 2],
        waits: usize,
        spoil: Option<usize>,
    }

    impl Scattered {
        const WAITS: usize = 20;

        fn put(&mut self, conn: ConnId, memory: &mut [u8]) {
            fill(conn as u64 + 1, self.at[conn], memory);
            self.at[conn] += memory.len() as u64;
        }
    }

    const NOT_ASKED: &str = "a receiver asks for no such thing";

    impl Network for Scattered {
        fn wait_read(
            &mut self,
            _timeout: Duration,
            memory: &mut [u8],
            ready: &mut Vec<Ready>,
            received: &mut Vec<(ConnId, Range<usize>)>,
        ) -> io::Result<()> {
            memory.fill(0xee);
            ready.clear();
            received.clear();
            self.waits += 1;
            if self.waits > Self::WAITS {
                let end = |conn| Ready { conn, readable: true, writable: false };
                ready.extend([0, 1].map(end));
                return Ok(());
            }
            let pieces = [(0, 5_000..6_448), (1, 7_000..7_001), (0, 100..1_548), (1, 6_448..7_000)];
            for (conn, piece) in pieces {
                self.put(conn, &mut memory[piece.clone()]);
                received.push((conn, piece));
            }
            if self.spoil == Some(self.waits) {
                memory[101] ^= 1;
            }
            Ok(())
        }

        fn read(&mut self, _conn: ConnId, _buffer: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn watch(&mut self, _: ConnId, _readable: bool, _writable: bool) -> io::Result<()> {
            Ok(())
        }

        fn close(&mut self, _conn: ConnId) {}
        fn listen(&mut self, _: SocketAddr, _: usize) -> io::Result<(ListenerId, SocketAddr)> {
            unreachable!("{NOT_ASKED}")
        }
        fn accept(&mut self, _: ListenerId) -> io::Result<(ConnId, SocketAddr)> {
            unreachable!("{NOT_ASKED}")
        }
        fn accept_now(&mut self, _: ListenerId) -> io::Result<Option<(ConnId, SocketAddr)>> {
            unreachable!("{NOT_ASKED}")
        }
        fn read_now(&mut self, _: ConnId, _: &mut [u8]) -> io::Result<Option<usize>> {
            unreachable!("{NOT_ASKED}")
        }
        fn connect(&mut self, _: SocketAddr) -> io::Result<ConnId> {
            unreachable!("{NOT_ASKED}")
        }
        fn write(&mut self, _: ConnId, _: &[u8]) -> io::Result<usize> {
            unreachable!("{NOT_ASKED}")
        }
        fn wait(&mut self, _: Duration, _: &mut Vec<Ready>) -> io::Result<()> {
            unreachable!("{NOT_ASKED}")
        }
        fn shutdown_write(&mut self, _: ConnId) -> io::Result<()> {
            unreachable!("{NOT_ASKED}")
        }
        fn bind_datagrams(&mut self, _: SocketAddr) -> io::Result<(DatagramId, SocketAddr)> {
            unreachable!("{NOT_ASKED}")
        }
        fn connect_datagrams(&mut self, _: DatagramId, _: SocketAddr) -> io::Result<()> {
            unreachable!("{NOT_ASKED}")
        }
        fn send_datagrams(&mut self, _: DatagramId, _: &[&[u8]]) -> io::Result<usize> {
            unreachable!("{NOT_ASKED}")
        }
        fn receive_datagram_from(
            &mut self,
            _: DatagramId,
            _: &mut [u8],
            _: Duration,
        ) -> io::Result<Option<(usize, SocketAddr)>> {
            unreachable!("{NOT_ASKED}")
        }
        fn receive_datagrams(
            &mut self,
            _: DatagramId,
            _: &mut [u8],
            _: Duration,
        ) -> io::Result<(usize, usize)> {
            unreachable!("{NOT_ASKED}")
        }
        fn another(&mut self, _: DatagramId) -> io::Result<Another> {
            unreachable!("{NOT_ASKED}")
        }
        fn tcp_info(&mut self, _: &[ConnId]) -> Vec<Option<ConnInfo>> {
            unreachable!("{NOT_ASKED}")
        }
        fn set_nodelay(&mut self, _: ConnId, _: bool) -> io::Result<()> {
            unreachable!("{NOT_ASKED}")
        }
        fn set_buffers(&mut self, _: Option<usize>) {
            unreachable!("{NOT_ASKED}")
        }
        fn set_congestion(&mut self, _: &str) -> io::Result<()> {
            unreachable!("{NOT_ASKED}")
        }
        fn finish(&mut self, _: Duration) {
            unreachable!("{NOT_ASKED}")
        }
    }

    /// A reader that takes what it was given as one piece, from the start of the memory or from the
    /// end of the piece before, finds bytes that are wrong here.
    #[test]
    fn each_piece_is_taken_from_where_it_lies() {
        let lanes = [0, 1].map(|conn| Lane { conn, sends: false });
        for spoil in [None, Some(7)] {
            let mut network = Scattered { at: [0; 2], waits: 0, spoil };
            let progress = Progress::default();
            let outcome = run(&mut network, End::Far, &lanes, (4_096, 0), &progress).unwrap();
            let sent: u64 = network.at.iter().sum();
            assert_eq!(outcome.counters["checked_bytes"], sent as f64);
            assert_eq!(outcome.counters["wrong_bytes"], f64::from(u8::from(spoil.is_some())));
            // The third piece of the seventh wait is the fourteenth of its connection; its second
            // byte is wrong.
            let Some(place) = outcome.wrong.first() else {
                assert!(spoil.is_none());
                continue;
            };
            assert_eq!(
                (outcome.wrong.len(), place.connection, place.offset),
                (1, 1, 13 * 1448 + 1)
            );
            let mut right = [0; PLACE_BYTES];
            fill(1, place.offset, &mut right);
            assert_eq!(place.expected, right);
            right[0] ^= 1;
            assert_eq!(place.seen, right);
        }
    }
}
