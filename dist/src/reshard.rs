//! Another number of virtual shards for a checkpoint of a group on several ranks.

use std::{fs, path::Path};

use hotrow::{
    Counters, CpuGroup, Embedding, Error, GroupConfig, Init, Lookup, checkpoint,
    ranks::{DIRTY, Layout, NONE, PINNED, check_same, fault, refused, shards as shards_of, write_parts, zeroed},
    state::Part,
};

use crate::{
    checkpoint::{FOREIGN, List},
    group::added,
};

/// What [`reshard`] has done.
///
/// Example: [`reshard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resharded {
    /// The number of virtual shards before.
    pub before: u32,
    /// Rows of all tables.
    pub rows: u64,
    /// Rows that were newer in the cache than in their records, and were written back: in a precision below FP32 they were rounded, as by
    /// [`Embedding::flush`].
    pub written_back: u64,
    /// Rows that were pinned, and no longer are.
    pub unpinned: u64,
    /// Bytes of the new files, without their list.
    pub bytes: u64,
}

/// Writes the checkpoint in folder `from`, which [`Group::save`](super::Group::save) wrote, to a new folder `to` with another number of virtual shards, a
/// power of two. Every record (weights and optimiser state), frequency and the step number are kept, byte for byte; the counters are kept as sums.
///
/// The cache is not kept, since the sets of a row depend on the number of shards (SPEC 11): rows that are dirty in it are written back first, with the bits
/// of a [`CpuGroup::flush`](hotrow::Embedding::flush) at this moment, and the new cache is empty. Training goes on from the same rows, but with other hits and
/// so, below FP32, with other bits. A checkpoint of one shard is one ordinary [checkpoint](hotrow::checkpoint). The larger shard, old or new, is in memory.
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Lookup, Mode};
/// use hotrow_dist::{Group, Threads, reshard};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let (eight, two) = (folder.path().join("eight"), folder.path().join("two"));
/// let config = GroupConfig::new(&[100], 4).with_cache_rows(64);
/// let mut group = Group::new(Threads::alone(), config.clone(), 8, CpuGroup::new)?;
/// let outputs = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
/// group.backward(&outputs)?;
/// group.save(&eight)?;
///
/// let done = reshard(&eight, &two, 2)?;
/// assert_eq!((done.before, done.rows, done.written_back), (8, 100, 2));
/// let mut again = Group::new(Threads::alone(), config, 2, CpuGroup::new)?;
/// again.load(&two)?;
/// assert_eq!(again.read_rows(&[1, 2])?, group.read_rows(&[1, 2])?);
/// # Ok::<(), hotrow::Error>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for a number of shards that is no power of two. [`Error::Checkpoint`] if `to` exists or cannot be written, or a file of `from` is missing,
/// damaged or of another group. `to` is then as it was. [`Error::OutOfMemory`].
pub fn reshard(from: impl AsRef<Path>, to: impl AsRef<Path>, shards: u32) -> Result<Resharded, Error> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let list = List::read(from)?;
    let (config, step) = checkpoint::contents(List::file(from, list.save, 0))?;
    list.check(from, &config)?;
    let mut whole = config.with_init(Init::Constant(0.0)).with_cache_rows(list.cache_rows);
    whole.tables.clone_from(&list.tables);
    let before = shards_of(&whole, list.shards)
        .map_err(|error| fault(&List::path(from), "list", "tables, cache and shards of a group", &error, FOREIGN))?;
    // Nothing of the list's sizes is allocated before the files say the same.
    for (number, config) in (0..).zip(&before) {
        if let Some(config) = config {
            let path = List::file(from, list.save, number);
            check_same(&path, config, &checkpoint::contents(&path)?.0)?;
        }
    }
    let after = shards_of(&whole, shards)?;
    fs::create_dir(to).map_err(|error| {
        refused(to, "folder", "one that does not exist, in a folder that can be written", &error, "name another folder")
    })?;
    let job = Job { from, to, list: &list, step, before, after };
    let written = job.run().and_then(|done| List { save: SAVE, shards, ..list }.write(to).map(|()| done));
    if written.is_err() {
        // It was made here. What cannot be removed has no list, so nothing loads it.
        let _left = fs::remove_dir_all(to);
    }
    written
}

/// The number of the first save to a folder.
const SAVE: u32 = 1;

struct Job<'j> {
    from: &'j Path,
    to: &'j Path,
    list: &'j List,
    step: u32,
    /// The shards before and after; None for one without a row.
    before: Vec<Option<GroupConfig>>,
    after: Vec<Option<GroupConfig>>,
}

