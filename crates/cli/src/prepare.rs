//! Where a run is to be kept: made, and tried out before anything is measured.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use millstream_record::error::Error;
use millstream_record::own_folder::{behind_no_link_of_another, create_anew};
use millstream_record::store::{Location, Store};

/// Folders that were made to try them out, the outermost first. They go again with this unless
/// something is to be kept in them: what is refused before it is begun leaves nothing behind.
#[derive(Debug, Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// Makes the folder of the page and tries out that something can be written there: what is
    /// wrong is better known before the measuring than after it.
    pub fn page_folder(&mut self, folder: &Path) -> Result<(), Error> {
        behind_no_link_of_another(folder)?;
        let named = || format!("--out {}", folder.display());
        self.tried_out(folder).map_err(Error::file(named()))
    }

    /// Does the same for a database file that is not there yet. The file itself is made by
    /// [`new_store`]: another process might open it before it is taken away here, and keep its runs
    /// in no file.
    pub fn database_folder(&mut self, at: &Location) -> Result<(), Error> {
        let Some(file) = at.file() else { return Ok(()) };
        match Store::is_missing(file)? {
            true => self.tried_out(folder_of(file)).map_err(Error::file(unwritable(file))),
            false => Ok(()),
        }
    }

    /// Keeps the folders.
    pub fn keep(&mut self) {
        self.0.clear();
    }

    fn folder(&mut self, folder: &Path) -> io::Result<()> {
        let missing = folder.ancestors().take_while(|one| !one.as_os_str().is_empty());
        let missing: Vec<_> = missing.take_while(|one| !one.exists()).collect();
        for one in missing.into_iter().rev() {
            // The command removes only what it made here. It keeps a file that was there under
            // another name, and one that another process makes.
            if fs::create_dir(one).is_ok() {
                self.0.push(one.to_owned());
            }
        }
        fs::create_dir_all(folder)
    }

    /// Makes a folder and writes something into it, once more where another process that had made
    /// it took it away between the two.
    fn tried_out(&mut self, folder: &Path) -> io::Result<()> {
        self.folder(folder)?;
        match try_out(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.folder(folder)?;
                try_out(folder)
            }
            tried => tried,
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // One in which somebody has put something meanwhile stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Writes something into a folder, and takes it away again.
fn try_out(folder: &Path) -> io::Result<()> {
    let trial = folder.join(format!(".millstream-{}.part", std::process::id()));
    let tried = create_anew(&trial).and_then(|mut file| file.write_all(b"x"));
    let _ = fs::remove_file(&trial);
    tried
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unwritable(file: &Path) -> String {
    format!("cannot write {} (--db names another file)", file.display())
}

/// Opens the store, where there is one already: a fault of it, or of the way to it, is better known
/// before the measuring. One that is not there yet is made when an experiment begins. Names of
/// servers are looked up by a thread, so this is for after [`setting`](crate::setting::setting).
pub fn existing_store(at: &Location) -> Result<Option<Store>, Error> {
    match Store::is_missing(at)? {
        true => Ok(None),
        false => new_store(at).map(Some),
    }
}

/// Opens the store, which is made where it is missing, with its folder: another command that tried
/// it out may have taken that away again.
pub fn new_store(at: &Location) -> Result<Store, Error> {
    if let Some(file) = at.file() {
        fs::create_dir_all(folder_of(file)).map_err(Error::file(unwritable(file)))?;
    }
    Ok(Store::open(at)?)
}

/// Tries out that the file of `--json` can be written. Its contents stay until there is something
/// new.
pub fn prepare_json(path: &Path) -> Result<(), Error> {
    if path == Path::new("-") {
        return Ok(());
    }
    let existed = path.symlink_metadata().is_ok();
    // A pipe is opened when its reader may be there: at the end.
    if path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Ok(());
    }
    let opened = fs::File::options().append(true).create(true).open(path);
    opened.map_err(Error::file(format!("--json {}", path.display())))?;
    if !existed {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_under_whatever_name() {
        let place = std::env::temp_dir().join(format!("ms-prepare-{}", std::process::id()));
        let [there, other, inside] =
            ["there", "new/../there", "new/inner"].map(|one| place.join(one));
        fs::create_dir_all(&there).unwrap();
        let mut made = Made::default();
        made.page_folder(&other).unwrap();
        made.page_folder(&inside).unwrap();
        made.database_folder(&place.join("data/store.sqlite3").into()).unwrap();
        assert!(inside.exists() && place.join("data").exists());
        drop(made);
        let left: Vec<_> = fs::read_dir(&place).unwrap().map(|one| one.unwrap().path()).collect();
        assert_eq!(left, [there]);
        let mut made = Made::default();
        made.page_folder(&inside).unwrap();
        made.keep();
        drop(made);
        assert!(inside.exists());
        fs::remove_dir_all(&place).unwrap();
    }
}
