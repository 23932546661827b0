//! The route table beside DPDK's FIB and a radix tree from crates.io: `cargo bench -p
//! millstream-route`.
//!
//! 900,000 prefixes of IPv4 and 200,000 of IPv6, made up with the lengths that the tables of the
//! Internet have and 64 next hops; a million addresses, each in a prefix drawn by chance. All
//! answer the same addresses in turns, `--rounds N` times (9); shown are medians and the median of
//! the rounds' ratios. DPDK is left out, and that is said, where it is not installed.

mod table;

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millstream_route::{Route, RouteTable, Routes};
use prefix_trie::PrefixMap;
use table::Table;

const BULK: usize = 32;
/// Prefixes that are removed and added again to time a change.
const CHANGES: usize = 2_000;
const CASES: [(&str, &str); 4] = [
    ("single", "one by one"),
    ("scalar", "by 32, DPDK scalar"),
    ("vector", "by 32, DPDK as it likes"),
    ("update", "a change"),
];

/// Nanoseconds for each address, whatever they were looked up in.
fn timed<A: Copy>(addrs: &[A], mut look_up: impl FnMut(&[A])) -> f64 {
    let begin = Instant::now();
    addrs.chunks(BULK).for_each(&mut look_up);
    begin.elapsed().as_secs_f64() * 1e9 / addrs.len() as f64
}

fn single(routes: &Routes, table: &Table) -> f64 {
    timed(&table.addrs, |addrs| {
        for addr in addrs {
            black_box(routes.lookup(*addr));
        }
    })
}

/// Addresses as the bulk calls want them.
enum Addrs {
    V4(Vec<Ipv4Addr>),
    V6(Vec<Ipv6Addr>),
}

fn bulk(routes: &Routes, addrs: &Addrs) -> f64 {
    let mut found: [Option<&Route>; BULK] = [None; BULK];
    match addrs {
        Addrs::V4(addrs) => timed(addrs, |addrs| {
            routes.lookup_v4(addrs, |_| 0, |at, route| found[at] = route);
            black_box(&found);
        }),
        Addrs::V6(addrs) => timed(addrs, |addrs| {
            routes.lookup_v6(addrs, |_| 0, |at, route| found[at] = route);
            black_box(&found);
        }),
    }
}

/// The same few addresses again and again: what is left when nothing waits for memory.
fn warm(routes: &Routes, table: &Table) -> f64 {
    let few = &table.addrs[..1024];
    median((0..256).map(|_| {
        timed(few, |addrs| {
            for addr in addrs {
                black_box(routes.lookup(*addr));
            }
        })
    }))
}

/// Removes prefixes and adds them again: nanoseconds for each change, one in the middle and the
/// 99th of a hundred.
fn update(routes: &mut RouteTable, table: &Table) -> (f64, f64) {
    let step = table.prefixes.len() / CHANGES;
    let changed = || table.prefixes.iter().step_by(step).take(CHANGES);
    let mut took = Vec::with_capacity(2 * CHANGES);
    let mut begin = Instant::now();
    let mut done = |next: Instant| {
        took.push((next - begin).as_secs_f64() * 1e9);
        begin = next;
    };
    for (prefix, hop) in changed() {
        let route = table::route(*hop);
        black_box(routes.remove(*prefix, route.link, route.gateway));
        done(Instant::now());
    }
    for (prefix, hop) in changed() {
        routes.insert(*prefix, table::route(*hop)).expect("it was there before");
        done(Instant::now());
    }
    took.sort_by(f64::total_cmp);
    (took[CHANGES], took[2 * CHANGES * 99 / 100])
}

type LookUp = Box<dyn Fn(&[IpAddr])>;

/// Looks addresses up in the radix tree of crate `prefix-trie`.
fn radix_tree(table: &Table) -> LookUp {
    if table.is_v4() {
        let key = |addr: &IpAddr| table::v4(addr).map_or(0, |addr| addr.to_bits());
        let tree: PrefixMap<(u32, u8), u32> =
            table.prefixes.iter().map(|(p, hop)| ((key(&p.addr), p.len), *hop)).collect();
        Box::new(move |addrs| {
            for addr in addrs {
                black_box(tree.get_lpm(&(key(addr), 32)));
            }
        })
    } else {
        let key = |addr: &IpAddr| table::v6(addr).map_or(0, |addr| addr.to_bits());
        let tree: PrefixMap<(u128, u8), u32> =
            table.prefixes.iter().map(|(p, hop)| ((key(&p.addr), p.len), *hop)).collect();
        Box::new(move |addrs| {
            for addr in addrs {
                black_box(tree.get_lpm(&(key(addr), 128)));
            }
        })
    }
}

