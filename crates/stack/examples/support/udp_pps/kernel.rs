//! The kernel as sender and as receiver.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millstream_link::netdev::{self, Namespace};
use millstream_link::sys::pin_current_thread;

use super::{Failure, HOST, NOBODY, OURS, PORT};

/// Runs `work` while a socket of the kernel's in `far` sends to `to` from the other core.
pub fn with_flood<R>(
    far: &Namespace,
    to: Ipv4Addr,
    payload: usize,
    work: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    let socket = far.run(|| UdpSocket::bind((HOST, 0)))??;
    socket.connect((to, PORT))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin_current_thread(1);
            let data = vec![7; payload];
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send(&data);
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// The kernel's sockets at both ends of a veth pair.
pub struct Kernel {
    near: Namespace,
    pub far: Namespace,
}

impl Kernel {
    /// Two namespaces and the pair between them.
    pub fn open() -> Result<Self, Failure> {
        let (near, far) = (Namespace::create()?, Namespace::create()?);
        near.run(|| netdev::add_veth("k0", "k1", Some(&far), 1))??;
        for (namespace, name, address) in [(&near, "k0", OURS), (&far, "k1", HOST)] {
            namespace.run(|| {
                netdev::set_up(name)?;
                netdev::set_address(name, address.into(), 24)
            })??;
        }
        near.run(|| netdev::add_route("k0", NOBODY.into(), 32, Some(HOST.into())))??;
        Ok(Self { near, far })
    }

    /// Datagrams a second that a socket sends.
    pub fn send(&self, payload: &[u8], turn: Duration) -> Result<f64, Failure> {
        let socket = self.near.run(|| UdpSocket::bind((OURS, 0)))??;
        socket.connect((NOBODY, 9))?;
        let (start, mut count) = (Instant::now(), 0_u64);
        while start.elapsed() < turn {
            for _ in 0..64 {
                count += u64::from(socket.send(payload).is_ok());
            }
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// Datagrams a second that a socket receives of a flood.
    pub fn flood(&self, turn: Duration) -> Result<f64, Failure> {
        let socket = self.near.run(|| UdpSocket::bind((OURS, PORT)))??;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut buffer = [0; 2048];
        let (start, mut count) = (Instant::now(), 0_u64);
        while start.elapsed() < turn {
            for _ in 0..64 {
                count += u64::from(socket.recv(&mut buffer).is_ok());
            }
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// Datagrams a second that a socket receives of those that wait.
    pub fn drain(&self, payload: &[u8], turn: Duration) -> Result<f64, Failure> {
        let socket = self.near.run(|| UdpSocket::bind((OURS, PORT)))??;
        socket.set_nonblocking(true)?;
        let host = self.far.run(|| UdpSocket::bind((HOST, 0)))??;
        host.connect((OURS, PORT))?;
        let mut buffer = [0; 2048];
        let (mut spent, mut count) = (Duration::ZERO, 0_u64);
        while spent < turn / 10 {
            // What the default receive buffer holds.
            for _ in 0..150 {
                host.send(payload)?;
            }
            let start = Instant::now();
            while socket.recv(&mut buffer).is_ok() {
                count += 1;
            }
            spent += start.elapsed();
        }
        Ok(count as f64 / spent.as_secs_f64())
    }
}
