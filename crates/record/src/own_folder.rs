//! A folder of which this user alone decides what is in it.
//!
//! It is opened once, and looked at by its descriptor; every file in it is reached from there. So
//! nobody who may change a part of its path decides later which folder is meant, and no file is
//! believed that another user has made or may write.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::User;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::process::geteuid;

use crate::error::Error;

/// Longest file that is read.
const MOST_BYTES: u64 = 4 << 20;

/// Makes of any text the name of a file, of one folder and no other: letters, digits, `-`, `_` and
/// dots behind another character stay, each other byte becomes `%` and its two digits. Different
/// texts have different names.
pub fn file_name(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        let stays = byte.is_ascii_alphanumeric() || b"-_+".contains(&byte);
        match byte {
            b'.' if !name.is_empty() => name.push('.'),
            _ if stays => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// See the module.
#[derive(Clone, Debug)]
pub struct OwnFolder {
    folder: Arc<OwnedFd>,
    path: PathBuf,
}

/// A file of an [`OwnFolder`] that was read.
#[derive(Debug)]
pub struct Found {
    /// Its text.
    pub text: String,
    /// Since it was written; `None` for one of the future.
    pub age: Option<Duration>,
}

impl OwnFolder {
    /// Opens the folder, which is made where it is missing. One that another user has, or may
    /// change, is refused.
    pub fn open(path: PathBuf) -> Result<Self, Error> {
        let named = path.display().to_string();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = made.and_then(|()| Ok(openat(CWD, &path, flags, Mode::empty())?));
        let opened = File::from(opened.map_err(Error::file(named.as_str()))?);
        let meta = opened.metadata().map_err(Error::file(named.as_str()))?;
        if meta.uid() != geteuid().as_raw() {
            let user = user(meta.uid());
            let why = format!("{named}: it belongs to {user}; remove it or set XDG_RUNTIME_DIR");
            return Err(Error::Refused(why));
        }
        if meta.mode() & 0o077 != 0 {
            let why = "others may read or change it";
            return Err(Error::Refused(format!("{named}: {why}; chmod 700 {named}")));
        }
        Ok(Self { folder: Arc::new(opened.into()), path })
    }

    /// Returns the path at which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of its files, without those that are no text: none of ours is such.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = Dir::read_from(&self.folder)?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_str().map(str::to_owned);
            names.extend(name.ok().filter(|name| name != "." && name != ".."));
        }
        Ok(names)
    }

    /// Reads a file of it, if it is a regular one that this user has and nobody else may write.
    pub fn read(&self, name: &str) -> io::Result<Found> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, one(name)?, flags, Mode::empty())?);
        let meta = file.metadata()?;
        let is_ours = meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0;
        if !meta.is_file() || !is_ours || meta.len() > MOST_BYTES {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        #[expect(clippy::disallowed_methods, reason = "what we have written is text")]
        let text = String::from_utf8(bytes).map_err(io::Error::other)?;
        Ok(Found { text, age: meta.modified()?.elapsed().ok() })
    }

    /// Writes a file of it aside, under the name `part`, to the disk, and renames it: whoever finds
    /// it finds all of it.
    pub fn write(&self, name: &str, part: &str, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(&self.folder, one(part)?, flags, mode)?);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        renameat(&self.folder, part, &self.folder, one(name)?)?;
        Ok(fsync(&self.folder)?)
    }

    /// Removes a file of it.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.folder, one(name)?, AtFlags::empty())?)
    }
}

/// Refuses a name that would lead out of the folder.
fn one(name: &str) -> io::Result<&str> {
    let is_one = !matches!(name, "" | "." | "..") && !name.contains('/');
    is_one.then_some(name).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

/// Creates a file that was not there; what was there under its name, a link too, goes.
pub fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::options().write(true).create_new(true).open(path),
    }
}

/// Refuses a path that is a link, or has one in it, of neither this user nor root: it may lead
/// anywhere.
pub fn behind_no_link_of_another(path: &Path) -> Result<(), Error> {
    let of_another = |path: &Path| {
        let meta = path.symlink_metadata().ok().filter(|meta| meta.is_symlink() && sees_host())?;
        let is_ours = [0, geteuid().as_raw()].contains(&meta.uid());
        (!is_ours).then(|| (path.display().to_string(), user(meta.uid())))
    };
    match path.ancestors().find_map(of_another) {
        None => Ok(()),
        Some((link, user)) => {
            let why = "name what it leads to if that is meant";
            Err(Error::Refused(format!("{link}: it is a link that {user} has made; {why}")))
        }
    }
}

