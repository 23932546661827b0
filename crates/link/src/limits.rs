//! Every limit of this crate, in one place.

use millstream_packet::{BLOCK_SIZE_BYTES, FRAME_SIZE_BYTES};
use std::time::Duration;

/// Largest link header any link here puts before the IP header: Ethernet with one VLAN tag.
pub const LINK_HEADER_BYTES: usize = 18;

/// Ethernet header without a tag.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// Smallest MTU a link accepts: what IPv4 obliges every link to carry (RFC 791 section 3.1).
pub const MTU_MIN_BYTES: usize = 68;

/// A VLAN tag's type and the tag.
pub(crate) const VLAN_TAG_BYTES: u16 = 4;

/// Smallest MTU of a link with IPv6 (RFC 8200 section 5).
pub const IPV6_MTU_MIN_BYTES: usize = 1280;

/// Largest MTU: the largest IPv4 packet.
pub const MTU_MAX_BYTES: usize = 65_535;

/// Largest super-segment a link with segmentation offload takes or gives, counted as an IP packet,
/// where it was not asked for longer ones.
pub const SUPER_SEGMENT_BYTES: u32 = 65_535;

/// Most datagrams of a super-segment of UDP that every Linux takes (`UDP_MAX_SEGMENTS`; newer ones
/// take 128): one of more is refused whole, be it written to a TAP device or a packet socket.
pub const SUPER_DATAGRAMS: usize = 64;

/// Largest super-segment that a TAP device can be asked to take
/// ([`TapConfig::super_segment_bytes`](crate::TapConfig)): the kernel's own `GRO_MAX_SIZE`.
pub const BIG_SUPER_SEGMENT_BYTES: u32 = 8 * 65_535;

/// Bytes that a link over a UNIX stream socket reads or writes at once; the longest frame fits.
pub(crate) const STREAM_BYTES: usize = 256 << 10;

/// Room left before a received frame's first byte, so that a forwarder can put a longer link header
/// before it.
pub const RECEIVE_HEADROOM_BYTES: usize = 64;

/// A read from the kernel ends its batch once it has this many bytes: more would push the first
/// ones out of the processor's cache before anybody looks at them.
pub const RECEIVE_BATCH_BYTES: usize = 256 * 1024;

/// Default number of packets one direction of a [`pair`](crate::pair()) holds.
pub const PAIR_CAPACITY: usize = 512;

/// Packets that a [`Loopback`](crate::Loopback) holds.
pub const LOOPBACK_PACKETS: usize = 512;

/// Memory that they hold at most, and one packet more, in bytes.
pub const LOOPBACK_BYTES: usize = 4 << 20;

/// Largest IP packet of a [`Loopback`](crate::Loopback): some frames.
pub const LOOPBACK_MTU_BYTES: usize = 16 * 1024;

/// The longest sleep of an end of a pair, where the kernel has ceased to give the fence by which
/// its peer would be sure to wake it.
pub const PAIR_NAP: Duration = Duration::from_millis(1);

/// Most headers (link, network, transport) that software segmentation copies before each segment.
pub const SEGMENT_HEADER_BYTES: usize = 256;

/// Most frames that wait for one read: a super-segment with its link header, each frame less its
/// headroom.
pub const SPARE_FRAMES: usize = 36;

/// The bytes from which on the rest of a received packet, beyond its first frame, is left in a
/// block. The block counts whole against the receive window, so less is copied into frames.
pub const BLOCK_WORTH_BYTES: usize = BLOCK_SIZE_BYTES / 4;

/// Most slices of one gathered write, the virtio-net header included: the frames of the longest
/// super-segment. Chains of more are compacted first.
pub const WRITE_SLICES: usize = 320;
const _: () = assert!(BIG_SUPER_SEGMENT_BYTES as usize / FRAME_SIZE_BYTES + 2 <= WRITE_SLICES);

/// Packets on their way in one direction of a fault wrapper from which on it takes no more,
/// whatever its limit in bytes: what comes then waits at the link inside. The last super-segment
/// taken goes beyond.
pub const FAULT_QUEUE_PACKETS: usize = 16_384;

/// Most frames that one call writes through io_uring.
pub const RING_WRITES: usize = 64;

/// Most frames that one call reads through io_uring.
pub const RING_READS: usize = 64;

