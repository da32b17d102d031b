//! A table in a memory-mapped file, for tables larger than RAM.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    config::GroupConfig,
    error::{Cause, Error, cause},
    host::{
        positioned::{read_exact_at, write_all_at},
        trusted::{AHEAD, Mapping},
    },
    store::{
        Store, check_list, check_range, each_record,
        header::{self, Header, PAGE, Progress},
    },
    table::layout::Layout,
};

/// Rows that are asked for at once. A solid-state drive wants about 64 reads at a time; of more, a look at four of them costs less a row.
#[cfg(unix)]
const AT_ONCE: usize = 512;

/// Most bytes that are gathered for one write, unless one record is larger.
const RUN: usize = 1 << 20;

/// Records in a file: a page of header, then row after row.
///
/// Rows are read through a map of the file and written to their place, so that a full disk is an error of the write. Rows that were never
/// written are holes if the file system supports holes, and read as zeros. The file is locked while the store lives. Before each read and
/// write the store compares the file's length and time of change with those after its own last write, and returns [`Error::Store`] if
/// another program has changed the file. A program that ignores the lock and truncates the file within that instant can still end this one
/// (SIGBUS). The store is for local file systems: one that updates a file's times late, as NFS may, looks like such a program.
///
/// ```
/// use hotrow::{FileStore, GroupConfig, SharedStore, store};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("table.hotrow");
/// let config = GroupConfig::new(&[100], 8);
/// let table = SharedStore::new(FileStore::create(&path, &config)?);
/// table.with_mut(|records| store::fill(records, &config, None))?;
/// drop(table); // unlocks the file
/// let again = SharedStore::new(FileStore::open(&path, &config)?); // `Group::with_store` takes it
/// assert_eq!(again.read_rows(&config, &[99])?, [0.0; 8]);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    file: File,
    map: Mapping,
    header: Header,
    progress: Progress,
    was_flushed: bool,
    /// Time of change of the file after this store's last write.
    modified: Option<SystemTime>,
    /// The system's error when rows could not be made durable. The system reports it once, and forgets the rows.
    lost: Option<Cause>,
}

