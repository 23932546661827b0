//! Budgets of application writes between two turns, and the order of waiting writers.

use millstream::{Engine, Error, Limits, SocketId};

use super::{TURN, addr, drain, limited, offloading, open, sent, settle, turn};

#[test]
fn applications_share_what_is_written_between_two_turns() {
    const TURN: usize = 512 * 1024;
    let share = TURN / 2;
    let limits = Limits::default().tune(|t| {
        t.write_turn_bytes = TURN;
        t.write_share_bytes = share;
    });
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 20);
    let data = vec![4; 300_000];
    let mut written = [0_usize; 20];
    for _ in 0..100 {
        // Everybody writes as much as it may, always in the same order.
        for (at, &id) in ours.iter().enumerate() {
            while let Ok(bytes) = near.tcp(id).write(&data) {
                written[at] += bytes;
            }
        }
        turn(&mut near);
        turn(&mut far);
        drain(&mut far, &theirs);
        turn(&mut far);
    }
    let (least, most) = (written.iter().min().expect("20"), written.iter().max().expect("20"));
    let total: usize = written.iter().sum();
    // Grants from before come on top.
    let before = 20 * share;
    assert!(total <= 100 * TURN + before, "{total} bytes in 100 turns");
    assert!(*least > 0 && most - least <= 2 * TURN, "{written:?}");
    assert!(least * 2 > total / 20, "half a fair share: {written:?}");
    // Who asks for little is not made to wait for those who ask for much.
    let (idle, busy) = (ours[19], &ours[..19]);
    settle(&mut near, &mut far);
    drain(&mut far, &theirs);
    settle(&mut near, &mut far);
    for &id in busy {
        while near.tcp(id).write(&data).is_ok() {}
    }
    assert_eq!(near.tcp(busy[0]).write(&data), Err(Error::WouldBlock));
    assert_eq!(near.tcp(idle).write(&[5; 100]), Ok(100));
}

#[test]
fn who_was_refused_and_never_writes_again_has_it_all_sent() {
    let (mut near, mut far) = offloading(Limits::default().tune(|t| t.write_turn_bytes = 100_000));
    let (ours, theirs) = open(&mut near, &mut far, 1);
    let data = vec![4; 300_000];
    let written = near.tcp(ours[0]).write(&data[..80_000]).expect("room");
    assert_eq!(written, 80_000);
    // What is left of the turn fills no second super-segment.
    assert_eq!(near.tcp(ours[0]).write(&data[written..]), Err(Error::WouldBlock));
    let before = sent(&mut near, &ours)[0];
    // Nobody acknowledges anything meanwhile.
    turn(&mut near);
    let at_once = sent(&mut near, &ours)[0] - before;
    assert!(at_once > 0 && at_once < written as u64, "the end of {written} waits: {at_once}");
    turn(&mut near);
    assert_eq!(sent(&mut near, &ours)[0] - before, written as u64);
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &theirs), [written as u64]);
}

#[test]
fn a_share_ends_with_a_whole_super_segment() {
    // What is granted ends with a call of 128 KiB and within one. Send buffers hold it all.
    for share_kib in [256, 280, 300] {
        write_whole_shares(share_kib * 1024);
    }
}

fn write_whole_shares(share: usize) {
    let limits = Limits::default().tune(|t| t.write_share_bytes = share);
    let (mut near, mut far) = offloading(limits);
    let (ours, theirs) = open(&mut near, &mut far, 3);
    let data = vec![4; 128 * 1024];
    let mut written = [0; 3];
    for round in 0..50 {
        for (at, &id) in ours.iter().enumerate() {
            let whole = near.tcp(id).bulk_bytes().expect("open");
            assert!(whole > 60_000, "{whole}");
            let before = written[at];
            while let Ok(bytes) = near.tcp(id).send(&data) {
                written[at] += bytes;
            }
            // The first call of all found nothing under way, and everything left.
            let taken = written[at] - before;
            assert!(round == 0 || taken.is_multiple_of(whole), "{taken} of {share}");
        }
        settle(&mut near, &mut far);
        drain(&mut far, &theirs);
        settle(&mut near, &mut far);
    }
    assert!(written.iter().all(|&bytes| bytes > 40 * data.len()), "{written:?}");
}

