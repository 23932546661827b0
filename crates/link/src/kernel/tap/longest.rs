//! The length of the super-segments of TCP that a device takes from us.

use std::fs;
use std::os::fd::RawFd;

use super::config::TapConfig;
use super::probe;
use crate::kernel::big_tcp::Jumbo;
use crate::kernel::big_tcp::{LONG_SINCE, Longest};
use crate::netdev::MaxSizes;
use crate::{Medium, limits, netdev, sys};

/// The `gro_max_size` and `gro_ipv4_max_size` that a device is made with, which no packet reaches.
const UNSET_GRO_BYTES: u32 = 65_536;

/// As configured, or as the device `name` has it, which must be up and whose other end is `fd`.
/// Where it is less than that `notes` tell why.
pub(super) fn find(
    fd: RawFd,
    name: &str,
    medium: Medium,
    config: &TapConfig,
    notes: &mut Vec<String>,
) -> Longest {
    const ORDINARY: u32 = limits::SUPER_SEGMENT_BYTES;
    let before = netdev::gro_max_sizes(name).ok();
    let taken = match config.super_segment_bytes {
        Some(ORDINARY) => return Longest::default(),
        Some(bytes) => ask(name, bytes),
        None => Ok(found(before)),
    };
    let passes =
        |is_v6, bytes| !config.self_check || probe::takes_big(fd, name, medium, is_v6, bytes);
    let why = match taken {
        Ok(ORDINARY) => return Longest::default(),
        Ok(bytes) if passes(false, bytes) => match why_not_over_ipv6(|| passes(true, bytes)) {
            None => return Longest { v4: bytes, v6: bytes },
            Some(why) => {
                let what = format!("super-segments of {ORDINARY} bytes over IPv6");
                notes.push(format!("{name}: {what}: {why}"));
                return Longest { v4: bytes, ..Longest::default() };
            }
        },
        Ok(bytes) => {
            let needs =
                if sys::kernel_is_at_least(LONG_SINCE) { "" } else { " (before Linux 6.6)" };
            format!("the kernel did not take one of {bytes}{needs}")
        }
        Err(why) => why,
    };
    if let Some(before) = before.filter(|_| config.super_segment_bytes.is_some()) {
        // Whoever has the device next need not find that out again.
        let _ = netdev::set_gro_max_sizes(name, before);
    }
    notes.push(format!("{name}: super-segments of {ORDINARY} bytes: {why}"));
    Longest::default()
}

/// Returns what somebody has set of the device.
fn found(sizes: Option<MaxSizes>) -> u32 {
    let set = sizes.and_then(|sizes| sizes.v4).filter(|bytes| *bytes > UNSET_GRO_BYTES);
    set.map_or(limits::SUPER_SEGMENT_BYTES, |bytes| bytes.min(limits::BIG_SUPER_SEGMENT_BYTES))
}

/// Has the device take super-segments of so many bytes; `Err` says why it does not.
fn ask(name: &str, bytes: u32) -> Result<u32, String> {
    let set = netdev::set_gro_max_sizes(name, MaxSizes::both(bytes));
    let found = netdev::gro_max_sizes(name).map_err(|error| error.to_string())?;
    match found.v4 {
        Some(found) if found >= bytes => Ok(bytes),
        Some(found) => Err(set.err().map_or_else(
            || format!("the kernel keeps to a gro_ipv4_max_size of {found}"),
            |error| error.to_string(),
        )),
        None => Err("longer ones take Linux 6.6".to_owned()),
    }
}

/// Why long ones are not to be had over IPv6 where they are over IPv4. That the kernel's IP would
/// not take their option is seen by none of what passes through the device.
fn why_not_over_ipv6(passes: impl FnOnce() -> bool) -> Option<String> {
    let setting = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv6/{name}")).ok()?;
        text.trim().parse::<i64>().ok()
    };
    if Jumbo::is_wanted() {
        // A number below zero forbids what is unknown beside, which this is not.
        let [number, length] = ["max_hbh_opts_number", "max_hbh_length"];
        let forbids = |forbids: bool, name| {
            forbids.then(|| format!("net.ipv6.{name} forbids the option that tells their length"))
        };
        let why = forbids(setting(number) == Some(0), number)
            .or_else(|| forbids(setting(length).is_some_and(|bytes| bytes < 8), length));
        if why.is_some() {
            return why;
        }
    }
    (!passes()).then(|| "the kernel did not take a longer one".to_owned())
}
