use std::cell::Cell;
use std::net::Ipv4Addr;

use super::*;
use crate::socket::SocketKind;

const LINK: LinkId = LinkId(3);

fn id(number: u32) -> SocketId {
    SocketId::new(SocketKind::Udp, number, 0)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn group(is_v4: bool, number: u8) -> IpAddr {
    match is_v4 {
        true => Ipv4Addr::new(239, 1, 2, number).into(),
        false => std::net::Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

fn query(group: Option<IpAddr>, generation: Generation, within_ms: u64) -> Query<'static> {
    let within = Duration::from_millis(within_ms);
    let sources = Default::default();
    Query { group, generation, within, robustness: 0, interval: None, sources }
}

/// Calls of the tests that join and leave groups, for all sources.
impl Membership {
    fn join(&mut self, now: Instant, link: LinkId, group: IpAddr, id: SocketId) -> bool {
        assert!(self.filter(link, group, id).is_none());
        self.set(now, link, group, id, GroupFilter::ALL)
    }

    fn leave(&mut self, now: Instant, link: LinkId, group: IpAddr, id: SocketId) -> bool {
        let was_in = self.filter(link, group, id).is_some();
        assert!(self.set(now, link, group, id, GroupFilter::NONE));
        was_in
    }
}

/// Returns the reports up to `until`, with their times: one letter for the kind, and the last byte
/// of the group.
fn said(groups: &mut Membership, until: Instant) -> Vec<(u64, String)> {
    let mut list = Vec::new();
    while let Some(due) = groups.next_due().filter(|&due| due <= until) {
        groups.poll(due, 64, &mut |link, say| {
            assert_eq!(link, LINK);
            let last = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.octets()[3],
                IpAddr::V6(ip) => ip.octets()[15],
            };
            let text = match say {
                Say::Records(records) => {
                    let each = records.iter().map(|record| {
                        let sources: Vec<_> =
                            record.sources.iter().map(|&ip| last(ip).to_string()).collect();
                        let sources = match sources.is_empty() {
                            true => String::new(),
                            false => format!("({})", sources.join(",")),
                        };
                        format!("{:?}{}{sources}", record.kind, last(record.group))
                    });
                    each.collect::<Vec<_>>().join(" ")
                }
                Say::Old { generation, group, left } => {
                    format!("{generation:?}{}{}", if left { "-" } else { "+" }, last(group))
                }
            };
            list.push((due.as_nanos() / 1_000_000, text));
        });
    }
    list
}

fn texts(list: &[(u64, String)]) -> Vec<&str> {
    list.iter().map(|(_, text)| text.as_str()).collect()
}

#[test]
fn what_changes_is_said_twice_within_a_second() {
    for is_v4 in [true, false] {
        let mut groups = Membership::new(8, 1);
        let ip = group(is_v4, 7);
        assert!(groups.join(at(5), LINK, ip, id(1)) && groups.join(at(5), LINK, ip, id(2)));
        assert!(groups.has(LINK, ip) && !groups.has(LinkId(2), ip));
        let list = said(&mut groups, at(60_000));
        assert_eq!(texts(&list), ["ToExclude7", "ToExclude7"]);
        assert!(list[0].0 == 5 && (5..=1005).contains(&list[1].0), "{list:?}");
        assert!(groups.leave(at(70_000), LINK, ip, id(1)));
        assert!(!groups.leave(at(70_000), LINK, ip, id(1)));
        assert_eq!(groups.next_due(), None, "one is left");
        groups.forget(at(70_000), id(2));
        assert!(!groups.has(LINK, ip));
        let list = said(&mut groups, at(90_000));
        assert_eq!(texts(&list), ["ToInclude7", "ToInclude7"]);
        assert!(list[0].0 == 70_000 && list[1].0 <= 71_000, "{list:?}");
        assert!(groups.list.is_empty() && groups.joined == 0);
        // A report that was due before is void when the state changes.
        assert!(groups.join(at(100_000), LINK, ip, id(1)));
        assert!(groups.leave(at(100_000), LINK, ip, id(1)));
        assert_eq!(texts(&said(&mut groups, at(200_000))), ["ToInclude7", "ToInclude7"]);
        // A router may ask for more.
        let told = Query { robustness: 4, ..query(None, Generation::Third, 100) };
        groups.asked(at(200_000), LINK, is_v4, &told);
        assert!(groups.join(at(200_000), LINK, ip, id(1)));
        let list = said(&mut groups, at(300_000));
        assert_eq!(list.iter().filter(|(_, text)| text == "ToExclude7").count(), 4, "{list:?}");
        // The link is up again.
        groups.restart(at(300_000), LINK);
        assert_eq!(texts(&said(&mut groups, at(400_000))), ["ToExclude7"; 4]);
        groups.end_link(LINK);
        assert!(!groups.has(LINK, ip) && groups.next_due().is_none() && groups.joined == 0);
    }
}

#[test]
fn questions_are_answered_within_their_time_and_no_more_often_than_asked() {
    for is_v4 in [true, false] {
        let mut groups = Membership::new(200, 1);
        for number in 0..100 {
            assert!(groups.join(at(0), LINK, group(is_v4, number), id(1)));
        }
        // No router is told of these groups.
        let silent = if is_v4 { Ipv4Addr::new(224, 0, 0, 1).into() } else { ALL_NODES.into() };
        assert!(groups.join(at(0), LINK, silent, id(1)));
        assert!(!groups.is_for_members(LINK, silent));
        let mut first = Vec::new();
        groups.poll(at(0), usize::MAX, &mut |_, _| first.push(()));
        assert_eq!(first.len(), 100);
        said(&mut groups, at(5000));
        // All in a few reports; a hundred questions more are answered with it.
        for _ in 0..100 {
            groups.asked(at(10_000), LINK, is_v4, &query(None, Generation::Third, 3000));
        }
        groups.asked(at(10_000), LINK, !is_v4, &query(None, Generation::Third, 0));
        let list = said(&mut groups, at(60_000));
        assert_eq!(list.len(), 2);
        let records = list.iter().map(|(_, text)| text.split(' ').count()).sum::<usize>();
        assert_eq!(records, 100);
        assert!(list.iter().all(|(ms, text)| *ms <= 13_000 && text.starts_with("IsExclude")));
        // These queries are for one group.
        for _ in 0..3 {
            let one = query(Some(group(is_v4, 7)), Generation::Third, 1000);
            groups.asked(at(60_000), LINK, is_v4, &one);
        }
        let other = query(Some(group(is_v4, 200)), Generation::Third, 1000);
        groups.asked(at(60_000), LINK, is_v4, &other);
        let list = said(&mut groups, at(90_000));
        assert_eq!(texts(&list), ["IsExclude7"]);
        assert!(list[0].0 <= 61_000);
        // A router that asks every millisecond for answers at once gets some ten a second.
        let mut answers = 0;
        for ms in 0..1000 {
            groups.asked(at(100_000 + ms), LINK, is_v4, &query(None, Generation::Third, 0));
            answers += said(&mut groups, at(100_000 + ms)).len();
        }
        assert!((2 * 5..=2 * 10).contains(&answers), "{answers}");
        // And who asks of one group.
        said(&mut groups, at(105_000));
        let mut answers = 0;
        for ms in 0..1000 {
            let one = query(Some(group(is_v4, 7)), Generation::Third, 0);
            groups.asked(at(110_000 + ms), LINK, is_v4, &one);
            answers += said(&mut groups, at(110_000 + ms)).len();
        }
        assert!((5..=10).contains(&answers), "{answers}");
    }
}

#[test]
fn routers_of_older_versions_are_spoken_to_in_theirs() {
    for (is_v4, old) in
        [(true, Generation::First), (true, Generation::Second), (false, Generation::Second)]
    {
        let mut groups = Membership::new(8, 1);
        let (one, two) = (group(is_v4, 1), group(is_v4, 2));
        let name = format!("{old:?}");
        assert!(groups.join(at(0), LINK, one, id(1)) && groups.join(at(0), LINK, two, id(1)));
        // The report that was due in the newest version is void.
        said(&mut groups, at(0));
        groups.asked(at(0), LINK, is_v4, &query(None, old, 10_000));
        // Somebody else says it.
        groups.heard(at(1), LINK, two);
        let list = said(&mut groups, at(20_000));
        assert_eq!(texts(&list), [format!("{name}+1")]);
        assert!(list[0].0 <= 10_000);
        groups.leave(at(30_000), LINK, two, id(1));
        let left = said(&mut groups, at(40_000));
        match old {
            Generation::First => assert!(left.is_empty()),
            _ => assert_eq!(texts(&left), [format!("{name}-2")]),
        }
        assert!(groups.join(at(50_000), LINK, two, id(1)));
        let joined = said(&mut groups, at(70_000));
        assert_eq!(texts(&joined), [format!("{name}+2"), format!("{name}+2")]);
        // 2 times 125 s and the time to answer: then it is gone.
        assert!(groups.leave(at(259_000), LINK, two, id(1)));
        let left = said(&mut groups, at(259_999));
        assert!(texts(&left).iter().all(|text| text.starts_with(&name)), "{left:?}");
        assert!(groups.join(at(260_001), LINK, two, id(1)));
        assert_eq!(texts(&said(&mut groups, at(300_000))), ["ToExclude2", "ToExclude2"]);
        // The newest does not take what others say for its own.
        groups.asked(at(300_000), LINK, is_v4, &query(Some(two), Generation::Third, 1000));
        groups.heard(at(300_000), LINK, two);
        assert_eq!(texts(&said(&mut groups, at(400_000))), ["IsExclude2"]);
    }
}

#[test]
fn groups_are_bounded_and_so_is_what_is_left_and_said() {
    let mut groups = Membership::new(4, 1);
    for number in 0..4 {
        assert!(groups.join(at(0), LINK, group(true, number), id(1)));
    }
    assert!(!groups.join(at(0), LINK, group(true, 4), id(1)));
    assert!(!groups.join(at(0), LINK, group(true, 1), id(2)));
    for round in 0..100 {
        assert!(groups.leave(at(0), LINK, group(true, round), id(1)));
        assert!(groups.join(at(0), LINK, group(true, round + 4), id(1)));
        assert!(groups.list.len() <= 4);
    }
    for number in 100..104 {
        assert!(groups.has(LINK, group(true, number)));
    }
}

fn sources(is_v4: bool, list: &[u8]) -> Vec<IpAddr> {
    let source = |&last: &u8| match is_v4 {
        true => Ipv4Addr::new(10, 0, 0, last).into(),
        false => std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into(),
    };
    list.iter().map(source).collect()
}

/// A query of the newest version about some sources of group 7.
fn query_of_sources(is_v4: bool, list: &[u8], ask: impl FnOnce(&Query<'_>)) {
    use millstream_wire::groups::GroupMessage;
    use millstream_wire::ip::Version;
    let mut bytes = if is_v4 { vec![0x11, 10, 0, 0] } else { vec![130, 0, 0, 0, 3, 232, 0, 0] };
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.extend(octets(group(is_v4, 7)));
    bytes.extend([2, 125, 0, list.len() as u8]);
    bytes.extend(sources(is_v4, list).into_iter().flat_map(octets));
    let version = if is_v4 { Version::V4 } else { Version::V6 };
    match GroupMessage::parse(version, &bytes) {
        Some(GroupMessage::Query(query)) => ask(&query),
        other => panic!("{other:?}"),
    }
}

/// RFC 3376, 5.1: the table of differences, and what is merged into reports that are under way.
#[test]
fn what_changes_of_sources_is_said_as_a_difference() {
    for is_v4 in [true, false] {
        let mut groups = Membership::new(8, 1);
        let ip = group(is_v4, 7);
        let include = |list: &[u8]| GroupFilter::Include(sources(is_v4, list));
        let exclude = |list: &[u8]| GroupFilter::Exclude(sources(is_v4, list));
        let now = Cell::new(0);
        let change = |groups: &mut Membership, filter, expected: &[&str]| {
            assert!(groups.set(at(now.get()), LINK, ip, id(1), filter));
            now.set(now.get() + 10_000);
            assert_eq!(texts(&said(groups, at(now.get()))), expected);
        };
        change(&mut groups, include(&[1, 2]), &["Allow7(1,2)"; 2]);
        change(&mut groups, include(&[2, 3]), &["Allow7(3) Block7(1)"; 2]);
        change(&mut groups, include(&[2, 3]), &[]);
        change(&mut groups, exclude(&[4]), &["ToExclude7(4)"; 2]);
        change(&mut groups, exclude(&[5]), &["Allow7(4) Block7(5)"; 2]);
        change(&mut groups, include(&[6]), &["ToInclude7(6)"; 2]);
        // Another socket wants more.
        assert!(groups.set(at(now.get()), LINK, ip, id(2), include(&[7])));
        assert!(groups.admits(LINK, ip, id(2), sources(is_v4, &[7])[0]));
        assert!(!groups.admits(LINK, ip, id(1), sources(is_v4, &[7])[0]));
        change(&mut groups, include(&[]), &["Allow7(7) Block7(6)"; 2]);
        let start = now.get();
        groups.forget(at(start), id(2));
        assert_eq!(texts(&said(&mut groups, at(start + 10_000))), ["Block7(7)"; 2]);
        assert!(groups.list.is_empty());
        // A change of sources while one of the mode is being told is told with it; what is left
        // then by itself.
        let now = start + 20_000;
        assert!(groups.set(at(now), LINK, ip, id(1), exclude(&[1])));
        groups.poll(at(now), 64, &mut |_, _| {});
        assert!(groups.set(at(now), LINK, ip, id(1), exclude(&[2])));
        let list = said(&mut groups, at(now + 10_000));
        assert_eq!(texts(&list), ["ToExclude7(2)", "Allow7(1) Block7(2)"]);
    }
}

/// RFC 3376, 5.2: answers to queries about sources.
#[test]
fn questions_about_sources_are_answered_by_what_is_wanted_of_them() {
    for is_v4 in [true, false] {
        let mut groups = Membership::new(8, 1);
        let ip = group(is_v4, 7);
        let mut now = 0;
        for (filter, asked, answer) in [
            (GroupFilter::Include(sources(is_v4, &[1, 2, 3])), &[&[2, 9][..]][..], "IsInclude7(2)"),
            (GroupFilter::Include(sources(is_v4, &[1, 2])), &[&[8, 9]], ""),
            (GroupFilter::Exclude(sources(is_v4, &[1, 2])), &[&[2, 9]], "IsInclude7(9)"),
            // Together, each once.
            (GroupFilter::ALL, &[&[2, 9], &[9, 3]], "IsInclude7(2,3,9)"),
            // About the whole group, too.
            (GroupFilter::ALL, &[&[2, 9], &[]], "IsExclude7"),
            (GroupFilter::ALL, &[&[], &[2, 9]], "IsExclude7"),
        ] {
            assert!(groups.set(at(now), LINK, ip, id(1), filter));
            said(&mut groups, at(now + 10_000));
            now += 10_000;
            for list in asked {
                query_of_sources(is_v4, list, |query| groups.asked(at(now), LINK, is_v4, query));
            }
            let list = said(&mut groups, at(now + 1000));
            assert_eq!(texts(&list), if answer.is_empty() { vec![] } else { vec![answer] });
            now += 10_000;
        }
        // Asked for more sources than are remembered, it reports the whole group.
        let many: Vec<u8> = (0..=SOURCES as u8).collect();
        query_of_sources(is_v4, &many, |query| groups.asked(at(now), LINK, is_v4, query));
        assert_eq!(texts(&said(&mut groups, at(now + 1000))), ["IsExclude7"]);
    }
}

#[test]
fn sources_are_bounded_by_socket_and_by_link() {
    let mut groups = Membership::new(8, 1);
    let ip = group(true, 7);
    let list = |range: std::ops::Range<u8>| {
        GroupFilter::Include(sources(true, &range.collect::<Vec<_>>()))
    };
    assert!(!groups.set(at(0), LINK, ip, id(1), list(0..65)));
    assert!(groups.list.is_empty() && groups.joined == 0);
    assert!(groups.set(at(0), LINK, ip, id(1), list(0..64)));
    assert!(!groups.set(at(0), LINK, ip, id(2), list(64..65)));
    assert!(groups.set(at(0), LINK, ip, id(2), list(0..64)));
    // Others again and again before anything is told: a report of them would not fit.
    for round in 0..3 {
        groups.forget(at(0), id(2));
        assert!(groups.set(at(0), LINK, ip, id(1), list(round * 64..round * 64 + 64)));
    }
    let all =
        format!("ToInclude7({})", (128..192).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    assert_eq!(texts(&said(&mut groups, at(10_000))), [all.as_str(); 2]);
}

/// Our own addresses' groups are told of as those of sockets are, and are nobody's to listen to by
/// that.
#[test]
fn groups_of_own_addresses_are_told_and_keep_no_socket_out() {
    let mut groups = Membership::new(1, 1);
    let [one, two] = [1, 2].map(|number| group(false, number));
    groups.set_own(at(0), LINK, &[one, two]);
    let list = said(&mut groups, at(5000));
    let mut list = texts(&list);
    list.sort_unstable();
    assert_eq!(list, ["ToExclude1", "ToExclude1", "ToExclude2", "ToExclude2"]);
    assert!(!groups.has(LINK, one) && !groups.is_for_members(LINK, one));
    // They are not those that are counted.
    assert!(groups.join(at(5000), LINK, one, id(1)));
    assert!(said(&mut groups, at(9000)).is_empty(), "it is told already");
    groups.set_own(at(9000), LINK, &[]);
    assert_eq!(texts(&said(&mut groups, at(15_000))), ["ToInclude2"; 2]);
    groups.forget(at(20_000), id(1));
    assert_eq!(texts(&said(&mut groups, at(25_000))), ["ToInclude1"; 2]);
}
