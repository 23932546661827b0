//! A PostgreSQL server of a test's own, on a socket in a folder of its own, gone with the test.
//! Tests of the command have this file, too.
#![allow(dead_code, reason = "not every test needs everything")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

/// A running server.
pub struct TestServer {
    folder: PathBuf,
    programs: PathBuf,
    /// `None` while there is none.
    server: Option<Child>,
}

impl TestServer {
    /// Makes and starts one; says that the test is skipped where no server is installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: no initdb here (Debian: postgresql)");
            return None;
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ms-postgres-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        belongs_to_server(&folder);
        let data = folder.join("data");
        let made = unprivileged(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=millstream", "--encoding=UTF8", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut made = Self { folder, programs, server: None };
        made.restart(&["listen_addresses="]);
        Some(made)
    }

    /// Ends it, and starts it anew with other settings: each as `name=value`.
    pub fn restart(&mut self, settings: &[&str]) {
        self.stop();
        let mut command = unprivileged(&self.programs.join("postgres"));
        // A failed commit would be no finding of a test, so the disk is not waited for.
        for setting in ["fsync=off"].iter().chain(settings) {
            command.args(["-c", setting]);
        }
        command.arg("-k").arg(&self.folder).arg("-D").arg(self.folder.join("data"));
        command.stderr(fs::File::create(self.folder.join("log")).unwrap()).stdout(Stdio::null());
        self.server = Some(command.spawn().unwrap());
        self.wait();
    }

    /// Keeps a file for it that nobody else may read.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        belongs_to_server(&path);
        path
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://millstream@{folder}/{database}")
    }

    fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // A fast shutdown: sessions end, nothing of shared memory stays.
        let _ = kill(Pid::from_raw(server.id() as i32), Signal::SIGINT);
        let _ = server.wait();
    }

    /// The server writes its state behind the process number when it takes connections.
    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(300);
        let file = self.folder.join("data/postmaster.pid");
        while !fs::read_to_string(&file).is_ok_and(|text| text.contains("ready")) {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let server = self.server.as_mut().unwrap();
            assert!(server.try_wait().unwrap().is_none(), "it ended: {}", log());
            assert!(Instant::now() < deadline, "it does not start: {}", log());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The server refuses to be root.
fn belongs_to_server(path: &Path) {
    if geteuid().is_root() {
        let nobody = User::from_name("nobody").unwrap().expect("a user nobody");
        chown(path, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
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
