//! The processes that answer the cases.

use crate::table::Table;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Contender {
    pub name: &'static str,
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Where what the processes complain about goes.
fn log(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.log"))
}

impl Contender {
    fn start(name: &'static str, command: &mut Command) -> io::Result<Self> {
        let log = log(name);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let to = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let from = BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut contender = Self { name, process, to, from };
        contender.ask("single1", 64).map_err(|error| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            io::Error::other(said.lines().last().map_or(error.to_string(), str::to_owned))
        })?;
        Ok(contender)
    }

    /// Runs a case; its numbers, the first being nanoseconds for each operation.
    pub fn ask(&mut self, case: &str, operations: usize) -> io::Result<Vec<f64>> {
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

fn absent(what: &str, package: &str) -> io::Error {
    io::Error::other(format!("{what} is not installed (Debian: {package})"))
}

/// Compiles the DPDK peer with the flags of the installed libraries.
fn dpdk(cpus: &[usize], table: &mut Table) -> io::Result<Command> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libdpdk"])
        .output()
        .map_err(|_| absent("pkg-config", "pkg-config"))?;
    if !flags.status.success() {
        return Err(absent("libdpdk", "dpdk-dev"));
    }
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/packet/dpdk.c");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dpdk-peer");
    let compiled = Command::new("cc")
        .args(["-O3", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags.split_whitespace())
        .arg("-march=native")
        .output()
        .map_err(|_| absent("a C compiler", "gcc"))?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
        let line = said.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
        return Err(io::Error::other(format!("its peer does not compile: {line}")));
    }
    let mut command = Command::new(program);
    let lcores: Vec<_> = cpus.iter().take(2).map(usize::to_string).collect();
    command.args(["-l", &lcores.join(","), "-m", "256", "--no-pci", "--no-telemetry"]);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    if free.and_then(|n| n.trim().parse::<usize>().ok()).unwrap_or(0) >= 128 {
        command.arg("--in-memory");
    } else {
        table.note("dpdk goes without huge pages: fewer than 128 are set aside");
        command.args(["--no-huge", "--no-shconf"]);
    }
    Ok(command)
}

fn library(names: &[&str], package: &str) -> io::Result<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let directories = [multiarch.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    directories
        .iter()
        .flat_map(|directory| names.iter().map(|name| Path::new(directory).join(name)))
        .find(|path| path.exists())
        .ok_or_else(|| absent(names[0], package))
}

/// All that there are here; of the others a note says why they are left out.
pub fn all(cpus: &[usize], table: &mut Table) -> Vec<Contender> {
    let own = std::env::current_exe().expect("own path");
    let serve = |what: &str| {
        let mut command = Command::new(&own);
        command.args(["--serve", what]);
        command
    };
    let preload = |names: &[&str], package: &str| {
        let mut command = serve("malloc");
        command.env("LD_PRELOAD", library(names, package)?);
        Ok(command)
    };
    let commands = [
        ("millstream", Ok(serve("pool"))),
        ("dpdk", dpdk(cpus, table)),
        ("glibc", Ok(serve("malloc"))),
        ("mimalloc", preload(&["libmimalloc.so.2", "libmimalloc.so.3"], "libmimalloc2.0")),
        ("jemalloc", preload(&["libjemalloc.so.2"], "libjemalloc2")),
    ];
    let mut contenders = Vec::new();
    for (name, command) in commands {
        match command.and_then(|mut command| Contender::start(name, &mut command)) {
            Ok(contender) => contenders.push(contender),
            Err(error) => table.note(format!("{name} is left out: {error}")),
        }
    }
    contenders
}
