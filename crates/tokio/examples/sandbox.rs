//! The network of a sandbox: DHCP and DNS are answered inside the program, and nothing else is.
//!
//! ```text
//! cargo run --release -p millstream-tokio --example sandbox -- ms0 web.inside=10.75.0.7
//! dhclient -v ms0; getent hosts web.inside
//! ```
//! The guest is whoever has the kernel's side of the TAP device, or the virtual machine behind it.
//! It gets 10.75.0.2, and 10.75.0.1 as router and DNS server. It takes CAP_NET_ADMIN.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use millstream::link::{Tap, TapConfig};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, UdpSocket};

/// The address of the program.
pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 75, 0, 1);
/// The address that a guest gets.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 75, 0, 2);
const LENGTH: u8 = 24;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const OPTIONS_AT: usize = 240;

/// Returns the answer to a DHCP message (RFC 2131): the guest's address for a DISCOVER or REQUEST.
fn dhcp(message: &[u8]) -> Option<Vec<u8>> {
    if message.first() != Some(&1) || message.get(236..OPTIONS_AT)? != COOKIE {
        return None;
    }
    let mut options = &message[OPTIONS_AT..];
    let kind = loop {
        match *options {
            [53, 1, kind, ..] => break kind,
            [0, ref rest @ ..] => options = rest,
            [code, len, ref rest @ ..] if code != 255 => options = rest.get(usize::from(len)..)?,
            _ => return None,
        }
    };
    let answer = match kind {
        1 => 2, // DISCOVER, OFFER
        3 => 5, // REQUEST, ACK
        _ => return None,
    };
    let mut bytes = message[..OPTIONS_AT].to_vec();
    bytes[0] = 2;
    bytes[16..20].copy_from_slice(&GUEST.octets());
    bytes[20..24].copy_from_slice(&OWN.octets());
    let mask = !0_u32 << (32 - LENGTH);
    let lease = 3600_u32.to_be_bytes();
    bytes.extend([53, 1, answer]);
    for (code, value) in [
        (54, OWN.octets()),
        (51, lease),
        (1, mask.to_be_bytes()),
        (3, OWN.octets()),
        (6, OWN.octets()),
    ] {
        bytes.extend([code, 4]);
        bytes.extend(value);
    }
    bytes.push(255);
    Some(bytes)
}

/// Returns the answer to a DNS query (RFC 1035) of one question: the address of a name that is
/// known, no record of another type, or that there is no such name.
fn dns(query: &[u8], names: &HashMap<String, Ipv4Addr>) -> Option<Vec<u8>> {
    let (header, question) = query.split_first_chunk::<12>()?;
    let [id0, id1, flags, _, 0, 1, ..] = *header else { return None };
    if flags & 0xf8 != 0 {
        return None; // An answer, or no standard query.
    }
    let (mut labels, mut at) = (Vec::new(), 0);
    while let len @ 1..64 = usize::from(*question.get(at)?) {
        labels.push(String::from_utf8_lossy(question.get(at + 1..at + 1 + len)?).to_lowercase());
        at += 1 + len;
    }
    let question = question.get(..at + 5)?;
    let (is_address, found) = (question[at + 1..] == [0, 1, 0, 1], names.get(&labels.join(".")));
    let code = if found.is_some() { 0 } else { 3 };
    let records = u8::from(is_address && found.is_some());
    let mut bytes = vec![id0, id1, 0x84 | flags & 1, code, 0, 1, 0, records, 0, 0, 0, 0];
    bytes.extend(question);
    if let Some(address) = found.filter(|_| is_address) {
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        bytes.extend(address.octets());
    }
    Some(bytes)
}

/// Answers DHCP and DNS on a stack that has the address [`OWN`].
pub async fn serve(stack: &Stack, names: HashMap<String, Ipv4Addr>) -> io::Result<()> {
    let addresses = UdpSocket::bind(stack, (Ipv4Addr::UNSPECIFIED, 67)).await?;
    addresses.set_broadcast(true).await?;
    let lookups = UdpSocket::bind(stack, (OWN, 53)).await?;
    let (mut message, mut query) = ([0; 1500], [0; 512]);
    loop {
        tokio::select! {
            received = addresses.recv_from(&mut message) => {
                if let Some(answer) = dhcp(&message[..received?.0]) {
                    addresses.send_to(&answer, (Ipv4Addr::BROADCAST, 68)).await?;
                }
            }
            received = lookups.recv_from(&mut query) => {
                let (len, from) = received?;
                if let Some(answer) = dns(&query[..len], &names) {
                    lookups.send_to(&answer, from).await?;
                }
            }
        }
    }
}

#[tokio::main]
#[allow(dead_code, reason = "a test has the functions above")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(device) = arguments.next() else {
        return Err("usage: sandbox DEVICE [NAME=ADDRESS ...]".into());
    };
    let mut names = HashMap::new();
    for argument in arguments {
        let (name, address) = argument.split_once('=').ok_or("NAME=ADDRESS")?;
        names.insert(name.to_lowercase(), address.parse()?);
    }
    let stack = Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let config = TapConfig { name: Some(device), ..TapConfig::default() };
        let link = engine.add_link(Box::new(Tap::open(&config)?))?;
        engine.add_address(link, Prefix { addr: IpAddr::V4(OWN), len: LENGTH })?;
        Ok(engine)
    })?;
    tokio::select! {
        ended = serve(&stack, names) => ended?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
