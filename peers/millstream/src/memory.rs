//! Two engines joined by an in-memory link, in one thread.

use std::error::Error;

use millstream::link::{PairConfig, pair};
use millstream::packet::Instant;
use millstream::{Engine, Error as StackError, SocketId};
use peers_common::{Options, measure_in_memory};

/// Bytes of a packet given through the API without copies.
const PACKET_BYTES: usize = 60_000;

/// Two engines with one open connection.
fn connected(o: &Options) -> Result<(Engine, SocketId, Engine, SocketId), Box<dyn Error>> {
    let offload = matches!(o.link.as_str(), "super" | "packets");
    let pool = crate::pool()?;
    let (a, b) = pair(PairConfig { offload, mtu: o.mtu, ..PairConfig::default() })?;
    let mut a = crate::engine(&pool, a, "10.0.0.1/24", o)?;
    let mut b = crate::engine(&pool, b, "10.0.0.2/24", o)?;
    let to = "10.0.0.2:9".parse()?;
    let listener = b.sockets().tcp_listen(to, 1)?;
    let client = a.sockets().tcp_connect(to)?;
    let server = loop {
        for engine in [&mut a, &mut b] {
            let now = engine.refresh_time();
            engine.turn(now);
        }
        if let Ok((id, _)) = b.listener(listener).accept() {
            break id;
        }
    };
    a.tcp(client).set_nodelay(true)?;
    b.tcp(server).set_nodelay(true)?;
    Ok((a, client, b, server))
}

/// Takes a turn with the buffer of a reader who waits, then reads what was queued for it.
fn turn_and_read(
    engine: &mut Engine,
    now: Instant,
    id: SocketId,
    buffer: &mut [u8],
) -> Result<usize, StackError> {
    match engine.turn_reading(now, id, buffer) {
        (_, 0) => engine.tcp(id).read(buffer),
        (_, len) => Ok(len),
    }
}

/// Bulk from one to the other.
pub fn bulk(o: &Options) -> Result<(), Box<dyn Error>> {
    let (mut a, client, mut b, server) = connected(o)?;
    let data = vec![7_u8; o.call];
    let mut sink = vec![0_u8; o.call];
    let packets = o.link == "packets";
    let mut waiting = None;
    measure_in_memory(o, "bytes", || {
        let mut moved = 0;
        for _ in 0..16 {
            if packets {
                fill(&mut a, client, &mut waiting);
            } else {
                while a.tcp(client).write(&data) == Ok(data.len()) {}
            }
            let now = a.refresh_time();
            a.turn(now);
            if packets {
                b.turn(now);
                while let Ok(Some(packet)) = b.tcp(server).read_packet(1 << 20) {
                    moved += packet.len() as u64;
                }
            } else {
                if let Ok(len) = turn_and_read(&mut b, now, server, &mut sink) {
                    moved += len as u64;
                    while let Ok(len) = b.tcp(server).read(&mut sink) {
                        moved += len as u64;
                    }
                }
            }
        }
        moved
    });
    Ok(())
}

/// Gives the connection packets until it takes no more; the refused one waits.
fn fill(a: &mut Engine, client: SocketId, waiting: &mut Option<millstream::packet::Packet>) {
    loop {
        let packet = waiting.take().or_else(|| {
            let mut packet = a.pool().alloc_chain(0, PACKET_BYTES)?;
            drop(packet.commit(PACKET_BYTES));
            Some(packet)
        });
        let Some(packet) = packet else { return };
        if let Err((packet, _)) = a.tcp(client).write_packet(packet) {
            *waiting = Some(packet);
            return;
        }
    }
}

/// One byte to and fro.
pub fn rr(o: &Options) -> Result<(), Box<dyn Error>> {
    let (mut a, client, mut b, server) = connected(o)?;
    let mut byte = [0];
    measure_in_memory(o, "transactions", || {
        for _ in 0..256 {
            let now = a.refresh_time();
            assert_eq!(a.tcp(client).send(&byte), Ok(1));
            while turn_and_read(&mut b, now, server, &mut byte) == Err(StackError::WouldBlock) {}
            assert_eq!(b.tcp(server).send(&byte), Ok(1));
            while turn_and_read(&mut a, now, client, &mut byte) == Err(StackError::WouldBlock) {
                b.turn(now);
            }
        }
        256
    });
    Ok(())
}
