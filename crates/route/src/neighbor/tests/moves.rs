//! Addresses that another station claims, truly or not, and the tables of the RFCs about it.

use super::*;

/// The kinds of ARP packets from a moved neighbour.
const CLAIMS: [Evidence; 4] =
    [Evidence::GRATUITOUS_ARP, Evidence::Overheard, Evidence::Asked, Evidence::ARP_REPLY];

/// A neighbour that was asked, answered long ago, and is in use.
fn known(ip: IpAddr) -> (Pool, NeighborTable) {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip, 1), "ask");
    let answer = if ip.is_ipv4() { Evidence::ARP_REPLY } else { NA_SOLICITED };
    assert_eq!(t.hear(at(0), LINK, ip, Some(mac(9)), answer).change, Change::Learnt);
    assert_eq!(send(&mut t, &pool, at(1), ip, 2), "ready 9");
    (pool, t)
}

fn hear(t: &mut NeighborTable, ms: u64, ip: IpAddr, from: u8, evidence: Evidence) -> Change {
    let heard = t.hear(at(ms), LINK, ip, Some(mac(from)), evidence);
    assert!(heard.released.is_empty());
    heard.change
}

fn is(t: &NeighborTable, ip: IpAddr) -> (u8, State) {
    let entry = t.iter().find(|n| n.ip == ip).unwrap();
    (entry.mac.unwrap().0[5], entry.state)
}

const NA_UNASKED: Evidence =
    Evidence::Advertised { solicited: false, replace: true, router: false };

#[test]
fn a_claim_is_taken_in_at_once_and_the_next_use_asks_both_stations() {
    let v4 = CLAIMS.map(|claim| (ip(9), claim, Evidence::ARP_REPLY));
    let v6 = [NA_UNASKED, NA_SOLICITED, Evidence::Asked].map(|claim| (ip6(9), claim, NA_SOLICITED));
    for (ip, claim, answer) in v4.into_iter().chain(v6) {
        let (pool, mut t) = known(ip);
        assert_eq!(hear(&mut t, 2000, ip, 8, claim), Change::Moved, "{claim:?}");
        assert_eq!(is(&t, ip), (8, State::Stale), "{claim:?}");
        // Nobody has sent anything since: nobody is asked.
        assert!(act(&mut t, at(2001)).is_empty());
        assert_eq!(send(&mut t, &pool, at(2001), ip, 3), "ready 8");
        assert_eq!(t.next_wakeup(), Some(at(2001)));
        assert_eq!(act(&mut t, at(2001)), [("one", ip, vec![8, 9])]);
        // A connection's ACK may be about the station before.
        t.confirm(at(2001), LINK, ip);
        assert_eq!(is(&t, ip), (8, State::Probe));
        assert_eq!(hear(&mut t, 2002, ip, 8, answer), Change::Confirmed);
        assert_eq!(is(&t, ip), (8, State::Reachable));
        assert_eq!((t.stats().moved, t.stats().restored), (1, 0));
        // From now on it is any neighbour.
        assert!(act(&mut t, at(50_000)).is_empty());
        assert_eq!(send(&mut t, &pool, at(50_000), ip, 4), "ready 8");
        assert_eq!(is(&t, ip), (8, State::Delay));
        assert_eq!(act(&mut t, at(55_000)), [("one", ip, vec![8])]);
    }
}

#[test]
fn who_had_the_address_and_answers_has_it_again() {
    for (ip, answer) in [(ip(9), Evidence::ARP_REPLY), (ip6(9), NA_SOLICITED)] {
        let claim = if ip.is_ipv4() { Evidence::GRATUITOUS_ARP } else { NA_UNASKED };
        for forger_answers in [false, true] {
            let (pool, mut t) = known(ip);
            assert_eq!(hear(&mut t, 2000, ip, 8, claim), Change::Moved);
            // A second one does not make it forget who had it.
            assert_eq!(hear(&mut t, 2000, ip, 7, claim), Change::Moved);
            assert_eq!(send(&mut t, &pool, at(2001), ip, 3), "ready 7");
            assert_eq!(act(&mut t, at(2001)), [("one", ip, vec![7, 9])]);
            if forger_answers {
                assert_eq!(hear(&mut t, 2001, ip, 7, answer), Change::Confirmed);
            }
            let generation = t.generation();
            assert_eq!(hear(&mut t, 2002, ip, 9, answer), Change::Restored);
            assert_eq!(is(&t, ip), (9, State::Reachable));
            assert_ne!(t.generation(), generation);
            // For a moment nobody else has it, whatever he says.
            for evidence in [claim, answer, Evidence::Asked] {
                assert_eq!(hear(&mut t, 3001, ip, 7, evidence), Change::Refused);
            }
            assert_eq!(send(&mut t, &pool, at(3001), ip, 4), "ready 9");
            let stats = t.stats();
            assert_eq!((stats.moved, stats.restored, stats.claims_refused), (2, 1, 3));
            assert_eq!(hear(&mut t, 3002, ip, 7, claim), Change::Moved);
        }
    }
}

