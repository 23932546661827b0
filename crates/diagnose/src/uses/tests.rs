use millstream_record::{End, TIME_OUT};

use super::*;
use ThreadState::*;

fn row(state: ThreadState, what: &str, on: &str, with: u32, s: f64) -> BudgetRow {
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
}

fn thread(process: u32, thread: u32, rows: Vec<BudgetRow>) -> ThreadBudget {
    let alive_s = rows.iter().map(|row| row.s).sum();
    ThreadBudget { thread, process, parent: 9, alive_s, rows, ..ThreadBudget::default() }
}

fn told(threads: Vec<ThreadBudget>, ends: &[(u32, u32)]) -> Vec<(Vec<u32>, String, f64)> {
    let end =
        |(process, peer): &(u32, u32)| (*process, End { peers: vec![*peer], ..End::default() });
    let ends = ends.iter().map(end).collect();
    let budget = Budget { width_s: 10.0, threads, ends, ..Budget::default() };
    let all = uses(&budget, &[1, 2]).all;
    let sum: f64 = all.iter().map(|one| one.share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{all:?}");
    let round = |share: f64| (share * 1000.0).round() / 1000.0;
    all.into_iter().map(|one| (one.path, one.row.what, round(one.share))).collect()
}

#[test]
fn several_that_are_told_as_one_work_at_a_time_and_share_a_lock() {
    let workers = |others| {
        let main = thread(1, 1, vec![row(OwnCode, "accept", "", 0, 5.0)]);
        let rows = vec![row(OwnCode, "work", "", 0, 20.0), row(Asleep, "futex", "lock 1", 3, 15.0)];
        let fresh = ThreadBudget { others, ..thread(1, 2, rows) };
        Budget { width_s: 10.0, threads: vec![main, fresh], ..Budget::default() }
    };
    // Forty seconds of threads in ten.
    assert_eq!(uses(&workers(7), &[1]).threads, 4.0);
    let budget = workers(7);
    assert!(Walk::new(&budget, &[1]).is_shared(1, "lock 1"));
    let budget = workers(0);
    assert!(!Walk::new(&budget, &[1]).is_shared(1, "lock 1"));
}

#[test]
fn what_a_process_begins_for_one_connection_and_what_a_child_does_are_told_apart() {
    let of = |waits: &str, accepts, others| {
        let client = vec![row(Asleep, waits, "", 3, 9.0), row(OwnCode, "work", "", 0, 1.0)];
        // It stands for those that the server forked.
        let rows = vec![
            row(Kernel, FAULTS, "", 0, 2.0),
            row(Kernel, "munmap", "", 0, 1.0),
            row(OwnCode, "answer", "", 0, 6.0),
            row(Kernel, "exit_group", "", 0, 9.0),
        ];
        let child = ThreadBudget { parent: 2, others, ..thread(3, 3, rows) };
        let ends = [(2, End { accepts, ..End::default() })].into();
        let threads = vec![thread(1, 1, client), child];
        let budget = Budget { width_s: 10.0, threads, ends, ..Budget::default() };
        let all = uses(&budget, &[1]).all;
        let told = |one: Use| (one.row.what, one.purpose, (one.share * 100.0).round());
        all.into_iter().map(told).collect::<Vec<_>>()
    };
    let told = |all: [(&str, Purpose, f64); 4]| {
        all.map(|(what, purpose, share)| (what.to_owned(), purpose, share)).to_vec()
    };
    // A client has its answer before the process that gave it ends.
    let expected = [
        ("answer", Purpose::Work, 60.0),
        (FAULTS, Purpose::Start, 20.0),
        ("munmap", Purpose::Start, 10.0),
        ("work", Purpose::Work, 10.0),
    ];
    assert_eq!(of("read", true, 9), told(expected));
    let all = of("wait4", true, 9);
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|(what, purpose, _)| {
        *purpose == if what == "work" { Purpose::Work } else { Purpose::Child }
    }));
    let is_work = |all: Vec<(String, Purpose, f64)>| all.iter().all(|one| one.1 == Purpose::Work);
    assert!(is_work(of("read", false, 9)), "it serves no connection");
    assert!(is_work(of("wait4", true, 0)), "one that lives long is told by what it does");
}