/// Frames that each queue of a TAP device without virtio-net headers has registered with its ring
/// of reads: what one huge page holds. While all are in use, reads go into other frames.
pub const REGISTERED_FRAMES: usize = millstream_packet::CHUNK_FRAMES;

/// How often an opened TAP looks for each packet of its self-check.
pub const PROBE_ATTEMPTS: usize = 50;

/// The wait between two looks when there is nothing to read, in milliseconds.
pub const PROBE_WAIT_MS: u64 = 2;

/// Most slices of all the packets that one call sends on a packet socket.
pub const BATCH_SLICES: usize = 512;

/// The bytes of SO_RCVBUF that the kernel queues towards a packet socket, when nothing else is
/// said: some hundred super-segments. Its own default, 208 KiB, holds three.
pub const RAW_RECEIVE_BYTES: usize = 4 << 20;

/// The time after which, when an interface went down, a packet socket looks whether it is up again,
/// or was removed, and AF_XDP tries to send what waits.
pub const DOWN_PAUSE: Duration = Duration::from_millis(100);

/// How often a TAP device that is busy is asked for again, [`BUSY_PAUSE`] apart: for half a second,
/// or what the scheduler makes of it.
pub const BUSY_TRIES: u32 = 100;

/// See [`BUSY_TRIES`].
pub const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How often a packet socket with a receive ring that gives nothing is asked for an error, which
/// the ring does not tell.
pub const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// The time for which an AF_XDP link in copy mode leaves a device alone that had no room, at first.
pub const XDP_REST: Duration = Duration::from_micros(50);

/// The time that it is doubled up to.
pub const XDP_REST_LIMIT: Duration = Duration::from_millis(10);

/// The time without a received packet after which the sleeps of an AF_XDP link are also ended by
/// what happens to the interface.
pub const XDP_QUIET: Duration = Duration::from_secs(1);

/// How often an AF_XDP link that is dropped looks whether what it has sent has left the
/// device. What has not by then stays the kernel's for good.
pub const XDP_LAST_LOOKS: usize = 10;

/// The wait after each look in vain.
pub const XDP_LAST_PAUSE: Duration = Duration::from_millis(1);

/// How often [`set_address`](crate::netdev::set_address) looks whether an IPv6 address is in use.
pub const ADDRESS_ATTEMPTS: usize = 500;

/// The wait between two looks, in milliseconds.
pub const ADDRESS_WAIT_MS: u64 = 1;

/// Most flows that the XDP program of one interface picks out.
pub const XDP_FLOWS: usize = 64;

/// Default descriptors in each ring of an AF_XDP socket.
pub const XDP_RING: u32 = 2048;

/// Most descriptors in each: 16 MiB of a ring's memory.
pub const XDP_RING_LIMIT: u32 = 1 << 20;

/// Descriptors of one packet that every kernel sends: `CONFIG_MAX_SKB_FRAGS` and one (Linux'
/// documentation of AF_XDP, multi-buffer). A longer packet is lost without a word, so that an
/// interface with a larger MTU is sent by 36,846.
pub const XDP_PIECES: u32 = 18;

/// Room that the kernel leaves before a frame received by AF_XDP.
pub const XDP_HEADROOM_BYTES: usize = 256;

/// The time for which an AF_XDP link without a frame to receive into waits before it asks the pool
/// again.
pub const XDP_DRY_PAUSE: Duration = Duration::from_millis(1);

/// Link addresses that are tried for a macvtap device of which nobody has said its own: so many
/// programs have one each over one interface, the same whenever they start again.
pub const MACVTAP_MACS: u32 = 64;

/// Packets that the kernel queues towards a TAP or TUN device when nothing else is said: enough for
/// four super-segments of each of two thousand connections. It is a ring of pointers; what lies in
/// it is bounded by the receive windows.
pub const TAP_QUEUE_PACKETS: usize = 8192;

/// Most engines that share a device.
pub const SHARES: usize = 64;

/// First local port whose packets belong to one engine of several, whatever their flow: where the
/// ephemeral ports begin (RFC 6335 section 6).
pub const SHARED_PORTS_FIRST: u16 = 49_152;

/// Packets that one engine hands over to another and that has not taken yet. What comes then is
/// dropped and counted.
pub const HAND_OVER_PACKETS: usize = 512;
