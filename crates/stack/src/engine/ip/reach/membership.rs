//! Which groups are listened to on which links, and what multicast routers are told of that: the
//! host's part of IGMPv3 (RFC 3376) and MLDv2 (RFC 3810), and of the versions before, where a
//! router speaks those.
//!
//! It sends nothing itself: it says what is due, and the engine builds it. Of a group it tells what
//! is wanted by all sockets together (the state), in answer to a query, or when that changes, as
//! often as a router may have missed it.

use std::net::IpAddr;
use std::time::Duration;

use millstream_packet::Instant;
use millstream_route::{ALL_NODES, LinkId};
use millstream_wire::groups::{Generation, Query, Record, RecordKind};

use super::group_filter::GroupFilter;
use super::group_member::{
    ANSWER_LEAST, Member, SOURCES, Say, UNSOLICITED_INTERVAL, is_everybodys, is_told,
};
use crate::engine::ip::reach::claims::between;
use crate::socket::SocketId;

/// Bytes of the records of one report at most: they fit the least MTU of either version (RFC 1122,
/// 3.3.3; RFC 8200, 5).
const RECORDS_BYTES: usize = 512;
const RECORDS_V6_BYTES: usize = 1_100;

/// Records of one report at most: so many of IPv4 have room in it.
const RECORDS: usize = RECORDS_BYTES / 8;

/// RFC 3376, 8.1; RFC 3810, 9.1.
const ROBUSTNESS: u8 = 2;

/// RFC 3376, 8.2; RFC 3810, 9.2.
const QUERY_INTERVAL: Duration = Duration::from_secs(125);

/// Routers of one version of IP on one link.
struct Way {
    link: LinkId,
    is_v4: bool,
    /// Routers of older versions are there until then.
    first_until: Option<Instant>,
    second_until: Option<Instant>,
    robustness: u8,
    interval: Duration,
    /// When a query for all groups is answered, which is not before.
    general_due: Option<Instant>,
    quiet_until: Instant,
    /// One for all groups by an older version is not heeded again before.
    next_old_query: Instant,
}

/// See the module text.
pub(crate) struct Membership {
    /// By link and group.
    list: Vec<Member>,
    ways: Vec<Way>,
    /// Most memberships, over all sockets and groups.
    limit: usize,
    joined: usize,
    random: u64,
    /// Nothing is due before.
    next: Option<Instant>,
}

fn sooner(due: &mut Option<Instant>, drawn: Instant) {
    *due = Some(due.map_or(drawn, |due| due.min(drawn)));
}

impl Way {
    fn new(link: LinkId, is_v4: bool) -> Self {
        Self {
            link,
            is_v4,
            first_until: None,
            second_until: None,
            robustness: ROBUSTNESS,
            interval: QUERY_INTERVAL,
            general_due: None,
            quiet_until: Instant::from_nanos(0),
            next_old_query: Instant::from_nanos(0),
        }
    }

    fn generation(&self, now: Instant) -> Generation {
        let is_there = |until: Option<Instant>| until.is_some_and(|until| now < until);
        match (is_there(self.first_until), is_there(self.second_until)) {
            (true, _) => Generation::First,
            (false, true) => Generation::Second,
            (false, false) => Generation::Third,
        }
    }

    /// Takes over the settings that a query tells of its router (RFC 3376, 4.1.6, 4.1.7 and 8.12;
    /// RFC 3810, 5.1.8, 5.1.9 and 9.12).
    fn learn(&mut self, now: Instant, query: &Query<'_>) {
        if query.robustness != 0 {
            self.robustness = query.robustness;
        }
        self.interval = query.interval.filter(|told| !told.is_zero()).unwrap_or(self.interval);
        let until = now + self.interval * self.robustness.into() + query.within;
        match query.generation {
            Generation::First => self.first_until = Some(until),
            Generation::Second => self.second_until = Some(until),
            Generation::Third => {}
        }
    }
}

