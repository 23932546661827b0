//! The rate in netperf's output: of any of its tests, in any of its forms (its manual, chapters 5
//! to 8).

use super::{Reading, finite};

/// Names of the rate by `-- -k`, and as a column by `-- -o` and `-- -O`.
const KEYS: [&str; 2] = ["THROUGHPUT", "TRANSACTION_RATE"];
const COLUMNS: [&str; 2] = ["Throughput", "Transaction Rate Tran/s"];

type Found = Option<Result<Reading, String>>;

/// Returns the rate of the last test, never the size of a socket or the time of a CPU. `None` where
/// there is none.
pub(super) fn read(output: &str) -> Found {
    let banner = output.rfind(" TEST ").map(|at| &output[at..]);
    let all = banner.map_or(output, |text| text.split_once('\n').map_or("", |(_, rest)| rest));
    // Only tests with a classic head have a unit below each column.
    let is_classic = all.lines().any(|line| line.trim_start().starts_with("bytes "));
    let columns = || if is_classic { None } else { aligned(all) };
    keyed(all)
        .or_else(|| separated(all))
        .or_else(columns)
        .or_else(|| with_unit(all))
        .or_else(|| classic(all, banner.is_some()))
}

fn reading(number: &str, unit: Option<&str>) -> Found {
    // Its tests and forms write one unit in two ways.
    let unit = unit.unwrap_or_default().trim().replace("/sec", "/s");
    Some(finite(number).map(|value| Reading { value, unit }))
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

/// Returns whether a word is a unit of a rate: `10^6bits/sec`, `KBytes/s`, `Trans/s`.
fn is_unit(word: &str) -> bool {
    let word = word.strip_suffix("ec").unwrap_or(word);
    word == "Trans/s" || word.ends_with("bits/s") || word.ends_with("Bytes/s")
}

/// `THROUGHPUT=1234.5`.
fn keyed(text: &str) -> Found {
    let of =
        |key: &str| text.lines().rev().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    reading(KEYS.into_iter().find_map(of)?, of("THROUGHPUT_UNITS"))
}

/// A line of names and one of values, parted by commas.
fn separated(text: &str) -> Found {
    let fields = |line: &'_ str| -> Vec<String> {
        line.split(',').map(|field| field.trim().to_owned()).collect()
    };
    let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
    lines.windows(2).rev().find_map(|pair| {
        let place = |name: &str| pair[0].iter().position(|field| field == name);
        let at = COLUMNS.into_iter().find_map(place)?;
        let is_row = pair[0].len() == pair[1].len() && is_number(&pair[1][at]);
        let unit = place("Throughput Units").map(|at| pair[1][at].as_str());
        is_row.then(|| reading(&pair[1][at], unit))?
    })
}

/// A line of numbers with a unit behind the rate, as the omni test's without its head.
fn with_unit(text: &str) -> Found {
    text.lines().rev().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pair = words.windows(2).find(|pair| is_number(pair[0]) && is_unit(pair[1]))?;
        is_number(words[0]).then(|| reading(pair[0], Some(pair[1])))?
    })
}

/// Lines of numbers, which tell by how many they are which test they are of; with `-P 0` there is
/// nothing else.
fn classic(text: &str, only_first: bool) -> Found {
    let unit = text.split_whitespace().find(|word| is_unit(word));
    let mut rows: Vec<Vec<&str>> = Vec::new();
    let mut is_beyond = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The figures of `-v 2` beyond the rate stand in a table of their own.
        is_beyond |= line.starts_with("Alignment");
        let is_row = !words.is_empty() && words.iter().all(|word| is_number(word));
        if is_row && !std::mem::take(&mut is_beyond) {
            rows.push(words);
        }
    }
    let mut found = None;
    for (at, row) in rows.iter().enumerate() {
        let number = match (row.len(), rows.get(at + 1).map(Vec::len)) {
            // A stream: sizes of both sockets and of a message, seconds, the rate; then what CPUs
            // it took.
            (5 | 9, _) => row[4],
            // Transactions: sizes of a socket, a request and an answer, seconds, the rate; then the
            // far end's sockets.
            (6 | 10, Some(2)) => row[5],
            // Datagrams: what was sent, then what has arrived, which counts.
            (6, Some(4)) | (8, Some(6)) => rows[at + 1][3],
            // With `-v 0`.
            (1, _) if rows.len() == 1 => row[0],
            _ => continue,
        };
        found = reading(number, unit);
        if only_first {
            break;
        }
    }
    let why =
        "netperf's output has no line whose rate is known (-P 0 with other columns than its own)";
    found.or_else(|| (!rows.is_empty()).then(|| Err(why.to_owned())))
}

/// Columns with their names above them, a word in each line.
fn aligned(text: &str) -> Found {
    let lines: Vec<&str> = text.lines().collect();
    let below = |from: usize, at: usize| {
        for line in &lines[from..] {
            let cell = line.get(at..).unwrap_or("");
            match cell.split_whitespace().next() {
                Some(word) if cell.starts_with(word) => return Some(word),
                _ => {}
            }
        }
        None
    };
    let column = |name: &str, from: usize| {
        lines.iter().enumerate().skip(from).find_map(|(row, line)| {
            let mut places = line.match_indices(name).map(|(at, _)| at);
            places.find_map(|at| below(row + 1, at).filter(|word| is_number(word)))
        })
    };
    let unit = text.split_whitespace().find(|word| is_unit(word));
    reading(column(COLUMNS[0], 0)?, unit)
}
