//! Numbers that nobody outside has to know: what a turn may take, when a special case pays, how
//! long things wait. Each with its reason. Limits that an application sets are
//! [`Limits`](crate::Limits).

use std::time::Duration;

use millstream_link::sys;

/// Places from home within which a flow must lie in its table. A flow that finds none is refused,
/// like one beyond the socket limit.
pub const DEMUX_PROBES: usize = 48;

/// Numbers that only tests and measurements change; each field says what gives way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tuning {
    /// Orphans ([`Limits::orphans`](crate::Limits)) of one source. What gives way is the source's
    /// own.
    pub orphans_per_source: usize,
    /// The part of the memory of all queues ([`Limits::memory_bytes`](crate::Limits)), one in so
    /// many, that the send queues of all orphans hold. What happens beyond is the same.
    pub orphan_part: usize,
    /// Memory for the unfinished handshakes of all listeners, tables included; some 170 bytes each.
    /// Beyond it a SYN is answered by a cookie or dropped, as beyond
    /// [`Limits::syn_queue`](crate::Limits).
    pub syn_queue_bytes: usize,
    /// Unfinished handshakes of one source, over all listeners. What happens beyond is the same,
    /// except that a SYN that is dropped is counted as [`crate::DropReason::SourceLimit`].
    pub half_open_per_source: usize,
    /// Connections of one listener that are open before their handshake is done (Fast Open, RFC
    /// 7413 5.1), those counted that were reset meanwhile. A further SYN with a cookie gets an
    /// ordinary handshake.
    pub fast_open_pending: usize,
    /// Places beyond a listener's backlog, in percent of it and rounded up, for sources of which
    /// few connections wait in accept queues (less than a quarter of these places): one that fills
    /// the backlog does not shut out others. 0: none.
    pub backlog_reserve_percent: usize,
    /// ICMP errors sent per second, over all causes and addresses, about: what one address gets
    /// must not tell how many others got, so chance has a part in it. Further ones are not sent and
    /// counted.
    pub icmp_errors_per_s: u32,
    /// The same to one address.
    pub icmp_errors_per_address_s: u32,
    /// Segments sent per second to whom there is no connection with, or none that is open, resets
    /// above all, about. Further ones are not sent and counted.
    pub resets_per_s: u32,
    /// The same to one address.
    pub resets_per_address_s: u32,
    /// Bytes of TCP payload that one connection may send before the others get their turn. What a
    /// long segment takes beyond it is missing from the next turn, which sends one segment at
    /// least.
    pub transmit_budget_bytes: usize,
    /// Bytes of TCP payload sent in one turn by all connections, before the links are looked at
    /// again; a segment counts as 8 KiB at least.
    pub transmit_turn_bytes: usize,
    /// Bytes that a TCP connection holds and has not sent yet. Further writes wait until half of it
    /// has left; what could not leave now would only run out of the processor's cache.
    pub unsent_bytes: usize,
    /// While all queues together hold more than this, a connection holds at most
    /// [`CROWDED_UNSENT_BYTES`] unsent: thousands of writers would fill gigabytes that the system
    /// clears first, and that have left every cache when they are sent.
    pub crowded_bytes: usize,
    /// Bytes of TCP payload that all applications together write between two turns. Who is refused
    /// is granted a share in one of the next turns, in the order of asking; until then what it has
    /// written waits to be whole super-segments. A share ends with a whole one. A zero-copy write
    /// ([`zero_copy_bytes`](Self::zero_copy_bytes)) may take two of the longest that its link
    /// takes.
    pub write_turn_bytes: usize,
    /// Largest grant to one waiting writer, even beyond what a turn has. Sized so that all waiting
    /// writers get as much within [`WRITE_ROUND`]. The longer one writer goes on, the less often
    /// its peer has read everything, sleeps, and has to be woken. A grant larger than the room in
    /// the send buffer waits for another turn, so that connections with more room would be written
    /// to more.
    pub write_share_bytes: usize,
    /// Room that the buffer of a read that waits (for many: [`crate::local::Stack::wait_read`])
    /// must have for a link to put received payload straight there, 2 KiB at least. With less of
    /// it, or `usize::MAX` here, data is received into frames and copied.
    pub direct_read_bytes: usize,
    /// Size from which on a write of `local` is sent straight from the caller's memory where the
    /// link has done with a packet when its call returns: what is acknowledged before the write
    /// ends is never copied. `usize::MAX`: none.
    pub zero_copy_bytes: usize,
    /// The longest time that such a write waits for ACKs, instead of copying what is not
    /// acknowledged yet: in all for each MiB that it writes, and at one time. It does not wait
    /// where round trips take longer, or while others have work. Zero: it never waits.
    pub zero_copy_wait: Duration,
    /// Bytes that the receive windows of several busy connections may have together beyond what
    /// their paths carry; each has 256 KiB at least. A fifth of the last-level cache, 12 MiB at
    /// most.
    pub windows_bytes: usize,
    /// Connections served with transmission in one turn.
    pub transmit_connections: usize,
    /// Timers fired in one turn.
    pub timers: usize,
    /// The shortcuts of what is received.
    pub fast_path: FastPath,
}

