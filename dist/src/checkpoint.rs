//! Checkpoints of a group on several ranks: a folder with one ordinary checkpoint for each virtual shard, and a list of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hotrow::{
    Error, GroupConfig, checkpoint,
    ranks::{Shard, fault, refused, write_whole},
    state::Part,
};
use serde::Deserialize as _;

use crate::{comm::Comm, group::Group};

/// The list of the files. It is written last, so the files that it names are whole and of one moment.
const LIST: &str = "shards.json";
const FORMAT: &str = "hotrow shards 1";
pub(crate) const FOREIGN: &str = "give the path of a folder that hotrow_dist::Group::save wrote, unchanged";

/// The contents of the list.
pub(crate) struct List {
    /// The number of the save: the names of its files have it.
    pub(crate) save: u32,
    pub(crate) shards: u32,
    /// The rows of each table of the whole group, and those of its cache.
    pub(crate) tables: Vec<u32>,
    pub(crate) cache_rows: u32,
}

impl List {
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join(LIST)
    }

    pub(crate) fn file(folder: &Path, save: u32, shard: u32) -> PathBuf {
        folder.join(format!("save-{save}-shard-{shard}.safetensors"))
    }

    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let path = Self::path(folder);
        let wanted = "a list of shards";
        let text = fs::read(&path).map_err(|error| refused(&path, "file", wanted, &error, FOREIGN))?;
        let list: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| fault(&path, "file", wanted, &error, FOREIGN))?;
        let format = list["format"].as_str().unwrap_or("none");
        if format != FORMAT {
            return Err(fault(&path, "format", FORMAT, format, FOREIGN));
        }
        let wrong = |field: &'static str, wanted| fault(&path, field, wanted, &list[field], FOREIGN);
        let number = |field: &'static str| u32::deserialize(&list[field]).map_err(|_| wrong(field, "a number"));
        let tables = Vec::deserialize(&list["tables"]).map_err(|_| wrong("tables", "a list of numbers"))?;
        Ok(Self { save: number("save")?, shards: number("shards")?, tables, cache_rows: number("cache_rows")? })
    }

    /// Checks the numbers of shards and tables against the header of the first shard.
    pub(crate) fn check(&self, folder: &Path, first: &GroupConfig) -> Result<(), Error> {
        let path = Self::path(folder);
        // The distance between two rows of a shard.
        let shards = u64::from(first.whole_row(1) - first.whole_row(0));
        if u64::from(self.shards) != shards {
            let wanted = format!("{shards}, as the first shard says");
            return Err(fault(&path, "shards", wanted, &self.shards, FOREIGN));
        }
        if self.tables.len() != first.tables.len() {
            let wanted = format!("{}, as the first shard has", first.tables.len());
            return Err(fault(&path, "tables", wanted, &self.tables.len(), FOREIGN));
        }
        Ok(())
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), Error> {
        let Self { save, shards, tables, cache_rows } = self;
        let list = serde_json::json!({
            "format": FORMAT, "save": save, "shards": shards, "tables": tables, "cache_rows": cache_rows,
        });
        write_whole(&Self::path(folder), list.to_string().as_bytes())
    }
}

