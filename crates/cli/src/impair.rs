//! `millstream impair`: two TAP devices with a bad path between them.

use std::fmt::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millstream::link::{DropCause, Faults, Link, LinkStats, Tap};
use millstream_lab::runner::Interrupt;
use millstream_plan::shuffle_seed;
use millstream_record::error::Error;
use millstream_testbed::impair::{self, Bridge, Change, EndConfig, KernelDrops, Way};
use millstream_testbed::privilege::give_up_root;

use crate::output::{out, say};
use crate::values::whole;

/// Arguments of `impair`.
#[derive(Debug, Args)]
pub struct Impair {
    /// Name of the first device
    pub a: String,
    /// Name of the second device
    pub b: String,
    /// Time that every packet takes
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("delay", v))]
    pub delay: Option<Change>,
    /// Up to so much more, at random; does not reorder
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("jitter", v))]
    pub jitter: Option<Change>,
    /// Packets that are lost
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("loss", v))]
    pub loss: Option<Change>,
    /// Losses in a row: chance that they begin, and that they end after a packet
    #[arg(long, value_name = "P/P", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("burst", v))]
    pub burst: Option<Change>,
    /// Packets that are held back for others to overtake
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("reorder", v))]
    pub reorder: Option<Change>,
    /// For how long --reorder holds them back [default: 1ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("reorder-by", v))]
    pub reorder_by: Option<Change>,
    /// Packets that come twice
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("duplicate", v))]
    pub duplicate: Option<Change>,
    /// Packets with a bit flipped
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("corrupt", v))]
    pub corrupt: Option<Change>,
    /// Bits per second that pass, link headers included
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("rate", v))]
    pub rate: Option<Change>,
    /// Memory or number of the packets that wait for --rate; what comes then is dropped [default:
    /// 1MiB]
    #[arg(long, value_name = "SIZE|PACKETS", allow_hyphen_values = true, value_parser = |v: &str| Change::parse("queue", v))]
    pub queue: Option<Change>,
    /// Faults from A to B that differ, for example delay=5ms,loss=2%
    #[arg(long, value_name = "FAULT=VALUE,..", value_delimiter = ',', value_parser = Change::parse_pair)]
    pub a_to_b: Vec<Change>,
    /// The same from B to A
    #[arg(long, value_name = "FAULT=VALUE,..", value_delimiter = ',', value_parser = Change::parse_pair)]
    pub b_to_a: Vec<Change>,
    /// Seed of all chance; drawn when not given, and printed
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Network namespace of A: a name of `ip netns`, or a path [default: this one]
    #[arg(long, value_name = "NETNS")]
    pub netns_a: Option<String>,
    /// Network namespace of B
    #[arg(long, value_name = "NETNS")]
    pub netns_b: Option<String>,
    /// Address to give to A; may be given several times
    #[arg(long, value_name = "ADDRESS/LEN", value_parser = impair::prefix)]
    pub address_a: Vec<(IpAddr, u8)>,
    /// Address to give to B
    #[arg(long, value_name = "ADDRESS/LEN", value_parser = impair::prefix)]
    pub address_b: Vec<(IpAddr, u8)>,
    /// Largest IP packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(68..))]
    pub mtu: u16,
    /// Stop after so many seconds [default: go on until Ctrl-C]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub duration: Option<Duration>,
    /// No line every second; the summary alone
    #[arg(long)]
    pub quiet: bool,
}

/// Reads the duration of a command: `30` or `1.5`, or with a unit as other times.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|s| s.is_finite() && *s > 0.0 && *s <= 1e9);
    match number {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => impair::duration(text)
            .ok()
            .filter(|duration| !duration.is_zero())
            .ok_or_else(|| format!("'{text}' is not a number of seconds; write 30 or 500ms")),
    }
}

/// Examples, for `impair --help`.
pub const HELP: &str = "\
Times are written 20ms, 1.5s, 50us; shares 1%, 0.01%; rates 1gbit, 100mbit;
sizes 256KB, 1MiB; packets 100packets.
Faults hold in both directions unless --a-to-b or --b-to-a says otherwise.
The devices are made when the command starts and are gone when it ends, in
whatever way.

Example, with two namespaces:
  ip netns add red; ip netns add blue
  millstream impair ms-a ms-b --netns-a red --netns-b blue \\
    --address-a 10.9.0.1/24 --address-b 10.9.0.2/24 \\
    --delay 20ms --loss 1% --rate 100mbit
  ip netns exec red ping 10.9.0.2    (in another terminal: 40 ms, 2 % lost)";

