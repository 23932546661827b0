//! What the packet layer costs, beside its peers: `cargo bench -p millstream-packet`.
//!
//! Every contender is a process that answers the same cases: this crate's pool; malloc of glibc,
//! jemalloc and mimalloc (this program with the library preloaded); DPDK's mempool, mbuf and ring
//! (compiled from `peers/dpdk.c`). What is not installed is left out, and said so. Rounds of all
//! contenders alternate, so that a slow moment of the machine hits all of them; the median and the
//! fastest round are shown, in nanoseconds for each operation.

mod cases;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROUNDS: usize = 15;
const WARM_UP: usize = 2;

/// Case, operations in a round, what it is.
const CASES: [(&str, usize, &str); 7] = [
    ("single1", 65_536, "allocate and free, 1 outstanding"),
    ("single32", 65_536, "allocate and free, 32 outstanding"),
    ("single512", 65_536, "allocate and free, 512 outstanding"),
    ("bulk32", 65_536, "in bulk of 32, 32 outstanding"),
    ("bulk512", 65_536, "in bulk of 32, 512 outstanding"),
    ("cross", 131_072, "one core allocates, another frees"),
    ("message", 200, "460 KB taken, touched and freed"),
];

struct Contender {
    name: &'static str,
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Contender {
    fn start(name: &'static str, command: &mut Command) -> io::Result<Self> {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let to = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let from = BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut contender = Self { name, process, to, from };
        contender.ask("single1", 64)?;
        Ok(contender)
    }

    /// Runs a case; its numbers, the first being nanoseconds for each operation.
    fn ask(&mut self, case: &str, operations: usize) -> io::Result<Vec<f64>> {
        writeln!(self.to, "{case} {operations}")?;
        self.to.flush()?;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(answer) = line.strip_prefix('=') {
                return Ok(answer.split_whitespace().filter_map(|n| n.parse().ok()).collect());
            }
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Compiles the DPDK peer with the flags of the installed libraries.
fn dpdk() -> io::Result<Command> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output()?;
    if !flags.status.success() {
        return Err(io::Error::other("libdpdk is not installed"));
    }
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/peers/dpdk.c");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dpdk-peer");
    let compiled = Command::new("cc")
        .args(["-O3", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags.split_whitespace())
        .arg("-march=native")
        .output()?;
    if !compiled.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()));
    }
    let mut command = Command::new(program);
    command.args(["-l", "0,1", "-m", "256", "--no-pci", "--no-telemetry"]);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    if free.and_then(|n| n.trim().parse::<usize>().ok()).unwrap_or(0) >= 128 {
        command.arg("--in-memory");
    } else {
        println!("dpdk: fewer than 128 huge pages are set aside, so it goes without");
        command.args(["--no-huge", "--no-shconf"]);
    }
    Ok(command)
}

fn contenders() -> Vec<Contender> {
    let own = std::env::current_exe().expect("own path");
    let serve = |what: &str| {
        let mut command = Command::new(&own);
        command.args(["--serve", what]);
        command
    };
    let preload = |library: &str| {
        let mut command = serve("malloc");
        let path = format!("/usr/lib/x86_64-linux-gnu/{library}");
        if !PathBuf::from(&path).exists() {
            return Err(io::Error::other(format!("{library} is not installed")));
        }
        command.env("LD_PRELOAD", path);
        Ok(command)
    };
    let commands = [
        ("millstream", Ok(serve("pool"))),
        ("dpdk", dpdk()),
        ("glibc", Ok(serve("malloc"))),
        ("mimalloc", preload("libmimalloc.so.2")),
        ("jemalloc", preload("libjemalloc.so.2")),
    ];
    let mut contenders = Vec::new();
    for (name, command) in commands {
        match command.and_then(|mut command| Contender::start(name, &mut command)) {
            Ok(contender) => contenders.push(contender),
            Err(error) => println!("{name} is left out: {error}"),
        }
    }
    contenders
}

fn median(mut numbers: Vec<f64>) -> (f64, f64) {
    numbers.sort_by(f64::total_cmp);
    (numbers[numbers.len() / 2], numbers[0])
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, what] = &args[..]
        && flag == "--serve"
    {
        return cases::serve(what);
    }
    let wanted: Vec<_> = args[1..].iter().filter(|arg| !arg.starts_with("--")).collect();
    let mut contenders = contenders();
    for (case, operations, what) in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|name| case.contains(name.as_str())) {
            continue;
        }
        let mut answers = BTreeMap::<usize, Vec<Vec<f64>>>::new();
        for round in 0..ROUNDS + WARM_UP {
            for (i, contender) in contenders.iter_mut().enumerate() {
                match contender.ask(case, operations) {
                    Ok(answer) if round >= WARM_UP => answers.entry(i).or_default().push(answer),
                    Ok(_) => {}
                    Err(error) => println!("{} failed at {case}: {error}", contender.name),
                }
            }
        }
        println!("\n{what}");
        for (i, answers) in answers {
            let column = |n: usize| -> Vec<f64> {
                answers.iter().filter_map(|answer| answer.get(n).copied()).collect()
            };
            if column(0).iter().any(|ns| ns.is_nan()) {
                continue;
            }
            let (middle, least) = median(column(0));
            print!("  {:<12} {middle:>12.2} ns   fastest {least:>10.2}", contenders[i].name);
            if !column(2).is_empty() {
                let (shootdowns, _) = median(column(1));
                let (other, _) = median(column(2));
                print!("   TLB shoot-downs {shootdowns:>8.0}/s   other core {other:>7.2} ns/op");
            }
            println!();
        }
    }
}
