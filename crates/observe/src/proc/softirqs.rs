//! `/proc/softirqs`: soft interrupts by kind and CPU.

use std::collections::BTreeMap;

/// Counts by kind, CPU n at place n.
pub type Counts = BTreeMap<String, Vec<u64>>;

/// Reads the file, which has a column for every possible CPU; all are kept, CPU n at place n.
pub fn parse(text: &str) -> Result<Counts, String> {
    let mut lines = text.lines();
    let columns = lines.next().ok_or("empty")?.split_ascii_whitespace().count();
    let mut kinds = Counts::new();
    for line in lines {
        let Some((kind, rest)) = line.split_once(':') else { continue };
        let counts: Result<Vec<u64>, _> = rest.split_ascii_whitespace().map(str::parse).collect();
        let counts = counts.map_err(|_| format!("odd line {line:?}"))?;
        if counts.len() != columns {
            return Err(format!("{} counts for {columns} CPUs in {line:?}", counts.len()));
        }
        kinds.insert(kind.trim().to_owned(), counts);
    }
    if kinds.is_empty() { Err("no line of a kind".into()) } else { Ok(kinds) }
}

/// Returns the soft interrupts of all kinds by CPU, CPU n at place n. The kernel keeps each kind in
/// 32 bits: a wrap is one of the sum, too.
pub fn totals(text: &str) -> Result<Vec<u64>, String> {
    let kinds = parse(text)?;
    let mut sums = vec![0; kinds.values().map(Vec::len).max().unwrap_or(0)];
    for counts in kinds.values() {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_a_count_per_cpu() {
        let kinds = parse(include_str!("samples/softirqs.txt")).unwrap();
        assert_eq!(kinds["NET_RX"], [3024, 5109]);
        assert_eq!(kinds.len(), 10);
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("CPU0 CPU1\n").is_err());
        assert!(parse("CPU0 CPU1\nNET_RX: 1\n").unwrap_err().contains("1 counts for 2 CPUs"));
        assert!(parse("CPU0\nNET_RX: x\n").is_err());
    }
}
