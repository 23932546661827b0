//! A folder, a database and the command, for tests of whole runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use millstream_lab::record::RunRecord;
use millstream_lab::store::Store;

/// A folder that is gone at the end of the test.
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
}

impl Place {
    /// A fresh folder for the test of this name.
    pub fn new(name: &str) -> Self {
        let unique = format!("ms-cli-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    /// The database of the test.
    pub fn database(&self) -> PathBuf {
        self.folder.join("kept.sqlite3")
    }

    /// `millstream` with these arguments, its database and folder in this place.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).arg("--db").arg(self.database());
        if arguments[0] == "run" || arguments[0] == "report" {
            command.arg("--out").arg(self.folder.join("out"));
        }
        command.env("XDG_RUNTIME_DIR", &self.folder);
        command
    }

    /// The runs of the only kept experiment.
    #[allow(dead_code, reason = "not every test file needs it")]
    pub fn runs(&self) -> Vec<RunRecord> {
        let store = Store::open_existing(&self.database()).unwrap();
        let experiment = store.latest(None).unwrap().expect("an experiment is kept");
        store.runs(&experiment.id).unwrap()
    }

    /// A file in this place.
    #[allow(dead_code, reason = "not every test file needs it")]
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// True where hosts can be made; else says that the test is skipped.
#[allow(dead_code, reason = "not every test file needs it")]
pub fn hosts_possible() -> bool {
    let possible =
        millstream_lab::privilege::may_make_namespaces() && Path::new("/dev/net/tun").exists();
    if !possible {
        eprintln!("skipped: network namespaces or TAP devices are not permitted here");
    }
    possible
}

/// Both streams of a finished command, for messages.
pub fn words(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n--- stderr\n{}", text(&output.stdout), text(&output.stderr))
}
