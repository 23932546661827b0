//! A PostgreSQL server of a test's own, on a socket in a folder of its own, gone with the test. Tests of the command have
//! this file, too.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

/// A running server.
pub struct TestServer {
    folder: PathBuf,
    server: Child,
}

impl TestServer {
    /// Makes and starts one; says that the test is skipped where no server is installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: no initdb here (Debian: postgresql)");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("ms-postgres-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        if geteuid().is_root() {
            let nobody = User::from_name("nobody").unwrap().expect("a user nobody");
            chown(&folder, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
        }
        let data = folder.join("data");
        let made = unprivileged(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=millstream", "--encoding=UTF8", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // A failed commit would be no finding of a test, so the disk is not waited for.
        let server = unprivileged(&programs.join("postgres"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"])
            .arg(&folder)
            .arg("-D")
            .arg(&data)
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Self { folder, server };
        started.wait();
        Some(started)
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://millstream@{folder}/{database}")
    }

    /// The server writes its state behind the process number when it takes connections.
    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(300);
        let file = self.folder.join("data/postmaster.pid");
        while !fs::read_to_string(&file).is_ok_and(|text| text.contains("ready")) {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(self.server.try_wait().unwrap().is_none(), "it ended: {}", log());
            assert!(Instant::now() < deadline, "it does not start: {}", log());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // A fast shutdown: sessions end, nothing of shared memory stays.
        let _ = kill(Pid::from_raw(self.server.id() as i32), Signal::SIGINT);
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where the programs of the server are: where Debian puts them, or in a folder of the path.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    folders.extend(std::env::split_paths(&path));
    let has_both =
        |folder: &PathBuf| ["initdb", "postgres"].iter().all(|one| folder.join(one).exists());
    folders.into_iter().find(has_both)
}

/// A program as nobody where this is root, as the server refuses to be root; it ends with the test.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if geteuid().is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command.args(["--pdeathsig", "INT"]).arg(program);
    command
}
