//! The two hosts of a clog that is about a connection: an engine on each end of a link.

use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use millstream::link::{Link, PairEnd};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig, Error as StackError, SocketId};

pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub(super) const PORT: u16 = 9;

/// An error of the stack in a run.
pub(super) fn failed(error: impl Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn host(link: Box<dyn Link>, address: Ipv4Addr, config: EngineConfig) -> io::Result<Engine> {
    let mut engine = Engine::new(config)?;
    let link = engine.add_link(link).map_err(failed)?;
    engine.add_address(link, Prefix { addr: address.into(), len: 24 }).map_err(failed)?;
    Ok(engine)
}

/// The far host, with a connection to the near one under way.
pub(super) fn connecting(end: PairEnd, config: EngineConfig) -> io::Result<(Engine, SocketId)> {
    let mut engine = host(Box::new(end), FAR, config)?;
    let socket =
        engine.sockets().tcp_connect(SocketAddr::new(NEAR.into(), PORT)).map_err(failed)?;
    Ok((engine, socket))
}

/// The near host, once it has accepted that connection; it waits for ten seconds.
pub(super) fn accepting(
    link: Box<dyn Link>,
    config: EngineConfig,
) -> io::Result<(Engine, SocketId)> {
    let mut engine = host(link, NEAR, config)?;
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
    let listener = engine.sockets().tcp_listen(any, 1).map_err(failed)?;
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        engine.run_once(Some(Duration::from_millis(1)))?;
        match engine.listener(listener).accept() {
            Ok((socket, _)) => return Ok((engine, socket)),
            Err(StackError::WouldBlock) if Instant::now() < until => {}
            Err(error) => return Err(failed(error)),
        }
    }
}
