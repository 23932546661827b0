//! `/proc/stat`: the time of every CPU by kind, and the context switches of the machine.

/// Columns of a line of `/proc/stat`: usr, nice, sys, idle, wait, irq, softirq, steal.
/// The two that follow (guest, guest nice) are already inside usr and nice.
pub const COLUMNS: usize = 8;

/// Ticks of one CPU by column.
pub type Ticks = [u64; COLUMNS];

/// Reads the lines `cpuN`; kernels before 2.6.11 have fewer columns, the missing ones count as 0.
pub fn parse(text: &str) -> Result<Vec<(u32, Ticks)>, String> {
    let mut cpus = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(number) = words.next().and_then(|word| word.strip_prefix("cpu")) else { continue };
        if number.is_empty() {
            continue;
        }
        let number = number.parse().map_err(|_| format!("odd line {line:?}"))?;
        let mut ticks = Ticks::default();
        for (at, word) in words.take(COLUMNS).enumerate() {
            ticks[at] = word.parse().map_err(|_| format!("odd number {word:?} for cpu{number}"))?;
        }
        cpus.push((number, ticks));
    }
    if cpus.is_empty() { Err("no line of a CPU".into()) } else { Ok(cpus) }
}

/// Returns the context switches since the machine was started.
pub fn switches(text: &str) -> Result<u64, String> {
    let count = text.lines().find_map(|line| line.strip_prefix("ctxt "));
    let count = count.ok_or("no line ctxt")?;
    count.trim().parse().map_err(|_| format!("odd number {count:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cpus_are_taken_and_the_sum_is_not() {
        let cpus = parse(include_str!("samples/stat.txt")).unwrap();
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0], (0, [1448, 0, 1085, 80935, 37, 0, 9, 4]));
        assert_eq!(cpus[1].0, 1);
    }

    #[test]
    fn odd_input_is_refused_or_completed() {
        assert_eq!(parse("cpu  1 2 3\ncpu5 1 2 3 4\n").unwrap(), [(5, [1, 2, 3, 4, 0, 0, 0, 0])]);
        assert!(parse("").is_err());
        assert!(parse("cpu 1 2 3 4\n").is_err());
        assert!(parse("cpux 1 2 3 4\n").unwrap_err().contains("cpux"));
        assert!(parse("cpu0 1 -2 3 4\n").unwrap_err().contains("-2"));
    }

    #[test]
    fn the_line_ctxt_is_taken() {
        assert_eq!(switches(include_str!("samples/stat.txt")), Ok(468_073));
        assert!(switches("cpu 1\n").is_err());
        assert!(switches("ctxt many\n").is_err());
    }
}
