//! `/proc/interrupts`: interrupts by source and CPU.

#[derive(Debug, PartialEq)]
/// The rows that have a count for every CPU.
pub struct Table {
    /// Numbers of the CPUs, the columns.
    pub cpus: Vec<u32>,
    /// Id, counts, name.
    pub rows: Vec<(String, Vec<u64>, String)>,
}

/// Reads the rows with one count per CPU. Rows with fewer counts (`ERR`, `MIS`: one for the
/// machine) are left out.
pub fn parse(text: &str) -> Result<Table, String> {
    let mut lines = text.lines();
    let head = lines.next().ok_or("empty")?;
    let mut cpus = Vec::new();
    for word in head.split_ascii_whitespace() {
        let number = word.strip_prefix("CPU").and_then(|number| number.parse().ok());
        cpus.push(number.ok_or_else(|| format!("odd head {word:?}"))?);
    }
    if cpus.is_empty() {
        return Err("no CPU in the head".into());
    }
    let mut rows = Vec::new();
    for line in lines {
        let Some((id, rest)) = line.split_once(':') else { continue };
        let mut counts = Vec::with_capacity(cpus.len());
        let end = numbers(rest.as_bytes(), cpus.len(), &mut counts);
        if counts.len() == cpus.len() {
            // Ends behind a digit: what follows is text of its own.
            let words: Vec<&str> = rest[end..].split_ascii_whitespace().collect();
            rows.push((id.trim().to_owned(), counts, device(id.trim(), &words)));
        }
    }
    Ok(Table { cpus, rows })
}

/// Returns the name of a row's device: `virtio3-rx` for `PCI-MSIX-0000:00:04.0 1-edge virtio3-rx`.
/// Named rows keep their explanation, and a line shared by several devices (`ehci, uhci`) keeps
/// them all.
fn device(id: &str, words: &[&str]) -> String {
    if id.bytes().any(|byte| !byte.is_ascii_digit()) {
        return words.join(" ");
    }
    let edge = words.iter().position(|word| {
        ["-edge", "-fasteoi", "-level"].iter().any(|end| word.ends_with(end))
            || *word == "Edge"
            || *word == "Level"
    });
    let from = edge.map_or(words.len().saturating_sub(1), |at| at + 1);
    let name = words[from.min(words.len())..].join(" ");
    if name.is_empty() { words.join(" ") } else { name }
}

/// Interrupts of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfCpu {
    /// Interrupts of every kind.
    pub all: u64,
    /// Interrupts from other CPUs: RES, CAL and TLB, or the IPI rows of ARM.
    pub between: u64,
}

/// Sums by CPU, as fast as the file can be read: no names, no list for each row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    cpus: Vec<u32>,
    sums: Vec<OfCpu>,
}

impl Totals {
    /// Sums of the CPU with this number.
    pub fn of(&self, cpu: u32) -> Option<OfCpu> {
        self.cpus.binary_search(&cpu).ok().map(|at| self.sums[at])
    }
}

/// Adds the rows up. Rows with fewer counts than CPUs (`ERR`, `MIS`) are of the machine and left
/// out.
pub fn totals(text: &str) -> Result<Totals, String> {
    let (head, mut rest) = text.split_once('\n').ok_or("empty")?;
    let number = |word: &str| word.strip_prefix("CPU").and_then(|number| number.parse().ok());
    let cpus: Option<Vec<u32>> = head.split_ascii_whitespace().map(number).collect();
    let cpus = cpus.filter(|cpus| !cpus.is_empty()).ok_or_else(|| format!("odd head {head:?}"))?;
    let mut sums = vec![OfCpu::default(); cpus.len()];
    let mut row: Vec<u64> = Vec::with_capacity(cpus.len());
    while !rest.is_empty() {
        let line = match rest.split_once('\n') {
            Some((line, after)) => {
                rest = after;
                line
            }
            None => std::mem::take(&mut rest),
        };
        let Some((id, counts)) = line.split_once(':') else { continue };
        row.clear();
        numbers(counts.as_bytes(), cpus.len(), &mut row);
        if row.len() < cpus.len() {
            continue;
        }
        let id = id.trim_ascii();
        let between = matches!(id, "RES" | "CAL" | "TLB") || id.starts_with("IPI");
        for (sum, count) in sums.iter_mut().zip(&row) {
            sum.all = sum.all.wrapping_add(*count);
            if between {
                sum.between = sum.between.wrapping_add(*count);
            }
        }
    }
    Ok(Totals { cpus, sums })
}