impl<C: Comm, S: Shard> Group<C, S> {
    /// Saves the group to a folder that all ranks can write. There is one ordinary [checkpoint](hotrow::checkpoint) for each virtual shard, and a list that
    /// is written last: a job that is killed leaves the checkpoint before, whole. A folder holds one checkpoint; the files of an older one are removed.
    ///
    /// ```
    /// use hotrow::{Bags, CpuGroup, GroupConfig, Lookup, Mode};
    /// use hotrow_dist::{Group, Threads};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("table");
    /// fn group(comm: &mut Threads) -> Result<Group<&mut Threads, CpuGroup>, hotrow::Error> {
    ///     Group::new(comm, GroupConfig::new(&[100], 4), 4, CpuGroup::new)
    /// }
    /// Threads::run(4, |comm: &mut Threads| {
    ///     let mut group = group(comm)?;
    ///     let outputs = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
    ///     group.backward(&outputs)?;
    ///     group.save(&path)
    /// })?;
    /// // Later, on two ranks:
    /// Threads::run(2, |comm: &mut Threads| group(comm)?.load(&path))?;
    /// # Ok::<(), hotrow::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Checkpoint`] as [`checkpoint::save`], of this rank, or [`RankError::Other`](crate::RankError::Other) of another; [`Error::Order`] between forward and backward. The
    /// checkpoint before is whole then.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<(), Error> {
        let folder = folder.as_ref();
        let (before, shards) = List::read(folder).map_or((0, 0), |list| (list.save, list.shards));
        // Only a list that another program wrote has the last number. Number 1 is free then, for the list names no other files.
        let save = self.comm().max(before)?.checked_add(1).unwrap_or(1);
        let whole = self.whole().and_then(|()| self.not_prefetched("save"));
        let made = fs::create_dir_all(folder).map_err(|error| {
            refused(folder, "folder", "one that can be made", &error, "choose a folder that can be written")
        });
        let one = |(number, shard)| checkpoint::save(shard, List::file(folder, save, number));
        let saved = whole.and(made).and_then(|()| self.with_rows().try_for_each(one));
        let own: Vec<u32> = self.shards().map(|(number, _)| number).collect();
        // What cannot be removed does no harm.
        let remove = |save, shards: &mut dyn Iterator<Item = u32>| {
            shards.for_each(|shard| drop(fs::remove_file(List::file(folder, save, shard))));
        };
        if let Err(error) = self.link.agree(saved) {
            // No list names these files, and a full disk needs their room.
            remove(save, &mut own.into_iter());
            return Err(error);
        }
        let (tables, cache_rows) = (self.config().tables.clone(), self.config().cache_rows);
        let list = List { save, shards: self.shard_count(), tables, cache_rows };
        let listed = if self.rank() == 0 { list.write(folder) } else { Ok(()) };
        if let Err(error) = self.link.agree(listed) {
            // The list may have taken its place before the error.
            let old = List::read(folder).map_or(!List::path(folder).is_file(), |list| list.save == before);
            if old {
                remove(save, &mut own.into_iter());
            }
            return Err(error);
        }
        // The save before may have had more shards.
        let further = if self.rank() == 0 { self.shard_count()..shards } else { 0..0 };
        remove(before, &mut own.into_iter().chain(further));
        Ok(())
    }

    /// Loads a checkpoint that a group with as many virtual shards, on any number of ranks and any backend, saved. The group goes on as that one would have,
    /// bit for bit.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] as [`checkpoint::load`], of this rank, or [`RankError::Other`](crate::RankError::Other) of another; [`Error::Order`] between forward and backward. If the list
    /// cannot be read, nothing has changed. After any later error some shards may be loaded, or the files are of different steps: the group refuses steps,
    /// reads and saves until a checkpoint is loaded.
    pub fn load(&mut self, folder: impl AsRef<Path>) -> Result<(), Error> {
        let folder = folder.as_ref();
        let shards = self.shard_count();
        let read = self.not_prefetched("load").and_then(|()| self.not_waiting("load")).and_then(|()| {
            let list = List::read(folder)?;
            if list.shards != shards {
                let remedy =
                    "make the group with as many shards as the checkpoint has, or change them by hotrow_dist::reshard, or the command hotrow reshard";
                return Err(fault(&List::path(folder), "shards", shards.to_string(), &list.shards, remedy));
            }
            Ok(list.save)
        });
        let save = read.as_ref().copied().unwrap_or_default();
        self.link.agree(read.map(drop))?;
        let one = |(number, shard)| checkpoint::load(shard, List::file(folder, save, number));
        let loaded = self.with_rows().try_for_each(one);
        let loaded = self.link.agree(loaded).and_then(|()| self.same_step(folder));
        self.loaded(loaded)
    }

    /// This rank's shards that have rows, each with its number.
    fn with_rows(&mut self) -> impl Iterator<Item = (u32, &mut S)> {
        self.shards().filter_map(|(number, shard)| Some((number, shard?)))
    }

    /// Checks that all shards are of one step. All ranks call this.
    fn same_step(&mut self, folder: &Path) -> Result<(), Error> {
        let (mut least, mut most) = (u32::MAX, 0);
        for (_, shard) in self.with_rows() {
            let mut step = [0];
            shard.read_part(Part::Clock, 0, &mut step)?;
            (least, most) = (least.min(step[0]), most.max(step[0]));
        }
        (least, most) = (!self.comm().max(!least)?, self.comm().max(most)?);
        if least == most {
            return Ok(());
        }
        let found = format!("steps from {least} to {most}");
        Err(fault(&List::path(folder), "step", "the same in the files of all shards", &found, FOREIGN))
    }
}
