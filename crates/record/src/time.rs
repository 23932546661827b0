//! Points in wall-clock time, written as RFC 3339 in UTC.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment of the wall clock with millisecond resolution, years 1970 to 9999.
///
/// Shown and kept as `2026-11-20T22:24:19.123Z`; ordering is that of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    unix_ms: u64,
}

const DAY_MS: u64 = 86_400_000;
const LAST_MS: u64 = 253_402_300_799_999;

impl Timestamp {
    /// Returns the moment these milliseconds after 1970-01-01T00:00:00Z, at most the end of the
    /// year 9999.
    pub fn from_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms: unix_ms.min(LAST_MS) }
    }

    /// Returns the moment of `time`; what lies before 1970 becomes 1970.
    pub fn from_system(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::from_unix_ms(since.as_millis() as u64)
    }

    /// Returns the time of the wall clock.
    pub fn now() -> Self {
        Self::from_system(SystemTime::now())
    }

    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    pub fn unix_ms(self) -> u64 {
        self.unix_ms
    }

    /// Returns the time as `20261120-222419`, for names of files and experiments.
    pub fn compact(self) -> String {
        let (year, month, day) = self.date();
        let s = self.unix_ms / 1000 % 86_400;
        format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", s / 3600, s / 60 % 60, s % 60)
    }

    /// Returns the civil date of the moment (proleptic Gregorian calendar, from days since
    /// 1970-01-01).
    fn date(self) -> (u64, u64, u64) {
        // Days are counted from 0000-03-01, so that the leap day is the last of its year.
        let days = self.unix_ms / DAY_MS + 719_468;
        let era = days / 146_097;
        let in_era = days % 146_097;
        let year_of_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * in_year + 2) / 153;
        let day = in_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        (era * 400 + year_of_era + u64::from(month <= 2), month, day)
    }
}

/// Returns the days from 1970-01-01 to the given civil date.
fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let in_year = (153 * shifted + 2) / 5 + day - 1;
    let in_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + in_year;
    (era * 146_097 + in_era).checked_sub(719_468)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let ms = self.unix_ms % DAY_MS;
        let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", ms % 1000)
    }
}

/// The text is not a moment in the form `2026-11-20T22:24:19.123Z`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTimestamp(String);

impl fmt::Display for BadTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a time like 2026-11-20T22:24:19.123Z: {:?}", self.0)
    }
}

impl std::error::Error for BadTimestamp {}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        parse(text).ok_or_else(|| BadTimestamp(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() < 20 || *bytes.last()? != b'Z' {
        return None;
    }
    for (at, separator) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if bytes[at] != separator {
            return None;
        }
    }
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = &text[from..to];
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (h, m, s) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || h > 23 || m > 59 || s > 59 {
        return None;
    }
    let fraction = &text[19..text.len() - 1];
    let ms = match fraction.strip_prefix('.') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            let padded: String = digits.chars().chain("000".chars()).take(3).collect();
            padded.parse::<u64>().ok()?
        }
        None if fraction.is_empty() => 0,
        _ => return None,
    };
    let seconds = days_of(year, month, day)? * 86_400 + h * 3600 + m * 60 + s;
    let moment = Timestamp::from_unix_ms(seconds * 1000 + ms);
    // A day that the month does not have (30 February) would come back as another date.
    (moment.date() == (year, month, day)).then_some(moment)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A stretch of a run, in seconds after its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// First second measured.
    pub start_s: f64,
    /// End of the measured part.
    pub end_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_written_as_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_000_000_000_000, "2001-09-09T01:46:40.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_unix_ms(ms).to_string(), text);
            assert_eq!(text.parse::<Timestamp>().unwrap().unix_ms(), ms);
        }
        assert_eq!(Timestamp::from_unix_ms(1_000_000_000_000).compact(), "20010909-014640");
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for day in 0..146_097u64 {
            let moment = Timestamp::from_unix_ms(day * DAY_MS + 1);
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }
    }

    #[test]
    fn odd_text_is_refused() {
        for text in
            ["", "2026", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-11-20 22:24:19Z"]
        {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
        for text in [
            "2026-11-20T22:24:19",
            "2026-11-20T24:00:00Z",
            "2026-11-20T22:24:19.Z",
            "+026-11-20T22:24:19Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
        assert_eq!("2026-11-20T22:24:19.5Z".parse::<Timestamp>().unwrap().unix_ms() % 1000, 500);
    }
}