/// Beyond what a turn has for one, and all of it is sent before the next turn.
#[test]
fn one_of_several_in_line_goes_on_for_a_large_share() {
    for count in [2, 3] {
        write_in_turns(count);
    }
}

fn write_in_turns(count: usize) {
    let limits = Limits::default();
    let (mut near, mut far) = offloading(limits.clone());
    let (ours, theirs) = open(&mut near, &mut far, count);
    let data = vec![4; 128 * 1024];
    let (mut written, mut large) = (vec![0; count], 0);
    for _ in 0..60 {
        for (at, &id) in ours.iter().enumerate() {
            let before = (written[at], sent(&mut near, &[id])[0]);
            while let Ok(bytes) = near.tcp(id).send(&data) {
                written[at] += bytes;
            }
            let now = written[at] - before.0;
            assert!(now <= limits.tuning.write_share_bytes, "{now} bytes of a share");
            let is_sent = sent(&mut near, &[id])[0] - before.1 == now as u64;
            large += usize::from(is_sent && now > limits.tuning.write_turn_bytes);
        }
        for _ in 0..2 {
            turn(&mut far);
            drain(&mut far, &theirs);
        }
        turn(&mut near);
    }
    assert!(large >= 10, "{large} large shares, of {written:?} bytes");
    let (least, most) = (written.iter().min().expect("two"), written.iter().max().expect("two"));
    assert!(most - least <= 2 * limits.tuning.write_share_bytes, "{written:?}");
}

#[test]
fn the_rest_of_a_call_that_was_cut_short_stands_in_line_however_little_it_is() {
    let (mut near, mut far) = offloading(Limits::default().tune(|t| t.write_turn_bytes = 131_072));
    let (ours, theirs) = open(&mut near, &mut far, 2);
    let data = vec![4; 131_072];
    let written = near.tcp(ours[0]).send(&data).expect("room");
    let rest = data.len() - written;
    assert!((1..4096).contains(&rest), "{written}");
    assert_eq!(near.tcp(ours[0]).send(&data[written..]), Err(Error::WouldBlock));
    // As little of who has not written is taken.
    assert_eq!(near.tcp(ours[1]).send(&data[..rest]), Ok(rest));
    while near.next_event().is_some() {}
    settle(&mut near, &mut far);
    let told = std::iter::from_fn(|| near.next_event());
    let mut may_write = told.filter(|(_, readiness)| readiness.writable).map(|(id, _)| id);
    assert!(may_write.any(|id| id == ours[0]));
    // Behind the rest more may follow. Else it leaves in the next turn.
    let before = sent(&mut near, &ours)[0];
    assert_eq!(near.tcp(ours[0]).send(&data[written..]), Ok(rest));
    assert_eq!(sent(&mut near, &ours)[0] - before, 0);
    turn(&mut near);
    assert_eq!(sent(&mut near, &ours)[0] - before, rest as u64);
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &theirs), [data.len() as u64, rest as u64]);
}

/// Over IPv6 a share is no whole number of super-segments, so that some of a grant is always left.
#[test]
fn who_stood_in_line_once_has_all_of_a_turn_when_it_is_alone() {
    let (mut near, mut far) = offloading(Limits::default());
    let listener = far.sockets().tcp_listen(addr("[fd09::2]:80"), 1).expect("listen");
    let ours = near.sockets().tcp_connect(addr("[fd09::2]:80")).expect("connect");
    settle(&mut near, &mut far);
    let (theirs, _) = far.listener(listener).accept().expect("a connection");
    let data = vec![4; 128 * 1024];
    while near.tcp(ours).send(&data).is_ok() {}
    let mut grants = Vec::new();
    for _ in 0..100 {
        // No more than a turn allows, all of it sent and read before the next.
        let mut left = 192 * 1024;
        while left != 0 {
            left -= near.tcp(ours).send(&data[..left.min(data.len())]).unwrap_or(0);
            settle(&mut near, &mut far);
            drain(&mut far, &[theirs]);
        }
        settle(&mut near, &mut far);
        grants.push(near.stats().write_grants);
    }
    assert_eq!(grants[50], grants[99], "{grants:?}");
}

