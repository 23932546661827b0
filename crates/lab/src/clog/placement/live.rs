//! Colliding placement over minutes: the engine, for which packets always wait, and the two threads
//! of an application, which take datagrams from one socket behind a lock, all on one CPU; the cure
//! has the application on others.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millstream::ReceivedDatagram;
use millstream::net::UdpSocket;
use millstream_link::sys::pin_current_thread;

use super::{CLOG, DATA, DATAGRAMS, OWN, PORT, is_whole, place, spawn};
use crate::clog::live::{LastPart, Living};
use crate::clog::threads::{Stop, cpus, joined};

/// Threads of the application, and their name.
const THREADS: usize = 2;
const NAME: &str = "application";
/// The time between two looks at how much was done.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn live(living: &Living<'_>) -> io::Result<f64> {
    let [engine, _] = place(false, 0)?;
    let mut those = cpus();
    those.retain(|cpu| (*cpu == engine) == living.clogged);
    let stack = spawn(engine, Some(living.name(&CLOG)))?;
    let socket = UdpSocket::bind(&stack, SocketAddr::new(OWN.into(), PORT))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (socket, received, stop) = (Mutex::new(socket), AtomicU64::new(0), Stop::default());
    std::thread::scope(|scope| {
        let end = stop.at_end();
        let each = |cpu| {
            let (socket, received, stop) = (&socket, &received, &stop);
            let thread = std::thread::Builder::new().name(NAME.to_owned());
            thread.spawn_scoped(scope, move || {
                pin_current_thread(cpu)?;
                receive(socket, received, stop)
            })
        };
        let each_on = those.iter().cycle().take(THREADS);
        let threads = each_on.map(|cpu| each(*cpu)).collect::<io::Result<Vec<_>>>()?;
        let done = || received.load(Ordering::Relaxed);
        let mut last_part = LastPart::of(living);
        (living.say)(&format!(
            "the engine is on CPU {engine}, the application's threads on CPU {those:?}"
        ));
        stack
            .with_engine(|engine| engine.inspect().live_error().map(ToString::to_string))?
            .map_or_else(
                || {
                    (living.say)(
                        "the engine is published: `millstream ps`, `millstream netstat -i 1`",
                    )
                },
                |why| (living.say)(&format!("the engine is not published: {why}")),
            );
        while !last_part.is_over(living, done()) {
            std::thread::sleep(LOOK);
        }
        let rate = last_part.rate(done());
        drop(end);
        threads.into_iter().try_for_each(joined)?;
        stack.shutdown_within(Duration::ZERO);
        Ok(rate)
    })
}

/// Takes datagrams under the lock and looks at them, until it is told to stop.
fn receive(socket: &Mutex<UdpSocket>, received: &AtomicU64, stop: &Stop) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAMS * DATA];
    let mut list: Vec<ReceivedDatagram> = Vec::with_capacity(DATAGRAMS);
    while !stop.is_set() {
        let taken = {
            let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
            socket.recv_many(&mut buffer, &mut list)
        };
        match taken {
            Ok(count) if buffer.chunks_exact(DATA).take(count).all(is_whole) => {
                received.fetch_add(count as u64, Ordering::Relaxed);
            }
            Ok(_) => return Err(io::Error::other("what was received is not what was sent")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
