//! Load and time since the machine was started.

use serde::Serialize;

use crate::probe::Absent;

/// `/proc/loadavg` and `/proc/uptime`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Tasks that ran or waited for a CPU or a disk, on average of 1, 5 and 15 minutes.
    pub averages: [f64; 3],
    /// Seconds since the machine was started.
    pub up_s: f64,
}

impl Load {
    pub(super) fn read() -> Result<Self, Absent> {
        let read = |path: &str| {
            millstream_foreign::read(path).map_err(|error| Absent(format!("{path}: {error}")))
        };
        parse(&read("/proc/loadavg")?, &read("/proc/uptime")?).map_err(Absent)
    }
}

fn parse(load: &str, up: &str) -> Result<Load, String> {
    let number = |text: &str, at: usize| {
        let word = text.split_ascii_whitespace().nth(at);
        word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("odd line {text:?}"))
    };
    Ok(Load {
        averages: [number(load, 0)?, number(load, 1)?, number(load, 2)?],
        up_s: number(up, 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read() {
        let load = parse("0.55 1.56 1.62 2/144 4711\n", "47013.20 90000.11\n").unwrap();
        assert_eq!(load, Load { averages: [0.55, 1.56, 1.62], up_s: 47013.2 });
        assert!(parse("0.55 1.56\n", "1 2\n").is_err() && parse("1 2 3", "").is_err());
    }
}
