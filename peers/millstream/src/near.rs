//! The near end over TAP.

use std::error::Error;
use std::io::{Read, Write};

use millstream::link::{Link, Tap, TapConfig};
use millstream::local::{Stack, TcpStream};
use peers_common::{Deadline, Options, Role};

/// Connects and does what the options say until the far end closes.
pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let offload = options.link != "plain";
    let tap = Tap::open(&TapConfig {
        name: Some(options.device.clone()),
        vnet_hdr: offload,
        offload,
        mtu: options.mtu,
        super_segment_bytes: (options.super_bytes != 0).then_some(options.super_bytes),
        ..TapConfig::default()
    })?;
    tap.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let address = format!("{}/24", options.address);
    let stack = Stack::new(crate::engine(&crate::pool()?, tap, &address, options)?);
    let mut stream = TcpStream::connect(&stack, options.peer)?;
    stream.set_nodelay(true)?;
    let deadline = Deadline::new(options.seconds);
    let mut data = vec![3_u8; options.call];
    match options.role {
        Role::Send => while !deadline.is_over() && stream.write_all(&data).is_ok() {},
        Role::Receive => {
            while !deadline.is_over() && stream.read(&mut data).is_ok_and(|len| len != 0) {}
        }
        _ => {
            while !deadline.is_over()
                && stream.read(&mut data[..1]).is_ok_and(|len| len == 1)
                && stream.write_all(&data[..1]).is_ok()
            {}
        }
    }
    let engine = stack.engine();
    let stats = engine.stats();
    println!(
        "{{\"version\":\"millstream {}\",\"sleeps\":{},\"turns\":{}}}",
        env!("CARGO_PKG_VERSION"),
        stats.sleeps,
        stats.turns
    );
    Ok(())
}
