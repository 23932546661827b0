//! The end that listens: it answers SYNs with a connection, with a cookie, from an entry of its SYN
//! queue, or opens early.

use millstream_packet::Packet;
use millstream_wire::tcp::{FastOpenCookie, SeqNumber, TcpHeader};

use super::check::GOOD;
use super::plan::*;
use super::world::World;
use crate::tests::harness::tuple;
use crate::*;

fn is_syn(header: &TcpHeader) -> bool {
    header.flags.syn() && !header.flags.ack() && !header.flags.rst()
}

impl World<'_> {
    /// A segment for the listener. Its payload is given back when it opened a connection that takes
    /// it.
    pub fn listen(
        &mut self,
        to: usize,
        header: &TcpHeader,
        payload: Option<Packet>,
    ) -> Option<Option<Packet>> {
        match self.plan.open {
            Open::Cookie => return self.listen_with_cookies(to, header).then_some(payload),
            Open::Listen | Open::Both if is_syn(header) => {
                self.accept(to, header);
            }
            Open::Early
                if is_syn(header)
                    && header.options.fast_open == FastOpenCookie::new(&GOOD)
                    && self.sides[to].half_open.is_none() =>
            {
                let (now, pool) = (self.now, self.pool.clone());
                self.accept(to, header).open_early(now, payload, &pool);
            }
            Open::Queue | Open::Ask | Open::Stale | Open::Early => {
                return self.listen_with_queue(to, header, payload);
            }
            Open::Listen | Open::Both => self.refuse(to, header),
        }
        None
    }

    fn refuse(&mut self, to: usize, header: &TcpHeader) {
        if let Some(reset) = reset_for(header, 0) {
            self.sides[to].may_reset = true;
            self.launch(to, reset, None, 0);
        }
    }

    fn accept(&mut self, to: usize, syn: &TcpHeader) -> &mut Connection {
        let End { config, isn, .. } = &self.plan.ends[to];
        let (ends, iss) = (tuple(to, self.plan.way.v6), SeqNumber(*isn));
        let connection = Connection::accept(config.clone(), ends, iss, *isn, syn, self.now);
        let side = &mut self.sides[to];
        side.watch.heard_syn(syn, iss);
        side.connection.insert(connection)
    }

    /// Whether `header` brought a cookie back that opened a connection.
    fn listen_with_cookies(&mut self, to: usize, header: &TcpHeader) -> bool {
        let End { config, isn, .. } = &self.plan.ends[to];
        let (ends, now) = (tuple(to, self.plan.way.v6), self.now);
        let side = &mut self.sides[to];
        if is_syn(header) {
            let answer = self.cookies.answer(&config.clone().into(), ends, *isn, header, now);
            side.watch.heard_syn(header, answer.seq);
            side.watch.sent_syn(&answer);
            self.launch(to, answer, None, 0);
        } else if let Some(connection) =
            self.cookies.accept(config.clone(), ends, *isn, header, now)
        {
            side.watch.forget_window(connection.sending.snd.iss());
            side.connection = Some(connection);
            return true;
        } else {
            self.refuse(to, header);
        }
        false
    }

    /// As `stack` does with its SYN queue: the entry lasts until a connection made from it is open.
    fn listen_with_queue(
        &mut self,
        to: usize,
        header: &TcpHeader,
        payload: Option<Packet>,
    ) -> Option<Option<Packet>> {
        let End { config, isn, .. } = &self.plan.ends[to];
        let (ends, now) = (tuple(to, self.plan.way.v6), self.now);
        let side = &mut self.sides[to];
        let Some(entry) = side.half_open.as_mut() else {
            if is_syn(header) {
                let iss = SeqNumber(*isn);
                side.half_open = Some(HalfOpen::new(header, iss, now));
                side.watch.heard_syn(header, iss);
                self.answer_from_queue(to, header.options.fast_open.is_some());
            } else {
                self.refuse(to, header);
            }
            return None;
        };
        if entry.is_same_syn(header) {
            self.answer_from_queue(to, header.options.fast_open.is_some());
            return None;
        }
        let mut connection = entry.connection(config.clone(), ends, *isn, now);
        // what it makes of the segment without its data shows whether it is kept
        let mut opened = entry.connection(config.clone(), ends, *isn, now);
        opened.on_segment(now, header, Payload::None, 0, &self.pool);
        if opened.state().is_synchronized() {
            side.half_open = None;
            side.watch.made_from_entry(connection.sending.snd.iss());
            side.connection = Some(connection);
            return Some(payload);
        }
        connection.on_segment(now, header, payload.into(), 0, &self.pool);
        if connection.is_closed() {
            side.half_open = None;
        }
        let limits = TransmitLimits::ONE;
        while let Some(segment) = connection.poll_one(now, &self.pool, &limits) {
            self.sides[to].may_reset |= segment.header.flags.rst();
            self.launch(to, segment.header, None, 0);
        }
        None
    }

    /// The SYN-ACK of the entry, which may give a cookie where the option was `asked` for.
    fn answer_from_queue(&mut self, to: usize, asked: bool) {
        let End { config, isn, .. } = &self.plan.ends[to];
        let ends = tuple(to, self.plan.way.v6);
        let side = &mut self.sides[to];
        let Some(entry) = &side.half_open else { return };
        let mut answer = entry.syn_ack(&config.clone().into(), ends, *isn, self.now);
        if asked && entry.has_fast_open() {
            answer.options.fast_open = FastOpenCookie::new(&GOOD);
        }
        side.watch.sent_syn(&answer);
        self.launch(to, answer, None, 0);
    }

    /// The entry's time is over: the SYN-ACK is sent again, or the entry is given up.
    pub fn half_open_timer(&mut self, to: usize) {
        let config = &self.plan.ends[to].config;
        let side = &mut self.sides[to];
        let Some(entry) = side.half_open.as_mut() else { return };
        if entry.on_timer(config) {
            self.answer_from_queue(to, false);
        } else {
            side.half_open = None;
            // whoever believes to be connected is told otherwise by a reset
            side.gone |= self.finale;
        }
    }
}
