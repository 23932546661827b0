//! The rights of this process, and how an ordinary user gets hosts of their own.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// The right by which network namespaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Capabilities of the process as it was started.
    Capabilities,
    /// An unprivileged user namespace made for the purpose.
    UserNamespace,
    /// None: only the in-memory link is possible, and addresses that are there.
    Nothing,
}

impl Privilege {
    /// Returns its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Privilege::Capabilities => "capabilities",
            Privilege::UserNamespace => "user-namespace",
            Privilege::Nothing => "none",
        }
    }
}

/// True when this process can make network namespaces and links in them.
pub fn may_make_namespaces() -> bool {
    let needed = CAP_NET_ADMIN | CAP_SYS_ADMIN;
    millstream_foreign::read("/proc/self/status").is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & needed == needed)
    })
}

/// Obtains the right to make network namespaces: what the process has already,
/// else by moving it into a new user namespace in which it is root. Must be
/// called while the process has one thread. The reason is given when neither
/// is possible.
pub fn obtain() -> (Privilege, Option<String>) {
    if may_make_namespaces() {
        return (Privilege::Capabilities, None);
    }
    match enter_user_namespace() {
        Ok(()) if may_make_namespaces() => (Privilege::UserNamespace, None),
        Ok(()) => (Privilege::Nothing, Some("the user namespace gives no capabilities".into())),
        Err(error) => {
            (Privilege::Nothing, Some(format!("no unprivileged user namespace: {error}")))
        }
    }
}

/// Becomes nobody, for good, where this process is root: for commands that have opened what they
/// need and go on for long. Where it is not possible everything stays as it is.
pub fn give_up_root() {
    use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
    const NOBODY: u32 = 65534;
    if !geteuid().is_root() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let _ = setgroups(&[]);
    if setresgid(gid, gid, gid).is_ok() {
        let _ = setresuid(uid, uid, uid);
    }
}

fn enter_user_namespace() -> io::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| match error {
        // user_namespaces(7): the limit on their number, often zero.
        Errno::ENOSPC | Errno::EUSERS => {
            io::Error::other("their number is limited by user.max_user_namespaces")
        }
        other => other.into(),
    })?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    // A group map is accepted only once setgroups(2) is given up: user_namespaces(7).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
