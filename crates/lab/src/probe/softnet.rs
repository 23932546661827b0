//! The receive backlog of every CPU, from `/proc/net/softnet_stat` (columns: `net/core/net-procfs.c`).

use super::ends::Ends;
use super::{Absent, Kind, Probe, Turn, rise32};
use crate::record::{Probes, SoftnetCpu};

pub(super) const KIND: Kind = Kind { name: "softnet", open: |_| Ok(Box::new(Softnet::open()?)) };

pub(super) struct Softnet(Ends<Vec<SoftnetCpu>>);

impl Softnet {
    pub(super) fn open() -> Result<Self, Absent> {
        // The numbers are the machine's, whatever namespace the file is opened in.
        Ends::open("/proc/net/softnet_stat", parse).map(Self)
    }
}

impl Probe for Softnet {
    fn name(&self) -> &'static str {
        "softnet"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        self.0.sample(turn)
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Ends { first, last, .. } = self.0;
        let risen = last.into_iter().map(|now| {
            let before =
                first.iter().find(|before| before.cpu == now.cpu).cloned().unwrap_or_default();
            SoftnetCpu {
                cpu: now.cpu,
                processed: rise32(before.processed, now.processed),
                dropped: rise32(before.dropped, now.dropped),
                time_squeezed: rise32(before.time_squeezed, now.time_squeezed),
                received_rps: rise32(before.received_rps, now.received_rps),
                flow_limited: rise32(before.flow_limited, now.flow_limited),
            }
        });
        into.softnet = Some(risen.collect());
    }
}

/// Hexadecimal columns: 0 processed, 1 dropped, 2 time squeezed, 9 received RPS, 10 flow limit,
/// 12 number of the CPU (since 5.10; before that lines are counted).
pub(super) fn parse(text: &str) -> Result<Vec<SoftnetCpu>, String> {
    let mut cpus = Vec::new();
    for (line_number, line) in text.lines().enumerate() {
        let columns: Result<Vec<u64>, _> =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16)).collect();
        let columns = columns.map_err(|_| format!("odd line {line:?}"))?;
        if columns.len() < 3 {
            return Err(format!("too few columns in {line:?}"));
        }
        let column = |at: usize| columns.get(at).copied().unwrap_or(0);
        cpus.push(SoftnetCpu {
            cpu: columns.get(12).copied().unwrap_or(line_number as u64) as u32,
            processed: column(0),
            dropped: column(1),
            time_squeezed: column(2),
            received_rps: column(9),
            flow_limited: column(10),
        });
    }
    if cpus.is_empty() { Err("empty".into()) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_hexadecimal_and_name_their_cpu() {
        let cpus = parse(include_str!("samples/softnet.txt")).unwrap();
        assert_eq!(cpus.len(), 2);
        assert_eq!((cpus[0].cpu, cpus[0].processed), (0, 0x16));
        assert_eq!((cpus[1].cpu, cpus[1].processed, cpus[1].dropped), (3, 0x19fa, 2));
        assert_eq!(
            (cpus[1].time_squeezed, cpus[1].received_rps, cpus[1].flow_limited),
            (1, 0xa, 0xb)
        );
    }

    #[test]
    fn old_kernels_number_cpus_by_line() {
        let cpus = parse("00000001 00000000 00000000\n00000002 00000000 00000000\n").unwrap();
        assert_eq!((cpus[1].cpu, cpus[1].processed), (1, 2));
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("00000001\n").is_err());
        assert!(parse("0000000g 0 0\n").is_err());
    }
}
