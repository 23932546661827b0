//! `millstream replay`: a capture goes out of an interface, or into the kernel through a device.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use millstream::link::{
    DropCause, Link, LinkError, Medium, NapiMode, RawConfig, RawLink, Tap, TapConfig, TapKind,
};
use millstream::wire::ethernet::MacAddr;
use millstream_capture::{Direction, Pace, Replay, ReplayConfig};
use millstream_lab::runner::Interrupt;
use millstream_link::netdev;
use millstream_record::error::Error;
use millstream_testbed::impair;
use millstream_testbed::player::Player;
use millstream_testbed::privilege::give_up_root;

use crate::output::{out, say};
use crate::values::whole;

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("way out").required(true).args(["interface", "tap"])))]
pub struct Arguments {
    /// The capture: pcap (micro- or nanoseconds, either byte order) or pcap-ng
    pub file: PathBuf,
    /// Send out of this interface, which must be up
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Make a device of this name instead: the kernel receives the packets. A capture without
    /// Ethernet headers goes into a TUN device
    #[arg(long, value_name = "NAME")]
    pub tap: Option<String>,
    /// Address of that device; may be given several times
    #[arg(long, value_name = "ADDRESS/LEN", value_parser = impair::prefix, conflicts_with = "interface")]
    pub address: Vec<(IpAddr, u8)>,
    /// Where the interface is, or the device is made: a name of `ip netns`, or a path [default:
    /// this one]
    #[arg(long, value_name = "NETNS")]
    pub netns: Option<String>,
    /// So many times as fast as it was captured, 0.01 to 1000000 [default: 1]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true, value_parser = percent, conflicts_with = "fast")]
    pub speed: Option<u32>,
    /// As fast as the device takes them
    #[arg(long)]
    pub fast: bool,
    /// So many times over; 0 goes on until Ctrl-C
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub rounds: u64,
    /// Only what went this way, where the capture tells
    #[arg(long, value_enum, default_value_t = Ways::Both)]
    pub direction: Ways,
    /// Write this Ethernet destination into every packet; 'device' is that of the --tap
    #[arg(long, value_name = "MAC", value_parser = destination)]
    pub to_mac: Option<Destination>,
    /// Largest IP packet of a --tap, in bytes, and for both: TCP packets beyond it are cut
    #[arg(long, value_name = "BYTES", default_value_t = 1500, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(68..))]
    pub mtu: u16,
    /// Stop after so many seconds, or a time as 500ms
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = crate::impair::seconds)]
    pub duration: Option<Duration>,
}

/// Which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ways {
    /// Packets received where it was captured.
    In,
    /// Packets sent.
    Out,
    /// All.
    Both,
}

/// A destination to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The kernel's side of the device.
    Device,
    /// This one.
    Mac(MacAddr),
}

/// Examples, for `replay --help`.
pub const HELP: &str = "\
Packets leave as far apart as they were captured; what was captured in part is left out and counted.
Checksums go as they were captured. Where the device takes no packet at all, as one that is down, it ends with 1.

Examples:
  millstream replay in.pcap --interface eth0 --speed 2
  millstream replay in.pcapng --tap ms0 --address 10.0.0.1/24 --to-mac device --direction in
  millstream replay in.pcap --interface eth0 --fast --rounds 100";

/// Reads a factor such as 0.5 as percent.
fn percent(text: &str) -> Result<u32, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (0.01..=1e6).contains(factor));
    // At most 10^8.
    factor
        .map(|factor| (factor * 100.0).round() as u32)
        .ok_or_else(|| format!("'{text}' is not a factor from 0.01 to 1000000; write 2 or 0.5"))
}

fn destination(text: &str) -> Result<Destination, String> {
    if text == "device" {
        return Ok(Destination::Device);
    }
    let mac = text.parse().map(Destination::Mac);
    mac.map_err(|_| format!("'{text}' is not a link address; write 02:00:00:00:00:01, or device"))
}

impl Arguments {
    fn config(&self) -> ReplayConfig {
        let pace = match (self.fast, self.speed) {
            (true, _) => Pace::Fast,
            (false, Some(percent)) => Pace::Scaled { percent },
            (false, None) => Pace::Recorded,
        };
        let direction = match self.direction {
            Ways::In => Some(Direction::In),
            Ways::Out => Some(Direction::Out),
            Ways::Both => None,
        };
        let rounds = (self.rounds > 0).then_some(self.rounds);
        let mtu = self.mtu.into();
        ReplayConfig { pace, direction, rounds, mtu, ..ReplayConfig::default() }
    }