#[test]
fn who_announces_himself_again_has_the_address_again() {
    let (pool, mut t) = known(ip(9));
    assert_eq!(hear(&mut t, 2000, ip(9), 8, Evidence::GRATUITOUS_ARP), Change::Moved);
    assert_eq!(hear(&mut t, 2001, ip(9), 9, Evidence::GRATUITOUS_ARP), Change::Moved);
    assert_eq!(send(&mut t, &pool, at(2002), ip(9), 3), "ready 9");
    // As ever, a connection that gets on spares the question.
    assert_eq!(is(&t, ip(9)), (9, State::Delay));
    t.confirm(at(2003), LINK, ip(9));
    assert_eq!(is(&t, ip(9)), (9, State::Reachable));
}

#[test]
fn an_answer_from_another_than_was_asked_counts_until_that_one_answers() {
    for (ip, answer) in [(ip(9), Evidence::ARP_REPLY), (ip6(9), NA_SOLICITED)] {
        for late in [2_u64, 3_001] {
            let (pool, mut t) = known(ip);
            act(&mut t, at(46_000));
            assert_eq!(send(&mut t, &pool, at(46_000), ip, 3), "ready 9");
            assert_eq!(act(&mut t, at(51_000)), [("one", ip, vec![9])]);
            assert_eq!(hear(&mut t, 51_001, ip, 8, answer), Change::Moved);
            assert_eq!(is(&t, ip), (8, State::Reachable));
            let change = hear(&mut t, 51_000 + late, ip, 9, answer);
            assert_eq!(change == Change::Restored, late == 2, "{change:?}");
        }
    }
}

/// RFC 5227 has several answers to one question in mind: the first one counts, as in Linux.
#[test]
fn of_several_arp_answers_the_first_one_counts_but_an_announcement_always_does() {
    for (ms, claim, change) in [
        (999, Evidence::ARP_REPLY, Change::Refused),
        (999, Evidence::Asked, Change::Refused),
        (999, Evidence::Overheard, Change::Refused),
        (999, Evidence::GRATUITOUS_ARP, Change::Moved),
        (1000, Evidence::ARP_REPLY, Change::Moved),
        (1000, Evidence::Asked, Change::Moved),
        (1000, Evidence::Overheard, Change::Moved),
    ] {
        let (_pool, mut t) = known(ip(9));
        assert_eq!(hear(&mut t, ms, ip(9), 8, claim), change, "{claim:?} at {ms}");
    }
    // Progress of a connection is no answer: what moves then is heard at once.
    let (_pool, mut t) = known(ip(9));
    t.confirm(at(5000), LINK, ip(9));
    assert_eq!(hear(&mut t, 5000, ip(9), 8, Evidence::Overheard), Change::Moved);
    // RFC 4861 knows of no such time.
    for claim in [NA_UNASKED, NA_SOLICITED, Evidence::Asked] {
        let (_pool, mut t) = known(ip6(9));
        assert_eq!(hear(&mut t, 10, ip6(9), 8, claim), Change::Moved, "{claim:?}");
    }
}