impl FileStore {
    /// Creates a file at `path` for a group of this configuration, without values. A group, or [`fill`](crate::store::fill), fills it.
    ///
    /// # Errors
    /// [`Error::Config`], and [`Error::Store`] if the file exists already, or the file system refuses. After an error there is no new file.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn create(path: impl AsRef<Path>, config: &GroupConfig) -> Result<Self, Error> {
        let path = path.as_ref();
        let header = Header::new(config, &Layout::new(config, u64::MAX)?);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::AlreadyExists => "open it, or remove it first",
                _ => "name another file",
            };
            failed(path, "creation", "a new file".into(), &error, remedy)
        })?;
        let made = lock(path, &file)
            .and_then(|()| {
                // Elsewhere a file that only has a length is sparse already. Where the file system cannot, the table takes its whole size.
                #[cfg(windows)]
                if let Err(error) = crate::host::trusted::make_sparse(&file) {
                    log::warn!(
                        "{}: wanted a sparse file, found {error}: it takes its whole size from the start",
                        path.display()
                    );
                }
                let wanted = format!("{} bytes", header.file_bytes());
                file.set_len(header.file_bytes()).map_err(|error| failed(path, "creation", wanted, &error, ROOM))
            })
            .and_then(|()| {
                let wanted = || "a header written".into();
                write_all_at(&file, header.bytes(), 0).map_err(|error| failed(path, "creation", wanted(), &error, ROOM))
            })
            .and_then(|()| Self::new(path, file, header, Progress::Filling));
        if made.is_err() {
            // This file is new and useless. If it cannot be removed, the error still names the reason why it was to be.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens the file at `path`, which must have been made for a group of this configuration.
    ///
    /// A file whose writer was killed opens too: see [`FileStore::was_flushed`].
    ///
    /// # Errors
    /// [`Error::Config`], and [`Error::Store`] for a file that does not exist, is locked by another writer, is foreign or damaged, has
    /// another configuration, is truncated, or is not filled yet.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn open(path: impl AsRef<Path>, config: &GroupConfig) -> Result<Self, Error> {
        let path = path.as_ref();
        let wanted = Header::new(config, &Layout::new(config, u64::MAX)?);
        let open = |error| failed(path, "opening", "a file to read and write".into(), &error, "name another file");
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(open)?;
        lock(path, &file)?;
        let mut start = Vec::new();
        file.by_ref().take(header::BYTES as u64).read_to_end(&mut start).map_err(open)?;
        let bytes = file.metadata().map_err(open)?.len();
        let short = || wrong_length(path, wanted.file_bytes(), bytes);
        let header = Header::read(&name(path), &start, &wanted)?.ok_or_else(short)?;
        if bytes != header.file_bytes() {
            return Err(short());
        }
        match header.progress() {
            Some(progress @ (Progress::Flushed | Progress::Unflushed)) => Self::new(path, file, header, progress),
            _ => Err(Error::Store {
                store: name(path),
                what: "filling",
                wanted: "a table with all its first values".into(),
                found: "one whose filling was cut short".into(),
                remedy: "remove it and create it anew",
                source: None,
            }),
        }
    }

    fn new(path: &Path, file: File, header: Header, progress: Progress) -> Result<Self, Error> {
        let wanted = || format!("{} bytes mapped", header.file_bytes());
        let map =
            Mapping::new(&file).map_err(|error| failed(path, "opening", wanted(), &error, "take a table in RAM"))?;
        // An absolute path leads to the same file after the program changes its working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let was_flushed = progress == Progress::Flushed;
        let mut store = Self { path, file, map, header, progress, was_flushed, modified: None, lost: None };
        store.remember();
        Ok(store)
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file had all rows when it was opened. If not, its last writer ended between two flushes: the rows then have values of
    /// different steps, from [`Store::step`] on, and values that only the cache had are lost. A row on two pages, whose writer was killed or the machine
    /// with it, may have parts of two steps. False for a file just created.
    #[must_use]
    pub fn was_flushed(&self) -> bool {
        self.was_flushed
    }

    fn at(&self, row: u32) -> u64 {
        PAGE + u64::from(row) * self.stride()
    }

    /// Remembers the time of this store's own change.
    fn remember(&mut self) {
        self.modified = self.file.metadata().and_then(|data| data.modified()).ok();
    }

    /// Checks that no other program has changed the file.
    fn check_ours(&self) -> Result<(), Error> {
        let data = self.file.metadata().map_err(|error| self.failed("reading", "the file's length", &error))?;
        if data.len() != self.header.file_bytes() {
            return Err(wrong_length(&self.path, self.header.file_bytes(), data.len()));
        }
        let modified = data.modified().ok();
        if modified != self.modified {
            let time = |at: Option<SystemTime>| {
                let since = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
                since.map_or("an unknown time".into(), |since| format!("{:.9} s", since.as_secs_f64()))
            };
            return Err(Error::Store {
                store: self.name(),
                what: "time of change",
                wanted: format!("{}, its own last write", time(self.modified)),
                found: time(modified),
                remedy: "keep other programs from it; restore the table from a checkpoint",
                source: None,
            });
        }
        Ok(())
    }

    /// Checks that the path still leads to the file. Rows written to a file without a name would be lost with it.
    fn check_found(&self) -> Result<(), Error> {
        let (found, source) = match (self.path.metadata(), self.file.metadata()) {
            (Err(error), _) | (_, Err(error)) => (error.to_string(), Some(cause(&error))),
            (Ok(there), Ok(ours)) if same_file(&there, &ours) => return Ok(()),
            _ => ("another file there".into(), None),
        };
        let remedy = "save a checkpoint before this table is closed, and keep other programs from its file";
        Err(Error::Store {
            store: self.name(),
            what: "file",
            wanted: "it still at this path".into(),
            found,
            remedy,
            source,
        })
    }

    fn name(&self) -> String {
        name(&self.path)
    }

    fn failed(&self, what: &'static str, wanted: &str, error: &io::Error) -> Error {
        failed(&self.path, what, wanted.into(), error, "see to the disk, then call again")
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), Error> {
        let wanted = || format!("{} bytes written", bytes.len());
        write_all_at(&self.file, bytes, at).map_err(|error| failed(&self.path, "writing", wanted(), &error, ROOM))
    }

    /// Waits until all written bytes are on the disk.
    fn sync(&mut self) -> Result<(), Error> {
        if self.lost.is_none() {
            self.lost = self.file.sync_all().err().as_ref().map(cause);
        }
        let Some(lost) = self.lost.clone() else { return Ok(()) };
        let found = lost.to_string();
        let remedy = "rows written since the last flush may be lost: save a checkpoint elsewhere, then see to the disk";
        Err(Error::Store {
            store: self.name(),
            what: "writing",
            wanted: "all of it on the disk".into(),
            found,
            remedy,
            source: Some(lost),
        })
    }

    /// Writes a new header to the disk.
    fn proceed(&mut self, progress: Progress, step: u32) -> Result<(), Error> {
        let header = self.header.at(progress, step);
        let written = self.write_at(header.bytes(), 0);
        self.remember();
        written?;
        self.sync()?;
        (self.header, self.progress) = (header, progress);
        Ok(())
    }

    /// Writes the records of `rows`. Records with less than a page between them are written in one call, and the bytes between them are
    /// written again unchanged. One call is faster than two, and touches no other page.
    fn write_list(&self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        let stride = self.stride() as usize;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|&k| rows[k]);
        let mut run = Vec::new();
        let mut rest = &order[..];
        while let [first, ..] = *rest {
            let start = self.at(rows[first]);
            run.clear();
            let mut count = 0;
            for &k in rest {
                let end = run.len();
                let at = (self.at(rows[k]) - start) as usize;
                let near = at >= end && at - end < PAGE as usize && at + stride <= RUN;
                if count > 0 && !near {
                    break;
                }
                run.resize(at, 0);
                self.map.copy(start as usize + end, &mut run[end..]);
                run.extend_from_slice(&records[k * stride..(k + 1) * stride]);
                count += 1;
            }
            self.write_at(&run, start)?;
            rest = &rest[count..];
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn check(&self, config: &GroupConfig) -> Result<(), Error> {
        let wanted = Header::new(config, &Layout::new(config, u64::MAX)?);
        Header::read(&name(&self.path), self.header.bytes(), &wanted).map(drop)
    }

    fn rows(&self) -> u32 {
        self.header.rows()
    }

    fn stride(&self) -> u64 {
        self.header.stride()
    }

    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error> {
        check_list(&self.name(), self.rows(), self.stride(), rows, out.len())?;
        self.check_ours()?;
        let stride = self.stride() as usize;
        each_record(out, stride, |k, record| {
            #[cfg(unix)]
            if k % AT_ONCE == 0 {
                let starts = rows[k..].iter().take(AT_ONCE).map(|&row| self.at(row) as usize);
                self.map.request(&starts.collect::<Vec<_>>(), stride);
            }
            if let Some(&next) = rows.get(k + AHEAD) {
                self.map.prefetch(self.at(next) as usize, stride);
            }
            self.map.copy(self.at(rows[k]) as usize, record);
        });
        Ok(())
    }

    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        check_list(&self.name(), self.rows(), self.stride(), rows, records.len())?;
        self.unflushed()?;
        self.check_ours()?;
        let written = self.write_list(rows, records);
        self.remember();
        written
    }

    fn read_range(&self, first_row: u32, out: &mut [u8]) -> Result<(), Error> {
        check_range(&self.name(), self.rows(), self.stride(), first_row, out.len())?;
        self.check_ours()?;
        let wanted = format!("{} bytes read", out.len());
        read_exact_at(&self.file, out, self.at(first_row)).map_err(|error| self.failed("reading", &wanted, &error))
    }

    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error> {
        check_range(&self.name(), self.rows(), self.stride(), first_row, records.len())?;
        self.unflushed()?;
        self.check_ours()?;
        let written = self.write_at(records, self.at(first_row));
        self.remember();
        written
    }

    fn unflushed(&mut self) -> Result<(), Error> {
        if self.progress != Progress::Flushed {
            return Ok(());
        }
        self.check_ours()?;
        self.check_found()?;
        self.proceed(Progress::Unflushed, self.step())
    }

    fn flushed(&mut self, step: u32) -> Result<(), Error> {
        if (self.progress, self.header.step) == (Progress::Flushed, step) {
            return Ok(()); // nothing was written since
        }
        self.check_ours()?;
        self.check_found()?;
        self.sync()?; // first the rows, then the header that counts on them
        self.proceed(Progress::Flushed, step)
    }

    fn step(&self) -> u32 {
        self.header.step
    }

    fn filled(&self) -> bool {
        self.progress != Progress::Filling
    }
}

