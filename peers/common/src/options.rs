//! The command line that every near end understands.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of a call where the command line does not say.
pub const CALL_BYTES: usize = 128 << 10;

/// What a near end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends until the far end closes.
    Send,
    /// Receives until the far end closes.
    Receive,
    /// Sends back every byte.
    Echo,
    /// Bulk between two ends in one thread.
    MemoryBulk,
    /// One byte to and fro between two ends in one thread.
    MemoryRr,
}

/// See the module's promise.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first word.
    pub role: Role,
    /// Which of the contender's links.
    pub link: String,
    /// The TAP device, which exists, is configured and up.
    pub device: String,
    /// Address of the near end, in a /24 with the far end's.
    pub address: Ipv4Addr,
    /// Where the far end listens.
    pub peer: SocketAddrV4,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
    /// Poll without sleeping.
    pub spin: bool,
    /// Ask the kernel not to halt idle CPUs of the machine meanwhile.
    pub awake: bool,
    /// Send and receive buffer of a socket, in bytes; 0: the contender's own default.
    pub buffer: usize,
    /// Bytes given to or asked from the stack in one call.
    pub call: usize,
    /// Bytes of the longest super-segment; 0: the contender's own default.
    pub super_bytes: u32,
    /// Longest run; in memory, the measured stretch.
    pub seconds: f64,
}

impl Options {
    /// Reads the process's arguments; what it does not understand ends the process with status 2.
    pub fn from_args(default_buffer: usize) -> Self {
        Self::parse(std::env::args().skip(1), default_buffer).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(2)
        })
    }

    fn parse(
        mut words: impl Iterator<Item = String>,
        default_buffer: usize,
    ) -> Result<Self, String> {
        let role = match words.next().as_deref() {
            Some("send") => Role::Send,
            Some("receive") => Role::Receive,
            Some("echo") => Role::Echo,
            Some("memory-bulk") => Role::MemoryBulk,
            Some("memory-rr") => Role::MemoryRr,
            other => return Err(format!("{other:?}: send, receive, echo, memory-bulk, memory-rr")),
        };
        let mut o = Self {
            role,
            link: String::new(),
            device: "ms-tap".to_owned(),
            address: Ipv4Addr::new(10, 70, 0, 1),
            peer: SocketAddrV4::new(Ipv4Addr::new(10, 70, 0, 2), 5001),
            mtu: 1500,
            spin: false,
            awake: false,
            buffer: default_buffer,
            call: CALL_BYTES,
            super_bytes: 0,
            seconds: 30.0,
        };
        while let Some(word) = words.next() {
            let switch = match word.as_str() {
                "--spin" => Some(&mut o.spin),
                "--awake" => Some(&mut o.awake),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
            let number = || value.parse::<usize>().map_err(|e| format!("{word} {value}: {e}"));
            match word.as_str() {
                "--link" => o.link = value,
                "--device" => o.device = value,
                "--address" => o.address = value.parse().map_err(|e| format!("{value}: {e}"))?,
                "--peer" => o.peer = value.parse().map_err(|e| format!("{value}: {e}"))?,
                "--mtu" => o.mtu = number()?,
                "--buffer" => o.buffer = number()?,
                "--call" => o.call = number()?,
                "--super" => o.super_bytes = value.parse().map_err(|e| format!("{value}: {e}"))?,
                "--seconds" => o.seconds = value.parse().map_err(|e| format!("{value}: {e}"))?,
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned), 7)
    }

    #[test]
    fn options_are_read_and_what_is_unknown_is_refused() {
        let o = parse("echo --link tso --spin --mtu 9000 --peer 10.0.0.9:7").unwrap();
        assert_eq!((o.role, o.spin, o.mtu, o.buffer), (Role::Echo, true, 9000, 7));
        assert_eq!((o.link.as_str(), o.peer.port(), o.awake), ("tso", 7, false));
        assert!(parse("echo --awake").unwrap().awake);
        for wrong in ["", "dance", "send --mtu", "send --mtu big", "send --colour red"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