/// Which shortcuts what is received may take. Each changes what the segment costs, and nothing that
/// a peer or an application sees: tests compare, and measurements tell what each is worth.
/// [`millstream_tcp::Config::fast_path`] turns off all of them, and those of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastPath {
    /// The headers of known flows are compared, not parsed. Without it there is no direct placement
    /// either, which is for segments of known flows.
    pub flow_cache: bool,
    /// A link puts payload straight into the buffer of a read that waits.
    pub direct_placement: bool,
    /// Packets for others that ask for no more than a way are handed on many at a time.
    pub forward_runs: bool,
}

impl FastPath {
    /// All of them.
    pub const ALL: Self = Self { flow_cache: true, direct_placement: true, forward_runs: true };
    /// None of them.
    pub const NONE: Self = Self { flow_cache: false, direct_placement: false, forward_runs: false };
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            orphans_per_source: 16_384,
            orphan_part: 4,
            syn_queue_bytes: 1 << 20,
            half_open_per_source: 512,
            fast_open_pending: 256,
            backlog_reserve_percent: 25,
            icmp_errors_per_s: 10_000,
            icmp_errors_per_address_s: 20,
            resets_per_s: 50_000,
            resets_per_address_s: 50,
            transmit_budget_bytes: 256 * 1024,
            transmit_turn_bytes: 512 * 1024,
            unsent_bytes: 256 * 1024,
            crowded_bytes: 64 << 20,
            write_turn_bytes: 256 * 1024,
            write_share_bytes: 448 * 1024,
            direct_read_bytes: 8 * 1024,
            zero_copy_bytes: 256 * 1024,
            zero_copy_wait: Duration::from_micros(100),
            windows_bytes: under_way_bytes(millstream_tcp::limits::WINDOWS_BASE_BYTES),
            transmit_connections: 64,
            timers: 256,
            fast_path: FastPath::ALL,
        }
    }
}

/// Bytes of an IP packet that is no super-segment, at most (RFC 791, 3.1), and of one with what
/// IPv6 says of its length.
pub const LONGEST_PACKET: usize = 65_535;

/// Datagrams of which fragments are kept at most.
pub const FRAGMENTED_DATAGRAMS: usize = 4_096;

/// Pieces with gaps between them that fragments of one datagram make at most.
pub const FRAGMENT_RUNS: usize = 64;

/// The fragments of a datagram are kept for so long (RFC 1122, 3.3.2; RFC 8200, 4.5).
pub const REASSEMBLY_TIME: Duration = Duration::from_secs(60);

/// Local prefixes of one engine, all links together
/// ([`Intercept::add_prefix`](crate::Intercept::add_prefix)): each packet that takes the long way
/// is compared with them.
pub const LOCAL_PREFIXES: usize = 64;

/// Listeners that intercept, and as many UDP sockets: each SYN that no other listener takes is
/// compared with them.
pub const INTERCEPTS: usize = 64;

