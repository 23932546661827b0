//! The wishes of who opens a packet socket.

use std::path::PathBuf;

use millstream_wire::ethernet::MacAddr;

#[cfg(doc)]
use crate::{RawLink, limits};

/// How to open a [`RawLink`].
///
/// ```no_run
/// use millstream_link::{RawConfig, RawLink};
///
/// let link = RawLink::open(&RawConfig { interface: "eth0".into(), ..RawConfig::default() })?;
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RawConfig {
    /// The interface.
    pub interface: String,
    /// The namespace it lives in; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// The stack's link address, made reachable by promiscuous mode; `None`: the interface's own.
    pub mac: Option<MacAddr>,
    /// Bytes the kernel queues towards us, as it counts them for sockets (SO_RCVBUF of socket(7));
    /// `None`: [`limits::RAW_RECEIVE_BYTES`], or the system's default where that is more. A ring
    /// has memory of its own.
    pub receive_buffer_bytes: Option<usize>,
    /// Receive through a ring instead of system calls.
    pub receive_ring: Option<RingConfig>,
    /// Receive nothing: for who never asks, as what came would be counted as overruns.
    pub send_only: bool,
}

/// A receive ring (TPACKET_V3): no system call for a packet, but a copy, and a wait.
///
/// The kernel hands packets over by the block: when one is full, or after `retire_ms`. So a ring is
/// for floods of small packets; it delays an answer by that time, and copies super-segments twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Bytes of a block: a power of two of at least 128 KiB, so that a super-segment fits. What is
    /// longer (“BIG TCP”, docs/packet-sockets.md) is dropped as `truncated`.
    pub block_bytes: usize,
    /// Blocks.
    pub blocks: usize,
    /// The time for which the kernel keeps a block that is not full, in milliseconds.
    pub retire_ms: u32,
}

impl Default for RingConfig {
    /// Sixteen blocks of 256 KiB, handed over every millisecond.
    fn default() -> Self {
        Self { block_bytes: 1 << 18, blocks: 16, retire_ms: 1 }
    }
}
