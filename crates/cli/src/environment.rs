//! The variables of the environment that the command and the library read, in one table. `--help`
//! and docs/interfaces.md take them from here.

/// Name and meaning of each.
pub const VARIABLES: [(&str, &str); 11] = [
    ("HOME", "kept runs are in ~/.local/share without XDG_DATA_HOME"),
    ("MILLSTREAM_LIVE_DIR", "folder in which engines publish themselves, and are looked for"),
    ("MILLSTREAM_TOKEN", "token of `serve`, of both ends, without --token-file"),
    (
        "NO_COLOR",
        "set to anything: no colours on a terminal (there are none: bold and reversed alone)",
    ),
    ("PATH", "folders of the commands that are measured"),
    ("PGPASSWORD", "password of a database that `--db` has no password of"),
    ("SSL_CERT_DIR", "folder of the authorities that sign for servers of databases"),
    ("SSL_CERT_FILE", "file of them"),
    ("TMPDIR", "folder of the file that `soak` writes to (else /var/tmp), and of the state below"),
    ("XDG_DATA_HOME", "kept runs are in millstream/millstream.sqlite3 there"),
    (
        "XDG_RUNTIME_DIR",
        "folder of what is put back after a kill, and of engines; root has /run/millstream whatever it says",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Returns the sources of the product below a folder.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                sources(&path, found);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                found.push(path);
            }
        }
    }

    /// Returns the names in quotation marks that are read from the environment: behind `var`,
    /// `var_os` and the functions that hand on to them, and those of constants that are.
    fn read_in(text: &str) -> BTreeSet<String> {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let mut found = BTreeSet::new();
        for before in [
            "var(\"",
            "var_os(\"",
            "set(\"",
            "environment(\"",
            "const VARIABLE: &str = \"",
            "\", \"PG",
        ] {
            for (at, _) in product.match_indices(before) {
                let begin = at + before.rfind('"').unwrap() + 1;
                let name = product[begin..].split('"').next().unwrap();
                let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
                if !name.is_empty() && name.chars().all(is_name) {
                    found.insert(name.to_owned());
                }
            }
        }
        found
    }

    #[test]
    fn every_variable_that_is_read_is_in_the_table() {
        let mut files = Vec::new();
        for one in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap() {
            let folder = one.unwrap().path().join("src");
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
        let mut read: BTreeSet<String> = BTreeSet::new();
        files.iter().for_each(|file| read.extend(read_in(&fs::read_to_string(file).unwrap())));
        // Variables that libraries read: rustls-native-certs, crossterm and indicatif,
        // std::env::temp_dir.
        read.extend(["SSL_CERT_DIR", "SSL_CERT_FILE", "NO_COLOR", "TMPDIR"].map(str::to_owned));
        assert_eq!(read, VARIABLES.map(|(name, _)| name.to_owned()).into());
    }
}
