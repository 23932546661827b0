//! What is known about a flow's headers is not read again, and received segments that follow each other are joined
//! (generic receive offload in the engine).
//!
//! The first segment of a flow takes the long way: link header, IP, TCP, its connection. Its header bytes are kept in a
//! lane. A later one of the same flow that has the very same bytes, but for what must differ, is checked for what may
//! be wrong with it (lengths and sums), and is a segment of that connection. What differs: IP length, identification
//! and header checksum; sequence and acknowledgement number, window, checksum and timestamps of TCP; PSH.
//!
//! Where it is also the next of the one before it in the same batch, with the same acknowledgement, window and
//! timestamps, and not longer, its payload is put behind that. PSH ends such a train, and a shorter segment does: so
//! the segments in it can be counted. Small segments begin none.
//!
//! Whatever does not join ends its flow's train before it is looked at: within a flow nothing overtakes anything, and
//! nothing waits for the next batch.

mod lane;
mod place;
mod run;
#[cfg(test)]
mod tests;

use millstream_link::Medium;
use millstream_packet::{Packet, Segmentation, SegmentationKind};
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::tcp::{PlainHeader, SeqNumber, TcpFlags};

use super::tcp_input::Incoming;
use crate::socket::{SocketId, SocketKind};
use lane::Lane;
pub(super) use lane::Offer;
use place::{Candidate, Place};
pub(super) use run::Run;

/// In the place of a header that is not plain, and of a connection that was not found.
const NOTHING: PlainHeader =
    PlainHeader { seq: SeqNumber(0), ack: SeqNumber(0), window: 0, push: false, timestamps: None };
const NOWHERE: SocketId = SocketId::new(SocketKind::Tcp, u32::MAX, 0);

/// Bytes in which the ports of a segment with plain headers are found, whatever the link.
const PORTS_END_BYTES: usize = 62;

/// A segment of a batch.
pub(super) struct Arrived {
    /// What its header says, where it was read in a lane.
    pub header: PlainHeader,
    /// The payload alone, when there is any.
    pub payload: Option<Packet>,
    /// Its connection, as the lane knows it.
    pub socket: SocketId,
    pub ecn: u8,
    pub link: LinkId,
    pub way: Read,
}

/// How a segment's header was read.
#[derive(Clone, Copy)]
pub(super) enum Read {
    /// By the lane of this number.
    InLane(u8),
    /// Whole: it is the one at this place of the others. Its payload is not there.
    Whole(u16),
}

/// What a packet has for a reader.
pub(super) enum Offered {
    /// This, if its checksum holds.
    Payload(Offer),
    /// Nothing: it is of another flow.
    Other,
    /// It has to take another way, and what it says may concern the reader's flow.
    Unknown,
}

/// Segments of one batch in order of arrival, those that follow each other in one.
pub(super) struct Trains {
    list: Vec<Arrived>,
    /// Those whose headers were read whole.
    others: Vec<Incoming>,
    /// By hash of the flow.
    lanes: Box<[Lane]>,
    /// Flows that lost their lane to another in this batch.
    displaced: Vec<(SocketId, FourTuple)>,
    /// Counts batches, from 1.
    batch: u64,
    /// The packet on its way up.
    candidate: Option<Candidate>,
}

impl Trains {
    /// For batches of `limit` packets.
    pub fn new(limit: usize) -> Self {
        Self {
            list: Vec::with_capacity(limit),
            others: Vec::with_capacity(limit),
            lanes: (0..place::LANES).map(|_| Lane::unknown()).collect(),
            displaced: Vec::with_capacity(limit),
            batch: 1,
            candidate: None,
        }
    }

    /// Forgets all flows: something has changed about what is received.
    pub fn forget(&mut self) {
        self.lanes.iter_mut().for_each(Lane::forget);
    }

    /// Takes a packet as it came from the link, if its flow is known: true when it joined the segment before it. Gives
    /// it back when it has to go the long way.
    #[inline]
    pub fn join(&mut self, packet: Packet, link: LinkId, medium: Medium) -> Result<bool, Packet> {
        let head = packet.head();
        let Some(place) = Place::of(head, medium) else {
            self.candidate = None;
            let is_short = head.len() < PORTS_END_BYTES && head.len() < packet.len();
            if is_short || place::hides_tcp(head, medium) {
                // Whose it is does not show: all trains end.
                self.batch += 1;
            }
            return Err(packet);
        };
        let lane = &mut self.lanes[place.lane];
        let Some(said) = lane.read(&packet, head, link) else {
            lane.close();
            self.candidate = Some(Candidate::new(head, place));
            return Err(packet);
        };
        if lane.continues(self.batch, &packet, &said) {
            lane.couple(&mut self.list, packet, &said);
            return Ok(true);
        }
        let at = self.list.len();
        self.list.push(lane.segment(packet, &said, place.lane));
        lane.begin(self.batch, at, &said.header, self.list[at].payload.as_ref());
        Ok(false)
    }

    /// As [`join`](Self::join) for the only packet of a batch: nothing has come before it, and nothing joins it.
    #[inline]
    pub fn alone(
        &mut self,
        packet: Packet,
        link: LinkId,
        medium: Medium,
    ) -> Result<Arrived, Packet> {
        debug_assert!(self.is_empty());
        let head = packet.head();
        let Some(place) = Place::of(head, medium) else {
            self.candidate = None;
            return Err(packet);
        };
        let lane = &self.lanes[place.lane];
        match lane.read(&packet, head, link) {
            Some(said) => Ok(lane.segment(packet, &said, place.lane)),
            None => {
                self.candidate = Some(Candidate::new(head, place));
                Err(packet)
            }
        }
    }