/// A fault that only says how another is to be, whether that is there, and what to do where it is
/// not.
type Companion = (&'static str, fn(&Faults) -> bool, &'static str);

const COMPANIONS: &[Companion] = &[
    (
        "reorder-by",
        |faults| faults.reorder.is_some_and(|reorder| reorder.probability > 0.0),
        "reorder-by without reorder holds nothing back; give a share, as reorder=1%",
    ),
    (
        "queue",
        |faults| faults.rate_bits_per_s.is_some(),
        "queue without rate keeps nothing waiting; give a rate, as rate=100mbit",
    ),
];

impl Impair {
    /// Returns the settings that hold in both directions.
    fn shared(&self) -> Vec<Change> {
        let Self { delay, jitter, loss, burst, reorder, reorder_by, .. } = self;
        let Self { duplicate, corrupt, rate, queue, .. } = self;
        let shared =
            [delay, jitter, loss, burst, reorder, reorder_by, duplicate, corrupt, rate, queue];
        shared.into_iter().flatten().copied().collect()
    }

    /// Returns the faults of both directions.
    fn faults(&self) -> (Faults, Faults) {
        let shared = self.shared();
        let of = |own: &Vec<Change>| {
            let mut faults = Faults::default();
            shared.iter().chain(own).for_each(|change| change.apply(&mut faults));
            faults
        };
        (of(&self.a_to_b), of(&self.b_to_a))
    }

    /// Refuses a fault that only describes another one where that is missing: in its own direction,
    /// or in both where it holds in both.
    fn each_of_use(&self, forth: &Faults, back: &Faults) -> Result<(), Error> {
        let shared = self.shared();
        for (key, is_on, why) in COMPANIONS {
            let (on_forth, on_back) = (is_on(forth), is_on(back));
            let vain = |changes: &[Change], is_on: bool| {
                !is_on && changes.iter().any(|change| change.key() == *key)
            };
            if vain(&shared, on_forth || on_back)
                || vain(&self.a_to_b, on_forth)
                || vain(&self.b_to_a, on_back)
            {
                return Err(Error::Refused((*why).to_owned()));
            }
        }
        Ok(())
    }

    fn ends(&self) -> (EndConfig, EndConfig) {
        let Self { a, b, netns_a, netns_b, address_a, address_b, .. } = self;
        let end = |name: &String, netns: &Option<String>, addresses: &Vec<_>| EndConfig {
            name: name.clone(),
            netns: netns.clone(),
            addresses: addresses.clone(),
        };
        (end(a, netns_a, address_a), end(b, netns_b, address_b))
    }
}

/// Refuses a fault that is there twice, as the first would be forgotten in silence.
fn each_once(option: &str, changes: &[Change]) -> Result<(), Error> {
    for (at, change) in changes.iter().enumerate() {
        let key = change.key();
        if changes[..at].iter().any(|other| other.key() == key) {
            return Err(Error::Refused(format!(
                "'{option}' has {key} twice; give each fault once"
            )));
        }
    }
    Ok(())
}