/// Returns who else has one of the folders of this path, of those that are there, and so decides
/// where it leads; to the host's root alone, who can be told to write anywhere.
pub fn of_another(path: &Path) -> Option<String> {
    if !geteuid().is_root() || !sees_host() {
        return None;
    }
    let owner = |path: &Path| fs::metadata(path).ok().map(|meta| meta.uid());
    path.ancestors().filter_map(owner).find(|&uid| uid != 0).map(user)
}

/// Returns whether root is root: in a user's own namespace what is root's belongs to nobody.
fn sees_host() -> bool {
    fs::metadata("/").is_ok_and(|root| root.uid() == 0)
}

/// Returns a user's number and name, as far as it has one.
fn user(uid: u32) -> String {
    match User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("user {uid} ({})", user.name),
        _ => format!("user {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A user other than root.
    const STRANGER: u32 = 65_534;

    fn place(name: &str) -> PathBuf {
        let unique = format!("ms-own-{}-{name}", std::process::id());
        let place = std::env::temp_dir().join(unique);
        fs::create_dir_all(&place).unwrap();
        place
    }

    #[test]
    fn every_text_is_one_name_and_no_two_are_the_same() {
        assert_eq!(file_name("first-look-20261128T120000-00af"), "first-look-20261128T120000-00af");
        assert_eq!(file_name("../../../x"), "%2E.%2F..%2F..%2Fx");
        let texts =
            ["", ".", "..", ".x", "%2Ex", "a/b", "a%2Fb", "/x", "a\0b", "a\nb", "ä", "\u{202e}x"];
        let mut names: Vec<String> = texts.map(file_name).to_vec();
        for name in &names {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
            assert!(
                !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain),
                "{name}"
            );
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), texts.len());
    }

    #[test]
    fn a_file_that_is_made_is_made_behind_no_link() {
        let place = place("anew");
        let (victim, file) = (place.join("victim"), place.join("file"));
        fs::write(&victim, "theirs").unwrap();
        symlink(&victim, &file).unwrap();
        behind_no_link_of_another(&file).expect("our own");
        create_anew(&file).unwrap().write_all(b"ours").unwrap();
        create_anew(&file).unwrap().write_all(b"again").unwrap();
        let read = |path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&victim).as_str(), read(&file).as_str()), ("theirs", "again"));
        if geteuid().is_root() {
            let link = place.join("link");
            symlink(&victim, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
            for path in [link.clone(), link.join("a/b")] {
                let why = behind_no_link_of_another(&path).unwrap_err().to_string();
                assert!(why.contains("a link that user 65534"), "{why}");
            }
            chown(&place, Some(STRANGER), None).unwrap();
            assert!(of_another(&place.join("a/b")).unwrap().starts_with("user 65534"));
            assert_eq!(of_another(Path::new("/run/millstream/x")), None);
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_folder_that_another_has_or_may_change_is_refused() {
        let place = place("refused");
        let folder = place.join("folder");
        let refused = |what: &str| match OwnFolder::open(folder.clone()) {
            Ok(_) => panic!("{what} is taken"),
            Err(error) => error.to_string(),
        };
        fs::write(&folder, "").unwrap();
        refused("a file");
        fs::remove_file(&folder).unwrap();
        fs::create_dir(place.join("other")).unwrap();
        symlink(place.join("other"), &folder).unwrap();
        refused("a link");
        fs::remove_file(&folder).unwrap();
        OwnFolder::open(folder.clone()).unwrap();
        for mode in [0o750, 0o701, 0o770, 0o702] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused("an open one").contains("chmod 700"), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            chown(&folder, Some(STRANGER), None).unwrap();
            assert!(refused("a stranger's").contains("belongs to user 65534"));
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_file_that_another_has_or_may_write_is_not_read() {
        let place = place("file");
        let folder = OwnFolder::open(place.join("folder")).unwrap();
        let at = |name: &str| place.join("folder").join(name);
        folder.write("ours", "ours.part", "text").unwrap();
        assert_eq!(folder.read("ours").unwrap().text, "text");
        assert_eq!(folder.names().unwrap(), ["ours"]);
        symlink("ours", at("link")).unwrap();
        fs::create_dir(at("inner")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        for name in ["link", "inner", "pipe", "missing", "", ".", "..", "../folder/ours"] {
            assert!(folder.read(name).is_err(), "{name}");
        }
        assert!(folder.write("../x", "part", "text").is_err() && !place.join("x").exists());
        assert!(folder.remove("../folder").is_err());
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(at("ours"), fs::Permissions::from_mode(mode)).unwrap();
            assert!(folder.read("ours").is_err(), "{mode:o}");
        }
        fs::set_permissions(at("ours"), fs::Permissions::from_mode(0o600)).unwrap();
        if geteuid().is_root() {
            chown(at("ours"), Some(STRANGER), None).unwrap();
            assert!(folder.read("ours").is_err(), "a stranger's");
        }
        fs::remove_dir_all(place).unwrap();
    }

    /// The step at which an attacker has to come: after the folder was opened, before it is read
    /// and written.
    #[test]
    fn a_folder_that_is_exchanged_after_it_was_opened_stays_the_one_that_was_opened() {
        let place = place("exchanged");
        let (path, forged) = (place.join("folder"), place.join("forged"));
        let folder = OwnFolder::open(path.clone()).unwrap();
        folder.write("state", "state.part", "ours").unwrap();
        fs::create_dir(&forged).unwrap();
        fs::write(forged.join("state"), "forged").unwrap();
        fs::rename(&path, place.join("away")).unwrap();
        let by_link = |from: &Path, to: &Path| symlink(from, to);
        for exchange in [|from: &Path, to: &Path| fs::rename(from, to), by_link] {
            exchange(&forged, &path).unwrap();
            assert_eq!(folder.read("state").unwrap().text, "ours");
            folder.write("new", "new.part", "ours").unwrap();
            assert!(folder.names().unwrap().contains(&"new".to_owned()));
            folder.remove("new").unwrap();
            assert!(path.join("state").exists() && !path.join("new").exists());
            match path.symlink_metadata().unwrap().is_dir() {
                true => fs::rename(&path, &forged).unwrap(),
                false => fs::remove_file(&path).unwrap(),
            }
        }
        fs::remove_dir_all(place).unwrap();
    }

    /// The same by luck, as often as it goes in so many starts.
    #[test]
    fn whoever_exchanges_folders_meanwhile_is_never_believed() {
        if !geteuid().is_root() {
            eprintln!("skipped: it takes two users");
            return;
        }
        let place = place("race");
        let (path, forged) = (place.join("folder"), place.join("forged"));
        OwnFolder::open(path.clone()).unwrap().write("state", "part", "ours").unwrap();
        fs::create_dir(&forged).unwrap();
        fs::write(forged.join("state"), "forged").unwrap();
        for theirs in [&place, &forged, &forged.join("state")] {
            chown(theirs, Some(STRANGER), Some(STRANGER)).unwrap();
        }
        let is_over = AtomicBool::new(false);
        let exchanged = std::thread::scope(|scope| {
            let attacker = scope.spawn(|| {
                let stranger = rustix::process::Uid::from_raw(STRANGER);
                rustix::thread::set_thread_res_uid(stranger, stranger, stranger).unwrap();
                let mut times = 0;
                while !is_over.load(Ordering::Relaxed) && times < 10_000_000 {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, &path, CWD, &forged, flags).unwrap();
                    times += 1;
                }
                times
            });
            for _ in 0..2_000 {
                let Ok(folder) = OwnFolder::open(path.clone()) else { continue };
                assert_eq!(folder.read("state").unwrap().text, "ours");
                folder.write("state", "part", "ours").unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            attacker.join().unwrap()
        });
        assert!(exchanged > 0);
        let theirs = [&path, &forged].map(|at| fs::read_to_string(at.join("state")).unwrap());
        assert!(theirs.contains(&"forged".to_owned()), "{theirs:?}");
        fs::remove_dir_all(place).unwrap();
    }
}
