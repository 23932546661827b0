//! Measures the cost of the packet layer beside its peers, and holds each figure to its bound:
//! `cargo bench -p millstream-packet`, or with
//! `-- [part of a row's name]… [--rounds N] [--packets N]`.
//!
//! Every contender is a process that answers the same cases: this crate's pool; malloc of glibc,
//! jemalloc and mimalloc (this program with the library preloaded); DPDK's mempool, mbuf and ring
//! (compiled from `dpdk.c`). A contender that is not installed is left out, and the table says so.
//! Rounds of all contenders alternate, so that a slow moment of the machine hits all of them. The
//! table shows medians, the median of the rounds' ratios, and the tenth and ninetieth of a hundred
//! of those.
//!
//! `--packets 1000000000` hands that many packets from one core to the other and checks that each
//! arrives once and in order.

mod alone;
mod cases;
mod contender;
mod instructions;
mod rounds;
mod table;

use table::Table;

/// The command line: how many rounds, how many packets, and which rows to run.
struct Options {
    rounds: usize,
    packets: u64,
    wanted: Vec<String>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| name.contains(wanted.as_str()))
    }
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut options = Options { rounds: 15, packets: 20_000_000, wanted: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().and_then(|value| value.replace('_', "").parse::<u64>().ok());
            value.filter(|&n| n != 0).ok_or_else(|| format!("{arg} wants a number"))
        };
        match arg.as_str() {
            "--rounds" => options.rounds = number()? as usize,
            "--packets" => options.packets = number()?,
            // Cargo says this to every bench.
            "--bench" => {}
            flag if flag.starts_with("--") => return Err(format!("unknown option {flag}")),
            name => options.wanted.push(name.to_owned()),
        }
    }
    Ok(options)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["--serve", what] => return cases::serve(what),
        ["--measure", name, length] => return instructions::measure(name, length),
        _ => {}
    }
    let options = match options(&args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(2);
        }
    };
    let mut table = Table::default();
    rounds::run(&options, &mut table);
    alone::run(&options, &mut table);
    instructions::run(&options, &mut table);
    if table.rows.is_empty() && table.notes.is_empty() {
        eprintln!("error: nothing is called {}", options.wanted.join(" or "));
        std::process::exit(2);
    }
    print!("{table}");
}
