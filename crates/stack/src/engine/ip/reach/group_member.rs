//! A group on a link: who listens to it, and what is to be said of that.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use millstream_packet::Instant;
use millstream_route::{ALL_NODES, LinkId};
use millstream_wire::groups::{Generation, Query, Record, RecordKind};

use super::group_filter::GroupFilter;
use crate::engine::ip::reach::claims::between;
use crate::socket::SocketId;

/// Answers have so much time at least, whatever a router says, and are so far apart: who asks again
/// and again gets no more.
pub(super) const ANSWER_LEAST: Duration = Duration::from_millis(100);

/// Sources that a socket may name of a group, that all sockets together may want of it, and that
/// are remembered of a query: a report of them fits the least MTU.
pub(in crate::engine) const SOURCES: usize = 64;

/// RFC 3376, 8.11; RFC 3810, 9.11.
pub(super) const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);

/// RFC 2236, 8.10; RFC 2710, 7.10.
const UNSOLICITED_INTERVAL_OLD: Duration = Duration::from_secs(10);

/// A report that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Say<'a> {
    /// In a report of the newest version.
    Records(&'a [Record<'a>]),
    /// By an older one.
    Old { generation: Generation, group: IpAddr, left: bool },
}

/// A query that is to be answered.
struct Answer {
    due: Instant,
    /// About these sources; none: about the whole group.
    sources: Vec<IpAddr>,
}

/// A change that was not reported as often yet as it has to be (RFC 3376, 5.1; RFC 3810, 6.1).
#[derive(Default)]
struct Untold {
    /// Times that the state as a whole is still to be reported.
    state: u8,
    /// Sources that are wanted now, or not any more, each with the times that this is still to be
    /// reported.
    sources: Vec<(IpAddr, u8)>,
    due: Option<Instant>,
}

impl Untold {
    fn is_empty(&self) -> bool {
        self.state == 0 && self.sources.is_empty()
    }
}

/// A group on a link.
pub(super) struct Member {
    pub link: LinkId,
    pub group: IpAddr,
    pub sockets: Vec<(SocketId, GroupFilter)>,
    /// An address of ours asks for it.
    pub is_own: bool,
    /// The filter of all of them together.
    pub state: GroupFilter,
    untold: Untold,
    answer: Option<Answer>,
    /// It is not answered again before.
    quiet_until: Instant,
}

/// Returns true for a group that all hosts are in, and of which no router is told (RFC 3376, 5; RFC
/// 3810, 6).
pub(super) fn is_everybodys(group: IpAddr) -> bool {
    group == Ipv4Addr::new(224, 0, 0, 1) || group == ALL_NODES
}

/// Returns true if routers are told of the group: not if its packets stay on the link (RFC 3810,
/// 6).
pub(super) fn is_told(group: IpAddr) -> bool {
    let stays = matches!(group, IpAddr::V6(ip) if ip.octets()[1] & 0xf < 2);
    !is_everybodys(group) && !stays
}

impl Member {
    /// Nobody listens to it yet.
    pub fn new(link: LinkId, group: IpAddr) -> Self {
        let (sockets, untold) = Default::default();
        let (is_own, state, answer) = (false, GroupFilter::NONE, None);
        let quiet_until = Instant::from_nanos(0);
        Self { link, group, sockets, is_own, state, untold, answer, quiet_until }
    }

    pub fn is_of(&self, link: LinkId, is_v4: bool) -> bool {
        self.link == link && self.group.is_ipv4() == is_v4
    }

    /// Where the socket stands in its list.
    pub fn place(&self, id: SocketId) -> Option<usize> {
        self.sockets.iter().position(|(other, _)| *other == id)
    }

    /// When it has something to say.
    pub fn dues(&self) -> [Option<Instant>; 2] {
        [self.untold.due, self.answer.as_ref().map(|answer| answer.due)]
    }

    /// Returns true if a change is not reported as often yet as it has to be.
    pub fn has_to_tell(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Drops all pending reports.
    pub fn be_silent(&mut self) {
        (self.untold, self.answer) = Default::default();
    }

    /// Computes the filter; returns true if it has changed, and is to be reported from now on.
    pub fn renew(&mut self, now: Instant, generation: Generation, robustness: u8) -> bool {
        let filters = self.sockets.iter().map(|(_, filter)| filter);
        let all = GroupFilter::ALL;
        let own = self.is_own.then_some(&all);
        let new = GroupFilter::merged(filters.chain(own));
        let old = std::mem::replace(&mut self.state, new);
        let (state, untold) = (&self.state, &mut self.untold);
        if old == *state || !is_told(self.group) {
            return false;
        }
        let is_left = state.is_none();
        if is_left {
            self.answer = None;
        }
        let whole = |state| Untold { state, ..Untold::default() };
        match generation {
            Generation::Third if old.excludes() != state.excludes() => untold.state = robustness,
            Generation::Third => {
                for source in old.differences(state) {
                    untold.sources.retain(|(other, _)| *other != source);
                    untold.sources.push((source, robustness));
                }
                if untold.sources.len() > SOURCES {
                    *untold = whole(robustness);
                }
            }
            // They know of no sources. RFC 2236, 6; RFC 2710, 5.
            _ if !is_left && !old.is_none() => return false,
            Generation::Second if is_left => *untold = whole(1),
            Generation::First if is_left => *untold = whole(0),
            _ => *untold = whole(robustness),
        }
        untold.due = Some(now);
        true
    }

    /// The state, in answer to a query.
    pub fn is(&self) -> Record<'_> {
        let excludes = self.state.excludes();
        let kind = if excludes { RecordKind::IsExclude } else { RecordKind::IsInclude };
        Record { kind, group: self.group, sources: self.state.sources() }
    }

