//! Every limit of the machine, in one place. The unit is the last word of the name.

/// Segment size assumed when the peer's SYN names none, IPv4 (RFC 9293 3.7.1).
pub const DEFAULT_MSS_V4_BYTES: u16 = 536;
/// Segment size assumed when the peer's SYN names none, IPv6 (RFC 9293 3.7.1).
pub const DEFAULT_MSS_V6_BYTES: u16 = 1220;
/// Segment size tried when larger ones seem to vanish: with 40 bytes of headers RFC 8899's BASE_PLPMTU, 1,200.
pub const BLACK_HOLE_MSS_BYTES: u16 = 1160;
/// Time-outs in a row of a large segment that make it try the smaller size: three happen by congestion.
pub const BLACK_HOLE_TIMEOUTS: u8 = 4;
/// Probes of one size that get lost before the path is taken not to carry it (RFC 8899 5.1.2: MAX_PROBES).
pub const MTU_PROBES: u8 = 3;
/// The search for the largest segment ends when it is known to so many bytes.
pub const MTU_SEARCH_STEP_BYTES: u16 = 16;
/// Full segments that must follow a probe, so that its loss shows at once.
pub const MTU_PROBE_FOLLOWERS: u64 = 3;
/// Time after which a larger segment is tried again (RFC 1191 6.3, RFC 8899 5.1.1).
pub const MTU_RAISE_S: u64 = 600;
/// A SYN waits so long for data to go with it.
pub const FAST_OPEN_WAIT_MS: u64 = 50;
/// A Fast Open cookie that was of no use so many times in a row, no other being given, is forgotten.
pub const FAST_OPEN_REFUSALS: u8 = 3;
/// After a SYN with the Fast Open option got lost, none is sent to that destination for this long; twice as long
/// with each that follows.
pub const FAST_OPEN_AVOID_S: u64 = 60;
/// Doublings of that time at most.
pub const FAST_OPEN_AVOID_STEPS: u32 = 7;
/// A router's word about a path that carries less does not make IPv4 packets smaller than this (as Linux): they may be
/// fragmented then. IPv6 has such a bound of its own (RFC 8201 section 4).
pub const MIN_PATH_MTU_V4_BYTES: u16 = 552;
/// Smallest IPv6 packet that every path carries.
pub const MIN_PATH_MTU_V6_BYTES: u16 = 1280;
/// Smallest segment size that a peer can press on us.
pub const MIN_MSS_BYTES: u16 = 88;
/// Largest payload of an ordinary super-segment: what the IP length field leaves of 65,535 bytes, less the longest TCP
/// header. 45 segments of 1,448 bytes. Longer ones have several times as much.
pub const SUPER_SEGMENT_BYTES: u32 = 65_535 - 20 - 60;
/// Largest payload of any super-segment: no link takes a longer one.
pub const BIG_SUPER_SEGMENT_BYTES: u32 = 8 * SUPER_SEGMENT_BYTES;
/// Largest window shift (RFC 7323 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

/// Disjoint ranges of out-of-order data held; a range more is not kept.
pub const REASSEMBLY_RANGES: usize = 1024;
/// Disjoint ranges in each set of the sender's scoreboard; what does not fit is treated as not reported.
pub const SCOREBOARD_RANGES: usize = 8192;
/// Ranges that the scoreboard keeps at least, however little is outstanding.
pub const SCOREBOARD_RANGES_MIN: usize = 8;
/// SACK blocks in a segment that carries timestamps too (RFC 2018 section 3).
pub const SACK_BLOCKS_WITH_TIMESTAMPS: usize = 3;
/// SACK blocks in a segment without timestamps (RFC 2018 section 3).
pub const SACK_BLOCKS: usize = 4;

/// Time-outs in a row after which the way to the peer is suspected (RFC 9293 3.8.3: R1, three at least).
pub const R1_TIMEOUTS: u8 = 3;
/// Full-sized segment assumed of a peer before it has sent a larger one.
pub const RECEIVED_MSS_START_BYTES: u32 = 536;

