//! The way between the ends: what is sent meets its fate, arrives, and is listened to.

use core::cmp::Reverse;
use core::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::tcp::{TcpFlags, TcpHeader};

use super::losses::Before;
use super::plan::*;
use super::world::World;
use crate::*;

/// Bytes left for headers before each copied piece.
const HEADROOM: usize = 128;

/// A segment under way.
pub struct Flying {
    pub to: usize,
    header: TcpHeader,
    payload: Option<Packet>,
    ecn: u8,
}

impl Flying {
    fn copy(&self, pool: &Pool) -> Flying {
        let view = |p: &Packet| p.view(pool, 0, p.len()).expect("views");
        Flying { payload: self.payload.as_ref().map(view), ..*self }
    }
}

impl World<'_> {
    /// The next segment of `from` in its pieces: as the link below cuts it, or as it was made.
    fn next_segment(&mut self, from: usize) -> Option<(Segment, Vec<Packet>)> {
        let Way { super_bytes, view, merge, parts, .. } = self.plan.way;
        let (now, pool) = (self.now, &self.pool);
        let most = 1 + self.sides[from].segments as usize % 46;
        let connection = self.sides[from].connection.as_mut()?;
        let may = connection.has_output();
        let mut pieces = Vec::new();
        let payload = match view && !parts {
            true => PayloadSource::View,
            false => PayloadSource::Frames { headroom: HEADROOM },
        };
        let segments = if parts { most } else { 1 };
        let limits = TransmitLimits { super_segment_bytes: super_bytes, segments, payload };
        let mut batch = PacketBatch::new();
        let segment = connection.poll(now, pool, &limits, &mut batch)?;
        assert!(may, "something to send where none was said to be");
        let size = usize::from(segment.segment_size);
        for packet in batch.drain() {
            if payload != PayloadSource::View {
                let sum = packet.meta().payload_sum.map(u32::from);
                assert_eq!(sum, Some(packet.sum(0, packet.len())), "the sum of what is sent");
            }
            let mut whole = Some(packet);
            while let Some(mut piece) = whole.take() {
                if !merge && piece.len() > size {
                    whole = Some(piece.split_off(size, pool).expect("views"));
                }
                pieces.push(piece);
            }
        }
        let len: usize = pieces.iter().map(Packet::len).sum();
        assert_eq!(len, segment.payload_len as usize, "length of the payload");
        let full = |piece: &Packet| !parts || piece.len() == size;
        assert!(pieces.iter().rev().skip(1).all(full), "a part that is not full before the last");
        Some((segment, pieces))
    }

    pub fn transmit(&mut self, from: usize) {
        while let Some((segment, pieces)) = self.next_segment(from) {
            self.check_segment(from, &segment);
            let mut header = segment.header;
            if pieces.is_empty() {
                self.launch(from, header, None, segment.ecn);
            }
            let last = pieces.len().saturating_sub(1);
            for (index, piece) in pieces.into_iter().enumerate() {
                let mut cut = header;
                if index < last {
                    cut.flags.remove(TcpFlags::FIN);
                    cut.flags.remove(TcpFlags::PSH);
                }
                header.seq += piece.len();
                // RFC 3168 6.1.2: said once
                header.flags.remove(TcpFlags::CWR);
                self.launch(from, cut, Some(piece), segment.ecn);
            }
        }
    }

    /// The fate of the segment that `from` sends now.
    fn doom(&mut self, from: usize) -> Option<Fate> {
        let side = &mut self.sides[from];
        let nth = side.segments;
        side.segments += 1;
        let mut fate = None;
        while let Some(doom) = side.doom.filter(|doom| doom.nth <= nth) {
            if doom.nth == nth {
                fate = Some(doom.fate);
            }
            side.doom = side.dooms.next();
        }
        fate
    }

    pub fn launch(&mut self, from: usize, header: TcpHeader, payload: Option<Packet>, ecn: u8) {
        self.reached.segments += 1;
        let len = payload.as_ref().map_or(0, Packet::len) as u32;
        let fate = self.doom(from);
        self.say(|| super::transcribe(from, &header, len, ecn, fate));
        let way = &self.plan.way;
        if way.hole_bytes > 0 && len > way.hole_bytes {
            return;
        }
        let mut at = self.now;
        if let Some(ns) = ((u64::from(len) + 66) * 8_000_000).checked_div(way.kbit_per_s) {
            at = at.max(self.sides[from].free_at) + Duration::from_nanos(ns);
            self.sides[from].free_at = at;
        }
        at += Duration::from_micros(way.delay_us);
        let mut flying = Flying { to: 1 - from, header, payload, ecn };
        match fate {
            None => {}
            Some(Fate::Lost) => return,
            Some(Fate::Late(us)) => at += Duration::from_micros(us),
            Some(Fate::Twice(us)) => {
                let again = flying.copy(&self.pool);
                self.fly(at + Duration::from_micros(us), again);
            }
            Some(Fate::Cut(keep)) if keep < len => {
                flying.header.flags.remove(TcpFlags::FIN);
                if let Some(packet) = flying.payload.as_mut() {
                    packet.truncate(keep as usize);
                }
                flying.payload = flying.payload.filter(|packet| !packet.is_empty());
            }
            Some(Fate::Split(first)) if 0 < first && first < len && !header.flags.syn() => {
                let mut second = flying.copy(&self.pool);
                second.header.seq += first as usize;
                second.payload.as_mut().expect("payload").trim_front(first as usize);
                flying.header.flags.remove(TcpFlags::FIN);
                flying.payload.as_mut().expect("payload").truncate(first as usize);
                self.fly(at, flying);
                self.fly(at, second);
                return;
            }
            Some(Fate::Marked) if ecn != 0 => flying.ecn = 3,
            Some(Fate::Corrupt) if len > 0 => {
                let mut bytes: Vec<u8> =
                    flying.payload.iter().flat_map(|p| p.slices().flatten().copied()).collect();
                bytes[0] ^= 1;
                flying.payload = Packet::from_slice(&self.pool, 0, &bytes).ok();
            }
            Some(Fate::Cut(_) | Fate::Split(_) | Fate::Marked | Fate::Corrupt) => {}
        }
        self.fly(at, flying);
    }

    fn fly(&mut self, at: Instant, flying: Flying) {
        self.order.push(Reverse((at, self.flying.len() as u32)));
        self.flying.push(Some(flying));
    }

    pub fn deliver(&mut self, flying: Flying) {
        let Flying { to, header, mut payload, ecn } = flying;
        let now = self.now;
        if self.sides[to].connection.is_none() && !self.sides[to].gone {
            payload = match self.listen(to, &header, payload) {
                // it opened a connection, and is its first segment
                Some(payload) => payload,
                None => return,
            };
        }
        let len = payload.as_ref().map_or(0, Packet::len);
        let side = &mut self.sides[to];
        match side.connection.as_mut() {
            Some(connection) => {
                side.watch.hear(&header, connection);
                let before = Before::of(connection);
                connection.on_segment(now, &header, payload.into(), ecn, &self.pool);
                side.losses.heard(now, &header, before, connection);
            }
            None => {
                if let Some(reset) = reset_for(&header, len) {
                    self.sides[to].may_reset = true;
                    self.launch(to, reset, None, 0);
                }
            }
        }
    }
}
