//! Random schedules, by the thousand in every test run and by the million with `make schedules`.
//!
//! A schedule says what two applications do, what becomes of which segment, and what the ends and
//! the way between them are like ([`plan`]). [`world`] runs it on a clock that jumps, [`check`]
//! holds every step to what must hold, and [`losses`] to what the RFCs say of loss. One that fails
//! is made small ([`minimise`]) and written to a file, which `MILLSTREAM_SCHEDULE=file` repeats
//! with a transcript, and which belongs into `schedules/` once it is understood: there every file
//! is run again.

mod application;
mod check;
mod generate;
mod listener;
mod losses;
mod minimise;
mod plan;
mod text;
mod way;
mod world;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use millstream_wire::tcp::TcpHeader;

use self::plan::{Action, Deed, Doom, Fate, Schedule};
use self::world::Reached;
use crate::State;

/// A line of a transcript.
fn transcribe(from: usize, header: &TcpHeader, len: u32, ecn: u8, fate: Option<Fate>) -> String {
    let flags = [
        (header.flags.syn(), 'S'),
        (header.flags.fin(), 'F'),
        (header.flags.rst(), 'R'),
        (header.flags.psh(), 'P'),
        (header.flags.ack(), 'A'),
        (header.flags.ece(), 'E'),
        (header.flags.cwr(), 'C'),
    ];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
    let mut line = format!(
        "{} {flags} {}({len}) ack {} win {}",
        if from == 0 { "0 > 1" } else { "1 > 0" },
        header.seq.0,
        header.ack.0,
        header.window
    );
    for (left, right) in header.options.sack.iter() {
        line += &format!(" sack {}-{}", left.0, right.0);
    }
    if ecn > 0 {
        line += &format!(" ecn {ecn}");
    }
    fate.map_or(line.clone(), |fate| format!("{line} -- {fate:?}"))
}

thread_local! {
    /// Panics of this thread are kept instead of printed: where, and what.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<(String, String)> = const { RefCell::new((String::new(), String::new())) };
}

/// Panics of threads that ask for it are kept, not printed.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                return before(info);
            }
            let place = info.location().map_or(String::new(), ToString::to_string);
            let payload = info.payload();
            let fixed = payload.downcast_ref::<&str>().map(ToString::to_string);
            let text = fixed.or_else(|| payload.downcast_ref::<String>().cloned());
            LAST.set((place, text.unwrap_or_default()));
        }));
    });
}

/// Runs a schedule: what it reached, or where and how it failed.
fn attempt(schedule: &Schedule) -> Result<Reached, (String, String)> {
    keep_panics();
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(schedule)));
    QUIET.set(before);
    outcome.map_err(|_| LAST.take())
}

