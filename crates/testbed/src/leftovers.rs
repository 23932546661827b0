//! The processes that a killed run could leave behind, and their end at the next start.
//!
//! Namespaces and links live in processes ([`crate::namespace`]) and workers
//! die with the process that started them, so normally nothing is left. Should
//! a worker survive all the same, the next start finds it here: every running
//! experiment keeps a marker file with the identities of its processes. An
//! identity is the process number, its start time and the boot, so that a
//! number that the kernel has given to somebody else is never signalled.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use millstream_record::error::Error;
use millstream_record::own_folder::{Found, OwnFolder, file_name};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::limits;

/// A process, distinguishable from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// Time of its start, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
    /// Identity of the boot.
    pub boot: String,
}

impl ProcessIdentity {
    /// The identity of a living process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let boot = millstream_foreign::read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { pid, start_ticks: start_ticks(pid)?, boot })
    }

    /// True while this very process runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self) && !is_zombie(self.pid)
    }
}

/// State and start time stand after the name, which may hold any character.
fn stat_after_name(pid: u32) -> io::Result<String> {
    let stat = millstream_foreign::read(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned()).unwrap_or_default())
}

fn start_ticks(pid: u32) -> io::Result<u64> {
    let rest = stat_after_name(pid)?;
    let field = rest.split_ascii_whitespace().nth(22 - 3).and_then(|field| field.parse().ok());
    field.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no start time")))
}

fn is_zombie(pid: u32) -> bool {
    stat_after_name(pid).is_ok_and(|rest| rest.starts_with('Z') || rest.starts_with('X'))
}

/// The content of a marker file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    label: String,
    /// Its id in the store.
    #[serde(default)]
    experiment: String,
    owner: ProcessIdentity,
    workers: Vec<ProcessIdentity>,
}

/// The directory of marker files and journals.
#[derive(Clone, Debug)]
pub struct StateDir(OwnFolder);

impl StateDir {
    /// The directory of this user, made when missing: `/run/millstream` of root, whatever its
    /// environment says, which may be another user's; of others `millstream` under
    /// `$XDG_RUNTIME_DIR`, else under the temporary directory. Call it before entering a user
    /// namespace.
    pub fn locate() -> Result<Self, Error> {
        let uid = geteuid();
        // To the root of a user's own namespace `/run` belongs to nobody.
        let is_roots = fs::metadata("/run").is_ok_and(|run| run.is_dir() && run.uid() == 0);
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self::at(match runtime.filter(|dir| dir.is_dir()) {
            _ if uid.is_root() && is_roots => "/run/millstream".into(),
            Some(dir) => dir.join("millstream"),
            None => std::env::temp_dir().join(format!("millstream-{uid}")),
        })
    }

    /// The given directory, made when missing.
    pub fn at(path: PathBuf) -> Result<Self, Error> {
        OwnFolder::open(path).map(Self)
    }

    /// Its files.
    pub fn folder(&self) -> &OwnFolder {
        &self.0
    }

    /// Ends what dead owners have left and removes their markers. Returns one line for each thing
    /// removed. Owners that are alive are left alone.
    pub fn sweep(&self) -> Result<Vec<String>, Error> {
        let named = || self.0.path().display().to_string();
        let mut removed = Vec::new();
        for name in self.0.names().map_err(Error::file(named()))? {
            if !name.ends_with(".json") && !name.ends_with(".part") {
                continue;
            }
            let Ok(Found { text, age }) = self.0.read(&name) else { continue };
            let marker = serde_json::from_str::<Marker>(&text).ok();
            if marker.as_ref().map_or_else(|| is_young(age), |marker| marker.owner.is_alive()) {
                continue;
            }
            for worker in marker.iter().flat_map(|marker| &marker.workers) {
                if end(worker) {
                    removed.push(format!("ended worker {} of a killed run", worker.pid));
                }
            }
            if self.0.remove(&name).is_ok() {
                let label = marker.map_or(name, |marker| marker.label);
                removed.push(format!("removed the marker of {label}, whose owner is gone"));
            }
        }
        Ok(removed)
    }

    /// Labels of experiments that run now.
    pub fn running(&self) -> Vec<String> {
        self.alive().map(|marker| marker.label).collect()
    }

    /// Ids of experiments that run now.
    pub fn running_ids(&self) -> Vec<String> {
        self.alive().map(|marker| marker.experiment).collect()
    }

    fn alive(&self) -> impl Iterator<Item = Marker> {
        let names = self.0.names().unwrap_or_default().into_iter();
        let markers =
            names.filter_map(|name| serde_json::from_str(&self.0.read(&name).ok()?.text).ok());
        markers.filter(|marker: &Marker| marker.owner.is_alive())
    }

    /// Opens the marker of a running experiment, owned by this process.
    pub fn claim(&self, label: &str, experiment_id: &str) -> Result<Claim, Error> {
        let owner =
            ProcessIdentity::of(std::process::id()).map_err(Error::file("/proc/self/stat"))?;
        let (label, experiment) = (label.to_owned(), experiment_id.to_owned());
        let marker = Marker { label, experiment, owner, workers: vec![] };
        let claim = Claim { folder: self.0.clone(), marker };
        claim.write()?;
        Ok(claim)
    }
}

/// True for a file that was written a moment ago, or in the future.
fn is_young(age: Option<Duration>) -> bool {
    age.is_none_or(|age| age < Duration::from_secs(limits::UNREADABLE_MARKER_S))
}