impl Default for Membership {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

impl Membership {
    pub fn new(limit: usize, random: u64) -> Self {
        let (list, ways) = Default::default();
        Self { list, ways, limit, joined: 0, random, next: None }
    }

    fn find(&self, link: LinkId, group: IpAddr) -> Result<usize, usize> {
        self.list.binary_search_by_key(&(link.0, group), |member| (member.link.0, member.group))
    }

    /// The sockets that listen to the group on the link, and to which sources.
    fn sockets(&self, link: LinkId, group: IpAddr) -> &[(SocketId, GroupFilter)] {
        self.find(link, group).map_or(&[], |at| &self.list[at].sockets)
    }

    /// Returns true if a socket listens to the group on the link.
    #[inline]
    pub fn has(&self, link: LinkId, group: IpAddr) -> bool {
        !self.list.is_empty() && !self.sockets(link, group).is_empty()
    }

    /// Returns true if datagrams to the group are for those sockets alone that listen to it.
    pub fn is_for_members(&self, link: LinkId, group: IpAddr) -> bool {
        self.has(link, group) && !is_everybodys(group)
    }

    /// All groups from one on, by link and group: whether an address of ours asks for it, and who
    /// listens to it.
    pub fn iter_from(
        &self,
        link: LinkId,
        group: IpAddr,
    ) -> impl Iterator<Item = (LinkId, IpAddr, bool, &[(SocketId, GroupFilter)])> {
        let (Ok(at) | Err(at)) = self.find(link, group);
        let members = self.list[at..].iter();
        members.map(|member| (member.link, member.group, member.is_own, &member.sockets[..]))
    }

    /// To which sources of the group the socket listens on the link; none where it is not in it.
    pub fn filter(&self, link: LinkId, group: IpAddr, id: SocketId) -> Option<&GroupFilter> {
        let sockets = self.sockets(link, group).iter();
        sockets.filter(|(other, _)| *other == id).map(|(_, filter)| filter).next()
    }

    /// Returns true if the socket gets datagrams that `source` sends to the group.
    pub fn admits(&self, link: LinkId, group: IpAddr, id: SocketId, source: IpAddr) -> bool {
        self.filter(link, group, id).is_some_and(|filter| filter.admits(source))
    }

    /// A link on which the socket listens to the group.
    pub fn link_of(&self, group: IpAddr, id: SocketId) -> Option<LinkId> {
        let is_it = |member: &&Member| member.group == group && member.place(id).is_some();
        self.list.iter().find(is_it).map(|member| member.link)
    }

    /// Has a socket listen to these sources of a group, whose order is that of
    /// [`GroupFilter::sorted`], in place of those that it listened to before. Returns false when
    /// there is no room.
    pub fn set(
        &mut self,
        now: Instant,
        link: LinkId,
        group: IpAddr,
        id: SocketId,
        filter: GroupFilter,
    ) -> bool {
        let found = self.find(link, group);
        let is_in = found.is_ok_and(|at| self.list[at].place(id).is_some());
        if filter.is_none() {
            if is_in && let Ok(at) = found {
                self.list[at].sockets.retain(|(other, _)| *other != id);
                self.joined -= 1;
                self.changed(now, at);
                self.trim();
            }
            return true;
        }
        if !is_in && self.joined >= self.limit || filter.sources().len() > SOURCES {
            return false;
        }
        let at = found.unwrap_or_else(|place| self.insert(place, link, group));
        let others = self.list[at].sockets.iter().filter(|(other, _)| *other != id);
        let all = others.map(|(_, filter)| filter).chain([&filter]);
        if GroupFilter::merged(all).sources().len() > SOURCES {
            self.trim();
            return false;
        }
        match self.list[at].place(id) {
            Some(place) => self.list[at].sockets[place].1 = filter,
            None => self.list[at].sockets.push((id, filter)),
        }
        self.joined += usize::from(!is_in);
        self.changed(now, at);
        self.make_room();
        self.find_next();
        true
    }

    fn insert(&mut self, place: usize, link: LinkId, group: IpAddr) -> usize {
        self.list.insert(place, Member::new(link, group));
        place
    }

