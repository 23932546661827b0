//! SYN cookies (RFC 4987 section 3.6 and appendix A): a listener under a flood keeps nothing for a
//! SYN. What it must know later is in the sequence number it answers with, and comes back in the
//! peer's ACK.
//!
//! ```text
//!   31     27 26  24 23                             0
//!   +--------+------+--------------------------------+
//!   | period |  MSS | keyed hash of everything here  |   upper byte whitened by another keyed hash
//!   +--------+------+--------------------------------+
//! ```
//!
//! With timestamps the lowest six bits of ours say what else was agreed on: window shift (15:
//! none), SACK, ECN. Without them a connection from a cookie has none of these.

use core::hash::Hasher;
use core::time::Duration;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};
use siphasher::sip::SipHasher24;

use crate::CongestionKind;
use crate::config::{Config, FourTuple};
use crate::connection::Connection;
use crate::isn::hash_tuple;
use crate::limits::{MIN_MSS_BYTES, default_mss};

/// A cookie is good in the period it was made in and in the next.
const PERIOD_S: u64 = 64;
const PERIOD_MASK: u32 = 31;
/// Segment sizes that a cookie can name; the largest that does not exceed the peer's is taken.
const SIZES: [u16; 8] = [MIN_MSS_BYTES, 536, 1024, 1220, 1400, 1440, 1460, 8940];
const HASH_MASK: u32 = 0x00ff_ffff;
/// Bits of the timestamp that carry options.
const OPTION_MASK: u32 = 63;
const NO_SHIFT: u32 = 15;

/// Time after which a cookie is good no longer.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(2 * PERIOD_S);

/// Makes and checks cookies with a secret key. Keeps nothing: both calls are pure.
#[derive(Clone)]
pub struct SynCookies {
    key: [u8; 16],
}

impl core::fmt::Debug for SynCookies {
    /// Without its secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SynCookies").finish_non_exhaustive()
    }
}

impl SynCookies {
    /// Cookies from a secret `key`, drawn once per start of the stack and used for nothing else.
    pub fn new(key: [u8; 16]) -> Self {
        SynCookies { key }
    }

    /// The SYN-ACK that answers `syn`; nothing needs to be remembered. `config` and `ts_offset` are
    /// those that [`accept`](Self::accept) will be called with. A cookie lives for one to two
    /// periods of 64 s.
    pub fn answer(
        &self,
        config: &Arc<Config>,
        tuple: FourTuple,
        ts_offset: u32,
        syn: &TcpHeader,
        now: Instant,
    ) -> TcpHeader {
        let mss = syn.options.mss.unwrap_or(default_mss(tuple.remote.is_ipv6()));
        let index = SIZES.iter().rposition(|&size| size <= mss).unwrap_or(0);
        let mut syn = TcpHeader { ..*syn };
        if syn.options.timestamps.is_none() || !config.timestamps {
            // nowhere to keep them
            syn.options = TcpOptions { mss: syn.options.mss, ..TcpOptions::default() };
            syn.flags = TcpFlags::SYN;
        }
        let isn = SeqNumber(self.make(&tuple, syn.seq, period(now), index as u32));
        let (config, kind) = (Arc::clone(config), CongestionKind::UNCONTROLLED);
        let mut answer =
            Connection::accept_with(config, kind, tuple, (isn, ts_offset), &syn, now).syn_ack();
        if let Some(timestamps) = answer.options.timestamps {
            let shift = syn.options.window_scale.filter(|_| answer.options.window_scale.is_some());
            let bits = shift.map_or(NO_SHIFT, |shift| u32::from(shift.min(14)))
                | u32::from(answer.options.sack_permitted) << 4
                | u32::from(answer.flags.ece()) << 5;
            let value = (timestamps.value & !OPTION_MASK) | bits;
            // never ahead of the clock, which later segments show
            let ahead = value.wrapping_sub(timestamps.value) as i32 > 0;
            let value = if ahead { value.wrapping_sub(OPTION_MASK + 1) } else { value };
            answer.options.timestamps = Some(Timestamps { value, ..timestamps });
        }
        answer
    }

    /// Checks the `segment` of a peer for which no connection exists; when it acknowledges a cookie
    /// of ours, the connection as it stands after the SYN-ACK. Give it the same segment with
    /// [`on_segment`](Connection::on_segment) next.
    pub fn accept(
        &self,
        config: impl Into<Arc<Config>>,
        tuple: FourTuple,
        ts_offset: u32,
        segment: &TcpHeader,
        now: Instant,
    ) -> Option<Connection> {
        let flags = segment.flags;
        if !flags.ack() || flags.syn() || flags.rst() {
            return None;
        }
        let (isn, irs) = (segment.ack - 1, segment.seq - 1);
        let index = self.check(&tuple, irs, isn.0, period(now))?;
        let config = config.into();
        let mut syn = TcpHeader {
            src_port: segment.src_port,
            dst_port: segment.dst_port,
            seq: irs,
            flags: TcpFlags::SYN,
            window: segment.window,
            ..TcpHeader::default()
        };
        syn.options.mss = SIZES.get(index as usize).copied();
        if let Some(timestamps) = segment.options.timestamps.filter(|_| config.timestamps) {
            let bits = timestamps.echo & OPTION_MASK;
            syn.options.timestamps = Some(timestamps);
            syn.options.window_scale = (bits & 15 != NO_SHIFT).then_some((bits & 15) as u8);
            syn.options.sack_permitted = bits & 16 != 0;
            if bits & 32 != 0 {
                syn.flags |= TcpFlags::ECE | TcpFlags::CWR;
            }
        }
        let mut connection = Connection::accept(config, tuple, isn, ts_offset, &syn, now);
        connection.syn_ack();
        // when it was sent is not known, so it measures no round trip
        connection.sending.snd.end_wait();
        Some(connection)
    }

    fn hash(&self, purpose: u8, tuple: &FourTuple, irs: SeqNumber, period: u64, index: u32) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u8(purpose);
        hash_tuple(&mut hasher, tuple);
        hasher.write_u32(irs.0);
        hasher.write_u64(period);
        hasher.write_u32(index);
        hasher.finish() as u32
    }

    fn whitening(&self, tuple: &FourTuple, irs: SeqNumber) -> u32 {
        self.hash(0, tuple, irs, 0, 0) & !HASH_MASK
    }

    fn make(&self, tuple: &FourTuple, irs: SeqNumber, period: u64, index: u32) -> u32 {
        let upper = (period as u32 & PERIOD_MASK) << 27 | index << 24;
        let hash = self.hash(1, tuple, irs, period, index) & HASH_MASK;
        (upper ^ self.whitening(tuple, irs)) | hash
    }

    /// Index of the segment size in a good cookie.
    fn check(&self, tuple: &FourTuple, irs: SeqNumber, cookie: u32, now: u64) -> Option<u32> {
        let upper = cookie ^ self.whitening(tuple, irs);
        let index = upper >> 24 & 7;
        let age = (now as u32).wrapping_sub(upper >> 27) & PERIOD_MASK;
        let made = now.checked_sub(u64::from(age)).filter(|_| age <= 1)?;
        (self.make(tuple, irs, made, index) == cookie).then_some(index)
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / 1_000_000_000 / PERIOD_S
}

#[cfg(test)]
#[path = "tests/syn_cookie.rs"]
mod tests;