/// Sends SIGKILL to this very process and waits until it is gone.
fn end(worker: &ProcessIdentity) -> bool {
    if !worker.is_alive() {
        return false;
    }
    let _ = kill(Pid::from_raw(worker.pid as i32), Signal::SIGKILL);
    let deadline = Instant::now() + Duration::from_secs(5);
    while worker.is_alive() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    !worker.is_alive()
}

/// The marker of a running experiment; dropping it removes the file.
#[derive(Debug)]
pub struct Claim {
    folder: OwnFolder,
    marker: Marker,
}

impl Claim {
    /// Notes a worker before it is given anything to do.
    pub fn note_worker(&mut self, pid: u32) -> Result<(), Error> {
        let identity =
            ProcessIdentity::of(pid).map_err(Error::file(format!("/proc/{pid}/stat")))?;
        self.marker.workers.push(identity);
        self.write()
    }

    /// Forgets the workers of a finished run.
    pub fn forget_workers(&mut self) -> Result<(), Error> {
        self.marker.workers.clear();
        self.write()
    }

    fn file(&self, ending: &str) -> String {
        format!("{}.{ending}", file_name(&self.marker.label))
    }

    fn write(&self) -> Result<(), Error> {
        let text = serde_json::to_string(&self.marker).expect("plain data");
        let name = self.file("json");
        self.folder
            .write(&name, &self.file("part"), &text)
            .map_err(Error::file(self.folder.path().join(name).display().to_string()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.file("json"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn state(name: &str) -> StateDir {
        let unique = format!("ms-state-{}-{name}", std::process::id());
        StateDir::at(std::env::temp_dir().join(unique)).unwrap()
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()
    }

    fn marker(state: &StateDir, owner: ProcessIdentity, workers: Vec<ProcessIdentity>) -> PathBuf {
        let (label, experiment) = ("ms-x".to_owned(), "x".to_owned());
        let marker = Marker { label, experiment, owner, workers };
        let claim = Claim { folder: state.0.clone(), marker };
        claim.write().unwrap();
        std::mem::forget(claim);
        state.0.path().join("ms-x.json")
    }

    #[test]
    fn a_living_owner_is_left_alone() {
        let state = state("living");
        let mut child = sleeper();
        let mut claim = state.claim("ms-a", "a-1").unwrap();
        claim.note_worker(child.id()).unwrap();
        assert_eq!(state.sweep().unwrap(), Vec::<String>::new());
        assert_eq!(
            (state.running(), state.running_ids()),
            (vec!["ms-a".into()], vec!["a-1".into()])
        );
        assert!(ProcessIdentity::of(child.id()).unwrap().is_alive());
        drop(claim);
        assert_eq!(fs::read_dir(state.0.path()).unwrap().count(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir(state.0.path()).unwrap();
    }

    #[test]
    fn workers_of_a_dead_owner_are_ended() {
        let state = state("dead");
        let mut child = sleeper();
        let worker = ProcessIdentity::of(child.id()).unwrap();
        let mut owner = ProcessIdentity::of(std::process::id()).unwrap();
        owner.start_ticks += 1;
        let path = marker(&state, owner, vec![worker.clone()]);
        let removed = state.sweep().unwrap();
        assert_eq!(removed.len(), 2, "{removed:?}");
        assert!(!worker.is_alive() && !path.exists());
        child.wait().unwrap();
        fs::remove_dir(state.0.path()).unwrap();
    }

    /// Another runner writes its marker aside and renames it: a reader may see half of it.
    #[test]
    fn a_marker_in_the_middle_of_being_written_is_left_alone() {
        let state = state("half");
        let half = state.0.path().join("ms-y.part");
        fs::write(&half, "{\"label\": \"ms-").unwrap();
        assert_eq!(state.sweep().unwrap(), Vec::<String>::new());
        assert!(half.exists());
        let old = Duration::from_secs(2 * limits::UNREADABLE_MARKER_S);
        let file = fs::File::options().write(true).open(&half).unwrap();
        file.set_modified(std::time::SystemTime::now() - old).unwrap();
        assert_eq!(state.sweep().unwrap().len(), 1);
        assert!(!half.exists());
        fs::remove_dir(state.0.path()).unwrap();
    }

    #[test]
    fn a_number_that_now_belongs_to_another_process_is_never_signalled() {
        let state = state("reused");
        let mut child = sleeper();
        let real = ProcessIdentity::of(child.id()).unwrap();
        let mut earlier = real.clone();
        earlier.start_ticks -= 1;
        let mut other_boot = real.clone();
        other_boot.boot.push('x');
        let mut owner = real.clone();
        owner.start_ticks += 7;
        marker(&state, owner, vec![earlier, other_boot]);
        let removed = state.sweep().unwrap();
        assert_eq!(removed.len(), 1, "{removed:?}");
        assert!(real.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir(state.0.path()).unwrap();
    }

    /// proc_pid_comm(5): any bytes, of which the kernel keeps fifteen, the last letter cut in two.
    #[test]
    fn a_process_is_known_by_its_identity_whatever_its_name() {
        for name in
            [r"\320\270\320\267\320\274\320\265\321\200\320\270\321\202\320", r"\377) Z \033[31m\n"]
        {
            let script = format!("printf '{name}' >/proc/$$/comm; echo; exec 1>&-; read x");
            let mut command = Command::new("bash");
            command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let said = std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut Vec::new());
            said.unwrap();
            let identity = ProcessIdentity::of(child.id());
            drop(child.stdin.take());
            child.wait().unwrap();
            let identity = identity.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(identity.start_ticks > 0 && !identity.is_alive());
        }
    }
}