#[test]
fn what_a_child_waits_for_is_no_time_of_the_child() {
    let script = vec![row(Asleep, "wait4", "", 2, 10.0)];
    let rows = vec![
        row(Kernel, "execve", "", 0, 1.0),
        row(Asleep, "recvfrom", "TCP 10.0.0.2:80", 3, 7.0),
        row(Asleep, "recvfrom", "TCP 10.0.0.9:80", 0, 2.0),
    ];
    let child = ThreadBudget { parent: 1, others: 99, ..thread(2, 2, rows) };
    let server = vec![row(OwnCode, "price", "", 0, 7.0)];
    let threads = vec![thread(1, 1, script), child, thread(3, 3, server)];
    let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
    let all = uses(&budget, &[1]).all;
    let told: Vec<_> = all.iter().map(|one| (one.row.what.as_str(), one.purpose)).collect();
    let expected =
        [("price", Purpose::Work), ("recvfrom", Purpose::Work), ("execve", Purpose::Child)];
    assert_eq!(told, expected);
}

#[test]
fn what_a_name_server_does_while_it_is_asked_is_a_look_up() {
    let client = vec![
        row(Asleep, "poll", "UDP 127.0.0.1:53", 2, 6.0),
        row(Asleep, "recvfrom", "TCP 10.0.0.2:80", 0, 3.0),
        row(OwnCode, "work", "", 0, 1.0),
    ];
    let server = vec![
        row(Asleep, "clock_nanosleep", "", 0, 5.0),
        row(Kernel, "sendto", "", 0, 1.0),
        row(Asleep, "recvfrom", "UDP port 53", 1, 4.0),
    ];
    let threads = vec![thread(1, 1, client), thread(2, 2, server)];
    let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
    let all = uses(&budget, &[1]).all;
    let told: Vec<_> = all.iter().map(|one| (one.row.what.as_str(), one.purpose)).collect();
    let expected = [
        ("clock_nanosleep", Purpose::LookUp),
        ("recvfrom", Purpose::Work),
        ("work", Purpose::Work),
        ("sendto", Purpose::LookUp),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_wait_is_passed_on_to_what_the_other_does_beside_waiting_for_the_one_that_asked() {
    let client = vec![row(Asleep, "read", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
    let server = vec![
        row(OwnCode, "work", "", 0, 6.0),
        row(Blocked, "fdatasync", "journal", 1, 3.0),
        row(Asleep, "read", "", 1, 1.0),
    ];
    let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
    let expected = [
        (vec![1, 2], "work".to_owned(), 0.6),
        (vec![1, 2], "fdatasync".to_owned(), 0.3),
        (vec![1], "write".to_owned(), 0.1),
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_thread_that_only_waits_for_its_worker_and_a_sleep_that_comes_once_count_for_nothing() {
    let mut linger = row(Asleep, "clock_nanosleep", "", 0, 4.0);
    linger.count = 1;
    let threads = vec![
        thread(1, 1, vec![row(Asleep, "futex", "lock 0x10", 3, 10.0)]),
        thread(1, 3, vec![row(Asleep, "read", "", 2, 9.9), row(OwnCode, "ask", "", 0, 0.1)]),
        thread(2, 2, vec![linger, row(Kernel, "read", "", 0, 9.9)]),
    ];
    let all = told(threads, &[]);
    assert_eq!((all[0].1.as_str(), all[0].2, all.len()), ("read", 0.99, 2));
}

#[test]
fn two_ends_of_one_program_are_two_and_processes_beside_each_other_are_one() {
    let client = vec![row(Asleep, "read", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
    let server = vec![row(OwnCode, "work", "", 0, 9.0), row(Asleep, "read", "", 1, 1.0)];
    let threads = || vec![thread(1, 1, client.clone()), thread(2, 2, server.clone())];
    let names = || [(1, "same".to_owned()), (2, "same".to_owned())].into();
    let end = End { peers: vec![2], ..End::default() };
    let budget = Budget { threads: threads(), names: names(), ..Budget::default() };
    let apart = Budget { ends: [(1, end)].into(), ..budget.clone() };
    assert_eq!(uses(&apart, &[1, 2]).all[0].path, [1, 2]);
    assert_eq!(uses(&budget, &[1, 2]).all[0].path, [1]);
}

#[test]
fn what_a_path_of_packets_waits_for_takes_no_time_and_what_it_does_takes_some() {
    let client = vec![row(Asleep, "select", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
    let tunnel =
        vec![row(Kernel, "writev", "", 0, 2.0), row(Asleep, "epoll_wait", TIME_OUT, 0, 8.0)];
    let threads = vec![thread(1, 1, client), thread(2, 2, tunnel)];
    let budget = Budget { threads, carriers: [2].into(), ..Budget::default() };
    let told = |budget: &Budget, ends: &[u32]| -> Vec<(String, f64)> {
        let all = uses(budget, ends).all.into_iter();
        all.map(|one| (one.row.what, (one.share * 100.0).round())).collect()
    };
    let of = |rows: &[(&str, f64)]| -> Vec<(String, f64)> {
        rows.iter().map(|(what, share)| ((*what).to_owned(), *share)).collect()
    };
    assert_eq!(told(&budget, &[1, 2]), of(&[("select", 70.0), ("writev", 20.0), ("write", 10.0)]));
    assert_eq!(told(&budget, &[2, 1]), of(&[("epoll_wait", 80.0), ("writev", 20.0)]), "an end");
}

#[test]
fn a_wait_for_a_cpu_that_the_load_itself_has_is_what_it_does_there() {
    let client = vec![
        row(Ready, "", "", 2, 4.0),
        row(Ready, "", "", 8, 1.0),
        row(Asleep, "read", "", 2, 3.0),
        row(Kernel, "write", "", 0, 2.0),
    ];
    let server = vec![
        row(OwnCode, "price", "", 0, 6.0),
        row(Ready, "", "", 1, 2.0),
        row(Asleep, "read", "", 1, 2.0),
    ];
    let other = vec![row(OwnCode, "other", "", 0, 9.0)];
    let all = told(vec![thread(1, 1, client), thread(2, 2, server), thread(8, 8, other)], &[]);
    let expected = [
        (vec![1, 2], "price".to_owned(), 0.625),
        (vec![1], "write".to_owned(), 0.275),
        (vec![1], String::new(), 0.1),
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_wait_for_a_cpu_leads_to_no_more_than_who_had_it_worked() {
    // A quota holds the server back, whichever thread had its CPU meanwhile.
    let client = vec![row(Asleep, "read", "", 2, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
    let server = vec![row(OwnCode, "work", "", 0, 1.0), row(Ready, "", "", 2, 8.0)];
    let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
    let expected = [
        (vec![1, 2], String::new(), 0.7),
        (vec![1, 2], "work".to_owned(), 0.2),
        (vec![1], "ask".to_owned(), 0.1),
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_thread_without_anything_to_run_counts_for_nothing() {
    let mut parked = row(Asleep, "futex", "lock 0x10", 4, 8.0);
    parked.stack = vec!["runtime.notesleep".to_owned(), "runtime.stopm".to_owned()];
    let worker = vec![parked, row(OwnCode, "ask", "", 0, 2.0)];
    let poller = vec![row(Asleep, "epoll_pwait", "", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
    let server = vec![row(Kernel, "read", "", 0, 9.0), row(Asleep, "read", "", 4, 1.0)];
    let all = told(vec![thread(1, 3, worker), thread(1, 4, poller), thread(2, 2, server)], &[]);
    let expected = [
        (vec![1, 2], "read".to_owned(), 0.75),
        (vec![1], "ask".to_owned(), 0.167),
        (vec![1], "write".to_owned(), 0.083),
    ];
    assert_eq!(all, expected);
}

#[test]
fn who_holds_what_others_want_and_waits_for_its_own_client_leads_to_that() {
    // Two clients' threads, each with its session; one session has the row of the other.
    let waits = vec![row(Asleep, "recvfrom", "", 12, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
    let rests = vec![row(Asleep, "clock_nanosleep", "", 0, 8.0), row(Kernel, "sendto", "", 0, 2.0)];
    let wants = vec![row(Asleep, "epoll_wait", "", 13, 9.0), row(Kernel, "sendto", "", 0, 1.0)];
    let holds = vec![row(Asleep, "epoll_wait", "", 3, 9.0), row(Kernel, "sendto", "", 0, 1.0)];
    let threads =
        vec![thread(1, 1, waits), thread(1, 3, rests), thread(2, 12, wants), thread(2, 13, holds)];
    let all = told(threads, &[]);
    let rest = all.iter().find(|one| one.0 == [1, 2, 1] && one.1 == "clock_nanosleep");
    assert!(rest.is_some_and(|one| one.2 > 0.25), "{all:?}");
}

#[test]
fn a_lock_of_several_stays_a_lock_where_its_holder_waits_for_another_program() {
    let behind = |lock: [&str; 2]| {
        let waits =
            |lock| vec![row(Asleep, "futex", lock, 3, 8.0), row(OwnCode, "ask", "", 0, 2.0)];
        let holds = vec![row(Asleep, "recvfrom", "", 9, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
        let server =
            vec![row(Asleep, "clock_nanosleep", "", 0, 9.0), row(Kernel, "read", "", 0, 1.0)];
        let threads = vec![
            thread(1, 1, waits(lock[0])),
            thread(1, 2, waits(lock[1])),
            thread(1, 3, holds),
            thread(2, 9, server),
        ];
        let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
        let all = uses(&budget, &[1, 2]).all;
        let rests = all.into_iter().filter(|one| one.row.what == "clock_nanosleep");
        let round = |share: f64| (share * 100.0).round() as u32;
        rests.map(|one| (round(one.share), one.behind)).collect::<Vec<_>>()
    };
    let pool = "lock 0x10";
    // Its holder waits for the other program itself, too.
    let shared = [(43, Some((pool.to_owned(), 3))), (27, None)];
    assert_eq!(behind([pool, pool]), shared);
    // Each has a word of its own, as threads have that are parked.
    assert_eq!(behind([pool, "lock 0x900"]), [(70, None)]);
}

#[test]
fn a_wait_for_who_looks_counts_for_nothing() {
    let rows = vec![row(OwnCode, "ask", "", 0, 6.0), row(Ready, LOOKS, "", 0, 4.0)];
    assert_eq!(told(vec![thread(1, 1, rows)], &[]), [(vec![1], "ask".to_owned(), 1.0)]);
}

#[test]
fn who_did_less_than_it_was_waited_for_is_not_all_of_the_wait() {
    let client = vec![row(Asleep, "recvfrom", "", 2, 9.0), row(OwnCode, "ask", "", 0, 1.0)];
    let server = vec![row(OwnCode, "work", "", 0, 1.8), row(Asleep, "read", "", 1, 8.2)];
    let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
    let expected = [
        (vec![1], "recvfrom".to_owned(), 0.72),
        (vec![1, 2], "work".to_owned(), 0.18),
        (vec![1], "ask".to_owned(), 0.1),
    ];
    assert_eq!(all, expected);
}

#[test]
fn locks_lead_to_those_who_let_go_of_them_also_where_the_wait_timed_out() {
    let client = vec![row(Asleep, "read", "", 2, 10.0)];
    let waits = vec![
        row(Asleep, "futex", "lock 0x1004", 0, 8.0),
        row(Asleep, "futex", "lock 0x1000", 3, 1.0),
        row(OwnCode, "answer", "", 0, 1.0),
    ];
    let burns = vec![row(OwnCode, "burn", "", 0, 10.0)];
    let threads = vec![thread(1, 1, client), thread(2, 2, waits), thread(2, 3, burns)];
    let budget = Budget { width_s: 10.0, threads, ..Budget::default() };
    let first = uses(&budget, &[1, 2]).all[0].clone();
    assert_eq!((first.row.what.as_str(), (first.share * 100.0).round()), ("burn", 90.0));
    assert_eq!(first.behind.map(|(_, thread)| thread), Some(3));
}

#[test]
fn one_that_waits_to_be_asked_lets_nobody_wait() {
    let client =
        vec![row(Asleep, "write", "TCP 10.0.0.2:80", 2, 9.0), row(Kernel, "write", "", 0, 1.0)];
    let mut accepts = row(Asleep, "accept", "TCP port 80", 0, 0.5);
    accepts.count = 1;
    let server =
        vec![row(Asleep, "read", "TCP port 80", 0, 9.0), accepts, row(Kernel, "read", "", 0, 0.9)];
    let all = told(vec![thread(1, 1, client), thread(2, 2, server)], &[]);
    let expected = [
        (vec![1], "write".to_owned(), 0.81),
        (vec![1], "write".to_owned(), 0.1),
        (vec![1, 2], "read".to_owned(), 0.09),
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_strangers_thread_that_an_interrupt_met_is_not_waited_for() {
    let client = vec![row(Asleep, "write", "TCP 10.0.0.2:80", 7, 10.0)];
    let stranger = vec![row(OwnCode, "other", "", 0, 10.0)];
    let threads = || vec![thread(1, 1, client.clone()), thread(7, 7, stranger.clone())];
    assert_eq!(told(threads(), &[(1, 2)]), [(vec![1], "write".to_owned(), 1.0)]);
    assert_eq!(told(threads(), &[(1, 7)])[0].1, "other");
}
