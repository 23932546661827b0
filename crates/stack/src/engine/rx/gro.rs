//! Coalescing (generic receive offload in the engine): segments of one batch that continue each other become one.
//!
//! A segment joins the one before it of its flow where it is the next, with the same headers, acknowledgement, window
//! and timestamps, and not longer. What lies in a reader's memory joins what lies there before it; what lies in frames
//! joins what lies in frames. The rules that end a run, all of them:
//!
//! - PSH, and a segment shorter than the first: then the segments in it can be counted;
//! - 64 KiB;
//! - the flow's next segment, if it does not join, whether it is in the flow cache or not: within a flow nothing overtakes
//!   anything;
//! - a packet of which does not show whose it is; and the end of the batch: nothing waits for the next.
//!
//! A small segment begins no run: its receive queue copies those together, where joined they would hold a frame each.

use std::net::{Ipv4Addr, SocketAddr};

use millstream_packet::{COALESCE_LIMIT_BYTES, Packet, Segmentation, SegmentationKind};
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::tcp::{PlainHeader, SackBlocks, TcpFlags, TcpHeader, Timestamps};

use super::flow_cache::{Flow, Hit, WAYS};
use crate::engine::tcp::input::{PlacedAt, Segment};

/// Payload of a run: what a super-segment can be.
const RUN_BYTES: usize = 65_535;

/// Runs under way at once.
const RUNS: usize = 256;

/// Segments of one batch in order of arrival, those that follow each other in one.
pub(in crate::engine) struct Gro {
    /// As many as a batch has packets; written where they stay.
    segments: Box<[Segment]>,
    /// Those of them that are some.
    count: usize,
    /// By place in the flow cache; two flows may take one from each other.
    runs: Box<[Run]>,
    /// Counts batches, from 1.
    batch: u64,
}

/// What the next segment of a flow may join.
#[derive(Clone, Copy, Default)]
struct Run {
    /// The batch in which it is; any other: there is none.
    batch: u64,
    /// The place of its flow.
    place: usize,
    /// Its place in the list.
    at: usize,
    next_seq: u32,
    /// Payload that it can still take.
    room: usize,
    /// Bytes of each of its segments: none is longer, and a shorter one is the last.
    part: u16,
    ack: u32,
    window: u16,
    timestamps: Option<Timestamps>,
    /// Where the next bytes lie in the reader's memory, if it is there.
    placed_end: Option<usize>,
}

/// Payload of a segment of a known flow.
pub(in crate::engine) enum Data {
    /// It lies there in the reader's memory.
    Placed(PlacedAt),
    /// The packet, whole.
    Packet(Packet),
}

impl Data {
    /// Bytes of each of the segments that it was merged from.
    #[inline]
    fn part(&self, len: usize) -> u16 {
        let whole = len.min(usize::from(u16::MAX)) as u16;
        match self {
            Data::Placed(placed) => placed.part,
            Data::Packet(packet) => packet.meta().segmentation.map_or(whole, |parts| parts.size),
        }
    }

    #[inline]
    fn placed_at(&self) -> Option<usize> {
        match self {
            Data::Placed(placed) => Some(placed.start),
            Data::Packet(_) => None,
        }
    }
}

impl Gro {
    /// For batches of `limit` packets.
    pub fn new(limit: usize) -> Self {
        Self {
            segments: (0..limit).map(|_| Segment::none()).collect(),
            count: 0,
            runs: vec![Run::default(); RUNS].into_boxed_slice(),
            batch: 1,
        }
    }

    /// Adds a verified segment of a known flow between these ends: true when it has joined the one before it.
    #[inline]
    pub fn add(&mut self, ends: &FourTuple, flow: &Flow, hit: &Hit, data: Data) -> bool {
        let (header, len) = (&hit.header, hit.len());
        let part = data.part(len);
        let run = &mut self.runs[hit.place % RUNS];
        let is_next = run.batch == self.batch
            && run.place == hit.place
            && part <= run.part
            && run.next_seq == header.seq.0
            && run.ack == header.ack.0
            && run.window == header.window
            && run.timestamps == header.timestamps
            && len != 0
            && len <= run.room
            && run.placed_end == data.placed_at();
        if !is_next {
            self.begin(hit.place, part, header, (len, data.placed_at()));
            if let Some(segment) = self.next() {
                segment.set(ends, flow, hit, data);
            }
            return false;
        }
        self.segments[run.at].join(data, hit, run.part);
        run.next_seq = header.seq.0.wrapping_add(len as u32);
        run.room -= len;
        run.placed_end = run.placed_end.map(|end| end + len);
        let is_last = part < run.part || !is_multiple(len, part);
        if is_last || header.push || run.room == 0 {
            run.batch = 0;
        }
        true
    }

    /// Adds a segment that was parsed. Its flow was learned at `place`, if so.
    pub fn push(&mut self, place: Option<usize>, segment: Segment) {
        if let (Some(place), Some(header)) = (place, PlainHeader::of(&segment.header)) {
            let len = segment.len();
            let meta = segment.payload.as_ref().and_then(|packet| packet.meta().segmentation);
            let part = meta.map_or(len.min(usize::from(u16::MAX)) as u16, |parts| parts.size);
            self.begin(place, part, &header, (len, None));
        }
        if let Some(next) = self.next() {
            *next = segment;
        }
    }

