//! Errors that the kernel gives to a connect for each ICMP error about its SYN, beside those of
//! Millstream (`tests/ip/icmp_errors.rs`).

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use millstream::link::{Link, Tap, TapConfig, TapKind};
use millstream::packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream_wire::ip::{self, Protocol};

use crate::common::icmp_error::{Bytes, about};
use crate::common::icmp_rows::{Row, V4, V6};
use crate::host::Ip;
use crate::namespace::{Stop, judged};

/// The kind that Millstream has for an error of the kernel's; those that `std` has no kind for are
/// told as the nearest.
fn kind_of(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        // ENONET, EOPNOTSUPP, EHOSTDOWN.
        Some(64 | 95 | 112) => ErrorKind::HostUnreachable,
        // ENOPROTOOPT.
        Some(92) => ErrorKind::ConnectionRefused,
        // EPROTO.
        Some(71) => ErrorKind::Other,
        _ => error.kind(),
    }
}

/// Has the kernel connect, and each of its SYNs answered by the error; what it tells.
fn told(
    tun: &mut Tap,
    pool: &Pool,
    to: SocketAddr,
    error: (u8, u8, u32),
) -> Result<ErrorKind, Stop> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let refused = TcpStream::connect_timeout(&to, Duration::from_secs(10));
        tell.send(refused.map(drop).map_err(|error| kind_of(&error)))
    });
    let mut batch = PacketBatch::new();
    loop {
        match told.try_recv() {
            Ok(Err(kind)) => return Ok(kind),
            Ok(Ok(())) => return Err(Stop::Failed("connected to nobody".into())),
            Err(mpsc::TryRecvError::Disconnected) => return Err(Stop::Failed("no answer".into())),
            Err(mpsc::TryRecvError::Empty) => {}
        }
        tun.receive(Instant::ZERO, pool, &mut batch)?;
        let mut answers = PacketBatch::new();
        while let Some(packet) = batch.pop() {
            let bytes: Bytes = packet.slices().flatten().copied().collect();
            let is_syn = |ip: ip::IpHeader| ip.protocol == Protocol::TCP && ip.dst == to.ip();
            if ip::parse(&bytes, bytes.len()).is_ok_and(is_syn) {
                let packet = Packet::from_slice(pool, 0, &about(&bytes, error))?;
                let _ = answers.push(packet);
            }
        }
        tun.transmit(Instant::ZERO, pool, &mut answers)?;
        std::thread::sleep(Duration::from_millis(1));
    }
}

judged! {
    /// Only codes that mean something: the kernel has its own ways with the others.
    fn a_connect_is_told_what_the_kernel_tells() -> Outcome {
        let config = TapConfig {
            name: Some("judge0".into()),
            kind: TapKind::Tun,
            vnet_hdr: false,
            offload: false,
            host_addresses: [Ip::V4, Ip::V6].map(|ip| (ip.kernel(), ip.prefix_len())).into(),
            ..TapConfig::default()
        };
        let mut tun = Tap::open(&config).map_err(|error| match error.is_not_permitted() {
            true => Stop::Absent(format!("no TUN device here: {error}")),
            false => Stop::Failed(error.to_string()),
        })?;
        let pool = Pool::new(PoolConfig::default())?;
        for (ip, rows) in [(Ip::V4, V4), (Ip::V6, V6)] {
            for &(error, meaning, _) in rows as &[Row] {
                // RFC 4443, 3.4: what protocol unreachable is in IPv4; the kernel says EPROTO.
                let is_protocol = ip == Ip::V6 && (error.0, error.1) == (4, 1);
                let Some(meaning) = meaning.filter(|_| !is_protocol) else { continue };
                let kernel = told(&mut tun, &pool, SocketAddr::new(ip.ours(), 80), error)?;
                if kernel != meaning {
                    return Err(Stop::Failed(format!(
                        "{ip:?} {error:?}: the kernel tells {kernel:?}, Millstream {meaning:?}"
                    )));
                }
            }
        }
        Ok(())
    }
}