    /// What a packet, whose first frame is `head`, has for a reader of `socket`.
    #[inline(always)]
    pub fn offer(
        &self,
        packet: &Packet,
        head: &[u8],
        link: LinkId,
        medium: Medium,
        socket: SocketId,
    ) -> Offered {
        let Some(place) = Place::of(head, medium) else { return Offered::Unknown };
        let lane = &self.lanes[place.lane];
        match lane.offer(packet, head, link, place.lane) {
            Some(_) if lane.socket() != socket => Offered::Other,
            Some(offer) => Offered::Payload(offer),
            None => Offered::Unknown,
        }
    }

    /// As [`offer`](Self::offer), for a packet that has the headers of the one before it, whose `lane` is known.
    #[inline(always)]
    pub fn offer_next(
        &self,
        packet: &Packet,
        head: &[u8],
        link: LinkId,
        lane: usize,
        socket: SocketId,
    ) -> Option<Offer> {
        let known = self.lanes.get(lane).filter(|lane| lane.socket() == socket)?;
        known.offer(packet, head, link, lane)
    }

    /// Copies what is on offer to the start of `memory`, which has room for it; false when the checksum does not hold:
    /// what was copied is no data then.
    #[inline(always)]
    pub fn copy_out(&self, packet: &Packet, head: &[u8], offer: &Offer, memory: &mut [u8]) -> bool {
        self.lanes.get(offer.lane).is_some_and(|lane| lane.copy_out(packet, head, offer, memory))
    }

    /// What may follow a segment of this `lane`, whose first frame is `head`, and which was sound.
    #[inline]
    pub fn run(&self, head: &[u8], lane: usize) -> Option<Run> {
        self.lanes.get(lane)?.run(head)
    }

    /// Takes in the segment that [`join`](Self::join) gave back last, now that its headers are read:
    /// `ip_len` and `tcp_len` bytes long.
    pub fn push(&mut self, mut segment: Incoming, ip_len: usize, tcp_len: usize) {
        let plain = PlainHeader::of(&segment.header);
        if let Some(candidate) = self.candidate.take() {
            let lane = &mut self.lanes[candidate.place.lane];
            let before = lane.ends();
            lane.learn(&candidate, &segment, ip_len, tcp_len);
            if lane.ends().0 != before.0 && !self.list.is_empty() {
                self.displaced.push(before);
            }
            if let Some(plain) = &plain {
                lane.begin(self.batch, self.list.len(), plain, segment.payload.as_ref());
            }
        }
        let Incoming { ecn, link, socket, .. } = segment;
        self.list.push(Arrived {
            header: plain.unwrap_or(NOTHING),
            payload: segment.payload.take(),
            socket: socket.unwrap_or(NOWHERE),
            ecn,
            link,
            way: Read::Whole(self.others.len() as u16),
        });
        self.others.push(segment);
    }

    /// The segments of the batch, in the order of the first of each; [`put_back`](Self::put_back) ends it.
    #[inline]
    pub fn take(&mut self) -> Vec<Arrived> {
        self.batch += 1;
        std::mem::take(&mut self.list)
    }

    /// Keeps the list's memory for the next batch.
    #[inline]
    pub fn put_back(&mut self, mut list: Vec<Arrived>) {
        list.clear();
        self.list = list;
        self.others.clear();
        self.displaced.clear();
    }

    /// The whole of a segment of this batch, whose payload is taken; `None` for one of another.
    pub fn whole(&mut self, arrived: &mut Arrived) -> Option<Incoming> {
        let payload = arrived.payload.take();
        let mut whole = match arrived.way {
            Read::Whole(at) => {
                let Incoming { tuple, header, ecn, link, socket, .. } =
                    *self.others.get(usize::from(at))?;
                Incoming { tuple, header, payload: None, ecn, link, socket }
            }
            Read::InLane(lane) => {
                let Arrived { header, socket, ecn, link, .. } = *arrived;
                let ends = self.lanes.get(usize::from(lane)).map(Lane::ends);
                let mut known = ends.iter().chain(&self.displaced);
                let &(_, tuple) = known.find(|(owner, _)| *owner == socket)?;
                let header = header.header(tuple.remote.port(), tuple.local.port());
                Incoming { tuple, header, payload: None, ecn, link, socket: Some(socket) }
            }
        };
        whole.payload = payload;
        // What joined it may have brought the PSH.
        if arrived.header.push {
            whole.header.flags |= TcpFlags::PSH;
        }
        Some(whole)
    }

    /// Whether there is no segment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl Arrived {
    /// Takes in what follows; all of it is in parts of `part` bytes, but for the last.
    #[inline]
    fn take_in(&mut self, next: Packet, part: u16, is_v6: bool) {
        let Some(payload) = &mut self.payload else { return };
        // Mostly so: nothing is written.
        if payload.meta().segmentation.is_none() {
            let kind = if is_v6 { SegmentationKind::TcpV6 } else { SegmentationKind::TcpV4 };
            payload.meta_mut().segmentation =
                Some(Segmentation { kind, ecn: false, size: part, header_len: 0 });
        }
        payload.concat(next);
    }
}
