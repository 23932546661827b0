//! What a thousand open connections cost while nothing happens on them.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use millstream::{local, net};

use crate::host::{self, Ip};
use crate::many::CONNECTIONS;
use crate::namespace::{judged, say};

const PORT: u16 = 7003;
/// How long nothing happens.
const QUIET: Duration = Duration::from_secs(10);

/// CPU time of all threads of this process, and how often they went to sleep.
fn spent() -> (Duration, u64) {
    let (mut nanos, mut sleeps) = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").expect("procfs").flatten() {
        // schedstat: nanoseconds on a CPU, nanoseconds of waiting for one, times it got one.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        nanos += numbers.next().unwrap_or(0);
        sleeps += numbers.nth(1).unwrap_or(0);
    }
    (Duration::from_nanos(nanos), sleeps)
}

/// Says what the quiet time cost, which is CPU time and does not depend on how busy others are.
fn judge(cost: Duration, wakes: u64) {
    let share = cost.as_secs_f64() / QUIET.as_secs_f64() * 100.0;
    say(&format!(
        "{CONNECTIONS} open connections idle: {share:.3} % of a core, {wakes} wake-ups in {QUIET:?}"
    ));
    assert!(share < 1.0, "{share} % of a core");
}

fn clients(to: SocketAddr) -> thread::JoinHandle<Vec<TcpStream>> {
    let connect = move |_| TcpStream::connect(to).expect("a connection");
    thread::spawn(move || (0..CONNECTIONS).map(connect).collect())
}

judged! {
    fn in_the_engines_thread() -> Outcome {
        let stack = local::Stack::new(host::engine(&host::pool(), host::tap(true)?, Ip::ours)?);
        let at = SocketAddr::new(Ip::V4.ours(), PORT);
        let listener = local::TcpListener::bind(&stack, at, CONNECTIONS)?;
        let clients = clients(at);
        let accepted: Vec<local::TcpStream> =
            (0..CONNECTIONS).map(|_| listener.accept().expect("a connection").0).collect();
        let held = clients.join().expect("the clients");
        // Acknowledgements and the kernel's own announcements pass first.
        stack.sleep(Duration::from_secs(2))?;
        let (before, woken) = spent();
        let until = Instant::now() + QUIET;
        let mut events = Vec::new();
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            stack.wait(Some(left), &mut events)?;
            events.clear();
        }
        let (after, woken_after) = spent();
        judge(after - before, woken_after - woken);
        drop((accepted, held));
        Ok(())
    }

    fn in_threads_of_its_own() -> Outcome {
        let (pool, link) = (host::pool(), host::tap(true)?);
        let stack = net::Stack::spawn(net::Placement::default(), move || {
            host::engine(&pool, link, Ip::ours)
        })?;
        let at = SocketAddr::new(Ip::V6.ours(), PORT);
        let listener = net::TcpListener::bind(&stack, at, CONNECTIONS)?;
        let clients = clients(at);
        let accepted: Vec<net::TcpStream> =
            (0..CONNECTIONS).map(|_| listener.accept().expect("a connection").0).collect();
        let held = clients.join().expect("the clients");
        thread::sleep(Duration::from_secs(2));
        let (before, woken) = spent();
        thread::sleep(QUIET);
        let (after, woken_after) = spent();
        judge(after - before, woken_after - woken);
        drop((accepted, held));
        stack.shutdown();
        Ok(())
    }
}