/// Reads `most` numbers with blanks between them, or up to the first word that is none. Returns the
/// offset where the last one ends.
fn numbers(text: &[u8], most: usize, into: &mut Vec<u64>) -> usize {
    let (mut at, mut end) = (0, 0);
    while into.len() < most {
        while text.get(at) == Some(&b' ') {
            at += 1;
        }
        let (from, mut value) = (at, 0u64);
        while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            at += 1;
        }
        if at == from || text.get(at).is_some_and(|byte| *byte != b' ') {
            break;
        }
        into.push(value);
        end = at;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_named_rows_are_told_apart() {
        let table = parse(include_str!("samples/interrupts.txt")).unwrap();
        assert_eq!(table.cpus, [0, 1]);
        let row = |id: &str| table.rows.iter().find(|row| row.0 == id).unwrap();
        assert_eq!((&row("42").1[..], row("42").2.as_str()), (&[0u64, 2862][..], "virtio3-tx"));
        assert_eq!(row("26").2, "ttyS0");
        assert_eq!(
            (&row("RES").1[..], row("RES").2.as_str()),
            (&[9125u64, 8450][..], "Rescheduling interrupts")
        );
        assert!(table.rows.iter().all(|row| row.0 != "ERR"), "one count for the machine is no row");
    }

    #[test]
    fn arm_and_shared_lines_keep_a_name() {
        let table = parse(include_str!("samples/interrupts-arm.txt")).unwrap();
        assert_eq!(table.cpus, [0, 2, 3]);
        let name = |id: &str| table.rows.iter().find(|row| row.0 == id).unwrap().2.clone();
        assert_eq!(name("11"), "arch_timer");
        assert_eq!(name("47"), "eth0, usb2");
        assert_eq!(name("IPI0"), "Rescheduling interrupts");
        assert_eq!(name("50"), "GICv2");
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("\n").is_err());
        assert!(parse("CPU0 CPUx\n").is_err());
        assert_eq!(parse("CPU0\nno colon\n 1: x\n").unwrap().rows, []);
    }

    #[test]
    fn sums_are_those_of_the_rows() {
        for text in
            [include_str!("samples/interrupts.txt"), include_str!("samples/interrupts-arm.txt")]
        {
            let (table, totals) = (parse(text).unwrap(), totals(text).unwrap());
            for (at, &cpu) in table.cpus.iter().enumerate() {
                let all: u64 = table.rows.iter().map(|row| row.1[at]).sum();
                assert_eq!(totals.of(cpu).unwrap().all, all);
            }
        }
        let x86 = totals(include_str!("samples/interrupts.txt")).unwrap();
        assert!(x86.of(0).unwrap().between >= 9125 && x86.of(7).is_none());
        assert!(totals("").is_err() && totals("CPU0 x\n").is_err());
    }

    #[test]
    fn a_machine_of_256_cpus_is_added_up_in_one_pass() {
        let mut text = String::new();
        for cpu in 0..256 {
            text.push_str(&format!("{:>10}", format!("CPU{cpu}")));
        }
        text.push('\n');
        for row in 0..300u64 {
            text.push_str(&format!(
                "{:>4}:",
                if row == 7 { "RES".into() } else { row.to_string() }
            ));
            for cpu in 0..256u64 {
                text.push_str(&format!(" {:>10}", row * 1_000_000 + cpu));
            }
            text.push_str("  PCI-MSIX-0000:00:04.0 1-edge eth0-rx\n");
        }
        let totals = totals(&text).unwrap();
        let table = parse(&text).unwrap();
        // One list for each row, as long as the machine has CPUs and no longer.
        assert!(
            table
                .rows
                .iter()
                .all(|row| row.1.capacity() == 256 && row.2 == "eth0-rx" || row.0 == "RES")
        );
        let of_255: u64 = table.rows.iter().map(|row| row.1[255]).sum();
        assert_eq!(of_255, totals.of(255).unwrap().all);
        let cpu = totals.of(255).unwrap();
        assert_eq!((cpu.all, cpu.between), (299 * 300 / 2 * 1_000_000 + 300 * 255, 7_000_255));
    }
}