/// RFC 4861 section 7.2.5 and appendix C, row by row: state, address told, flags; what becomes of
/// it. The one departure is marked.
#[test]
fn the_table_for_advertisements() {
    use State::*;
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Told {
        Nothing,
        Same,
        Other,
    }
    use Told::*;
    let rows = [
        // An INCOMPLETE entry takes any address in, whatever O says.
        (Incomplete, Nothing, false, false, (0, Incomplete)),
        (Incomplete, Nothing, true, true, (0, Incomplete)),
        // The waiting packet is sent, which is a use.
        (Incomplete, Other, false, false, (8, Delay)),
        (Incomplete, Other, false, true, (8, Delay)),
        (Incomplete, Other, true, false, (8, Reachable)),
        (Incomplete, Other, true, true, (8, Reachable)),
        // I: another address, without O.
        (Reachable, Other, false, false, (9, Stale)),
        (Reachable, Other, true, false, (9, Stale)),
        (Stale, Other, true, false, (9, Stale)),
        (Delay, Other, true, false, (9, Delay)),
        (Probe, Other, true, false, (9, Probe)),
        // II: the same or none, or with O.
        (Reachable, Same, false, false, (9, Reachable)),
        (Reachable, Nothing, true, false, (9, Reachable)),
        (Stale, Same, false, true, (9, Stale)),
        (Stale, Same, true, false, (9, Reachable)),
        (Stale, Nothing, true, true, (9, Reachable)),
        (Delay, Nothing, false, false, (9, Delay)),
        (Delay, Same, true, false, (9, Reachable)),
        (Probe, Same, false, true, (9, Probe)),
        (Probe, Nothing, true, false, (9, Reachable)),
        (Probe, Same, true, true, (9, Reachable)),
        (Reachable, Other, false, true, (8, Stale)),
        (Stale, Other, false, true, (8, Stale)),
        (Delay, Other, false, true, (8, Stale)),
        (Probe, Other, false, true, (8, Stale)),
        (Probe, Other, true, true, (8, Reachable)),
        // Appendix C says REACHABLE; but nobody has asked: it is checked before it is believed.
        (Reachable, Other, true, true, (8, Stale)),
        (Stale, Other, true, true, (8, Stale)),
        (Delay, Other, true, true, (8, Stale)),
        (Static, Other, true, true, (9, Static)),
        (Static, Nothing, true, true, (9, Static)),
    ];
    for (before, told, solicited, replace, after) in rows {
        let (pool, mut t) = (pool(), table(NeighborConfig::default()));
        let ip = ip6(9);
        if before == Incomplete {
            assert_eq!(send(&mut t, &pool, at(0), ip, 1), "ask");
        } else if before == Static {
            t.set_static(at(0), LINK, ip, mac(9)).unwrap();
        } else {
            let _ = t.hear(at(0), LINK, ip, Some(mac(9)), Evidence::Asked);
        }
        match before {
            Reachable => t.confirm(at(0), LINK, ip),
            Delay | Probe => assert_eq!(send(&mut t, &pool, at(0), ip, 1), "ready 9"),
            Incomplete | Stale | Static => {}
        }
        if before == Probe {
            assert_eq!(act(&mut t, at(5000)).len(), 1);
        }
        assert_eq!(state(&t, ip), Some(before));
        let told_mac = match told {
            Nothing => None,
            Same => Some(mac(9)),
            Other => Some(mac(8)),
        };
        let evidence = Evidence::Advertised { solicited, replace, router: true };
        let _ = t.hear(at(5001), LINK, ip, told_mac, evidence);
        let entry = t.iter().next().unwrap();
        let row = (before, told, solicited, replace);
        assert_eq!((entry.mac.map_or(0, |mac| mac.0[5]), entry.state), after, "{row:?}");
        // The R flag goes in with the rest, or nothing does.
        let taken_in = match before {
            Static => false,
            Incomplete => told != Nothing,
            _ => replace || told != Other,
        };
        assert_eq!(entry.router, taken_in, "{row:?}");
    }
}

#[test]
fn what_nobody_asked_for_displaces_no_neighbour_in_use() {
    let config = NeighborConfig { limit: 4, ..Default::default() };
    let stranger = |t: &mut NeighborTable, n| {
        let heard = t.hear(at(1), LINK, IpAddr::from([10, 1, 0, n]), Some(mac(1)), Evidence::Asked);
        heard.change
    };
    // Reachable ones, and ones that are STALE but were used.
    for confirmed in [true, false] {
        let (pool, mut t) = (pool(), table(config));
        for n in 1..=4 {
            assert_eq!(send(&mut t, &pool, at(0), ip(n), 0), "ask");
            let evidence = if confirmed { Evidence::ARP_REPLY } else { Evidence::GRATUITOUS_ARP };
            let _ = t.hear(at(0), LINK, ip(n), Some(mac(n)), evidence);
        }
        for n in 1..=200 {
            assert_eq!(stranger(&mut t, n), Change::Nothing);
        }
        assert_eq!((t.len(), t.stats().evicted), (4, 0));
        for n in 1..=4 {
            assert_eq!(t.lookup(LINK, ip(n)), Some(mac(n)));
        }
        // One that is only heard of gives way to them all.
        t.remove(LINK, ip(4)).unwrap();
        for n in 1..=9 {
            assert_eq!(stranger(&mut t, n), Change::Learnt);
        }
        assert_eq!((t.len(), t.stats().evicted), (4, 8));
        assert_eq!(send(&mut t, &pool, at(2), ip(4), 0), "ask");
    }
}
