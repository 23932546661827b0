//! Any destination: the kernel connects to, asks and pings all of a network behind a TUN device,
//! where only Millstream is.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use millstream::link::{Link, Tap, TapConfig, TapKind};
use millstream::route::Prefix;
use millstream::wire::icmp::Unreachable;
use millstream::{Engine, EngineConfig, LocalPrefix, Refusal};

use crate::host::{self, Ip};
use crate::namespace::{Stop, judged};

const DESTINATIONS: u32 = 1000;
const THREADS: u32 = 8;
/// The kernel has all of these on its link.
const NETS: [(Ip, u8); 2] = [(Ip::V4, 8), (Ip::V6, 16)];

/// The n-th destination: each has its own address and port.
fn destination(ip: Ip, n: u32) -> SocketAddr {
    let host: IpAddr = match ip {
        Ip::V4 => [10, 100 + (n >> 8) as u8, n as u8, 1].into(),
        Ip::V6 => [0xfd70, 7, 0, 0, 0, 0, n as u16, 1].into(),
    };
    SocketAddr::new(host, 1000 + n as u16)
}

/// The answer of whoever is to be asked for the n-th one.
fn verdict(n: u32) -> Option<Refusal> {
    match n % 4 {
        0 => Some(Refusal::Reset),
        1 => Some(Refusal::Icmp(Unreachable::Host)),
        _ => None,
    }
}

/// Connects to some of the destinations; each has to be as it was said.
fn connect(ip: Ip, share: u32) -> Result<(), String> {
    for n in (share..DESTINATIONS).step_by(THREADS as usize) {
        let to = destination(ip, n);
        let told = TcpStream::connect_timeout(&to, Duration::from_secs(20)).and_then(|mut one| {
            let mut name = String::new();
            one.read_to_string(&mut name).map(|_| name)
        });
        let told = told.map_err(|error| error.kind());
        let expected = match verdict(n) {
            Some(Refusal::Reset) => Err(ErrorKind::ConnectionRefused),
            Some(_) => Err(ErrorKind::HostUnreachable),
            None => Ok(to.to_string()),
        };
        if told != expected {
            return Err(format!("{to}: {told:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Asks some of the destinations by datagrams, from one socket: the answer comes from who was
/// asked, a refusal by ICMP.
fn ask(ip: Ip, share: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    for n in (share..DESTINATIONS).step_by(THREADS as usize) {
        let to = destination(ip, n);
        let socket = UdpSocket::bind(SocketAddr::new(ip.kernel(), 0)).map_err(failed)?;
        socket.set_read_timeout(Some(Duration::from_secs(20))).map_err(failed)?;
        socket.connect(to).map_err(failed)?;
        socket.send(b"who?").map_err(failed)?;
        let mut name = [0; 100];
        let told = socket.recv(&mut name).map(|len| String::from_utf8_lossy(&name[..len]).into());
        let told: Result<String, _> = told.map_err(|error| error.kind());
        let expected = match n % 4 {
            0 => Err(ErrorKind::ConnectionRefused),
            _ => Ok(to.to_string()),
        };
        if told != expected {
            return Err(format!("datagram to {to}: {told:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

judged! {
    fn a_thousand_destinations_answer_as_they_are_told_to() -> Outcome {
        let config = TapConfig {
            name: Some("judge0".into()),
            kind: TapKind::Tun,
            host_addresses: NETS.map(|(ip, len)| (ip.kernel(), len)).into(),
            ..TapConfig::default()
        };
        let tun = Tap::open(&config).map_err(|error| match error.is_not_permitted() {
            true => Stop::Absent(format!("no TUN device here: {error}")),
            false => Stop::Failed(error.to_string()),
        })?;
        let mut config = EngineConfig::new(host::pool());
        config.limits = config.limits.tune(|tuning| {
            // As many addresses may be told in a second as these are in proportion.
            (tuning.icmp_errors_per_s, tuning.icmp_errors_per_address_s) = (10_000_000, 100_000);
        });
        let mut engine = Engine::new(config)?;
        let link = engine.add_link(Box::new(tun) as Box<dyn Link>)?;
        for (ip, len) in NETS {
            engine.add_address(link, Prefix { addr: ip.ours(), len })?;
            let all = if ip == Ip::V4 { Prefix::DEFAULT_V4 } else { Prefix::DEFAULT_V6 };
            engine.intercept().add_prefix(link, LocalPrefix::new(all))?;
        }
        for (ip, _) in NETS {
            let all = if ip == Ip::V4 { Prefix::DEFAULT_V4 } else { Prefix::DEFAULT_V6 };
            let listener = engine.intercept().tcp(all, 0, Duration::from_secs(30))?;
            let flows = engine.intercept().udp(all, 0, Duration::from_secs(30))?;
            let clients: Vec<_> = (0..THREADS)
                .map(|share| thread::spawn(move || connect(ip, share).and_then(|()| ask(ip, share))))
                .collect();
            let mut accepted = Vec::new();
            while clients.iter().any(|client| !client.is_finished()) {
                engine.run_once(Some(Duration::from_millis(5)))?;
                while let Ok(request) = engine.intercept().next_request(listener) {
                    let n = u32::from(request.local.port()) - 1000;
                    match verdict(n) {
                        Some(refusal) => engine.intercept().refuse(&request, refusal)?,
                        None => accepted.push(engine.intercept().accept(&request)?),
                    }
                }
                while let Ok(flow) = engine.intercept().next_flow(flows) {
                    let (local, _) = engine.udp(flow).addresses()?;
                    if (local.port() - 1000) % 4 == 0 {
                        engine.intercept().refuse_flow(flow, Unreachable::Port)?;
                        continue;
                    }
                    engine.udp(flow).send(local.to_string().as_bytes(), None)?;
                    engine.close(flow);
                }
                accepted.retain(|&id| {
                    let mut tcp = engine.tcp(id);
                    let Ok(ends) = tcp.addresses() else { return false };
                    // It says who it is, and ends.
                    let is_open = tcp.state() == Ok(millstream::tcp::State::Established);
                    if is_open && tcp.write(ends.local.to_string().as_bytes()).is_ok() {
                        tcp.close();
                    }
                    !is_open
                });
            }
            for client in clients {
                client.join().map_err(|_| Stop::Failed("a client panicked".into()))?
                    .map_err(Stop::Failed)?;
            }
            let stats = engine.stats();
            if stats.tcp_requests_late + stats.tcp_requests_displaced != 0 {
                return Err(Stop::Failed("requests were lost".into()));
            }
        }
        Ok(())
    }
}
