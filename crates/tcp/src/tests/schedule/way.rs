//! The way between the ends: what is sent meets its fate, arrives, and is listened to.

use core::cmp::Reverse;
use core::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use super::plan::*;
use super::world::World;
use crate::tests::harness::tuple;
use crate::*;

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
    pub fn transmit(&mut self, from: usize) {
        let Way { super_bytes, view, merge, .. } = self.plan.way;
        let payload = match view {
            true => PayloadMode::View,
            false => PayloadMode::CopyAndSum { headroom: 128 },
        };
        let limits = TransmitLimits { super_segment_bytes: super_bytes, payload };
        loop {
            let (now, pool) = (self.now, &self.pool);
            let most = 1 + self.sides[from].segments as usize % 46;
            let Some(connection) = self.sides[from].connection.as_mut() else { return };
            let mut parts = PacketBatch::new();
            // without offloads the stack asks for several segments at once
            let made = match !view && super_bytes == 0 {
                true => connection.poll_parts(now, pool, 128, most, &mut parts),
                false => connection.poll_transmit(now, pool, &limits),
            };
            let Some(mut segment) = made else { return };
            for part in parts.drain() {
                let sum = part.meta().payload_sum.map(u32::from);
                assert_eq!(sum, Some(part.sum(0, part.len())), "the sum of what is sent");
                match segment.payload.as_mut() {
                    Some(payload) => payload.concat(part),
                    None => segment.payload = Some(part),
                }
            }
            self.check_segment(from, &segment);
            let whole = segment.payload.take();
            let size = usize::from(segment.segment_size);
            let mut rest = whole;
            let mut header = segment.header;
            loop {
                let mut part = rest.take();
                if !merge
                    && let Some(packet) = part.as_mut()
                    && packet.len() > size
                {
                    rest = Some(packet.split_off(size, &self.pool).expect("views"));
                }
                let mut cut = header;
                if rest.is_some() {
                    cut.flags.remove(TcpFlags::FIN);
                    cut.flags.remove(TcpFlags::PSH);
                }
                let len = part.as_ref().map_or(0, Packet::len);
                self.launch(from, cut, part, segment.ecn);
                header.seq += len;
                // RFC 3168 6.1.2: said once
                header.flags.remove(TcpFlags::CWR);
                if rest.is_none() {
                    break;
                }
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

    fn launch(&mut self, from: usize, header: TcpHeader, payload: Option<Packet>, ecn: u8) {
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
            Some(Fate::Split(first)) if 0 < first && first < len => {
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
        let Flying { to, header, payload, ecn } = flying;
        let now = self.now;
        if self.sides[to].connection.is_none() && !self.sides[to].gone {
            self.listen(to, &header);
            if self.plan.open != Open::Cookie || self.sides[to].connection.is_none() {
                return;
            }
        }
        let len = payload.as_ref().map_or(0, Packet::len);
        let side = &mut self.sides[to];
        match side.connection.as_mut() {
            Some(connection) => {
                side.watch.hear(&header, connection);
                connection.on_segment(now, &header, payload, ecn, &self.pool);
            }
            None => {
                if let Some(reset) = reset_for(&header, len) {
                    self.sides[to].may_reset = true;
                    self.launch(to, reset, None, 0);
                }
            }
        }
    }

    /// A segment for the listener.
    fn listen(&mut self, to: usize, header: &TcpHeader) {
        let end = &self.plan.ends[to];
        let (config, ends, now) = (&end.config, tuple(to, self.plan.way.v6), self.now);
        let syn = header.flags.syn() && !header.flags.ack() && !header.flags.rst();
        let side = &mut self.sides[to];
        if syn && self.plan.open == Open::Cookie {
            let answer = self.cookies.answer(&config.clone().into(), ends, end.isn, header, now);
            side.watch.heard_syn(header, answer.seq);
            side.watch.sent_syn(&answer);
            self.launch(to, answer, None, 0);
        } else if syn {
            let isn = SeqNumber(end.isn);
            let connection = Connection::accept(config.clone(), ends, isn, end.isn, header, now);
            side.watch.heard_syn(header, isn);
            side.connection = Some(connection);
        } else if self.plan.open == Open::Cookie
            && let Some(connection) =
                self.cookies.accept(config.clone(), ends, end.isn, header, now)
        {
            side.watch.forget_window(connection.snd.iss);
            side.connection = Some(connection);
        } else if let Some(reset) = reset_for(header, 0) {
            side.may_reset = true;
            self.launch(to, reset, None, 0);
        }
    }
}
