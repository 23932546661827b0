//! A network namespace that lives exactly as long as the process that made it.
//!
//! A namespace is held by a thread and by nothing else: no bind mount, no
//! persistent device. When the process ends, in whatever way, the kernel takes
//! the namespace down with its links, so nothing can be left behind. While it
//! lives it can be entered from outside with
//! `nsenter --net=/proc/PID/task/TID/ns/net` ([`Namespace::path`]).

use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use millstream_record::error::Error;
use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that holds it. Dropping it ends the
/// thread; the namespace goes when the last process started in it has ended.
pub struct Namespace {
    name: String,
    path: PathBuf,
    inode: u64,
    jobs: Option<mpsc::Sender<Job>>,
    holder: Option<thread::JoinHandle<()>>,
}

impl Namespace {
    /// Makes a new, empty namespace. `name` shows as the name of the holding
    /// thread (15 bytes of it). Needs CAP_SYS_ADMIN in the user namespace.
    pub fn create(name: &str) -> Result<Self, Error> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (born, birth) = mpsc::channel();
        let holder = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let made = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
                let failed = made.is_err();
                let _ = born.send(made.and_then(|()| identity()));
                while let (false, Ok(job)) = (failed, inbox.recv()) {
                    job();
                }
            })
            .map_err(Error::host("start a thread"))?;
        let (path, inode) = birth
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
            .map_err(Error::host("make a network namespace"))?;
        Ok(Self { name: name.to_owned(), path, inode, jobs: Some(jobs), holder: Some(holder) })
    }

    /// The name given at creation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path under /proc that stands for the namespace.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The namespace's inode number, the same for every process in it.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Runs `work` on the holding thread, inside the namespace, and returns
    /// its result. Processes started by `work` are born in the namespace, and
    /// the holding thread is their parent thread.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn run<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (done, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            let _ = done.send(work());
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        assert!(sent, "the thread of namespace {} has ended", self.name);
        result.recv().expect("work inside a namespace must not panic")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

/// Path and inode of the calling thread's network namespace.
fn identity() -> io::Result<(PathBuf, u64)> {
    let (pid, tid) = (nix::unistd::getpid(), nix::unistd::gettid());
    Ok((PathBuf::from(format!("/proc/{pid}/task/{tid}/ns/net")), current_inode()?))
}

/// The inode number of the calling thread's network namespace.
pub fn current_inode() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege;

    #[test]
    fn work_runs_inside_and_the_namespace_is_another() {
        if !privilege::may_make_namespaces() {
            eprintln!("skipped: network namespaces are not permitted here");
            return;
        }
        let namespace = Namespace::create("ms-test-ns").unwrap();
        let inside = namespace.run(|| current_inode().unwrap());
        assert_eq!(inside, namespace.inode());
        assert_ne!(inside, current_inode().unwrap());
        let names: Vec<String> = namespace.run(|| {
            let links = millstream_netlink::Netlink::route().unwrap().interfaces().unwrap();
            links.into_iter().map(|i| i.name).collect()
        });
        assert!(names.contains(&"lo".to_owned()), "{names:?}");
        let path = namespace.path().to_owned();
        assert!(path.exists());
        drop(namespace);
        assert!(!path.exists());
    }
}
