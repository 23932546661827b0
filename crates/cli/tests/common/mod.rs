//! A folder, a database and the command, for tests of whole runs.

#![allow(dead_code, reason = "not every test file needs everything")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millstream_netlink::Netlink;
use millstream_record::RunRecord;
use millstream_record::store::Store;

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

    /// `millstream` with these arguments, its database and folder in this place. A shell's
    /// background job has SIGINT ignored and hands that on; env(1) undoes it, then becomes the
    /// program. Unless they say otherwise no run waits, or is done again, where the host of a
    /// virtual machine has moved the CPUs apart.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_millstream")]);
        command.args(arguments).arg("--db").arg(self.database());
        if arguments[0] == "run" || arguments[0] == "report" {
            command.arg("--out").arg(self.folder.join("out"));
        }
        if arguments[0] == "run" && !arguments.contains(&"--steady-cpus") {
            command.args(["--steady-cpus", "false"]);
        }
        isolated(&self.folder, &command)
    }

    /// The runs of the newest kept experiment.
    pub fn runs(&self) -> Vec<RunRecord> {
        let store = Store::open_existing(&self.database()).unwrap();
        let experiment = store.latest(None).unwrap().expect("an experiment is kept");
        store.runs(&experiment.id).unwrap()
    }

    /// A file in this place.
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

/// The command with the state folder of the place: that of root is always `/run/millstream`, so
/// that root has another folder there, in mounts of its own. The process that is started becomes
/// the command.
pub fn isolated(folder: &Path, command: &Command) -> Command {
    let mut all = Command::new("sh");
    let script = match may_mount() {
        true => {
            "mkdir -pm 700 \"$0\" /run/millstream && mount --bind \"$0\" /run/millstream && exec \"$@\""
        }
        false => "exec \"$@\"",
    };
    if may_mount() {
        all = Command::new("unshare");
        all.args(["-m", "sh"]);
    }
    all.args(["-c", script]).arg(folder.join("millstream"));
    all.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| all.env(name, value));
    }
    command.get_current_dir().map(|folder| all.current_dir(folder));
    all.env("XDG_RUNTIME_DIR", folder);
    all
}

/// Returns whether this process is root and has mounts of its own where it likes.
fn may_mount() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let tried = Command::new("unshare").args(["-m", "true"]).status();
        nix::unistd::geteuid().is_root() && tried.is_ok_and(|status| status.success())
    })
}

/// True where hosts can be made; else says that the test is skipped.
pub fn hosts_possible() -> bool {
    let possible =
        millstream_testbed::privilege::may_make_namespaces() && Path::new("/dev/net/tun").exists();
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

/// Starts a long experiment and waits until a run is kept and the next one goes.
pub fn begun(place: &Place) -> Child {
    let arguments = ["run", "first-look", "--repeats", "50", "--duration", "0.4", "--warmup", "0"];
    let mut command = place.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Some(command.spawn().unwrap());
    let pid = child.as_ref().unwrap().id();
    let kept = || {
        let store = Store::open_existing(&place.database()).ok()?;
        let experiment = store.latest(None).ok()??;
        Some(store.runs(&experiment.id).ok()?.len())
    };
    let mut unless_over = |is_so: bool| {
        if child.as_mut().unwrap().try_wait().unwrap().is_some() {
            panic!("it ended: {}", words(&child.take().unwrap().wait_with_output().unwrap()));
        }
        is_so
    };
    wait_for("a finished run", || unless_over(kept().is_some_and(|n| n > 0)));
    wait_for("a worker", || unless_over(!workers_of(pid).is_empty()));
    child.unwrap()
}

pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Process numbers of the workers that this process has started.
pub fn workers_of(parent: u32) -> Vec<u32> {
    let mine = format!("worker\0{parent}\0");
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.ends_with(&mine))
    })
    .collect()
}

/// A namespace lives as long as a process in it or a mount of it.
pub fn nothing_is_left(pid: u32, place: &Place) {
    wait_for("the end of the workers", || workers_of(pid).is_empty());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let held = |line: &&str| line.contains(" nsfs ") && line.contains("ms-");
    assert_eq!(mounts.lines().find(held), None, "a namespace is held by a mount");
    let interfaces = Netlink::route().unwrap().interfaces().unwrap();
    assert!(interfaces.iter().all(|i| !i.name.starts_with("ms-")), "{interfaces:?}");
    let markers = markers(place);
    assert!(markers.is_empty(), "{markers:?}");
}

/// Marker files of the test's own state folder.
pub fn markers(place: &Place) -> Vec<PathBuf> {
    let folder = place.folder.join("millstream");
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}
