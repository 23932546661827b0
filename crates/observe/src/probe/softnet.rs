//! The receive backlog of every CPU, from `/proc/net/softnet_stat` (columns:
//! `net/core/net-procfs.c`).

use millstream_record::Kind::{Counter, Trouble};
use millstream_record::{Column, Key};

use super::counters::{Counters, Rows, file};
use super::{Kind, rise32};

static COLUMNS: [Column; 5] = [
    Column::new("processed", "packets", Counter, "Packets taken from the backlog or a device."),
    Column::part(
        "dropped",
        "packets",
        Trouble,
        "processed",
        "Packets dropped because the backlog was full.",
    ),
    Column::new("squeezed", "", Trouble, "Times that the budget ended before the work did."),
    Column::part(
        "received_rps",
        "",
        Counter,
        "processed",
        "Wake-ups asked for by other CPUs (RPS). One may be for several packets.",
    ),
    Column::new("flow_limited", "packets", Trouble, "Packets dropped by the flow limit."),
];

/// The numbers are the machine's, whatever namespace the file is opened in.
pub(super) const KIND: Kind = Kind {
    name: "softnet",
    open: |_| {
        let read = file("/proc/net/softnet_stat", parse)?;
        Ok(Counters::boxed("softnet", Key::Cpu, COLUMNS.iter().cloned(), rise32, read))
    },
};

/// Hexadecimal columns: 0 processed, 1 dropped, 2 time squeezed, 9 received RPS, 10 flow limit,
/// 12 number of the CPU (since 5.10; before that lines are counted).
pub(super) fn parse(text: &str) -> Result<Rows, String> {
    let mut cpus = Rows::new();
    for (line_number, line) in text.lines().enumerate() {
        let columns: Result<Vec<u64>, _> =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16)).collect();
        let columns = columns.map_err(|_| format!("odd line {line:?}"))?;
        if columns.len() < 3 {
            return Err(format!("too few columns in {line:?}"));
        }
        let cpu = columns.get(12).copied().unwrap_or(line_number as u64);
        let values = [0, 1, 2, 9, 10].map(|at| columns.get(at).copied().unwrap_or(0));
        cpus.push((cpu.to_string(), values.to_vec()));
    }
    if cpus.is_empty() { Err("empty".into()) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_hexadecimal_and_name_their_cpu() {
        let cpus = parse(include_str!("samples/softnet.txt")).unwrap();
        assert_eq!((cpus[0].0.as_str(), cpus[0].1[0]), ("0", 0x16));
        assert_eq!(cpus[1..], [("3".to_owned(), vec![0x19fa, 2, 1, 0xa, 0xb])]);
    }

    #[test]
    fn old_kernels_number_cpus_by_line() {
        let cpus = parse("00000001 00000000 00000000\n00000002 00000000 00000000\n").unwrap();
        assert_eq!((cpus[1].0.as_str(), cpus[1].1[0]), ("1", 2));
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("00000001\n").is_err());
        assert!(parse("0000000g 0 0\n").is_err());
    }
}
