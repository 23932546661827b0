//! What a killed run could leave behind, and its removal at the next start.
//!
//! Namespaces and links live in processes ([`crate::namespace`]) and workers
//! die with the process that started them, so normally nothing is left. Should
//! a worker survive all the same, the next start finds it here: every running
//! experiment keeps a marker file with the identities of its processes. An
//! identity is the process number, its start time and the boot, so that a
//! number that the kernel has given to somebody else is never signalled.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::limits;

/// A process, distinguishable from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
    /// Identity of the boot.
    pub boot: String,
}

impl ProcessIdentity {
    /// The identity of a living process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { pid, start_ticks: start_ticks(pid)?, boot })
    }

    /// True while this very process runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self) && !is_zombie(self.pid)
    }
}

/// State and start time stand after the name, which may hold any character.
fn stat_after_name(pid: u32) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
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

/// What a marker file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    label: String,
    /// Its id in the store.
    #[serde(default)]
    experiment: String,
    owner: ProcessIdentity,
    workers: Vec<ProcessIdentity>,
}

/// The directory of marker files; readable and writable by its owner alone.
#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// The directory of this user, made when missing: `millstream` under
    /// `$XDG_RUNTIME_DIR`, else under `/run` for root and under the temporary
    /// directory for others. Call it before entering a user namespace.
    pub fn locate() -> Result<Self, Error> {
        let uid = geteuid();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let path = match runtime.filter(|dir| dir.is_dir()) {
            Some(dir) => dir.join("millstream"),
            None if uid.is_root() && Path::new("/run").is_dir() => "/run/millstream".into(),
            None => std::env::temp_dir().join(format!("millstream-{uid}")),
        };
        Self::at(path)
    }

    /// The given directory, made when missing.
    pub fn at(path: PathBuf) -> Result<Self, Error> {
        let named = path.display().to_string();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(Error::file(named.as_str()))?;
        let meta = fs::symlink_metadata(&path).map_err(Error::file(named.as_str()))?;
        if !meta.is_dir() || meta.uid() != geteuid().as_raw() {
            return Err(Error::Refused(format!(
                "{named}: belongs to somebody else; remove it or set XDG_RUNTIME_DIR"
            )));
        }
        Ok(Self { path })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.path
    }

    /// Ends what dead owners have left, puts back the settings that they have changed, and removes their markers. Returns one
    /// line for each thing removed. Owners that are alive are left alone.
    pub fn sweep(&self) -> Result<Vec<String>, Error> {
        let listed =
            fs::read_dir(&self.path).map_err(Error::file(self.path.display().to_string()))?;
        let mut removed = Vec::new();
        for entry in listed.flatten() {
            let path = entry.path();
            let known = path.extension().is_some_and(|e| e == "json" || e == "part");
            let text = if known { fs::read_to_string(&path).ok() } else { None };
            let Some(text) = text else { continue };
            let marker = serde_json::from_str::<Marker>(&text).ok();
            if marker.as_ref().map_or_else(|| is_young(&entry), |marker| marker.owner.is_alive()) {
                continue;
            }
            for worker in marker.iter().flat_map(|marker| &marker.workers) {
                if end(worker) {
                    removed.push(format!("ended worker {} of a killed run", worker.pid));
                }
            }
            if fs::remove_file(&path).is_ok() {
                let label = marker.map_or_else(|| path.display().to_string(), |m| m.label);
                removed.push(format!("removed the marker of {label}, whose owner is gone"));
            }
        }
        removed.extend(crate::journal::put_back_of_the_dead(self)?);
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
        let listed = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let markers = listed.filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            serde_json::from_str::<Marker>(&text).ok()
        });
        markers.filter(|marker| marker.owner.is_alive())
    }

    /// Opens the marker of a running experiment, owned by this process.
    pub fn claim(&self, label: &str, experiment_id: &str) -> Result<Claim, Error> {
        let path = self.path.join(format!("{label}.json"));
        let owner =
            ProcessIdentity::of(std::process::id()).map_err(Error::file("/proc/self/stat"))?;
        let (label, experiment) = (label.to_owned(), experiment_id.to_owned());
        let claim = Claim { path, marker: Marker { label, experiment, owner, workers: vec![] } };
        claim.write()?;
        Ok(claim)
    }
}

/// True for a file that was written a moment ago, or whose age is not to be known.
fn is_young(entry: &fs::DirEntry) -> bool {
    let age = entry.metadata().and_then(|meta| meta.modified()).map(|then| then.elapsed());
    !matches!(age, Ok(Ok(age)) if age >= Duration::from_secs(limits::UNREADABLE_MARKER_S))
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
    path: PathBuf,
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

    /// Written aside and renamed, so that a reader never sees half of it.
    fn write(&self) -> Result<(), Error> {
        let text = serde_json::to_string(&self.marker).expect("plain data");
        let part = self.path.with_extension("part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &self.path))
            .map_err(Error::file(self.path.display().to_string()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
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
        let path = state.path.join("ms-x.json");
        let (label, experiment) = ("ms-x".to_owned(), "x".to_owned());
        let claim =
            Claim { path: path.clone(), marker: Marker { label, experiment, owner, workers } };
        claim.write().unwrap();
        std::mem::forget(claim);
        path
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
        assert_eq!(fs::read_dir(&state.path).unwrap().count(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir(&state.path).unwrap();
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
        fs::remove_dir(&state.path).unwrap();
    }

    /// Another runner writes its marker aside and renames it: a reader may see half of it.
    #[test]
    fn a_marker_in_the_middle_of_being_written_is_left_alone() {
        let state = state("half");
        let half = state.path.join("ms-y.part");
        fs::write(&half, "{\"label\": \"ms-").unwrap();
        assert_eq!(state.sweep().unwrap(), Vec::<String>::new());
        assert!(half.exists());
        let old = Duration::from_secs(2 * limits::UNREADABLE_MARKER_S);
        let file = fs::File::options().write(true).open(&half).unwrap();
        file.set_modified(std::time::SystemTime::now() - old).unwrap();
        assert_eq!(state.sweep().unwrap().len(), 1);
        assert!(!half.exists());
        fs::remove_dir(&state.path).unwrap();
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
        fs::remove_dir(&state.path).unwrap();
    }
}
