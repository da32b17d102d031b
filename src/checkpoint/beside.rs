//! Writes a file under a temporary name, then renames it. Whoever opens the final name finds the old file or the new one, whole.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    checkpoint::{fault, refused},
    error::Error,
};

/// Stands between the target's name and the numbers of the temporary file.
const SUFFIX: &str = ".tmp-";

/// A temporary file under way, locked until it is done. It is removed if dropped before `replace`. A killed process
/// leaves it behind unlocked, and the next save removes it. A link stays, and so do the permissions of an old file.
#[derive(Debug)]
pub(crate) struct Beside {
    path: PathBuf,
    /// The path, or where a link there leads.
    target: PathBuf,
    temporary: PathBuf,
    file: File,
    placed: bool,
}

impl Beside {
    /// Begins the file that will replace `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        const WANTED: &str = "a path that can be written";
        let failed = |found| fault(path, "file", WANTED, found, REMEDY);
        let name = path.file_name().ok_or_else(|| failed("a path without a file name"))?;
        let old = fs::metadata(path).ok();
        match &old {
            Some(old) if old.is_dir() => return Err(failed("a folder")),
            Some(old) if !old.is_file() => return Err(failed("a pipe or a device")),
            _ => {}
        }
        let target = if path.is_symlink() { fs::canonicalize(path) } else { Ok(path.to_owned()) };
        let target = target.map_err(|error| refused(path, "file", WANTED, &error, REMEDY))?;
        let name = target.file_name().unwrap_or(name);
        remove_left_over(&target, name);
        let mut number = 0;
        loop {
            let mut temporary = name.to_os_string();
            temporary.push(format!("{SUFFIX}{}-{number}", std::process::id()));
            let temporary = target.with_file_name(temporary);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                // Another save may have removed the file as left over in this instant. Where files have no locks,
                // nothing is removed.
                Ok(file) if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && temporary.exists() => {
                    if let Some(old) = old {
                        // Some file systems have no permissions.
                        let _kept = file.set_permissions(old.permissions());
                    }
                    return Ok(Self { path: path.into(), target, temporary, file, placed: false });
                }
                Ok(_) => {}
                // The file of another thread, or of a dead process with the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refused(path, "file", WANTED, &error, REMEDY)),
            }
            number += 1;
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| self.failed(&error))
    }

    /// Replaces the target, and returns once the file and its name are on disk.
    pub(crate) fn replace(mut self) -> Result<(), Error> {
        let placed = self.file.sync_all().and_then(|()| fs::rename(&self.temporary, &self.target));
        placed.map_err(|error| self.failed(&error))?;
        self.placed = true;
        sync_folder(&self.target).map_err(|error| {
            let remedy = "the new file is there and whole, but a power failure may bring the old one back: save again";
            refused(&self.path, "folder", "to write it to disk", &error, remedy)
        })
    }

    fn failed(&self, error: &io::Error) -> Error {
        refused(&self.path, "file", "to write it whole", error, REMEDY)
    }
}

/// Writes a file as a checkpoint is written: whoever opens `path` finds the old file or the new one, whole.
///
/// # Errors
/// [`Error::Checkpoint`] if it cannot be written; what stood there before still does.
#[cfg(feature = "ranks")]
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = Beside::create(path)?;
    file.write(bytes)?;
    file.replace()
}

/// As [`write_whole`], of a file that `write` fills.
///
/// # Errors
/// Those of `write`, and [`Error::Checkpoint`].
#[cfg(feature = "ranks")]
pub fn write_pieces<E: From<Error>>(path: &Path, write: impl FnOnce(&File) -> Result<(), E>) -> Result<(), E> {
    let file = Beside::create(path)?;
    write(&file.file)?;
    Ok(file.replace()?)
}

const REMEDY: &str = "make room or give another path; what stood there before still does";

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.placed {
            // There is no one to report an error to. The next save tries to remove the file again.
            let _left = fs::remove_file(&self.temporary);
        }
    }
}

/// Removes files that killed saves to `path` left behind: temporary names without a lock. A file that cannot be removed
/// does no harm.
fn remove_left_over(path: &Path, name: &OsStr) {
    for entry in fs::read_dir(folder(path)).into_iter().flatten().flatten() {
        if is_temporary(name, &entry.file_name())
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _left = fs::remove_file(entry.path());
        }
    }
}

/// Whether `found` is `<name>.tmp-<process>-<number>`.
fn is_temporary(name: &OsStr, found: &OsStr) -> bool {
    let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
    let numbers = rest.and_then(|rest| rest.strip_prefix(SUFFIX.as_bytes()));
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    numbers.is_some_and(|numbers| {
        let parts: Vec<_> = numbers.split(|&byte| byte == b'-').collect();
        parts.len() == 2 && parts.into_iter().all(is_number)
    })
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A rename is durable once its folder is on disk. Only Unix can sync a folder; elsewhere the system does.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
