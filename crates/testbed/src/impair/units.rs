//! Numbers with units, as people write them: `20ms`, `1%`, `1gbit`, `256KB`, `10.0.0.1/24`.

use std::net::IpAddr;
use std::time::Duration;

/// Splits `20ms` into its number and its unit.
fn parts(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().ok().filter(|n: &f64| n.is_finite())?;
    Some((number, unit.trim_start()))
}

/// The factor of `unit` among `units`; zero needs none.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = parts(text.trim())?;
    if number == 0.0 && unit.is_empty() {
        return Some(0.0);
    }
    let unit = unit.to_ascii_lowercase();
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| number * factor)
}

/// A time: `20ms`, `1.5s`, `50us`, `10ns`; at most an hour.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    scaled(text, &UNITS)
        .filter(|seconds| (0.0..=3600.0).contains(seconds))
        .map(|seconds| Duration::from_nanos((seconds * 1e9).round() as u64))
        .ok_or_else(|| format!("'{text}' is not a time up to an hour; write 20ms, 1.5s, 50us"))
}

/// A chance as a share of one: `1%`, `0.01%`.
pub fn percentage(text: &str) -> Result<f64, String> {
    scaled(text, &[("%", 0.01)])
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is not a percentage from 0% to 100%; write 1% or 0.01%"))
}

/// Bits per second: `1gbit`, `100mbit`, `2.5Gbit/s`; at least one.
pub fn rate(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 5] =
        [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("tbit", 1e12)];
    let plain = text.trim().strip_suffix("/s").unwrap_or(text);
    scaled(plain, &UNITS)
        .map(f64::round)
        .filter(|bits| (1.0..=1e15).contains(bits))
        .map(|bits| bits as u64)
        .ok_or_else(|| {
            format!("'{text}' is not a rate in bits per second; write 1gbit, 100mbit, 64kbit")
        })
}

/// Bytes: `256KB`, `1MB` (thousands), `256KiB`, `1MiB` (1024).
pub fn size(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, f64); 7] = [
        ("b", 1.0),
        ("kb", 1e3),
        ("mb", 1e6),
        ("gb", 1e9),
        ("kib", 1024.0),
        ("mib", 1_048_576.0),
        ("gib", 1_073_741_824.0),
    ];
    scaled(text, &UNITS)
        .map(f64::round)
        .filter(|bytes| (1.0..=64e9).contains(bytes))
        .map(|bytes| bytes as usize)
        .ok_or_else(|| format!("'{text}' is not a size; write 256KB, 1MB, 512KiB"))
}

/// A number of packets, at least one: `100packets`, `1packet`. None: it is written as something
/// else.
pub fn packets(text: &str) -> Option<usize> {
    scaled(text, &[("packet", 1.0), ("packets", 1.0)])
        .filter(|packets| packets.fract() == 0.0 && (1.0..=1e9).contains(packets))
        .map(|packets| packets as usize)
}

/// An address with its prefix length: `10.0.0.1/24`, `fd00::1/64`.
pub fn prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = text.split_once('/').and_then(|(address, len)| {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.parse().ok().filter(|len| (1..=most).contains(len))?;
        Some((address, len))
    });
    parsed.ok_or_else(|| {
        format!("'{text}' is not an address with a prefix length; write 10.0.0.1/24 or fd00::1/64")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_people_write_them() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("50us"), duration("0.05ms"));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(percentage("1%"), Ok(0.01));
        assert_eq!(percentage("100%"), Ok(1.0));
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(rate("2.5Gbit/s"), Ok(2_500_000_000));
        assert_eq!(size("256KB"), Ok(256_000));
        assert_eq!(size("256KiB"), Ok(262_144));
        assert_eq!(prefix("10.0.0.1/24"), Ok(("10.0.0.1".parse().unwrap(), 24)));
        assert!(prefix("fd00::1/64").is_ok());
    }

    #[test]
    fn what_is_no_such_number_is_refused_with_an_example() {
        for text in ["", "20", "ms", "-1ms", "20 min", "4000s", "1e3ms", "1..2s", "nan", "inf s"] {
            assert!(duration(text).unwrap_err().contains("write 20ms"), "{text}");
        }
        for text in ["1", "0.01", "101%", "-1%", "%", "1 percent"] {
            assert!(percentage(text).unwrap_err().contains("write 1%"), "{text}");
        }
        for text in ["1", "0", "0bit", "1gb", "1gbps", "-1gbit", "gbit"] {
            assert!(rate(text).unwrap_err().contains("write 1gbit"), "{text}");
        }
        for text in ["256", "0", "0KB", "1 block", "KB", "-1KB"] {
            assert!(size(text).unwrap_err().contains("write 256KB"), "{text}");
        }
        for text in ["10.0.0.1", "10.0.0.1/33", "10.0.0.1/0", "x/24", "fd00::1/129"] {
            assert!(prefix(text).unwrap_err().contains("write 10.0.0.1/24"), "{text}");
        }
    }
}