    /// Bounds the groups that nobody listens to any more and that are still being reported.
    fn make_room(&mut self) {
        let own = self.list.iter().filter(|member| member.is_own).count();
        while self.list.len() > self.limit + own
            && let Some(gone) = self.list.iter().position(|member| member.state.is_none())
        {
            self.list.remove(gone);
        }
    }

    /// The groups that our own addresses on the link ask for, whoever else listens to them (RFC
    /// 4291, 2.8): routers and bridges between are told.
    pub fn set_own(&mut self, now: Instant, link: LinkId, groups: &[IpAddr]) {
        for &group in groups {
            let at = self.find(link, group);
            let at = at.unwrap_or_else(|place| self.insert(place, link, group));
            self.list[at].is_own = true;
            // RFC 4862, 5.4.2: not all stations at once, when all have begun at once.
            let soon = now + between(&mut self.random, Duration::ZERO, UNSOLICITED_INTERVAL);
            self.changed(soon, at);
        }
        for at in 0..self.list.len() {
            let member = &mut self.list[at];
            if member.link == link && member.is_own && !groups.contains(&member.group) {
                member.is_own = false;
                self.changed(now, at);
            }
        }
        self.trim();
    }

    /// The socket is gone.
    pub fn forget(&mut self, now: Instant, id: SocketId) {
        for at in 0..self.list.len() {
            if let Some(place) = self.list[at].place(id) {
                self.list[at].sockets.swap_remove(place);
                self.joined -= 1;
                self.changed(now, at);
            }
        }
        self.trim();
    }

    /// The link is over, and who listened there is in no group of it any more.
    pub fn end_link(&mut self, link: LinkId) {
        self.list.retain(|member| member.link != link);
        self.ways.retain(|way| way.link != link);
        self.joined = self.list.iter().map(|member| member.sockets.len()).sum();
        self.find_next();
    }

    /// The link is up again: what was said meanwhile nobody has heard.
    pub fn restart(&mut self, now: Instant, link: LinkId) {
        for at in 0..self.list.len() {
            if self.list[at].link == link && !self.list[at].state.is_none() {
                self.list[at].state = GroupFilter::NONE;
                self.changed(now, at);
            }
        }
        self.trim();
    }

    /// Reports the group's filter if it has changed: at once, and as often as a router may have
    /// missed it (RFC 3376, 5.1; RFC 3810, 6.1).
    fn changed(&mut self, now: Instant, at: usize) {
        let (link, group) = (self.list[at].link, self.list[at].group);
        let way = self.way(link, group.is_ipv4());
        let (generation, robustness) = (way.generation(now), way.robustness);
        if self.list[at].renew(now, generation, robustness) {
            sooner(&mut self.next, now);
        }
    }

    fn way(&mut self, link: LinkId, is_v4: bool) -> &mut Way {
        let is_it = |way: &Way| way.link == link && way.is_v4 == is_v4;
        let at = self.ways.iter().position(is_it).unwrap_or_else(|| {
            self.ways.push(Way::new(link, is_v4));
            self.ways.len() - 1
        });
        &mut self.ways[at]
    }

