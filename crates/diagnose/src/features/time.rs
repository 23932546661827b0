//! Shares of the time of a unit of work, by what it goes to in the end: those of the budget of one
//! run stand for all runs.

use std::collections::BTreeSet;

use millstream_record::{
    Budget, BudgetRow, FAULTS, SharedAddress, TIME_OUT, ThreadBudget, ThreadState,
};

use super::distance;
use crate::budget::ends;
use crate::separate::Feature;
use crate::uses::{Purpose, Use, is_socket, uses};

type Is = fn(&Use) -> bool;

/// The features, by what a use of time is: the first that holds is told. A use that is none of
/// these is told by no feature.
const KINDS: [(&str, Is); 13] = [
    ("time_lock_share", |one| one.behind.is_some()),
    ("time_look_up_share", |one| one.purpose == Purpose::LookUp),
    ("time_child_share", |one| one.purpose == Purpose::Child),
    ("time_start_share", |one| one.purpose == Purpose::Start),
    ("time_wake_up_share", |one| {
        one.row.state == ThreadState::Ready && one.row.with.is_none() && one.row.what.is_empty()
    }),
    ("time_cpu_wait_share", |one| one.row.state == ThreadState::Ready),
    ("time_disk_share", |one| calls(one, &DISK) || is_file(one) || is_mapped(one)),
    ("time_timer_share", |one| one.row.what.ends_with("nanosleep") || one.row.on == TIME_OUT),
    ("time_room_share", |one| {
        let writes = ["write", "send"].iter().any(|begin| one.row.what.starts_with(begin));
        sleeps(one) && is_socket(&one.row) && writes
    }),
    ("time_peer_share", |one| sleeps(one) && is_socket(&one.row) && one.row.what != "connect"),
    ("time_collector_share", |one| {
        let of = |part: &&str| one.row.what.starts_with(part);
        one.row.state == ThreadState::OwnCode && COLLECTORS.iter().any(of)
    }),
    ("time_own_code_share", |one| one.row.state == ThreadState::OwnCode),
    ("time_opening_share", |one| calls(one, &OPENING)),
];
/// 1 where an end has a UDP socket, and 0 where none has: what the host counts of datagrams is then
/// others'.
const UDP: &str = "ends_use_udp";
/// Time of processes that accept connections and open others, whatever it goes to.
const BETWEEN: &str = "time_between_share";
/// The features of workers who share an address: [`workers`].
const BUSIEST: &str = "busiest_worker_share";
const UNEVEN: &str = "uneven_worker_share";
/// The longest wait of a thread for a CPU that its own program has: [`behind_own`].
const BEHIND_OWN: &str = "waits_behind_own_share";
/// Processes of the load and at the other ends of its connections that accept some.
const ACCEPTING: &str = "accepting_ends";
/// A wait for a CPU that is shorter ends before another one is awake.
const WAKE_UP_S: f64 = 5e-5;
/// Beginning of the names of the kernel's threads that take in packets.
const TAKES_IN: &str = "ksoftirqd/";
/// The rest of the work in the kernel.
const SYSTEM_CALLS: &str = "time_system_call_share";

/// Beginnings of the names of garbage collectors' functions: of Go, V8, CPython (whose collector
/// alone visits the parts of an object) and .NET.
const COLLECTORS: [&str; 26] = [
    "runtime.gc",
    "runtime.(*gc",
    "runtime.scan",
    "runtime.greyobject",
    "runtime.markroot",
    "runtime.findObject",
    "runtime.tryDeferToSpanScan",
    "runtime.(*sweep",
    "runtime.bgsweep",
    "runtime.wbBufFlush",
    "internal/runtime/gc/",
    "v8::internal::MarkCompact",
    "v8::internal::MarkingVisitor",
    "v8::internal::Scaveng",
    "v8::internal::ConcurrentMarking",
    "gc_collect",
    "deduce_unreachable",
    "visit_decref",
    "visit_reachable",
    "dict_traverse",
    "list_traverse",
    "tupletraverse",
    "type_traverse",
    "subtype_traverse",
    "SVR::gc_heap",
    "WKS::gc_heap",
];
const DISK: [&str; 5] = ["fsync", "fdatasync", "sync_file_range", "msync", "syncfs"];
const OPENING: [&str; 6] = ["connect", "accept", "accept4", "close", "socket", "shutdown"];