    /// The next segment of the batch, to be written. There is room: a packet is one at most.
    #[inline]
    fn next(&mut self) -> Option<&mut Segment> {
        let next = self.segments.get_mut(self.count);
        debug_assert!(next.is_some(), "more segments than packets");
        self.count += 1;
        next
    }

    /// Begins a run with the next segment, of `len` bytes in parts of `part`, if others may join it.
    #[inline]
    fn begin(
        &mut self,
        place: usize,
        part: u16,
        header: &PlainHeader,
        (len, placed_at): (usize, Option<usize>),
    ) {
        let run = &mut self.runs[place % RUNS];
        if len < COALESCE_LIMIT_BYTES || header.push || !is_multiple(len, part) {
            run.batch = 0;
            return;
        }
        *run = Run {
            batch: self.batch,
            place,
            at: self.count,
            next_seq: header.seq.0.wrapping_add(len as u32),
            room: RUN_BYTES.saturating_sub(len),
            part,
            ack: header.ack.0,
            window: header.window,
            timestamps: header.timestamps,
            placed_end: placed_at.map(|start| start + len),
        };
    }

    /// Nothing joins the runs of the flows in the set of places from `first` on any more.
    #[inline]
    pub fn end_runs(&mut self, first: usize) {
        for place in first..first + WAYS {
            self.runs[place % RUNS].batch = 0;
        }
    }

    /// Nothing joins any run any more.
    #[cfg(test)]
    pub fn end_all_runs(&mut self) {
        self.batch += 1;
    }

    /// The segments so far, in the order of the first of each, and how many; no run goes on behind them.
    /// [`put_back`](Self::put_back) returns them.
    #[inline]
    pub fn take(&mut self) -> (Box<[Segment]>, usize) {
        self.batch += 1;
        (std::mem::take(&mut self.segments), std::mem::take(&mut self.count))
    }

    /// Keeps the memory for the next. Their payloads are taken.
    #[inline]
    pub fn put_back(&mut self, segments: Box<[Segment]>) {
        self.segments = segments;
    }

    /// Whether there is no segment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Segment {
    /// In the place of one.
    pub(in crate::engine) fn none() -> Self {
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Self {
            tuple: FourTuple { local: nowhere, remote: nowhere },
            header: TcpHeader::default(),
            placed: PlacedAt::NOWHERE,
            payload: None,
            ecn: 0,
            link: LinkId(0),
            socket: None,
        }
    }

    /// Becomes a segment of a known flow. Field by field: what is written here is read soon, and must not be copied
    /// meanwhile.
    #[inline]
    pub(in crate::engine) fn set(&mut self, ends: &FourTuple, flow: &Flow, hit: &Hit, data: Data) {
        let Self { tuple, header, placed, payload, ecn, link, socket } = self;
        let PlainHeader { seq, ack, window, timestamps, .. } = hit.header;
        *tuple = *ends;
        (header.src_port, header.dst_port) = (ends.remote.port(), ends.local.port());
        (header.seq, header.ack, header.window) = (seq, ack, window);
        (header.flags, header.urgent) = (hit.header.flags(), 0);
        let options = &mut header.options;
        (options.mss, options.window_scale, options.sack_permitted) = (None, None, false);
        (options.timestamps, options.fast_open) = (timestamps, None);
        if !options.sack.is_empty() {
            options.sack = SackBlocks::EMPTY;
        }
        (*ecn, *link, *socket) = (flow.ecn, flow.link, Some(flow.socket));
        match data {
            Data::Placed(at) => (*placed, *payload) = (at, None),
            Data::Packet(packet) => {
                *placed = PlacedAt::NOWHERE;
                *payload = (hit.len() != 0).then(|| payload_of(packet, hit));
            }
        }
    }

    /// A segment of a known flow.
    pub(in crate::engine) fn of_flow(ends: &FourTuple, flow: &Flow, hit: &Hit, data: Data) -> Self {
        let mut segment = Self::none();
        segment.set(ends, flow, hit, data);
        segment
    }

    /// Takes in the payload of the next segment; all of it is in parts of `part` bytes, but for the last.
    #[inline]
    fn join(&mut self, data: Data, hit: &Hit, part: u16) {
        if hit.header.push {
            self.header.flags |= TcpFlags::PSH;
        }
        match data {
            Data::Placed(next) => self.placed.len += next.len,
            Data::Packet(next) => {
                let Some(payload) = &mut self.payload else { return };
                // Mostly so: nothing is written.
                if payload.meta().segmentation.is_none() {
                    let kind = match self.tuple.remote.is_ipv6() {
                        true => SegmentationKind::TcpV6,
                        false => SegmentationKind::TcpV4,
                    };
                    payload.meta_mut().segmentation =
                        Some(Segmentation { kind, ecn: false, size: part, header_len: 0 });
                }
                payload.concat(payload_of(next, hit));
            }
        }
    }
}

/// The payload alone: else an Ethernet's padding would end up inside a run.
#[inline]
fn payload_of(mut packet: Packet, hit: &Hit) -> Packet {
    packet.crop(hit.start, hit.end);
    packet
}

/// Whether all of `len` bytes are in parts of the same size. Mostly it is one: not worth a division.
#[inline]
fn is_multiple(len: usize, part: u16) -> bool {
    let part = usize::from(part);
    len == part || part != 0 && len.is_multiple_of(part)
}