const ROOM: &str = "make room on the disk, then call again";

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn failed(path: &Path, what: &'static str, wanted: String, error: &io::Error, remedy: &'static str) -> Error {
    Error::Store { store: name(path), what, wanted, found: error.to_string(), remedy, source: Some(cause(error)) }
}

fn wrong_length(path: &Path, wanted: u64, found: u64) -> Error {
    Error::Store {
        store: name(path),
        what: "length",
        wanted: format!("{wanted} bytes"),
        found: format!("{found} bytes"),
        remedy: "restore the table from a checkpoint",
        source: None,
    }
}

impl Drop for FileStore {
    /// Unlocks the file at once. A process that another thread is just starting has a copy of the handle until it runs its own program;
    /// without this it would keep the lock for that moment.
    fn drop(&mut self) {
        let _nobody_to_tell = self.file.unlock();
    }
}

/// Keeps other writers out for as long as `file` is open.
fn lock(path: &Path, file: &File) -> Result<(), Error> {
    let (found, source) = match file.try_lock() {
        Ok(()) => return Ok(()),
        Err(TryLockError::WouldBlock) => ("it locked by another writer".into(), None),
        Err(TryLockError::Error(error)) => (error.to_string(), Some(cause(&error))),
    };
    let remedy = "end the other writer, or take a file system with locks";
    Err(Error::Store { store: name(path), what: "lock", wanted: "the file to itself".into(), found, remedy, source })
}

