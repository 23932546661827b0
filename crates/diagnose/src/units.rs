//! Numbers for people: the unit comes from the end of the key, the prefix from the size.

/// The scale in which the values of one result are written: divided by `divisor`, followed by
/// `unit`.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Each value is divided by it.
    pub divisor: f64,
    /// The unit that follows.
    pub unit: String,
}

/// Unit of a key and whether prefixes (k, M, G) go with it. Longer ends come first.
const ENDS: &[(&str, &str, bool)] = &[
    ("_cpu_s_per_gb", "s/GB", false),
    ("cpu_s_per_gb", "s/GB", false),
    ("_us_per_kb", "µs/KB", false),
    ("_us_per_transaction", "µs", false),
    ("_us_per_packet", "µs", false),
    ("_bits_per_s", "bit/s", true),
    ("_bytes_per_s", "B/s", true),
    ("_packets_per_s", "packets/s", true),
    ("_per_s", "/s", true),
    ("_bytes", "B", true),
    ("_packets", "packets", true),
    ("_us", "µs", false),
    ("_ns", "ns", false),
    ("_ms", "ms", false),
    ("_s", "s", false),
    ("_percent", "%", false),
    ("jain_index", "", false),
];

impl Scale {
    /// Returns the scale for values of `key` of which `largest` is the largest.
    pub fn of(key: &str, largest: f64) -> Self {
        let (_, unit, prefixed) =
            ENDS.iter().find(|(end, ..)| key.ends_with(end)).unwrap_or(&("", "", true));
        if *unit == "µs" && largest >= 10_000.0 {
            return Self { divisor: 1e3, unit: "ms".into() };
        }
        let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
        let step = steps.iter().find(|(from, _)| *prefixed && largest.abs() >= *from);
        let Some((from, prefix)) = step else { return Self { divisor: 1.0, unit: (*unit).into() } };
        // Thousands begin at ten thousand: 9,870/s reads better than 9.87 k/s.
        let divisor = if *prefix == "k" { 1e3 } else { *from };
        Self { divisor, unit: format!("{prefix}{unit}") }
    }

    /// Returns the number alone.
    pub fn number(&self, value: f64) -> String {
        significant(value / self.divisor)
    }

    /// Returns the number with its unit.
    pub fn with_unit(&self, value: f64) -> String {
        if self.unit.is_empty() {
            self.number(value)
        } else {
            format!("{} {}", self.number(value), self.unit)
        }
    }
}

/// Writes three significant digits, whole thousands with separators: `0.0123`, `4.57`, `168`,
/// `12,346`; `1.00e30` where nobody counts digits.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-9..18).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    if magnitude >= 3 {
        return grouped(value);
    }
    let decimals = (2 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    // Rounding may have carried into one more digit: 9.996 is 10.0.
    let carried = text.parse::<f64>().unwrap_or(value).abs() >= 10f64.powi(magnitude + 1);
    if carried && decimals > 0 { format!("{value:.0$}", decimals - 1) } else { text }
}

/// Writes a whole number with separators: `1,234,567`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Writes a ratio: `0.0412`, `0.62`, `1.48`, `12.5`.
pub fn ratio(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".into(),
        v if v < 0.1 => format!("{v:.3}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => grouped(v),
    }
}

/// Writes a time: `3 min 20 s`, `12 s`, `1.5 s`.
pub fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_comes_from_the_key_and_the_prefix_from_the_size() {
        let written = |key: &str, value: f64| Scale::of(key, value).with_unit(value);
        assert_eq!(written("throughput_bits_per_s", 2.314e10), "23.1 Gbit/s");
        assert_eq!(written("throughput_bits_per_s", 940e6), "940 Mbit/s");
        assert_eq!(written("transactions_per_s", 168_400.0), "168 k/s");
        assert_eq!(written("transactions_per_s", 9_870.4), "9,870 /s");
        assert_eq!(written("latency_p50_us", 5.25), "5.25 µs");
        assert_eq!(written("latency_max_us", 41_234.0), "41.2 ms");
        assert_eq!(written("cpu_s_per_gb", 0.5432), "0.543 s/GB");
        assert_eq!(written("cpu_us_per_transaction", 11.9), "11.9 µs");
        assert_eq!(written("near_cpu_us_per_kb", 0.2345), "0.234 µs/KB");
        assert_eq!(written("retransmits", 3.0), "3.00");
        assert_eq!(written("payload_bytes", 7.25e9), "7.25 GB");
    }

    #[test]
    fn three_digits_are_kept_also_when_rounding_carries() {
        for (value, text) in [
            (0.0, "0"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.6, "1000"),
            (0.012_345, "0.0123"),
            (12_345.6, "12,346"),
            (-4.5678, "-4.57"),
            (1_234_567.0, "1,234,567"),
            (1e308, "1.00e308"),
            (-5e-324, "-4.94e-324"),
        ] {
            assert_eq!(significant(value), text);
        }
        assert_eq!(significant(f64::NAN), "–");
    }

    #[test]
    fn ratios_and_durations_are_short() {
        assert_eq!(
            [ratio(0.0412), ratio(0.625), ratio(12.46), ratio(1234.0)],
            ["0.041", "0.62", "12.5", "1,234"]
        );
        assert_eq!(
            [duration(1.54), duration(12.4), duration(120.0), duration(200.0)],
            ["1.5 s", "12 s", "2 min", "3 min 20 s"]
        );
        assert_eq!(duration(3725.0), "1 h 2 min");
    }
}