    /// A router asks (RFC 3376, 5.2 and 7.2; RFC 3810, 6.2 and 8.2).
    pub fn asked(&mut self, now: Instant, link: LinkId, is_v4: bool, query: &Query<'_>) {
        let way = self.way(link, is_v4);
        let before = way.generation(now);
        way.learn(now, query);
        let generation = way.generation(now);
        if generation != before {
            // RFC 3376, 7.2.1: what was to be said is over.
            way.general_due = None;
            for member in self.list.iter_mut().filter(|member| member.is_of(link, is_v4)) {
                member.be_silent();
            }
            self.trim();
        }
        let within = query.within.max(ANSWER_LEAST);
        let drawn = now + between(&mut self.random, Duration::ZERO, within);
        let way = self.way(link, is_v4);
        let general_due = way.general_due;
        match query.group {
            // The report of all groups says it sooner.
            Some(_) if general_due.is_some_and(|due| due <= drawn) => return,
            Some(group) => match self.find(link, group) {
                Ok(at) => self.list[at].is_asked(drawn, query),
                Err(_) => return,
            },
            None if generation == Generation::Third => {
                let drawn = drawn.max(way.quiet_until);
                sooner(&mut way.general_due, drawn);
                sooner(&mut self.next, drawn);
                return;
            }
            None if now < way.next_old_query => return,
            None => {
                way.next_old_query = now + ANSWER_LEAST;
                let Self { list, random, .. } = self;
                for member in list.iter_mut().filter(|member| member.is_of(link, is_v4)) {
                    let drawn = now + between(random, Duration::ZERO, within);
                    member.is_asked(drawn, query);
                }
                return self.find_next();
            }
        }
        sooner(&mut self.next, drawn);
    }

    /// Another host has said that it is in the group: to a router of an older version that is
    /// enough (RFC 2236, 3; RFC 2710, 4).
    pub fn heard(&mut self, now: Instant, link: LinkId, group: IpAddr) {
        if self.way(link, group.is_ipv4()).generation(now) == Generation::Third {
            return;
        }
        if let Ok(at) = self.find(link, group)
            && !self.list[at].state.is_none()
        {
            self.list[at].be_silent();
        }
    }

    /// When [`poll`](Self::poll) may have something next.
    #[inline]
    pub fn next_due(&self) -> Option<Instant> {
        self.next
    }

    /// Says by now what is due, as many messages as `limit`, or those of one answer more.
    pub fn poll(&mut self, now: Instant, limit: usize, say: &mut dyn FnMut(LinkId, Say<'_>)) {
        let Self { list, ways, random, .. } = self;
        let mut left = limit;
        for way in ways.iter_mut() {
            if left != 0 && way.general_due.is_some_and(|due| due <= now) {
                way.general_due = None;
                way.quiet_until = now + ANSWER_LEAST;
                left = left.saturating_sub(tell_all(list, way, say));
            }
        }
        for member in list.iter_mut() {
            if left == 0 {
                break;
            }
            let way = ways.iter().find(|way| member.is_of(way.link, way.is_v4));
            let generation = way.map_or(Generation::Third, |way| way.generation(now));
            left -= usize::from(member.tell_change(now, generation, random, say));
            left = left.saturating_sub(usize::from(member.tell_asked(now, generation, say)));
        }
        self.trim();
    }

    /// Forgets what is left and told.
    fn trim(&mut self) {
        self.list.retain(|member| !member.state.is_none() || member.has_to_tell());
        self.find_next();
    }

    fn find_next(&mut self) {
        let members = self.list.iter().flat_map(Member::dues);
        let ways = self.ways.iter().map(|way| way.general_due);
        self.next = members.chain(ways).flatten().min();
    }
}

/// Tells the routers of a way all that is listened to there; how many reports that took.
fn tell_all(list: &[Member], way: &Way, say: &mut dyn FnMut(LinkId, Say<'_>)) -> usize {
    let most = if way.is_v4 { RECORDS_BYTES } else { RECORDS_V6_BYTES };
    let none = Record { kind: RecordKind::IsExclude, group: ALL_NODES.into(), sources: &[] };
    let (mut records, mut count, mut bytes, mut reports) = ([none; RECORDS], 0, 0, 0);
    for member in list.iter().filter(|member| member.is_of(way.link, way.is_v4)) {
        if member.state.is_none() || !is_told(member.group) {
            continue;
        }
        let record = member.is();
        if count == RECORDS || bytes + record.len() > most {
            say(way.link, Say::Records(&records[..count]));
            (count, bytes, reports) = (0, 0, reports + 1);
        }
        records[count] = record;
        count += 1;
        bytes += record.len();
    }
    if count != 0 {
        say(way.link, Say::Records(&records[..count]));
        reports += 1;
    }
    reports
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