/// A failing schedule made small, as a file: its path.
fn report(name: &str, schedule: Schedule) -> PathBuf {
    let Err((place, text)) = attempt(&schedule) else { return PathBuf::from("(it passes now)") };
    let small = minimise::minimise(schedule, |candidate| {
        attempt(candidate).is_err_and(|(there, _)| there == place)
    });
    let mut out = format!("# {name}\n# {place}: {}\n", text.replace('\n', "\n#   "));
    out += &text::write(&small);
    QUIET.set(true);
    for line in world::transcript(&small) {
        out += &format!("# {line}\n");
    }
    QUIET.set(false);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/schedules");
    let path = folder.join(format!("{name}.txt"));
    std::fs::create_dir_all(&folder).expect("a folder for what failed");
    std::fs::write(&path, out).expect("a file for what failed");
    path
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Sums over schedules.
#[derive(Default)]
struct Sums {
    run: u64,
    all: Reached,
    states: [u64; 10],
    failed: Vec<(String, PathBuf)>,
}

impl Sums {
    fn add(&mut self, one: &Reached) {
        self.run += 1;
        for (index, count) in self.states.iter_mut().enumerate() {
            *count += u64::from(one.states >> index & 1);
        }
        let all = &mut self.all;
        all.steps = all.steps.max(one.steps);
        macro_rules! count {
            ($($field:ident)*) => { $(all.$field += u32::from(one.$field > 0);)* };
        }
        count!(segments timeouts fast_recoveries spurious window_probes dsacks challenges black_holes);
        count!(ecn_reductions loss_probes keepalives memory_drops in_order_ends resets);
        count!(timed_out fast_taken fast_refused);
    }

    fn merge(&mut self, other: Sums) {
        self.run += other.run;
        for (count, more) in self.states.iter_mut().zip(other.states) {
            *count += more;
        }
        let (all, more) = (&mut self.all, &other.all);
        all.steps = all.steps.max(more.steps);
        macro_rules! sum {
            ($($field:ident)*) => { $(all.$field += more.$field;)* };
        }
        sum!(segments timeouts fast_recoveries spurious window_probes dsacks challenges black_holes);
        sum!(ecn_reductions loss_probes keepalives memory_drops in_order_ends resets timed_out fast_taken fast_refused);
        self.failed.extend(other.failed);
    }
}

/// Runs `count` schedules from seed `first` on, on every core, for at most `limit`.
fn run_many(first: u64, count: u64, limit: Duration) -> Sums {
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let sums = Mutex::new(Sums::default());
    let begin = Instant::now();
    let work = || {
        let mut own = Sums::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let over = seed & 255 == 0 && begin.elapsed() > limit;
            if seed >= first + count || stop.load(Ordering::Relaxed) || over {
                break;
            }
            let schedule = generate::generate(seed);
            match attempt(&schedule) {
                Ok(reached) => own.add(&reached),
                Err((place, _)) => {
                    let new = own.failed.iter().all(|(known, _)| *known != place);
                    if new {
                        let path = report(&format!("seed-{seed}"), schedule);
                        eprintln!("schedule {seed}: {place}\n  {}", path.display());
                        own.failed.push((place, path));
                    }
                    if own.failed.len() >= 5 {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        sums.lock().expect("no thread panics").merge(own);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    sums.into_inner().expect("no thread panics")
}

#[test]
fn schedules() {
    let count = setting("MILLSTREAM_SCHEDULES", 6000);
    let limit = Duration::from_secs(setting("MILLSTREAM_SCHEDULE_SECONDS", 600));
    let begin = Instant::now();
    let sums = run_many(setting("MILLSTREAM_SEED", 1), count, limit);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{} schedules in {seconds:.1} s: {:.0} a second", sums.run, sums.run as f64 / seconds);
    println!("schedules with: {:#?}", sums.all);
    println!("states reached, from CLOSED on: {:?}", sums.states);
    assert!(sums.failed.is_empty(), "failed, made small: {:#?}", sums.failed);
    if count >= 4000 && sums.run == count {
        let all = &sums.all;
        let rare = [
            all.timeouts,
            all.fast_recoveries,
            all.spurious,
            all.window_probes,
            all.dsacks,
            all.challenges,
            all.black_holes,
            all.ecn_reductions,
            all.loss_probes,
            all.keepalives,
            all.memory_drops,
            all.in_order_ends,
            all.resets,
            all.timed_out,
            all.fast_taken,
            all.fast_refused,
        ];
        assert!(rare.iter().all(|&n| n > 0), "something is never reached: {all:#?}");
        assert!(sums.states.iter().all(|&n| n > 0), "a state is never reached: {:?}", sums.states);
    }
}

/// Every file of `schedules/`, and the one that `MILLSTREAM_SCHEDULE` names, with its transcript.
#[test]
fn kept_schedules() {
    if let Ok(file) = std::env::var("MILLSTREAM_SCHEDULE") {
        let text = std::fs::read_to_string(&file).expect("a schedule");
        let schedule = text::parse(&text).unwrap_or_else(|line| panic!("{file}: {line}"));
        world::transcript(&schedule).iter().for_each(|line| println!("{line}"));
        world::run(&schedule);
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schedules");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("schedules") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let schedule = text::parse(&text).unwrap_or_else(|l| panic!("{}: {l}", path.display()));
        if let Err((place, what)) = attempt(&schedule) {
            panic!("{} at {place}: {what}", path.display());
        }
        count += 1;
    }
    assert!(count > 0, "no schedules were kept");
}

#[test]
fn text_says_all_of_a_schedule() {
    for seed in 0..300 {
        let schedule = generate::generate(seed);
        let text = text::write(&schedule);
        let again = text::parse(&text).expect("what was written can be read");
        assert_eq!(text::write(&again), text);
        assert_eq!(format!("{again:?}"), format!("{schedule:?}"));
    }
    assert!(text::parse("segment x of 0 lost").is_err());
    assert!(text::parse("at 1 end 0 dance").is_err());
}

/// A byte changed under way, among much that does not matter, is found, and hardly more than it is
/// left.
#[test]
fn what_fails_is_made_small() {
    let mut tried = 0;
    for seed in 0..200 {
        let mut schedule = generate::generate(seed);
        schedule.actions.insert(0, Action { at_us: 0, end: 0, deed: Deed::Write(3000) });
        schedule.dooms.retain(|doom| doom.end == 1 || doom.nth > 6);
        schedule.dooms.push(Doom { end: 0, nth: 3, fate: Fate::Corrupt });
        let Err((place, _)) = attempt(&schedule) else { continue };
        let lines = text::write(&schedule).lines().count();
        let small = minimise::minimise(schedule, |s| attempt(s).is_err_and(|(at, _)| at == place));
        assert!(attempt(&small).is_err_and(|(at, _)| at == place), "another failure");
        let text = text::write(&small);
        assert!(small.dooms.iter().any(|doom| doom.fate == Fate::Corrupt), "{text}");
        assert!(small.dooms.len() <= 2 && small.actions.len() <= 3, "{lines} lines to {text}");
        tried += 1;
        if tried == 5 {
            return;
        }
    }
    panic!("the changed byte was seen {tried} times");
}

/// The numbers by which states are counted.
#[test]
fn states_have_ten_numbers() {
    assert_eq!((State::Closed as u16, State::TimeWait as u16), (0, 9));
}
