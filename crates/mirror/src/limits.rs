//! Every limit of this crate, in one place. Units are the last word of a name.

use std::time::Duration;

/// The kernel's number of the main table (RT_TABLE_MAIN).
pub const MAIN_TABLE: u32 = 254;

/// Routes that a mirror holds at most, unless told otherwise: a full Internet table of both
/// families.
pub const ROUTES_LIMIT: usize = 3 << 19;

/// Addresses that a mirror holds at most, unless told otherwise.
pub const ADDRESSES_LIMIT: usize = 1024;

/// Neighbours that a mirror holds at most, unless told otherwise: half of what an engine does.
pub const NEIGHBORS_LIMIT: usize = 2048;

/// Memory of the socket for what has not been read, unless told otherwise: some 10,000 changes.
pub const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Messages of the kernel that one poll takes, and those of one more datagram: a millisecond's
/// work.
pub const MESSAGES_A_POLL: usize = 512;

/// Prefixes remembered as changed while all is read; beyond that, all is read once more.
pub const GONE_LIMIT: usize = 4096;

/// When all is read once more after something that the kernel announces before it is done.
pub const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Pause before a read that only serves to be sure, in durations of the last read.
pub const DOUBT_PAUSE_READS: u32 = 8;

/// A read that stands still for so long is prodded: the kernel stops one when the socket fills
/// meanwhile, and goes on with the next thing that is received.
pub const STALL_TIME: Duration = Duration::from_millis(100);

/// Prods in vain after which a read is given up, and all is read anew.
pub const PRODS: u32 = 5;