struct Dpdk {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Dpdk {
    fn start(files: &[PathBuf]) -> io::Result<Self> {
        let absent = |what: &str| io::Error::other(format!("{what} is not installed"));
        let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
        let flags = flags.map_err(|_| absent("pkg-config"))?;
        if !flags.status.success() {
            return Err(absent("libdpdk (Debian: dpdk-dev)"));
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join("dpdk-fib");
        let compiled = Command::new("cc")
            .args(["-O3", "-march=native", "-o"])
            .arg(&program)
            .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/route/dpdk.c"))
            .args(String::from_utf8_lossy(&flags.stdout).split_whitespace())
            .output()
            .map_err(|_| absent("a C compiler"))?;
        if !compiled.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()));
        }
        let log = folder.join("dpdk-fib.log");
        let mut process = Command::new(program)
            .args(["-l", "0", "-m", "2048", "--no-pci", "--no-telemetry", "--no-huge"])
            .args(["--no-shconf", "--"])
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let to = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let from = BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut dpdk = Self { process, to, from };
        dpdk.ask("4 single").map_err(|error| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            io::Error::other(said.lines().last().map_or(error.to_string(), str::to_owned))
        })?;
        Ok(dpdk)
    }

    fn ask(&mut self, case: &str) -> io::Result<f64> {
        writeln!(self.to, "{case}")?;
        self.to.flush()?;
        for line in self.from.by_ref().lines() {
            let line = line?;
            if let Some(answer) = line.strip_prefix('=') {
                let first = answer.split(' ').next().and_then(|ns| ns.parse().ok());
                return first.ok_or_else(|| io::Error::other(line));
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures look-ups while another thread is at work: a second reader, or a writer that makes 1,000
/// changes a second. Prints ratios to the time alone.
fn together(routes: &mut RouteTable, table: &Table, rounds: usize) {
    let reader = routes.reader();
    let stop = AtomicBool::new(false);
    let two = median((0..rounds).map(|_| {
        let alone = single(&reader, table);
        let turns = AtomicU32::new(0);
        stop.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reader = reader.clone();
                while !stop.load(Ordering::Relaxed) {
                    single(&reader, table);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
            while turns.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
            let beside = single(&reader, table);
            stop.store(true, Ordering::Relaxed);
            2.0 * alone / beside
        })
    }));
    println!("  two readers on two cores, of one: {two:.2}");
    let changed = median((0..rounds).map(|round| {
        let alone = single(&reader, table);
        stop.store(false, Ordering::Relaxed);
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (prefix, hop) = table.prefixes[round * 7919 % table.prefixes.len()];
                let route = table::route(hop);
                let mut changes = 0_u32;
                let begin = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    routes.remove(prefix, route.link, route.gateway);
                    routes.insert(prefix, route).expect("it was there before");
                    changes += 2;
                    begun.store(true, Ordering::Relaxed);
                    let due = begin + Duration::from_millis(changes.into());
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            });
            while !begun.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let beside = single(&reader, table);
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer");
            beside / alone
        })
    }));
    println!("  look-ups beside 1,000 changes a second, of their time alone: {changed:.2}");
}

fn compare(table: &Table, dpdk: &mut Option<Dpdk>, rounds: usize) {
    let mut routes = RouteTable::new();
    let begin = Instant::now();
    routes.change(|routes| {
        for (prefix, hop) in &table.prefixes {
            routes.insert(*prefix, table::route(*hop)).expect("below the limit");
        }
    });
    let built = begin.elapsed();
    let mut reader = routes.reader();
    let (v4, v6) = reader.memory_bytes();
    let family = if table.is_v4() { '4' } else { '6' };
    println!(
        "IPv{family}, {} prefixes: built in {built:.0?}; readers {:.1} MiB, writer {:.0} bytes a prefix",
        table.prefixes.len(),
        v4.max(v6) as f64 / f64::from(1 << 20),
        routes.memory_bytes() as f64 / table.prefixes.len() as f64,
    );
    let addrs = match table.is_v4() {
        true => Addrs::V4(table.addrs.iter().filter_map(|a| Some(*table::v4(a)?)).collect()),
        false => Addrs::V6(table.addrs.iter().filter_map(|a| Some(*table::v6(a)?)).collect()),
    };
    let tree = radix_tree(table);
    println!("  one by one, of the same 1,024 addresses: {:.1} ns", warm(&reader, table));
    let mut worst = Vec::new();
    for (case, what) in CASES {
        let mut answers = Vec::new();
        for _ in 0..rounds {
            reader.refresh();
            let ours = match case {
                "single" => single(&reader, table),
                "update" => {
                    let (middle, late) = update(&mut routes, table);
                    worst.push(late);
                    middle
                }
                _ => bulk(&reader, &addrs),
            };
            let theirs = dpdk.as_mut().map(|dpdk| dpdk.ask(&format!("{family} {case}")));
            let theirs = theirs.and_then(|answer| answer.inspect_err(|e| println!("{e}")).ok());
            let tree =
                (case == "single").then(|| timed(&table.addrs[..table.addrs.len() / 8], &tree));
            answers.push((ours, theirs.unwrap_or(f64::NAN), tree.unwrap_or(f64::NAN)));
        }
        let column = |of: fn(&(f64, f64, f64)) -> f64| median(answers.iter().map(of));
        println!(
            "  {what}: {:.1} ns; DPDK {:.1} ns, rate {:.2} of it; prefix-trie {}",
            column(|a| a.0),
            column(|a| a.1),
            column(|a| a.1 / a.0),
            match column(|a| a.2) {
                ns if ns.is_nan() => "not asked".to_owned(),
                ns => format!("{ns:.1} ns"),
            },
        );
    }
    println!("  a change, the 99th of a hundred: {:.0} ns", median(worst.into_iter()));
    together(&mut routes, table, rounds);
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let rounds = match (args.next().as_deref(), args.next()) {
        (None, _) => 9,
        (Some("--rounds"), Some(rounds)) if rounds.parse::<usize>().is_ok_and(|n| n > 0) => {
            rounds.parse().unwrap_or(9)
        }
        (Some(arg), _) => {
            eprintln!("error: {arg}: the only option is --rounds N");
            std::process::exit(2);
        }
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let tables = [Table::v4(900_000), Table::v6(200_000)];
    let files = [folder.join("routes-v4"), folder.join("routes-v6")];
    for (table, file) in tables.iter().zip(&files) {
        table.write(&mut io::BufWriter::new(File::create(file)?))?;
    }
    let mut dpdk =
        Dpdk::start(&files).inspect_err(|error| println!("DPDK is left out: {error}")).ok();
    for table in &tables {
        compare(table, &mut dpdk, rounds);
    }
    Ok(())
}
