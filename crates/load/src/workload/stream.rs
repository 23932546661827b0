//! Bulk data: one connection with plain blocking calls, several through
//! [`Network::wait_read`], or with packets handed over [`Network::wait`].

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_record::TcpInfoRecord;

use super::{End, Lane, Outcome, Part, Progress, Tracker, describe};
use crate::transport::{ConnId, Network};

/// Calls on one connection before the next has its turn.
const CALLS_PER_TURN: usize = 4;
/// Memory that several connections are read into while they are waited for.
const WAIT_BYTES: usize = 256 * 1024;
/// Longest wait of a thread without anything ready before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    let is_shared = part.task.level("api") == "zero-copy";
    let calls = Calls::new(part.task.number("message_bytes"), is_shared);
    run(network, part.end, &part.lanes, calls, progress)
}

fn run(
    network: &mut dyn Network,
    end: End,
    lanes: &[Lane],
    calls: Calls,
    progress: &Progress,
) -> io::Result<Outcome> {
    progress.open_receivers(lanes.iter().filter(|lane| !lane.sends).count());
    match lanes {
        [lane] if lane.sends => send(network, end, *lane, calls, progress),
        [lane] => receive(network, end, *lane, calls, progress),
        _ => several(network, end, lanes, calls, progress),
    }
}

/// The memory and the kind of calls by which data is given to the stack and taken from it.
struct Calls {
    message: Vec<u8>,
    buffer: Vec<u8>,
    zero_copy: bool,
}

impl Calls {
    /// Calls of so many bytes at most. What is sent is not zeros, so that nothing on the way finds
    /// it too easy.
    fn new(bytes: usize, zero_copy: bool) -> Self {
        let message = (0..bytes).map(|at| (at % 251) as u8).collect();
        Self { message, buffer: vec![0; bytes], zero_copy }
    }

    fn write(&self, network: &mut dyn Network, conn: ConnId) -> io::Result<usize> {
        match self.zero_copy {
            true => network.write_shared(conn, &self.message),
            false => network.write(conn, &self.message),
        }
    }

    fn read(&mut self, network: &mut dyn Network, conn: ConnId) -> io::Result<usize> {
        match self.zero_copy {
            true => network.read_shared(conn, &mut self.buffer),
            false => network.read(conn, &mut self.buffer),
        }
    }
}

fn send(
    network: &mut dyn Network,
    end: End,
    lane: Lane,
    calls: Calls,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut sent = 0;
    let mut tracker = Tracker::new();
    while !progress.stopping() {
        sent += calls.write(network, lane.conn)? as u64;
        progress.sent_bytes.store(sent, Ordering::Relaxed);
        tracker.look();
    }
    let whereabouts = tracker.finish();
    let tcp_info = describe(network, end, &[lane]);
    network.shutdown_write(lane.conn)?;
    // The peer closes when it has read everything: then all has arrived.
    let mut rest = [0; 64];
    while network.read(lane.conn, &mut rest)? > 0 {}
    network.close(lane.conn);
    Ok(Outcome { tcp_info, sending: 1, whereabouts, ..Outcome::default() })
}

fn receive(
    network: &mut dyn Network,
    end: End,
    lane: Lane,
    mut calls: Calls,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut received = 0;
    let mut tcp_info = Vec::new();
    let mut tracker = Tracker::new();
    loop {
        let taken = calls.read(network, lane.conn)?;
        if taken == 0 {
            break;
        }
        tracker.look();
        received += taken as u64;
        progress.note_received(0, taken as u64);
        progress.received_bytes.store(received, Ordering::Relaxed);
        if tcp_info.is_empty() && progress.stopping() {
            tcp_info = describe(network, end, &[lane]);
        }
    }
    if tcp_info.is_empty() {
        tcp_info = describe(network, end, &[lane]);
    }
    network.close(lane.conn);
    let whereabouts = tracker.finish();
    Ok(Outcome { tcp_info, whereabouts, ..Outcome::default() })
}