/// Makes the devices, forwards until the end, and prints what happened by cause.
pub fn impair(arguments: &Impair) -> Result<ExitCode, Error> {
    let (end_a, end_b) = arguments.ends();
    if end_a.name == end_b.name && end_a.netns == end_b.netns {
        let name = &end_a.name;
        return Err(Error::Refused(format!(
            "both devices are called '{name}'; give two names, or two namespaces with --netns-a \
             and --netns-b"
        )));
    }
    each_once("--a-to-b", &arguments.a_to_b)?;
    each_once("--b-to-a", &arguments.b_to_a)?;
    let (forth, back) = arguments.faults();
    arguments.each_of_use(&forth, &back)?;
    let interrupt = Interrupt::from_signals()?;
    let mtu = usize::from(arguments.mtu);
    let (tap_a, drops_a) = end_a.open(mtu, true)?;
    let (tap_b, drops_b) = end_b.open(mtu, true)?;
    for note in tap_a.notes().iter().chain(tap_b.notes()) {
        say(format_args!("note: {note}"));
    }
    give_up_root();
    let seed = arguments.seed.unwrap_or_else(shuffle_seed);
    let (a, b) = (&arguments.a, &arguments.b);
    out(&format!(
        "{a} to {b}: {}\n{b} to {a}: {}\nseed {seed}; Ctrl-C ends it\n",
        impair::describe(&forth),
        impair::describe(&back)
    ))?;
    let pool = impair::pool()?;
    let mut bridge = Bridge::new(tap_a, tap_b, pool, seed, forth, back);
    let mut last = (Duration::ZERO, bridge.ways());
    let tell = |now: Duration, ways: (Way, Way)| {
        let span_s = now.saturating_sub(last.0).as_secs_f64();
        let one = |now: &Way, then: &Way| line(now, then, span_s);
        let text = format!(
            "{:>5} s  {a}>{b} {}  |  {b}>{a} {}\n",
            now.as_secs(),
            one(&ways.0, &last.1.0),
            one(&ways.1, &last.1.1)
        );
        last = (now, ways);
        if arguments.quiet { Ok(()) } else { out(&text) }
    };
    let ended = impair::until_interrupted(&mut bridge, arguments.duration, &interrupt, tell);
    let summary = summary(arguments, &bridge, [drops_a, drops_b]);
    let took = match ended {
        Ok(took) => took,
        Err(error) => {
            out(&summary)?;
            return Err(error);
        }
    };
    out(&format!("\nAfter {:.1} s\n{summary}", took.as_secs_f64()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a line about a second of one direction.
fn line(now: &Way, then: &Way, span_s: f64) -> String {
    let rate = |now: u64, then: u64| (now - then) as f64 / span_s.max(1e-9);
    let packets = rate(now.passed_packets, then.passed_packets);
    let megabits = rate(now.passed_bytes, then.passed_bytes) * 8.0 / 1e6;
    let lost = |way: &Way| way.faults.lost + way.faults.burst_lost;
    let mut text = format!("{packets:.0} pkt/s {megabits:.2} Mb/s");
    for (name, count) in [
        ("lost", lost(now) - lost(then)),
        ("queue full", now.faults.queue_dropped - then.faults.queue_dropped),
    ] {
        if count > 0 {
            let _ = write!(text, ", {name} {count}");
        }
    }
    if now.held > 0 {
        let _ = write!(text, ", {} on the way", now.held);
    }
    text
}

/// Returns the packets of each direction, by what happened to them.
fn summary(
    arguments: &Impair,
    bridge: &Bridge<Tap, Tap>,
    [drops_a, drops_b]: [KernelDrops; 2],
) -> String {
    let Impair { a, b, .. } = arguments;
    let (forth, back) = bridge.ways();
    let heads = (format!("{a} to {b}"), format!("{b} to {a}"));
    let mut text = format!("{:<28}{:>20}{:>20}\n", "packets", heads.0, heads.1);
    let mut row = |name: &str, of: fn(&Way) -> u64| {
        let _ = writeln!(text, "  {name:<26}{:>20}{:>20}", of(&forth), of(&back));
    };
    row("entered", |way| way.faults.entered);
    row("lost at random", |way| way.faults.lost);
    row("lost in bursts", |way| way.faults.burst_lost);
    row("dropped, queue full", |way| way.faults.queue_dropped);
    row("duplicated", |way| way.faults.duplicated);
    row("corrupted", |way| way.faults.corrupted);
    row("held back (reordered)", |way| way.faults.reordered);
    row("passed on", |way| way.passed_packets);
    row("on the way at the end", |way| way.held as u64);
    row("passed on, bytes", |way| way.passed_bytes);
    let (link_a, link_b) = bridge.links();
    for (name, stats, mut kernel) in [(a, link_a, drops_a), (b, link_b, drops_b)] {
        text.push_str(&device(name, &stats, kernel.count().unwrap_or(0)));
    }
    text
}

/// Returns a line of the packets that a device itself dropped, if any.
fn device(name: &str, stats: &LinkStats, kernel: u64) -> String {
    let mut causes: Vec<String> = DropCause::ALL
        .iter()
        .filter(|cause| stats.dropped(**cause) > 0)
        .map(|cause| format!("{} {}", cause.name(), stats.dropped(*cause)))
        .collect();
    if kernel > 0 {
        causes.push(format!("by the kernel {kernel}"));
    }
    if causes.is_empty() {
        return String::new();
    }
    format!("  dropped at {name}: {}\n", causes.join(", "))
}