    /// Opens the link that the packets go to.
    fn open(&self, medium: Medium) -> Result<Box<dyn Link>, Error> {
        let netns = self.netns.as_deref().map(impair::namespace).transpose()?;
        let refused = |name: &str, error: &LinkError| {
            Error::Refused(format!("cannot send on '{name}': {error}"))
        };
        match (&self.interface, &self.tap) {
            (Some(interface), _) => {
                if medium == Medium::Ip {
                    let file = self.file.display();
                    let what = "has no Ethernet headers; send it into a device: --tap NAME";
                    return Err(Error::Refused(format!("{file} {what}")));
                }
                let (interface, send_only) = (interface.clone(), true);
                let config = RawConfig { interface, netns, send_only, ..RawConfig::default() };
                let link =
                    RawLink::open(&config).map_err(|error| refused(&config.interface, &error))?;
                link.notes().iter().for_each(|note| say(format_args!("note: {note}")));
                Ok(Box::new(link))
            }
            (None, name) => {
                let config = TapConfig {
                    name: name.clone(),
                    kind: if medium == Medium::Ip { TapKind::Tun } else { TapKind::Tap },
                    // Each packet arrives as it was captured, when it is sent.
                    offload: false,
                    napi: NapiMode::Off,
                    netns,
                    mtu: self.mtu.into(),
                    host_addresses: self.address.clone(),
                    ..TapConfig::default()
                };
                let name = name.as_deref().unwrap_or_default();
                let link = Tap::open(&config).map_err(|error| refused(name, &error))?;
                link.notes().iter().for_each(|note| say(format_args!("note: {note}")));
                Ok(Box::new(link))
            }
        }
    }

    /// Returns the destination to write, if any.
    fn destination(&self, link: &dyn Link) -> Result<Option<MacAddr>, Error> {
        if link.capabilities().medium == Medium::Ip {
            return match self.to_mac {
                None => Ok(None),
                Some(_) => Err(Error::Refused(
                    "--to-mac: the capture has no Ethernet headers to write it into".to_owned(),
                )),
            };
        }
        match self.to_mac {
            None => Ok(None),
            Some(Destination::Mac(mac)) => Ok(Some(mac)),
            Some(Destination::Device) if self.tap.is_some() => {
                let netns = self.netns.as_deref().map(impair::namespace).transpose()?;
                let name = link.name();
                let mac = netdev::run_in(netns.as_deref(), || netdev::mac(name)).flatten();
                mac.map(Some).map_err(|error| Error::Refused(format!("--to-mac device: {error}")))
            }
            Some(Destination::Device) => {
                Err(Error::Refused("--to-mac device goes with --tap".to_owned()))
            }
        }
    }
}

/// Opens both sides and sends until the end.
pub fn replay(arguments: &Arguments) -> Result<ExitCode, Error> {
    let interrupt = Interrupt::from_signals()?;
    let replay = Replay::open(&arguments.file, arguments.config())
        .map_err(|error| Error::Refused(error.to_string()))?;
    let medium = replay.capabilities().medium;
    let link = arguments.open(medium)?;
    let to = arguments.destination(&*link)?;
    give_up_root();
    let pool = impair::pool()?;
    out(&format!("replaying {} on {}\n", arguments.file.display(), link.name()))?;
    let mut player = Player::new(replay, link, pool, to);
    let begin = Instant::now();
    let ended = player.play(arguments.duration, &interrupt);
    // Also of one that failed in the middle it is said what went.
    let took = *ended.as_ref().unwrap_or(&begin.elapsed());
    out(&summary(&player, &arguments.file, took))?;
    ended?;
    nothing_went(&player).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Returns an error where the device took none of the packets, as one does that is down: nobody has
/// received anything.
fn nothing_went(player: &Player) -> Option<Error> {
    let stats = player.link.stats();
    let refused: u64 = DropCause::ALL.iter().map(|cause| stats.dropped(*cause)).sum();
    let name = player.link.name();
    (stats.tx_packets == 0 && refused > 0).then(|| {
        Error::Worker(format!(
            "'{name}' took none of the {refused} packets; if it is down: `ip link set {name} up`"
        ))
    })
}

/// Returns a text of what went, what did not, and why.
fn summary(player: &Player, file: &Path, took: Duration) -> String {
    let (sent, read) = (player.link.stats(), player.replay.stats());
    let seconds = took.as_secs_f64();
    let rate = |count: u64| count as f64 / seconds.max(1e-9);
    let mut text = format!(
        "{}: {} packets, {} bytes in {seconds:.3} s ({:.0} packet/s, {:.3} Mbit/s)\n",
        file.display(),
        sent.tx_packets,
        sent.tx_bytes,
        rate(sent.tx_packets),
        rate(sent.tx_bytes) * 8.0 / 1e6
    );
    let cut = read.rx_super_segments;
    for (count, what) in [
        (player.replay.passed_over(), "of the other direction or another kind passed over"),
        (cut, "super-segments sent as their segments"),
    ] {
        if count > 0 {
            text.push_str(&format!("  {count} {what}\n"));
        }
    }
    for (stats, place) in [(&read, "in the capture"), (&sent, "by the device")] {
        for cause in DropCause::ALL.iter().filter(|cause| stats.dropped(**cause) > 0) {
            let count = stats.dropped(*cause);
            text.push_str(&format!("  {count} dropped {place}: {}\n", cause.name()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_and_destinations() {
        assert_eq!((percent("2"), percent("0.5"), percent("0.01")), (Ok(200), Ok(50), Ok(1)));
        for wrong in ["0", "-1", "fast", "0.001", "NaN", "1e9"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        let mac = MacAddr([2, 0, 0, 0, 0, 0x1f]);
        assert_eq!(destination("02:00:00:00:00:1f"), Ok(Destination::Mac(mac)));
        assert_eq!(destination("device"), Ok(Destination::Device));
        assert!(destination("kernel").is_err());
    }
}