/// State of the loop over several connections.
struct Several<'a> {
    network: &'a mut dyn Network,
    progress: &'a Progress,
    lanes: &'a [Lane],
    /// Number of each lane among those that receive.
    receivers: Vec<usize>,
    calls: Calls,
    sent: u64,
    received: u64,
    open: usize,
    ended: Vec<bool>,
    stopped: bool,
    tcp_info: Vec<TcpInfoRecord>,
}

fn several(
    network: &mut dyn Network,
    end: End,
    lanes: &[Lane],
    calls: Calls,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut by_conn = Vec::new();
    for (at, lane) in lanes.iter().enumerate() {
        network.watch(lane.conn, !lane.sends, lane.sends)?;
        by_conn.resize(by_conn.len().max(lane.conn + 1), usize::MAX);
        by_conn[lane.conn] = at;
    }
    let mut state = Several {
        network,
        progress,
        lanes,
        receivers: receivers(lanes),
        calls,
        sent: 0,
        received: 0,
        open: lanes.len(),
        ended: vec![false; lanes.len()],
        stopped: false,
        tcp_info: Vec::new(),
    };
    let (mut ready, mut received) = (Vec::new(), Vec::new());
    let reads = !state.calls.zero_copy && lanes.iter().any(|lane| !lane.sends);
    let mut memory = vec![0; if reads { WAIT_BYTES } else { 0 }];
    let mut tracker = Tracker::new();
    while state.open > 0 {
        if !state.stopped && progress.stopping() {
            state.describe_once(end);
            state.stop_sending()?;
        }
        state.network.wait_read(LOOK, &mut memory, &mut ready, &mut received)?;
        tracker.look();
        for (conn, piece) in received.drain(..) {
            let at = by_conn.get(conn).copied().unwrap_or(usize::MAX);
            if at != usize::MAX {
                state.note_received(at, piece.len());
            }
        }
        for one in &ready {
            let at = by_conn.get(one.conn).copied().unwrap_or(usize::MAX);
            if at != usize::MAX && !state.ended[at] {
                state.serve(end, at)?;
            }
        }
    }
    let sending = lanes.iter().filter(|lane| lane.sends).count();
    let whereabouts = tracker.finish();
    Ok(Outcome { tcp_info: state.tcp_info, sending, whereabouts, ..Outcome::default() })
}

/// Numbers the lanes that receive; the numbers of the others are not used.
fn receivers(lanes: &[Lane]) -> Vec<usize> {
    let counted = lanes.iter().scan(0, |next, lane| {
        let number = *next;
        *next += usize::from(!lane.sends);
        Some(number)
    });
    counted.collect()
}

impl Several<'_> {
    /// Keeps the state of the connections while all of them are open.
    fn describe_once(&mut self, end: End) {
        if self.tcp_info.is_empty() {
            self.tcp_info = describe(self.network, end, self.lanes);
        }
    }

    /// Ends the sending direction; from now on senders wait for the peer's end.
    fn stop_sending(&mut self) -> io::Result<()> {
        self.stopped = true;
        for (lane, ended) in self.lanes.iter().zip(&self.ended) {
            if lane.sends && !ended {
                self.network.shutdown_write(lane.conn)?;
                self.network.watch(lane.conn, true, false)?;
            }
        }
        Ok(())
    }

    fn note_received(&mut self, at: usize, bytes: usize) {
        self.received += bytes as u64;
        self.progress.note_received(self.receivers[at], bytes as u64);
        self.progress.received_bytes.store(self.received, Ordering::Relaxed);
    }

    fn serve(&mut self, end: End, at: usize) -> io::Result<()> {
        let Lane { conn, sends } = self.lanes[at];
        let sending = sends && !self.stopped;
        for _ in 0..CALLS_PER_TURN {
            let result = if sending {
                self.calls.write(self.network, conn)
            } else {
                self.calls.read(self.network, conn)
            };
            match result {
                Ok(0) if !sending => {
                    self.describe_once(end);
                    self.ended[at] = true;
                    self.open -= 1;
                    self.network.close(conn);
                    return Ok(());
                }
                Ok(bytes) if sending => {
                    self.sent += bytes as u64;
                    self.progress.sent_bytes.store(self.sent, Ordering::Relaxed);
                }
                Ok(bytes) => self.note_received(at, bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