fn calls(one: &Use, names: &[&str]) -> bool {
    names.contains(&one.row.what.as_str())
}

fn sleeps(one: &Use) -> bool {
    one.row.state == ThreadState::Asleep
}

fn is_file(one: &Use) -> bool {
    let others = ["TCP ", "UDP ", "pipe ", "lock ", "a UNIX socket", "a socket"];
    let on = &one.row.on;
    one.row.state == ThreadState::Blocked
        && !on.is_empty()
        && !others.iter().any(|other| on.starts_with(other))
}

/// Returns true for a page fault that waits for what no thread gives: memory that has to come from
/// a file.
fn is_mapped(one: &Use) -> bool {
    one.row.state == ThreadState::Blocked && one.row.what == FAULTS
}

/// Returns the shares of the time of the first end of `clients`, as features of so many `runs`;
/// none where nothing is known of its time.
pub fn of_time(budget: &Budget, clients: &[u32], runs: usize) -> Vec<Feature> {
    let load = ends(budget, clients);
    let all = uses(budget, &load).all;
    if all.is_empty() {
        return vec![];
    }
    let kind = |one: &Use| {
        let known = KINDS.iter().find(|(_, is)| is(one)).map(|(name, _)| *name);
        known.or((one.row.state == ThreadState::Kernel).then_some(SYSTEM_CALLS))
    };
    let share = |name: &str| -> f64 {
        all.iter().filter(|one| kind(one) == Some(name)).fold(0.0, |sum, one| sum + one.share)
    };
    let names = KINDS.iter().map(|(name, _)| *name).chain([SYSTEM_CALLS]);
    let feature = |name: &str, share: f64| Feature {
        name: name.to_owned(),
        distance: distance::WHERE,
        values: vec![Some(share); runs],
    };
    let is_between = |one: &&Use| {
        // Not the first end itself, which may be connected both ways.
        let last = one.path.iter().skip(1).next_back();
        let last = last.and_then(|process| budget.ends.get(process));
        last.is_some_and(|end| end.accepts && end.connects)
    };
    let between = all.iter().filter(is_between).fold(0.0, |sum, one| sum + one.share);
    let of_kinds = names.map(|name| feature(name, share(name)));
    let (busiest, uneven) = workers(budget);
    let peers = load.iter().filter_map(|one| budget.ends.get(one)).flat_map(|end| &end.peers);
    let met: BTreeSet<&u32> = load.iter().chain(peers).collect();
    let accepts = |one: &&&u32| budget.ends.get(**one).is_some_and(|end| end.accepts);
    let more = [
        (BETWEEN, between),
        (BUSIEST, busiest),
        (UNEVEN, uneven),
        (BEHIND_OWN, behind_own(budget, &load)),
        (ACCEPTING, met.iter().filter(accepts).count() as f64),
        (UDP, f64::from(u8::from(load.iter().any(|end| budget.with_udp.contains(end))))),
    ];
    of_kinds.chain(more.map(|(name, share)| feature(name, share))).collect()
}

/// Returns the longest part of the time for which a thread of the load was ready while another one
/// of its process had its CPU, or the kernel's that takes in packets.
fn behind_own(budget: &Budget, load: &[u32]) -> f64 {
    let waits_s = |thread: &ThreadBudget| -> f64 {
        let has_it = |row: &&BudgetRow| {
            let takes_in =
                |with: u32| budget.names.get(&with).is_some_and(|name| name.starts_with(TAKES_IN));
            let is_long = row.s >= WAKE_UP_S * row.count as f64;
            let with = row.with.filter(|_| row.state == ThreadState::Ready && is_long);
            with.is_some_and(|with| with == thread.process || takes_in(with))
        };
        thread.rows.iter().filter(has_it).map(|row| row.s).sum()
    };
    let of_load = budget.threads.iter().filter(|one| load.contains(&one.process));
    of_load.map(waits_s).fold(0.0, f64::max) / budget.width_s.max(f64::MIN_POSITIVE)
}