    /// A router asks about the group, and is answered then or before (RFC 3376, 5.2; RFC 3810,
    /// 6.2).
    pub fn is_asked(&mut self, drawn: Instant, query: &Query<'_>) {
        if self.state.is_none() || !is_told(self.group) {
            return;
        }
        let drawn = drawn.max(self.quiet_until);
        let is_whole = query.sources.is_empty();
        let Some(answer) = &mut self.answer else {
            let sources = query.sources.iter().take(SOURCES + 1).collect();
            let mut answer = Answer { due: drawn, sources };
            answer.bound();
            self.answer = Some(answer);
            return;
        };
        answer.due = answer.due.min(drawn);
        if is_whole || answer.sources.is_empty() {
            answer.sources.clear();
            return;
        }
        answer.sources.extend(query.sources.iter().take(SOURCES + 1));
        answer.bound();
    }

    /// Tells of what has changed, if that is due; whether it was.
    pub fn tell_change(
        &mut self,
        now: Instant,
        generation: Generation,
        random: &mut u64,
        say: &mut dyn FnMut(LinkId, Say<'_>),
    ) -> bool {
        if self.untold.due.is_none_or(|due| due > now) {
            return false;
        }
        let (link, group, state) = (self.link, self.group, &self.state);
        let untold = &mut self.untold;
        let left = state.is_none();
        if untold.is_empty() {
            untold.due = None;
            return false;
        }
        match generation {
            Generation::Third if untold.state != 0 => {
                let excludes = state.excludes();
                let kind = if excludes { RecordKind::ToExclude } else { RecordKind::ToInclude };
                let sources = state.sources();
                say(link, Say::Records(&[Record { kind, group, sources }]));
            }
            Generation::Third => {
                let sources = untold.sources.iter().map(|(source, _)| *source);
                let (now_in, out): (Vec<_>, Vec<_>) =
                    sources.partition(|&source| state.admits(source));
                let record = |kind, sources| Record { kind, group, sources };
                let both = [record(RecordKind::Allow, &now_in), record(RecordKind::Block, &out)];
                let first = usize::from(now_in.is_empty());
                let end = 2 - usize::from(out.is_empty());
                say(link, Say::Records(&both[first..end]));
            }
            // A router of the first version is not told that a group was left.
            Generation::First if left => {}
            generation => say(link, Say::Old { generation, group, left }),
        }
        untold.state = untold.state.saturating_sub(1);
        untold.sources.retain_mut(|(_, times)| {
            *times -= 1;
            *times != 0
        });
        let most = match generation {
            Generation::Third => UNSOLICITED_INTERVAL,
            _ => UNSOLICITED_INTERVAL_OLD,
        };
        let next = now + between(random, Duration::from_nanos(1), most);
        untold.due = (!untold.is_empty()).then_some(next);
        true
    }

    /// Answers a query, if that is due; whether something was said.
    pub fn tell_asked(
        &mut self,
        now: Instant,
        generation: Generation,
        say: &mut dyn FnMut(LinkId, Say<'_>),
    ) -> bool {
        let Some(answer) = self.answer.take_if(|answer| answer.due <= now) else { return false };
        let (link, group) = (self.link, self.group);
        self.quiet_until = now + ANSWER_LEAST;
        match generation {
            Generation::Third if answer.sources.is_empty() => {
                say(link, Say::Records(&[self.is()]));
            }
            Generation::Third => {
                let mut sources = answer.sources;
                sources.retain(|&source| self.state.admits(source));
                if sources.is_empty() {
                    return false;
                }
                let record = Record { kind: RecordKind::IsInclude, group, sources: &sources };
                say(link, Say::Records(&[record]));
            }
            generation => say(link, Say::Old { generation, group, left: false }),
        }
        true
    }
}

impl Answer {
    /// Drops the sources if there are more than are remembered: the answer for the whole group
    /// includes them.
    fn bound(&mut self) {
        self.sources.sort_unstable();
        self.sources.dedup();
        if self.sources.len() > SOURCES {
            self.sources.clear();
        }
    }
}