/// First retransmission time-out before a round trip was measured (RFC 6298 2.1).
pub const INITIAL_RTO_MS: u32 = 1_000;
/// Time-out used for data when the SYN had to be sent again (RFC 6298 5.7).
pub const RTO_AFTER_LOST_SYN_MS: u32 = 3_000;
/// Upper bound of the retransmission time-out (RFC 6298 2.5: at least 60 s).
pub const MAX_RTO_MS: u32 = 120_000;
/// Least time before what a peer has taken back is sent again by an early time-out (Linux has the same).
pub const RENEGED_WAIT_MS: u64 = 10;
/// Duplicate ACKs (or selectively acknowledged segments) that mean loss (RFC 5681 3.2).
pub const DUPLICATE_THRESHOLD: u32 = 3;
/// Longest time that an ACK may be held back: less than half a second (RFC 9293 3.8.6.3).
pub const MAX_DELAYED_ACK_MS: u16 = 499;
/// Segments acknowledged at once when a connection starts.
pub const QUICK_ACK_SEGMENTS: u8 = 16;
/// Challenge ACKs and answers to out-of-window segments, per connection and second (RFC 5961 section 7).
pub const CHALLENGE_ACKS_PER_S: u8 = 10;
/// Silence in TIME-WAIT after which the same ends may be used for a new connection of ours, timestamps telling
/// the two apart (RFC 6191).
pub const TIME_WAIT_REUSE_MS: u64 = 1_000;
/// A timestamp this old is no longer compared (RFC 7323 5.5: 24 days).
pub const TIMESTAMP_AGE_LIMIT_S: u64 = 24 * 24 * 3600;
/// So many ticks of the peer's clock behind TS.Recent a timestamp is not old yet; Linux has the same.
pub const PAWS_SLACK_TICKS: i32 = 1;
/// Receive and send buffers start at this much memory and are tuned upwards.
pub const BUFFER_START_BYTES: usize = 256 * 1024;
/// Tuning stops at what this rate (100 Gb/s) carries in the least round trip, and an allowance for scheduling: more
/// in flight on a short path is only a longer queue, and memory that has left the cache.
pub const TUNE_RATE_BYTES_PER_S: u64 = 12_500_000_000;
/// The allowance of a receive window whose peer is stopped by it again and again. A peer's process that writes a
/// megabyte by one call hears of no ACK meanwhile: as much is to be left of the window when the ACK goes, or the peer
/// stops for the rest of its call.
pub const WINDOW_BASE_BYTES: usize = 4 * 1024 * 1024;
/// The allowance of other receive windows, and of a send buffer whose writer waits for it for much of the time.
pub const TUNE_BASE_BYTES: usize = 2 * 1024 * 1024;
/// That of a send buffer. What waits for its ACK was copied from the application, and its memory is used again once that
/// comes: the sooner, the more of it is still in the cache.
pub const SEND_BASE_BYTES: usize = 512 * 1024;
/// That of a send buffer beyond what [`TUNE_RATE_BYTES_PER_S`] carries in the least round trip, where this is more than
/// [`SEND_BASE_BYTES`] in all: within a machine, where round trips grow to many times the least by what waits in memory,
/// and each doubling of that costs a tenth of the rate.
pub const SEND_LEAST_BYTES: usize = 256 * 1024;
/// The allowance of a receive window as a connection begins. It doubles, up to [`TUNE_BASE_BYTES`], when everything
/// that was allowed has been read and nothing more can be on its way; beyond that it goes by steps, up to
/// [`WINDOW_BASE_BYTES`].
pub const WINDOW_SLACK_BYTES: u32 = 512 * 1024;
/// Default allowance of all connections of a host together, beyond what the path carries: what comes faster than it is
/// taken up waits below, and queues there are short. A peer's congestion window follows it, and what a peer keeps
/// unsent follows that: with more some get less than half their share, and few leave the peer's cache.
pub const WINDOWS_BASE_BYTES: usize = 12 * 1024 * 1024;
/// However many connections share a host, each may have this much under way to it: four super-segments, so that half
/// of them can go unacknowledged while the next are on their way.
pub const WINDOW_SHARE_MIN_BYTES: usize = 256 * 1024;
/// Default upper bound of either buffer, in bytes of memory held.
pub const BUFFER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Smallest buffer that can be configured.
pub const BUFFER_MIN_BYTES: usize = 8 * 1024;

/// Segments from this size on are written into frames of their own, where the link sends those. Smaller ones, which
/// the peer may ask for (RFC 9293 3.7.1), would be held in mostly empty frames.
pub const FRAMED_SEGMENT_BYTES: usize = millstream_packet::FRAME_SIZE_BYTES / 2;