/// Flows looked at to find one that gives way to a new one.
pub const FLOW_SAMPLE: usize = 16;

/// Places in which sources are counted, found by a keyed hash. Two sources in one count as one: of
/// 1,000 busy sources one in five is counted together with another.
pub const SOURCE_PLACES: usize = 4_096;

/// Where there is no room, a source with more than this part of all connections has those give way
/// that exchanged something, first those that do so no more ([`STILL`]); and orphans, however they
/// get on.
pub const SOURCE_SHARE: usize = 16;

/// A connection gets on while something new comes, or is acknowledged, within this time; the pace
/// of an orphan is that of so long at least.
pub const STILL: Duration = Duration::from_secs(1);

/// Connections looked at to find one that gives way: orphans, and others.
pub const ORPHAN_SAMPLE: usize = 16;
/// See [`ORPHAN_SAMPLE`].
pub const CONNECTION_SAMPLE: usize = 48;

/// After a search in vain for one that gives way, SYNs are dropped unlooked at for so long.
pub const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// After a search in vain for a free port to a destination none is looked for there for so long.
pub const NO_PORT_PAUSE: Duration = Duration::from_millis(100);

/// Orphans that give way at once, at most, as another connection becomes one.
pub const ORPHANS_TURN: usize = 4;

/// The part of the last-level cache, one in so many, that data of several connections within a
/// machine may take. It passes the cache as it is written and as it is read, and then its memory is
/// written again; others use the cache too. With 32 MiB (EPYC), 16 MiB under way reach 0.6 to 0.8
/// of the rate that 6 MiB reach; 480 MiB (Xeon) hold 16, and there fewer cost more interrupts.
pub const UNDER_WAY_CACHE_PART: usize = 5;

/// Returns that part of the cache in bytes, but at most `most`, and 1 MiB at least.
fn under_way_bytes(most: usize) -> usize {
    let part = sys::last_cache_bytes().map_or(most, |bytes| bytes / UNDER_WAY_CACHE_PART);
    part.clamp(1 << 20, most)
}

/// Least number of bytes that a segment counts in a turn's budget. With the default budget of 512
/// KiB a turn sends some 64 packets of the wire's size, as many as it takes from a link: they are
/// received while they are still in the processor's cache, and answers do not outrun what they
/// answer.
pub const SEGMENT_COST_BYTES: usize = 8 * 1024;

/// Least share that a connection in line is granted, as far as [`Tuning::write_turn_bytes`] has it:
/// four super-segments, so that many connections do not mean small segments, and that what one
/// writes is acknowledged, and its memory used again, before the next has its turn.
pub const WRITE_SHARE_BYTES: usize = 256 * 1024;

/// The bytes of [`Tuning::unsent_bytes`] while the queues are crowded
/// ([`Tuning::crowded_bytes`]): a super-segment.
pub const CROWDED_UNSENT_BYTES: usize = 64 * 1024;

/// The longest time of a round of all waiting writers, at the rate at which they write, as long as
/// none gets less than [`WRITE_SHARE_BYTES`]: a peer's delayed ACK goes out by a timer of 40 ms,
/// which fires for a connection that is served later. As shares end with whole super-segments, a
/// round is shorter.
pub const WRITE_ROUND: Duration = Duration::from_millis(40);

/// Data of one segment from which on the next may go straight into the buffer of a read that waits:
/// it is worth a guess.
pub const DIRECT_BULK_BYTES: usize = 16 * 1024;

/// Pieces of different connections in one buffer begin at multiples of this: the kernel copies
/// there faster.
pub const DIRECT_ALIGNMENT_BYTES: usize = 64;

/// A read that waits is read into until it has this many bytes, however large its buffer is: more
/// would push the first ones out of the processor's cache before the reader looks at them, and
/// where it is read into next was there last.
pub const DIRECT_READ_BYTES: usize = 1 << 20;

/// Smaller segments in a row after which it is not.
pub const DIRECT_SMALL_SEGMENTS: u8 = 8;

