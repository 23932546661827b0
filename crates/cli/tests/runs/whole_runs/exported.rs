//! Kept runs as Parquet, asked with what the documentation shows.

use std::process::Command;

use crate::common::{Place, words};

/// Runs each statement of the file in a folder, and prints its number of rows.
const ASK: &str = "
import re, sys
try:
    import duckdb
except ImportError as error:
    sys.exit('skipped: ' + str(error))
for query in re.findall(r'```sql\\n(.*?)```', open(sys.argv[1]).read(), re.S):
    print(len(duckdb.sql(query).fetchall()))
";

/// Exports what `place` keeps, and asks it with DuckDB where Python has that.
pub fn ask_with_duckdb(place: &Place, runs: usize) {
    let folder = place.folder.join("parquet");
    let output = place.command(&["export", "--out", folder.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).starts_with(&format!("{runs} runs of 1 experiments: ")));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/export.md");
    let asked = Command::new("python3").args(["-c", ASK, page]).current_dir(&folder).output();
    let Ok(asked) = asked else { return eprintln!("skipped: no python3") };
    let told = words(&asked);
    if told.contains("skipped: ") {
        return eprintln!("{told}");
    }
    assert!(asked.status.success(), "{told}");
    let rows: Vec<usize> =
        String::from_utf8_lossy(&asked.stdout).lines().map(|line| line.parse().unwrap()).collect();
    // A line for each workload and stack of `first-look` with a result, and one for each run.
    assert_eq!(rows.len(), 2, "{told}");
    assert!(rows[0] >= 2 && rows[1] == runs, "{told}");
}