#[test]
fn a_turn_that_holds_no_super_segment_is_written_all_the_same() {
    let (mut near, mut far) = offloading(Limits::default().tune(|t| t.write_turn_bytes = 10_240));
    let (ours, theirs) = open(&mut near, &mut far, 2);
    let data = vec![4; 20_000];
    let mut written = [0; 2];
    for _ in 0..10 {
        for (at, &id) in ours.iter().enumerate() {
            while let Ok(bytes @ 1..) = near.tcp(id).send(&data[written[at]..]) {
                written[at] += bytes;
            }
        }
        settle(&mut near, &mut far);
    }
    assert_eq!(written, [data.len(); 2]);
    assert_eq!(drain(&mut far, &theirs), [data.len() as u64; 2]);
}

#[test]
fn while_all_queues_hold_much_a_connection_holds_a_super_segment_unsent() {
    let limits = Limits::default().tune(|t| {
        t.crowded_bytes = 100_000;
        t.write_turn_bytes = 1 << 30;
    });
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 2);
    let data = vec![6; 1 << 20];
    let unsent = |near: &mut Engine, id: SocketId| {
        while near.tcp(id).write(&data).is_ok() {}
        near.tcp(id).info().expect("a connection").notsent_bytes
    };
    let first = unsent(&mut near, ours[0]);
    assert_eq!([first, unsent(&mut near, ours[1])], [256 * 1024, 64 * 1024]);
    while near.next_event().is_some() {}
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &theirs), [256 * 1024, 64 * 1024]);
    let told: Vec<SocketId> = std::iter::from_fn(|| near.next_event()).map(|(id, _)| id).collect();
    assert!(ours.iter().all(|id| told.contains(id)), "{told:?}");
    // Nothing is held any more.
    assert_eq!(unsent(&mut near, ours[1]), 256 * 1024);
}

#[test]
fn who_was_refused_hears_when_it_may_write() {
    let limits = Limits::default().tune(|t| {
        t.unsent_bytes = 100_000;
        t.write_turn_bytes = 200_000;
    });
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 3);
    while near.next_event().is_some() {}
    let data = vec![6; 90_000];
    let mut told = [0; 3];
    for _ in 0..50 {
        for &id in &ours {
            while near.tcp(id).write(&data).is_ok() {}
        }
        for _ in 0..4 {
            turn(&mut near);
            turn(&mut far);
            drain(&mut far, &theirs);
        }
        while let Some((id, readiness)) = near.next_event() {
            let at = ours.iter().position(|&ours| ours == id).expect("ours");
            told[at] += i32::from(readiness.writable);
        }
        assert!(told.iter().all(|&times| times > 0), "{told:?}");
        told = [0; 3];
    }
}

#[test]
fn those_who_were_closed_in_line_keep_nobody_behind_them_waiting() {
    let limits = Limits::default().tune(|t| t.transmit_connections = 4);
    let (mut near, mut far) = limited(limits);
    let (ours, _) = open(&mut near, &mut far, 20);
    let data = vec![4; 300_000];
    for &id in &ours {
        while near.tcp(id).write(&data).is_ok() {}
    }
    while near.next_event().is_some() {}
    let (last, closed) = ours.split_last().expect("20");
    closed.iter().for_each(|&id| near.close(id));
    // Each turn says that there is more to do, until that one has its share.
    let turns = (1..20).find(|_| {
        let now = near.now() + TURN;
        assert!(near.turn(now).progress);
        near.next_event().is_some_and(|(id, _)| id == *last)
    });
    assert!(turns.is_some_and(|turns| turns >= 5), "{turns:?}: four are looked at in each");
}

#[test]
fn nobody_hears_of_a_socket_after_closing_it() {
    let (mut near, mut far) = limited(Limits::default());
    let (ours, theirs) = open(&mut near, &mut far, 2);
    let data = vec![4; 300_000];
    let (mut written, mut read) = (0, 0);
    for &id in &ours {
        written = std::iter::from_fn(|| near.tcp(id).write(&data).ok()).sum();
    }
    while near.next_event().is_some() {}
    near.close(ours[1]);
    for _ in 0..200 {
        turn(&mut near);
        turn(&mut far);
        read += drain(&mut far, &theirs)[1];
        let heard: Vec<_> = std::iter::from_fn(|| near.next_event()).collect();
        assert!(heard.iter().all(|(id, _)| *id == ours[0]), "{heard:?}");
    }
    assert_eq!(read, written as u64);
}