/// Largest segments that a write sends from the caller's memory before it looks for ACKs, and
/// packets that it then takes from the links at most, in batches.
pub const ZERO_COPY_SEGMENTS: usize = 2;
/// See [`ZERO_COPY_SEGMENTS`].
pub const ZERO_COPY_LOOKS: usize = 8;

/// Memory for which a send buffer that tunes itself has places while a write lends: more than what
/// a peer reads by one call, as its ACK comes behind that.
pub const ZERO_COPY_QUEUE_BYTES: usize = 2 << 20;

/// No more than this of what was lent is copied rather than waited for, once all is sent: it is in
/// the cache, and the peer still has something to read while the next write begins.
pub const ZERO_COPY_COPY_BYTES: usize = 512 * 1024;

/// For so much that is lent a write may wait for as long as it may wait at once
/// ([`Tuning::zero_copy_wait`]).
pub const ZERO_COPY_WAIT_KIB: u64 = 1024;

/// Least time in nanoseconds that one look for ACKs counts while a write waits, whatever the clock
/// says.
pub const ZERO_COPY_LOOK_NS: u64 = 200;

/// A write up to this size on a connection with nothing unsent waits for others only where one
/// before it does.
pub const SMALL_WRITE_BYTES: usize = 4096;

/// Streams of the `net` placement whose rings are looked at, as their applications have left
/// something there, before the links are looked at again. The others are in the next turn, in the
/// order of asking.
pub const STREAMS_TURN: usize = 256;

/// Datagrams that one socket of the `net` placement sends before the links are looked at again.
pub const DATAGRAM_TURN: usize = 64;

/// Datagrams that all these sockets together send. The others go on in the next turn, in the order
/// of asking.
pub const DATAGRAMS_TURN: usize = 256;

/// How often an engine that takes turns looks whether the MTU or the address of its links'
/// interfaces have been changed. It costs three system calls for each link, some 2 µs.
pub const LINK_LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Questions before an IPv4 address is used that is checked before use, the time before the first,
/// at most, and between two of them, and how long an answer to the last is awaited (RFC 5227, 1.1).
pub const PROBE_NUM: u8 = 3;
/// See [`PROBE_NUM`]. Also `MAX_RTR_SOLICITATION_DELAY` of RFC 4861, for IPv6 (RFC 4862, 5.4.2).
pub const PROBE_WAIT: Duration = Duration::from_secs(1);
/// See [`PROBE_NUM`].
pub const PROBE_MIN: Duration = Duration::from_secs(1);
/// See [`PROBE_NUM`].
pub const PROBE_MAX: Duration = Duration::from_secs(2);
/// See [`PROBE_NUM`].
pub const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

/// Between two announcements of an IPv4 address (RFC 5227, 1.1).
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// An address that others claim is announced anew so often at most (RFC 5227, 1.1; for IPv6, too).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// `DupAddrDetectTransmits` of RFC 4862, 5.1.
pub const DAD_TRANSMITS: u8 = 1;

/// `RetransTimer` of RFC 4861: how long an answer to a question about an IPv6 address of ours is
/// awaited, and between two announcements of one.
pub const DAD_RETRANS_TIMER: Duration = Duration::from_secs(1);

/// Default time for which an engine looks for work before it sleeps. Longer than it takes to wake a
/// thread on a halted processor of a virtual machine (about 40 µs), so that a peer that had to be
/// woken is still awaited. An engine that polls in vain stops doing so by itself.
pub const BUSY_POLL_DEFAULT: Duration = Duration::from_micros(50);

/// After this long without work an engine gives the pool's free memory back to the system, unless
/// another engine has work. It is provided again, page by page, when it is next used.
pub const IDLE_RELEASE: Duration = Duration::from_secs(10);

/// Frames that an engine keeps in reserve of a pool that cannot grow, for a turn that finds none:
/// what frees the others has to be received and answered. One batch, or this part of the pool where
/// that is less.
pub const RESERVE_FRAMES: usize = millstream_packet::BATCH_LIMIT;
/// See [`RESERVE_FRAMES`].
pub const RESERVE_PART: usize = 32;