/// Returns true for the name of a feature of [`of_time`].
pub fn is_of_time(name: &str) -> bool {
    [BETWEEN, BUSIEST, UNEVEN, BEHIND_OWN, ACCEPTING, UDP, SYSTEM_CALLS].contains(&name)
        || KINDS.iter().any(|(kind, _)| *kind == name)
}

/// Returns the part of the time for which the busiest of those who share an address was on a CPU,
/// and the part of its work that others would have, had all the same; 0 where nobody shares one, or
/// there are fewer connections than sockets.
fn workers(budget: &Budget) -> (f64, f64) {
    let is_on = |row: &&BudgetRow| matches!(row.state, ThreadState::OwnCode | ThreadState::Kernel);
    let of_address = |one: &SharedAddress| {
        let threads =
            budget.threads.iter().filter(|thread| one.connections.contains_key(&thread.process));
        let on = threads.map(|thread| thread.rows.iter().filter(is_on).map(|row| row.s).sum());
        let mut on: Vec<f64> = on.collect();
        on.sort_by(|a, b| b.total_cmp(a));
        // One that slept all the time has no rows.
        on.resize(one.sockets as usize, 0.0);
        let busiest = on.first().copied().filter(|s| *s > 0.0)?;
        let mean = on.iter().sum::<f64>() / on.len() as f64;
        let suffice = one.connections.values().sum::<u32>() >= one.sockets;
        suffice.then_some((busiest / budget.width_s, 1.0 - mean / busiest))
    };
    let all = budget.shared.iter().filter_map(of_address);
    all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use millstream_record::{End, ThreadBudget};

    use super::*;

    #[test]
    fn each_use_of_time_is_of_one_kind() {
        use ThreadState::*;
        let rows = [
            (Asleep, "read", "", 2, 60.0),
            (Asleep, "poll", "UDP 10.0.0.1:53", 0, 10.0),
            (Asleep, "sendto", "TCP 10.0.0.2:80", 0, 8.0),
            (Asleep, "recvfrom", "TCP 10.0.0.2:80", 0, 7.0),
            (Kernel, "connect", "", 0, 2.0),
            (Asleep, "connect", "TCP 10.0.0.2:80", 0, 4.0),
            (Kernel, "write", "", 0, 5.0),
            (Ready, "", "", 0, 4.0),
        ];
        let of_server = [
            (OwnCode, "price", "", 0, 17.0),
            (OwnCode, "runtime.gcDrain", "", 0, 2.0),
            (OwnCode, "list_traverse", "", 0, 1.0),
            (Kernel, "fdatasync", "", 0, 4.0),
            (Blocked, "fdatasync", "journal", 0, 8.0),
            (Blocked, "read", "prices", 0, 2.0),
            (Blocked, FAULTS, "", 0, 1.0),
            (Blocked, "write", "pipe 7", 0, 1.0),
            (Asleep, "wait4", "", 0, 5.0),
            (Asleep, "clock_nanosleep", "", 0, 12.0),
            (Asleep, "epoll_wait", "", 0, 3.0),
            (Asleep, "epoll_wait", TIME_OUT, 0, 2.0),
            (Ready, "", "", 9, 2.0),
        ];
        let thread = |number, rows: &[(ThreadState, &str, &str, u32, f64)]| {
            let row = |&(state, what, on, with, s): &(ThreadState, &str, &str, u32, f64)| {
                let with = (with != 0).then_some(with);
                BudgetRow {
                    state,
                    what: what.into(),
                    on: on.into(),
                    with,
                    s,
                    count: 1000,
                    ..Default::default()
                }
            };
            let rows = rows.iter().map(row).collect();
            ThreadBudget { thread: number, process: number, rows, ..ThreadBudget::default() }
        };
        let threads = vec![thread(1, &rows), thread(2, &of_server)];
        let proxy = End { accepts: true, connects: true, ..End::default() };
        let ends = [(1, proxy.clone()), (2, proxy)].into();
        let budget = Budget { width_s: 100.0, threads, ends, ..Budget::default() };
        let found = of_time(&budget, &[1], 8);
        assert!(found.iter().all(|one| one.values.len() == 8 && is_of_time(&one.name)));
        assert!(!is_of_time("held_share"));
        let percent = |one: &Feature| (one.values[0].unwrap_or(-1.0) * 100.0).round() as i32;
        let shares: BTreeMap<&str, i32> =
            found.iter().map(|one| (one.name.as_str(), percent(one))).collect();
        let expected = [
            ("accepting_ends", 200),
            ("busiest_worker_share", 0),
            ("ends_use_udp", 0),
            ("time_between_share", 60),
            ("time_child_share", 5),
            ("time_collector_share", 3),
            ("time_cpu_wait_share", 2),
            ("time_disk_share", 15),
            ("time_lock_share", 0),
            ("time_look_up_share", 10),
            ("time_opening_share", 6),
            ("time_own_code_share", 17),
            ("time_peer_share", 7),
            ("time_room_share", 8),
            ("time_start_share", 0),
            ("time_system_call_share", 5),
            ("time_timer_share", 14),
            ("time_wake_up_share", 4),
            ("uneven_worker_share", 0),
            ("waits_behind_own_share", 0),
        ];
        assert_eq!(shares, expected.into());
        assert_eq!(of_time(&Budget::default(), &[1], 8), []);
        let budget = Budget { with_udp: [9, 2].into(), ..budget };
        let udp = of_time(&budget, &[1], 8).into_iter().find(|one| one.name == UDP);
        assert_eq!(udp.unwrap().values[0], Some(1.0), "of the server");
    }

    #[test]
    fn a_wait_behind_the_own_program_counts_where_it_is_longer_than_a_wake_up() {
        let row = |with, s, count| BudgetRow {
            state: ThreadState::Ready,
            with: Some(with),
            s,
            count,
            ..BudgetRow::default()
        };
        let of = |process, rows: Vec<BudgetRow>| {
            let thread = ThreadBudget { process, rows, ..ThreadBudget::default() };
            let names = [(8, "ksoftirqd/1".to_owned()), (9, "other".to_owned())].into();
            let threads = vec![thread];
            behind_own(&Budget { width_s: 10.0, threads, names, ..Budget::default() }, &[1])
        };
        // Behind its own threads, behind the kernel's, behind another program.
        let rows = vec![row(1, 3.0, 15_000), row(8, 1.0, 500), row(9, 4.0, 1000)];
        assert_eq!(of(1, rows.clone()), 0.4);
        assert_eq!(of(2, rows), 0.0, "it is not of the load");
        assert_eq!(of(1, vec![row(1, 3.0, 500_000)]), 0.0, "6 µs each");
    }

    #[test]
    fn workers_who_share_an_address_are_compared_where_connections_suffice() {
        let thread = |process, s| {
            let row = |state, s| BudgetRow { state, s, ..BudgetRow::default() };
            let rows = vec![row(ThreadState::OwnCode, s), row(ThreadState::Asleep, 10.0 - s)];
            ThreadBudget { thread: process, process, rows, ..ThreadBudget::default() }
        };
        let of = |connections: &[(u32, u32)], sockets| {
            let connections = connections.iter().copied().collect();
            let shared = vec![SharedAddress { address: String::new(), sockets, connections }];
            let threads = vec![thread(1, 8.0), thread(2, 4.0), thread(3, 9.0)];
            workers(&Budget { width_s: 10.0, threads, shared, ..Budget::default() })
        };
        assert_eq!(of(&[(1, 3), (2, 1)], 2), (0.8, 0.25));
        // A third has slept all the time.
        assert_eq!(of(&[(1, 3), (2, 1), (7, 0)], 3), (0.8, 0.5));
        assert_eq!(of(&[(1, 1), (2, 0)], 2), (0.0, 0.0), "one connection for two");
        assert_eq!(workers(&Budget::default()), (0.0, 0.0));
    }
}