impl Job<'_> {
    fn run(&self) -> Result<Resharded, Error> {
        let rows = self.before.iter().flatten().map(GroupConfig::total_rows).sum();
        let mut done = Resharded { before: self.list.shards, rows, written_back: 0, unpinned: 0, bytes: 0 };
        let mut counters = vec![Counters::default(); self.list.tables.len()];
        let fewest = self.before.len().min(self.after.len());
        // Linear rows that are equal modulo the fewer shards go from some shards to others, and to no more. The first shard is written last, since it
        // gets all counters.
        for rest in (0..fewest).rev() {
            let mut groups = Vec::new();
            for number in (rest..self.before.len()).step_by(fewest) {
                groups
                    .push(self.before[number].as_ref().map(|config| self.load(number, config, &mut done)).transpose()?);
            }
            for group in groups.iter_mut().flatten() {
                counters = added(counters, group.counters()?);
            }
            let numbers = (rest..self.after.len()).step_by(fewest).rev();
            for number in numbers {
                if let Some(config) = &self.after[number] {
                    done.bytes += self.write(number, config, &mut groups, &counters)?;
                }
            }
        }
        Ok(done)
    }

    /// Loads a shard, and writes its dirty rows back.
    fn load(&self, number: usize, config: &GroupConfig, done: &mut Resharded) -> Result<CpuGroup, Error> {
        let path = List::file(self.from, self.list.save, number as u32);
        let mut group = CpuGroup::new(config.clone())?;
        checkpoint::load(&mut group, &path)?;
        let mut step = [0];
        group.read_part(Part::Clock, 0, &mut step)?;
        if step[0] != self.step {
            return Err(fault(&path, "step", format!("{}, that of the first shard", self.step), &step[0], FOREIGN));
        }
        let layout = group.layout().clone();
        let mut ways = zeroed("ways", Part::Ways.words(config, &layout) as usize)?;
        group.read_part(Part::Ways, 0, &mut ways)?;
        let flags = ways.chunks_exact(layout.set_words() as usize).flat_map(|set| &set[3 * set.len() / 4..]);
        for flags in flags {
            done.written_back += u64::from(flags & DIRTY != 0);
            done.unpinned += u64::from(flags & PINNED != 0);
        }
        // The frequencies stay.
        group.reset()?;
        Ok(group)
    }

    /// Writes a new shard, whose rows are in `groups`: those old shards, in ascending order, that have a row of it. Returns the bytes of the file.
    fn write(
        &self,
        number: usize,
        config: &GroupConfig,
        groups: &mut [Option<CpuGroup>],
        counters: &[Counters],
    ) -> Result<u64, Error> {
        let layout = Layout::new(config, u64::MAX)?;
        let path = List::file(self.to, SAVE, number as u32);
        let fewest = self.before.len().min(self.after.len());
        let counters = if number == 0 { counters.to_vec() } else { vec![Counters::default(); counters.len()] };
        let counters = Counters::to_part(&counters);
        write_parts(&path, config, self.step, |part, first, words| {
            let width = match part {
                Part::Clock => unreachable!("the step is in the header"),
                Part::Counters => {
                    words.copy_from_slice(&counters[first as usize..][..words.len()]);
                    return Ok(());
                }
                Part::Ways => {
                    let first = (first / layout.set_words()) as u32;
                    for (number, set) in (first..).zip(words.chunks_exact_mut(layout.set_words() as usize)) {
                        let ways = set.len() / 4;
                        set[..ways].fill(NONE);
                        set[ways..].fill(0);
                        (0..)
                            .zip(&mut set[3 * ways..])
                            .for_each(|(way, flags)| *flags = layout.empty_flags(number, way));
                    }
                    return Ok(());
                }
                Part::Cache | Part::Since => {
                    words.fill(0);
                    return Ok(());
                }
                Part::Records => u64::from(layout.row.record_words),
                Part::Frequencies => 1,
            };
            for (row, words) in (first / width..).zip(words.chunks_exact_mut(width as usize)) {
                let linear = row * self.after.len() as u64 + number as u64;
                let (old, local) = (linear % self.before.len() as u64, linear / self.before.len() as u64);
                let group = groups[old as usize / fewest].as_mut();
                group.map_or(Ok(()), |group| group.read_part(part, local * width, words))?;
            }
            Ok(())
        })?;
        fs::metadata(&path).map(|file| file.len()).map_err(|error| {
            refused(&path, "file", "one that can be read", &error, "write to a folder that nothing else changes")
        })
    }
}