/// Under memory pressure a connection moves if what it holds would have gone, to the peer or to the
/// application, within so many seconds at the pace of the last one. Slower ones have their minimum,
/// and are the first to be reset.
pub const MOVING_SECONDS: usize = 32;
/// See [`MOVING_SECONDS`]: the shortest time, where memory stays scarce. A sender's queue holds two
/// windows.
pub const LEAST_MOVING_SECONDS: usize = 2;

/// Where memory is scarce half as much time is left after each of these.
pub const DEMAND_PAUSE: Duration = Duration::from_millis(250);

/// Connections looked at in one turn, under memory pressure, for what they can give back.
pub const RECLAIM_CONNECTIONS: usize = 64;

/// Pause after all were looked at and had nothing to give back.
pub const RECLAIM_PAUSE: Duration = Duration::from_millis(100);

/// Where memory is critical a connection is reset when its peer has moved too little for so long,
/// those with most beyond their pace first.
pub const EVICT_AFTER: Duration = Duration::from_secs(5);

/// The same where so little is left that a connection cannot have its minimum.
pub const EVICT_SCARCE_AFTER: Duration = Duration::from_secs(1);

/// After this time without a segment a connection gives back what only a busy one needs.
pub const QUIET_AFTER: Duration = Duration::from_secs(5);

/// Connections asked at once whether they are quiet, and the pause before the next ones.
pub const QUIET_SWEEP: usize = 256;
/// See [`QUIET_SWEEP`].
pub const QUIET_SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Unseen news of sockets that are gone, beside twice as many as there are sockets, before they are
/// forgotten.
pub const EVENTS_UNTRIMMED: usize = 1024;

/// Names in a listener's queue of connections that gave way, beside twice as many as wait, before
/// they are forgotten.
pub const READY_UNTRIMMED: usize = 64;

/// TIME-WAIT ends at multiples of this.
pub const TIME_WAIT_GRAIN: Duration = Duration::from_millis(125);

/// Destinations whose Fast Open cookie, or trouble with it, is remembered; the one not used for
/// longest gives way.
pub const FAST_OPEN_DESTINATIONS: usize = 1_024;

/// A Fast Open cookie given out is good for one to two of these.
pub const FAST_OPEN_KEY_PERIOD: Duration = Duration::from_secs(24 * 3600);

/// A connection that was open early and reset counts against the limit for so long (RFC 7413 5.1).
pub const FAST_OPEN_RESET_MEMORY: Duration = Duration::from_secs(60);

/// Such resets that one listener remembers.
pub const FAST_OPEN_RESETS: usize = 1_024;

/// An engine that ends, and was not told for how long, sees its connections through for as long as
/// one of their peers acknowledges something within this time.
pub const LINGER_STALL: Duration = Duration::from_secs(5);

/// Pause between two looks at what is left to deliver then, connection by connection.
pub const LINGER_LOOK: Duration = Duration::from_millis(20);

/// The longest time that it waits, when all is delivered, for peers to end their sides, and for
/// datagrams to leave.
pub const GOODBYE: Duration = Duration::from_millis(500);

/// Destinations whose path MTU is remembered for datagrams, and as many for echo replies.
pub const PATH_MTUS: usize = 512;

/// So many of these share a place in the table; one of them gives way by chance.
pub const PATH_MTUS_TOGETHER: usize = 4;

/// The time for which it is remembered (RFC 1191 section 6.3, RFC 8201 section 5.3: ten minutes).
pub const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

/// Room left before a finished frame, for what a link puts in front of it.
pub const LINK_HEADROOM_BYTES: usize = 64;

/// Bytes before the payload in a frame that the stack fills: Ethernet with VLAN tag (18), IPv6
/// (40), TCP with all options (60), rounded up.
pub const HEADROOM_BYTES: usize = 128;

/// UDP sockets that may share addresses on one port
/// ([`SocketsHandle::udp_bind_shared`](crate::SocketsHandle::udp_bind_shared)): a datagram to a
/// group costs a view for each that is in it.
pub const SHARED_UDP_SOCKETS: usize = 64;