#[cfg(unix)]
fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// On Windows a mapped file can be neither removed nor replaced.
#[cfg(not(unix))]
fn same_file(_: &std::fs::Metadata, _: &std::fs::Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hole of a file is in memory once it was read.
    #[cfg(unix)]
    #[test]
    fn a_page_that_nobody_has_read_is_requested() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        let map = Mapping::new(&file).unwrap();
        assert!(!map.is_resident(300_000));
        let read = |at| {
            let mut byte = [1];
            map.copy(at, &mut byte);
            byte
        };
        assert_eq!(read(300_000), [0]);
        assert!(map.is_resident(300_000) && !map.is_resident(60_000_000));
        map.request(&[300_000, 60_000_000], 8);
        assert_eq!(read(60_000_000), [0]);
        assert!(map.is_resident(60_000_000));
    }

    /// A copy of the handle, as a process that is being started has one.
    #[test]
    fn a_copy_of_the_handle_keeps_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let config = GroupConfig::new(&[10], 4);
        let store = FileStore::create(&path, &config).unwrap();
        let copy = store.file.try_clone().unwrap();
        drop(store);
        let fault = || match FileStore::open(&path, &config) {
            Err(Error::Store { what, .. }) => what,
            found => panic!("{found:?}"),
        };
        assert_eq!(fault(), "filling", "behind the lock: the table has no values yet");

        // The companion: a handle that is closed but not unlocked.
        let plain = File::open(&path).unwrap();
        lock(&path, &plain).unwrap();
        let other = plain.try_clone().unwrap();
        drop(plain);
        assert_eq!(fault(), "lock");
        drop((copy, other));
    }
}
