//! Numbers of the machine that nobody outside has to know, each with its reason. The unit is the
//! last word of the name.

/// Segment size tried when larger ones seem to vanish: with 40 bytes of headers RFC 8899's
/// BASE_PLPMTU, 1,200.
pub(crate) const BLACK_HOLE_MSS_BYTES: u16 = 1160;
/// Time-outs in a row of a large segment that make it try the smaller size: three happen by
/// congestion.
pub(crate) const BLACK_HOLE_TIMEOUTS: u8 = 4;
/// Probes of one size that get lost before the path is taken not to carry it (RFC 8899 5.1.2:
/// MAX_PROBES).
pub(crate) const MTU_PROBES: u8 = 3;
/// The search for the largest segment ends when it is known to so many bytes.
pub(crate) const MTU_SEARCH_STEP_BYTES: u16 = 16;
/// Full segments that must follow a probe, so that its loss shows at once.
pub(crate) const MTU_PROBE_FOLLOWERS: u64 = 3;
/// Time after which a larger segment is tried again (RFC 1191 6.3, RFC 8899 5.1.1).
pub(crate) const MTU_RAISE_S: u64 = 600;
/// A SYN waits so long for data to go with it.
pub(crate) const FAST_OPEN_WAIT_MS: u64 = 50;
/// A Fast Open cookie that was of no use so many times in a row, no other being given, is
/// forgotten.
pub(crate) const FAST_OPEN_REFUSALS: u8 = 3;
/// After a SYN with the Fast Open option got lost, none is sent to that destination for this long;
/// twice as long with each that follows.
pub(crate) const FAST_OPEN_AVOID_S: u64 = 60;
/// Doublings of that time at most.
pub(crate) const FAST_OPEN_AVOID_STEPS: u32 = 7;
/// Largest window shift (RFC 7323 2.3).
pub(crate) const MAX_WINDOW_SCALE: u8 = 14;
/// Disjoint ranges in each set of the sender's scoreboard; what does not fit is treated as not
/// reported.
pub(crate) const SCOREBOARD_RANGES: usize = 8192;
/// Ranges that the scoreboard keeps at least, however little is outstanding.
pub(crate) const SCOREBOARD_RANGES_MIN: usize = 8;
/// SACK blocks in a segment that carries timestamps too (RFC 2018 section 3).
pub(crate) const SACK_BLOCKS_WITH_TIMESTAMPS: usize = 3;
/// SACK blocks in a segment without timestamps (RFC 2018 section 3).
pub(crate) const SACK_BLOCKS: usize = 4;
/// Time-outs in a row after which the way to the peer is suspected (RFC 9293 3.8.3: R1, three at
/// least).
pub(crate) const R1_TIMEOUTS: u8 = 3;
/// Full-sized segment assumed of a peer before it has sent a larger one.
pub(crate) const RECEIVED_MSS_START_BYTES: u32 = 536;
/// First retransmission time-out before a round trip was measured (RFC 6298 2.1).
pub(crate) const INITIAL_RTO_MS: u32 = 1_000;
/// Time-out used for data when the SYN had to be sent again (RFC 6298 5.7).
pub(crate) const RTO_AFTER_LOST_SYN_MS: u32 = 3_000;
/// Upper bound of the retransmission time-out (RFC 6298 2.5: at least 60 s).
pub(crate) const MAX_RTO_MS: u32 = 120_000;
/// Least time before what a peer has taken back is sent again by an early time-out (Linux has the
/// same).
pub(crate) const RENEGED_WAIT_MS: u64 = 10;
/// Duplicate ACKs (or selectively acknowledged segments) that mean loss (RFC 5681 3.2).
pub(crate) const DUPLICATE_THRESHOLD: u32 = 3;
/// Segments acknowledged at once when a connection starts.
pub(crate) const QUICK_ACK_SEGMENTS: u8 = 16;
/// An ACK of the only busy connection waits for so many bytes at most.
pub(crate) const GATHERED_ACK_BYTES: u64 = 1 << 20;
/// Challenge ACKs and answers to out-of-window segments, per connection and second (RFC 5961
/// section 7).
pub(crate) const CHALLENGE_ACKS_PER_S: u8 = 10;
/// Silence in TIME-WAIT after which the same ends may be used for a new connection of ours,
/// timestamps telling the two apart (RFC 6191).
pub(crate) const TIME_WAIT_REUSE_MS: u64 = 1_000;
/// A timestamp this old is no longer compared (RFC 7323 5.5: 24 days).
pub(crate) const TIMESTAMP_AGE_LIMIT_S: u64 = 24 * 24 * 3600;
/// So many ticks of the peer's clock behind TS.Recent a timestamp is not old yet; Linux has the
/// same.
pub(crate) const PAWS_SLACK_TICKS: i32 = 1;
/// Receive and send buffers start at this much memory and are tuned upwards.
pub(crate) const BUFFER_START_BYTES: usize = 256 * 1024;
/// Tuning stops at what this rate (100 Gb/s) carries in the least round trip, and an allowance for
/// scheduling: more in flight on a short path is only a longer queue, and memory that has left the
/// cache.
pub(crate) const TUNE_RATE_BYTES_PER_S: u64 = 12_500_000_000;
/// The allowance of a receive window whose peer is stopped by it again and again. A peer's process
/// that writes a megabyte by one call hears of no ACK meanwhile: as much is to be left of the
/// window when the ACK goes, or the peer stops for the rest of its call.
pub(crate) const WINDOW_BASE_BYTES: usize = 4 * 1024 * 1024;
/// The allowance of other receive windows, and of a send buffer whose writer waits for it for much
/// of the time.
pub(crate) const TUNE_BASE_BYTES: usize = 2 * 1024 * 1024;
/// Allowance of a send buffer. Data that waits for its ACK was copied from the application, and its
/// memory is used again once that comes: the sooner, the more of it is still in the cache.
pub(crate) const SEND_BASE_BYTES: usize = 512 * 1024;
/// Allowance of a send buffer beyond what [`TUNE_RATE_BYTES_PER_S`] carries in the least round
/// trip, where this is more than [`SEND_BASE_BYTES`] in all: within a machine, where round trips
/// grow to many times the least by what waits in memory, and each doubling of that costs a tenth of
/// the rate.
pub(crate) const SEND_LEAST_BYTES: usize = 256 * 1024;
/// The allowance of a receive window as a connection begins. It doubles, up to [`TUNE_BASE_BYTES`],
/// when everything that was allowed has been read and nothing more can be on its way; beyond that
/// it goes by steps, up to [`WINDOW_BASE_BYTES`].
pub(crate) const WINDOW_SLACK_BYTES: u32 = 512 * 1024;
/// However many connections share a host, each may have this much under way to it: four
/// super-segments, so that half of them can go unacknowledged while the next are on their way.
pub(crate) const WINDOW_SHARE_MIN_BYTES: usize = 256 * 1024;
/// Segments from this size on are written into frames of their own, where the link sends those.
/// Smaller ones, which the peer may ask for (RFC 9293 3.7.1), would be held in mostly empty frames.
pub(crate) const FRAMED_SEGMENT_BYTES: usize = millstream_packet::FRAME_SIZE_BYTES / 2;
