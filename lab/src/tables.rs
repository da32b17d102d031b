//! The tables of a model, in as few groups as their settings allow.

use crate::batch::{Bags, TableSpec};
use crate::device::{self, Device, OnDevice, Shared as OfBurn};
use crate::hyper::Hyper;
use crate::ranks::Ranks;
use crate::setting::Setting;
use anyhow::{Context as _, ensure};
use burn::tensor::Tensor;
use hotrow::{
    Context, Counters, CpuGroup, CpuSharedGroup, Embedding, Error, GradSlice, Group, GroupConfig, Lookup, Mode,
    Optimizer, Pooling, Precision, ScalerState, SharedGroup, checkpoint,
    internals::{RowLayout, memory_factor},
    robe,
};
use hotrow_dist::{self as dist, Shard};
use hotrow_plan::precision::{Kind, by_use};
use hotrow_report::clock::{Clock, Rounds};
use hotrow_report::fmix32;
use hotrow_report::uvm::{UvmBus, UvmModel, UvmTable};
use std::{collections::BTreeMap, path::Path, sync::OnceLock};

/// A group that a run holds, with its checkpoints.
trait Held: Lookup {
    /// Writes a checkpoint. `place` is its path without an ending. Over ranks all make this call, and the files of all are whole when it returns.
    fn save(&mut self, place: &Path) -> Result<(), Error> {
        checkpoint::save_lookup(self, place.with_extension(FILE))
    }

    /// Loads a checkpoint that [`save`](Self::save) wrote.
    fn load(&mut self, place: &Path) -> Result<(), Error> {
        checkpoint::load_lookup(self, place.with_extension(FILE))
    }

    /// The group if rows of it can be pinned.
    fn to_pin(&mut self) -> Option<&mut dyn Embedding> {
        None
    }

    /// The group if its outputs can stay on a device.
    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        None
    }
}

/// The ending of a checkpoint that is one file.
const FILE: &str = "safetensors";

impl Held for CpuGroup {
    fn to_pin(&mut self) -> Option<&mut dyn Embedding> {
        Some(self)
    }
}

impl Held for Group {
    fn to_pin(&mut self) -> Option<&mut dyn Embedding> {
        Some(self)
    }

    #[cfg(feature = "gpu")]
    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        Some(self)
    }
}

impl Held for CpuSharedGroup {}
impl Held for SharedGroup {
    #[cfg(feature = "gpu")]
    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        Some(self)
    }
}

/// A folder with a file for each virtual shard.
impl<S: Shard> Held for dist::Group<Ranks<'_>, S> {
    fn save(&mut self, place: &Path) -> Result<(), Error> {
        dist::Group::save(self, place)
    }

    fn load(&mut self, place: &Path) -> Result<(), Error> {
        dist::Group::load(self, place)
    }
}

struct Shared<'a> {
    /// Positions of the tables in the task's list.
    tables: Vec<usize>,
    group: Box<dyn Held + 'a>,
    setting: Setting,
    cached: bool,
    /// Memory against FP32 weights by the formula of Yang 2020.
    formula: f64,
    pages: Option<Pages>,
    /// Rows of the task's tables for each of the group's.
    times: f64,
    /// With quotient rows the number of rows of each of the task's tables, and whether each index has an output.
    split: Option<(Vec<u32>, bool)>,
    /// With rows by their use, which are in several groups: for each row of the tables its row here, or none.
    own: Option<Vec<Option<u32>>>,
    /// Rows of the task's tables.
    rows: Vec<u32>,
}

/// Rows in whole pages that move between the host and the device. The group computes with rows of its own on the device; the pages' bytes move as those
/// of unified memory would.
struct Pages {
    table: UvmTable,
    bus: UvmBus<'static>,
    page_bytes: u64,
    /// The first row of each table.
    bases: Vec<u32>,
    /// The rows of the last forward.
    rows: Vec<u32>,
    moved: u64,
}

impl Pages {
    fn new(context: &Context, config: &GroupConfig, percent: f64) -> anyhow::Result<Self> {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        let clock = CLOCK.get_or_init(|| Clock::new(context, Rounds::ONE));
        // A row with its optimiser's state, as the group keeps it.
        let row = RowLayout::of(config.dim, config.precision, &config.optimizer, config.state);
        let (page_bytes, row_bytes) = (UvmModel::default().page_bytes, row.stride());
        let held = (config.total_rows() * row_bytes) as f64 * percent / 100.0;
        let table = UvmTable::new(page_bytes, row_bytes, (held as u64).max(page_bytes))?;
        let bus = UvmBus::new(clock, &table, config.total_rows() as u32)?;
        let bases = config.tables.iter().scan(0, |next, rows| Some(std::mem::replace(next, *next + rows))).collect();
        Ok(Self { table, bus, page_bytes, bases, rows: Vec::new(), moved: 0 })
    }

    /// Brings the pages of a batch, of which each table has as many bags.
    fn read(&mut self, Bags { indices, offsets }: &Bags) -> anyhow::Result<()> {
        let each = (offsets.len() - 1) / self.bases.len();
        self.rows.clear();
        for (table, base) in self.bases.iter().enumerate() {
            let [from, to] = [table, table + 1].map(|table| offsets[table * each] as usize);
            self.rows.extend(indices[from..to].iter().map(|index| base + index));
        }
        self.pass(false)
    }

    fn pass(&mut self, write: bool) -> anyhow::Result<()> {
        let moves = self.table.pass(&self.rows, write);
        self.moved += moves.len() as u64 * self.page_bytes;
        self.bus.carry(&moves).map(|_| ())
    }
}

impl Shared<'_> {
    /// The bags of its tables, one table after the other.
    fn bags(&self, bags: &[Bags]) -> Bags {
        let own = || self.tables.iter().map(|&table| &bags[table]);
        if let Some(places) = &self.own {
            let mut joint = Bags::new();
            let mut base = 0;
            for (bags, rows) in own().zip(&self.rows) {
                for ends in bags.offsets.windows(2) {
                    let bag = &bags.indices[ends[0] as usize..ends[1] as usize];
                    joint.push(bag.iter().filter_map(|&row| places[(base + row) as usize]));
                }
                base += rows;
            }
            return joint;
        }
        let Some(((rows, each), times)) = self.split.as_ref().zip(self.setting.quotient) else {
            return Bags::joined(own());
        };
        let split = own().zip(rows).map(|(bags, rows)| {
            let indices =
                bags.indices.iter().flat_map(|row| [row / times, rows.div_ceil(times) + row % times]).collect();
            let ends = if *each { (0..=bags.indices.len() as u32).collect() } else { bags.offsets.clone() };
            Bags { indices, offsets: ends.into_iter().map(|end| 2 * end).collect() }
        });
        Bags::joined(split.collect::<Vec<_>>().iter())
    }

    /// The gradients of its tables, one after the other.
    fn joined<T: Copy>(&self, gradients: &[Vec<T>]) -> Vec<T> {
        self.tables.iter().map(|&table| &gradients[table][..]).collect::<Vec<_>>().concat()
    }
}

pub(crate) struct Tables<'a> {
    shared: Vec<Shared<'a>>,
    count: usize,
    ranks: Option<Ranks<'a>>,
}

impl<'a> Tables<'a> {
    /// Makes and fills the tables. First values depend on the seed and the table's position in the list only, whatever its group.
    pub(crate) fn new(
        specs: &[TableSpec],
        choice: &[Setting],
        hyper: &Hyper,
        seed: u64,
        device: &Device,
        ranks: Option<Ranks<'a>>,
        counts: &dyn Fn() -> anyhow::Result<Vec<Vec<u32>>>,
    ) -> anyhow::Result<Self> {
        let fresh = Fresh { specs, hyper, seed };
        let mut shared = Vec::new();
        for (setting, tables) in members(specs, choice) {
            match setting.is_mixed() {
                true => shared.extend(fresh.by_use(&tables, setting, (device, ranks), &counts()?)?),
                false => shared.push(fresh.shared(tables, setting, (device, ranks))?),
            }
        }
        Ok(Self { shared, count: specs.len(), ranks })
    }

    /// Pins the rows of each table that were looked up most, by their `counts`. Returns whether a row is pinned, for each table that has pins.
    pub(crate) fn pin(&mut self, counts: &[Vec<u32>]) -> anyhow::Result<Vec<Option<Vec<bool>>>> {
        let mut pinned = vec![None; self.count];
        for shared in self.shared.iter_mut().filter(|shared| shared.setting.has_pins()) {
            let counts: Vec<u32> = shared.tables.iter().flat_map(|&table| counts[table].iter().copied()).collect();
            let mut rows: Vec<u32> = (0..counts.len() as u32).filter(|&row| counts[row as usize] > 0).collect();
            rows.sort_by_key(|&row| std::cmp::Reverse(counts[row as usize]));
            let group =
                shared.group.to_pin().context("pinned-percent: wanted no ranks, found some; leave ranks out")?;
            group.pin(&rows, shared.setting.pinned_ways())?;
            let mut are = vec![false; counts.len()];
            group.pinned()?.into_iter().for_each(|row| are[row as usize] = true);
            let config = group.config();
            for (&table, &rows) in shared.tables.iter().zip(&config.tables) {
                pinned[table] = Some(are.drain(..rows as usize).collect());
            }
        }
        Ok(pinned)
    }

    /// Runs a step forward. Returns the outputs of each table, `[bags, dim]`.
    pub(crate) fn forward(&mut self, bags: &[Bags]) -> Result<Vec<Vec<f32>>, Error> {
        self.look_up(bags, Mode::Train)
    }

    /// Runs a forward that changes nothing.
    pub(crate) fn forward_frozen(&mut self, bags: &[Bags]) -> Result<Vec<Vec<f32>>, Error> {
        self.look_up(bags, Mode::Frozen)
    }

    fn look_up(&mut self, bags: &[Bags], mode: Mode) -> Result<Vec<Vec<f32>>, Error> {
        let mut outputs = vec![Vec::new(); self.count];
        for shared in &mut self.shared {
            let Bags { indices, offsets } = shared.bags(bags);
            let joint = shared.group.forward(hotrow::Bags::new(&indices, &offsets), mode)?;
            let each = joint.len() / shared.tables.len();
            for (&table, part) in shared.tables.iter().zip(joint.chunks(each.max(1))) {
                // Rows by their use: the sums of several groups.
                match outputs[table].is_empty() {
                    true => outputs[table] = part.to_vec(),
                    false => outputs[table].iter_mut().zip(part).for_each(|(sum, part)| *sum += part),
                }
            }
        }
        Ok(outputs)
    }

    /// As [`forward`](Self::forward), or as [`forward_frozen`](Self::forward_frozen), with outputs that stay on the device.
    pub(crate) fn tensors(&mut self, bags: &[Bags], of_burn: &OfBurn, mode: Mode) -> anyhow::Result<Vec<Tensor<2>>> {
        let mut outputs = Vec::new();
        for shared in &mut self.shared {
            let Bags { indices, offsets } = shared.bags(bags);
            if let Some(pages) = shared.pages.as_mut().filter(|_| mode == Mode::Train) {
                pages.read(&Bags { indices: indices.clone(), offsets: offsets.clone() })?;
            }
            let joint = device::forward(on_device(&mut *shared.group)?, of_burn, (&indices, &offsets), mode)?;
            let each = joint.dims()[0] / shared.tables.len();
            outputs.extend(
                shared.tables.iter().enumerate().map(|(at, &table)| (table, joint.clone().narrow(0, at * each, each))),
            );
        }
        outputs.sort_by_key(|&(table, _)| table);
        Ok(outputs.into_iter().map(|(_, outputs)| outputs).collect())
    }

    /// As [`backward`](Self::backward), with gradients on the device.
    pub(crate) fn backward_tensors(&mut self, gradients: &[Tensor<2>], of_burn: &OfBurn) -> anyhow::Result<()> {
        for shared in &mut self.shared {
            let joint = Tensor::cat(shared.tables.iter().map(|&table| gradients[table].clone()).collect(), 0);
            device::backward(on_device(&mut *shared.group)?, of_burn, joint)?;
            shared.pages.as_mut().map_or(Ok(()), |pages| pages.pass(true))?;
        }
        Ok(())
    }

    /// Updates the tables with the gradients of the last forward's outputs, table by table.
    pub(crate) fn backward(&mut self, gradients: &[Vec<f32>]) -> Result<(), Error> {
        self.shared.iter_mut().try_for_each(|shared| shared.group.backward(&shared.joined(gradients)))
    }

    /// Updates the tables with the FP16 gradients of a scaled loss. `scaler` knows whether the step overflowed.
    pub(crate) fn backward_scaled(&mut self, gradients: &[Vec<half::f16>], scaler: &ScalerState) -> Result<(), Error> {
        let mut groups = self.shared.iter_mut();
        groups.try_for_each(|one| one.group.backward_scaled(GradSlice::F16(&one.joined(gradients)), scaler))
    }

    /// Sets the learning rate from the next backward on.
    pub(crate) fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.shared.iter_mut().try_for_each(|shared| shared.group.set_learning_rate(lr))
    }

    /// Writes checkpoints of the groups, in a fixed order, to a folder.
    pub(crate) fn save(&mut self, folder: &Path) -> Result<(), Error> {
        self.of_groups(folder, |group, place| group.save(place))
    }

    /// Loads what [`save`](Self::save) wrote.
    pub(crate) fn load(&mut self, folder: &Path) -> Result<(), Error> {
        self.of_groups(folder, |group, place| group.load(place))
    }

    fn of_groups(
        &mut self,
        folder: &Path,
        call: impl Fn(&mut dyn Held, &Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut groups = self.shared.iter_mut().enumerate();
        groups.try_for_each(|(at, shared)| call(&mut *shared.group, &folder.join(format!("group-{at}"))))
    }

    /// The counters of all tables together, and of each that has a cache.
    pub(crate) fn counters(&mut self) -> Result<(Counters, BTreeMap<usize, Counters>), Error> {
        let (mut all, mut cached) = (Vec::new(), BTreeMap::new());
        for shared in &mut self.shared {
            let own = shared.group.counters()?;
            cached.extend(shared.tables.iter().copied().zip(own.iter().copied()).filter(|_| shared.cached));
            all.extend(own);
        }
        Ok((all.into_iter().sum(), cached))
    }

    /// Bytes that moved in whole pages.
    pub(crate) fn paged(&self) -> u64 {
        self.shared.iter().filter_map(|shared| shared.pages.as_ref()).map(|pages| pages.moved).sum()
    }

    /// The memory that stays between steps, on all ranks together: against FP32 weights by the formula of Yang 2020, all bytes against them, and
    /// all bytes.
    pub(crate) fn memory(&self) -> Result<(f64, f64, u64), Error> {
        let own = self.shared.iter().map(|shared| shared.group.memory());
        let own: Vec<u64> = own.flat_map(|memory| [memory.rows * u64::from(memory.dim) * 4, memory.kept()]).collect();
        let all = self.ranks.map_or_else(|| Ok(own.clone()), |ranks| ranks.total(&own))?;
        let (mut plain, mut formula, mut kept) = (0.0, 0.0, 0.0);
        for (shared, bytes) in self.shared.iter().zip(all.chunks(2)) {
            plain += bytes[0] as f64 * shared.times;
            formula += shared.formula * bytes[0] as f64 * shared.times;
            kept += bytes[1] as f64;
        }
        Ok((formula / plain, kept / plain, kept as u64))
    }
}

fn on_device(group: &mut dyn Held) -> anyhow::Result<&mut dyn OnDevice> {
    group.on_device().context("tables: wanted groups on the device, found others; leave ranks out")
}

/// The tables of each group with their setting. Tables with equal settings share a group if they can.
fn members(specs: &[TableSpec], choice: &[Setting]) -> Vec<(Setting, Vec<usize>)> {
    let mut members: Vec<(Setting, Vec<usize>)> = Vec::new();
    for (at, (spec, &setting)) in specs.iter().zip(choice).enumerate() {
        let like = |&(other, ref tables): &(Setting, Vec<usize>)| {
            let first = &specs[tables[0]];
            other == setting && (first.stream, first.pooling) == (spec.stream, spec.pooling)
        };
        match members.iter().position(like) {
            Some(group) => members[group].1.push(at),
            None => members.push((setting, vec![at])),
        }
    }
    members
}

/// Checks the arrays that tables share and quotient rows, before anything is trained.
///
/// # Errors
/// The error of the first illegal array; quotient rows of tables with mean pooling.
pub(crate) fn check(specs: &[TableSpec], choice: &[Setting], hyper: &Hyper) -> anyhow::Result<()> {
    let fresh = Fresh { specs, hyper, seed: 0 };
    members(specs, choice).iter().try_for_each(|(setting, tables)| {
        let mean = setting.quotient.is_some() && specs[tables[0]].pooling == Pooling::Mean;
        ensure!(!mean, "quotient: wanted tables with sum pooling or none, found mean; take task dlrm or readmission");
        let sums = !setting.is_mixed() || specs[tables[0]].pooling == Pooling::Sum;
        ensure!(sums, "by-use: wanted tables with sum pooling, found another; take task dlrm");
        Ok(fresh.array(tables, *setting).map(|_| ())?)
    })
}

/// The error of a shared array over ranks.
pub(crate) const NO_ARRAY: &str = "compression, weights: wanted tables with rows of their own over ranks, found a shared array among the settings; give settings \
                                   without one, such as precision=int8, or train on one rank with hotrow-lab train";

/// Where groups are made: on a device, if any, and on one or several ranks.
type Place<'a, 'r> = (&'a Device, Option<Ranks<'r>>);

/// Makes tables before their first step.
#[derive(Clone, Copy)]
struct Fresh<'a> {
    specs: &'a [TableSpec],
    hyper: &'a Hyper,
    seed: u64,
}

impl Fresh<'_> {
    fn rows_of(&self, tables: &[usize]) -> Vec<u32> {
        tables.iter().map(|&table| self.specs[table].rows).collect()
    }

    /// A group of `tables` with one setting.
    fn shared<'r>(&self, tables: Vec<usize>, setting: Setting, place: Place<'_, 'r>) -> anyhow::Result<Shared<'r>> {
        let Some(config) = self.array(&tables, setting)? else { return self.rows(tables, setting, place) };
        let (device, ranks) = place;
        ensure!(ranks.is_none(), NO_ARRAY);
        let group: Box<dyn Held + 'r> = match &device.context {
            None => Box::new(CpuSharedGroup::new(config)?),
            Some(context) => Box::new(SharedGroup::new(context, config)?),
        };
        let formula = group.memory().formula;
        let rows = self.rows_of(&tables);
        Ok(Shared {
            tables,
            group,
            setting,
            cached: false,
            formula,
            pages: None,
            times: 1.0,
            split: None,
            own: None,
            rows,
        })
    }

    /// The array that `tables` share, if they do. Its first values are those of the largest table, as in the authors' DLRM.
    fn array(&self, tables: &[usize], setting: Setting) -> Result<Option<robe::Config>, Error> {
        let first = &self.specs[tables[0]];
        let largest = tables.iter().map(|&table| &self.specs[table]).max_by_key(|spec| spec.rows).unwrap_or(first);
        let Some(config) = setting.array(&self.rows_of(tables), self.hyper.dim)? else { return Ok(None) };
        let config = config
            .with_pooling(first.pooling)
            .with_optimizer(Optimizer::usual(self.hyper.optimizer, self.hyper.lr))
            .with_state(self.hyper.state_of(setting.precision))
            .with_init(largest.init(self.hyper.dim))
            .with_seed(table_seed(self.seed, tables[0]));
        config.check().map(|()| Some(config))
    }

    /// A group whose rows have their own memory.
    fn rows<'r>(&self, tables: Vec<usize>, setting: Setting, place: Place<'_, 'r>) -> anyhow::Result<Shared<'r>> {
        let (device, ranks) = place;
        let (whole, first, all) = (self.rows_of(&tables), &self.specs[tables[0]], tables.clone());
        let rows = |&rows: &u32| setting.quotient.map_or(rows, |times| rows.div_ceil(times) + times);
        let rows: Vec<u32> = whole.iter().map(rows).collect();
        let mut config = GroupConfig::new(&rows, self.hyper.dim);
        config.pooling = if setting.quotient.is_some() { Pooling::Sum } else { first.pooling };
        config.optimizer = Optimizer::usual(self.hyper.optimizer, self.hyper.lr);
        config.seed = table_seed(self.seed, tables[0]);
        config.state = self.hyper.state_of(setting.precision);
        setting.apply(&mut config);
        // First values depend on the table's own seed and rows, not on its place in the group.
        let bases: Vec<u32> = rows.iter().scan(0, |next, rows| Some(std::mem::replace(next, *next + rows))).collect();
        let inits: Vec<_> =
            tables.iter().map(|&at| (self.specs[at].init(self.hyper.dim), table_seed(self.seed, at))).collect();
        // A shard's rows are those of the whole group, dealt out.
        let first_values = move |config: &GroupConfig, first_row: u32, dim: usize, out: &mut [f32]| {
            for (row, weights) in (first_row..).zip(out.chunks_exact_mut(dim)) {
                let row = config.whole_row(row);
                let at = bases.partition_point(|&base| base <= row) - 1;
                let (init, seed) = inits[at];
                init.row(seed, row - bases[at], weights);
            }
            Ok(())
        };
        let share = f64::from(config.cache_rows) / config.total_rows() as f64;
        let sum = |rows: &[u32]| rows.iter().map(|&rows| f64::from(rows)).sum::<f64>();
        let times = sum(&whole) / sum(&rows);
        let formula = memory_factor(config.dim, config.precision, share, config.policy) / times;
        let split = setting.quotient.map(|_| (whole, first.pooling == Pooling::None));
        let cached = config.cache_rows > 0;
        let pages = device.context.as_ref().filter(|_| setting.pages_percent > 0.0);
        let pages = pages.map(|context| Pages::new(context, &config, setting.pages_percent)).transpose()?;
        let group: Box<dyn Held + 'r> = match &device.context {
            None => placed(config, ranks, move |config| {
                let of = config.clone();
                CpuGroup::filled(config, &|row: u32, dim: usize, out: &mut [f32]| first_values(&of, row, dim, out))
            })?,
            Some(context) => {
                let context = context.clone();
                placed(config, ranks, move |config| {
                    let of = config.clone();
                    let source = |row: u32, dim: usize, out: &mut [f32]| first_values(&of, row, dim, out);
                    Group::filled(&context, config, &source)
                })?
            }
        };
        Ok(Shared { tables, group, setting, cached, formula, pages, times, split, own: None, rows: self.rows_of(&all) })
    }

    /// Groups of the rows of `tables` in FP16, INT8 and INT4, by their look-ups.
    fn by_use<'r>(
        &self,
        tables: &[usize],
        setting: Setting,
        (device, ranks): Place<'_, 'r>,
        counts: &[Vec<u32>],
    ) -> anyhow::Result<Vec<Shared<'r>>> {
        let alone = device.context.is_none() && ranks.is_none();
        ensure!(alone, "by-use: wanted one rank on the processor, found a device or ranks; leave them out");
        let rows = self.rows_of(tables);
        let config = |rows: u32, precision: Precision| {
            let mut config = GroupConfig::new(&[rows], self.hyper.dim);
            config.optimizer = Optimizer::usual(self.hyper.optimizer, self.hyper.lr);
            config.state = self.hyper.state_of(precision);
            config.seed = table_seed(self.seed, tables[0]);
            Setting { precision, ..setting }.apply(&mut config);
            config.features = vec![0; tables.len()];
            config
        };
        let kind = |precision| Kind::new(&config(1, precision), precision);
        let kinds =
            [Precision::Fp16, Precision::Int8, Precision::Int4].map(kind).into_iter().collect::<Result<Vec<_>, _>>()?;
        let uses: Vec<u64> = tables.iter().flat_map(|&table| counts[table].iter().map(|&count| count.into())).collect();
        let most = uses.len() as u64 * kind(setting.by_use)?.bytes;
        let kind_of = by_use(&uses, &kinds, most)?;
        let inits: Vec<_> =
            tables.iter().map(|&at| (self.specs[at].init(self.hyper.dim), table_seed(self.seed, at))).collect();
        let mut groups = Vec::new();
        for (at, kind) in (0..).zip(&kinds) {
            let linear: Vec<u32> = (0..uses.len() as u32).filter(|&row| kind_of[row as usize] == at).collect();
            if linear.is_empty() {
                continue;
            }
            let mut own = vec![None; uses.len()];
            (0..).zip(&linear).for_each(|(place, &row)| own[row as usize] = Some(place));
            let first_values = |first_row: u32, dim: usize, out: &mut [f32]| {
                for (row, weights) in linear[first_row as usize..].iter().zip(out.chunks_exact_mut(dim)) {
                    let (mut table, mut row) = (0, *row);
                    while row >= rows[table] {
                        row -= rows[table];
                        table += 1;
                    }
                    let (init, seed) = inits[table];
                    init.row(seed, row, weights);
                }
                Ok(())
            };
            let config = config(linear.len() as u32, kind.precision);
            let share = f64::from(config.cache_rows) / linear.len() as f64;
            let formula = memory_factor(config.dim, config.precision, share, config.policy);
            let group: Box<dyn Held + 'r> = Box::new(CpuGroup::filled(config, &first_values)?);
            let (tables, own, rows) = (tables.to_vec(), Some(own), rows.clone());
            groups.push(Shared {
                tables,
                group,
                setting,
                cached: false,
                formula,
                pages: None,
                times: 1.0,
                split: None,
                own,
                rows,
            });
        }
        Ok(groups)
    }
}

/// Makes a group, whole or as this rank's part of it.
fn placed<'r, S: Shard + Held + 'static>(
    config: GroupConfig,
    ranks: Option<Ranks<'r>>,
    mut make: impl FnMut(GroupConfig) -> Result<S, Error> + 'static,
) -> Result<Box<dyn Held + 'r>, Error> {
    Ok(match ranks {
        Some(ranks) => Box::new(dist::Group::new(ranks, config, ranks.shards, make)?.with_wire(ranks.wire)?),
        None => Box::new(make(config)?),
    })
}

/// A seed for each table, so that tables have different random bits.
fn table_seed(seed: u64, table: usize) -> u32 {
    fmix32((seed ^ (seed >> 32)) as u32).wrapping_add(fmix32(table as u32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setup;
    use hotrow::{Init, OptimizerKind, Policy, robe::Backward};

    /// No look-ups are counted.
    fn uncounted() -> anyhow::Result<Vec<Vec<u32>>> {
        anyhow::bail!("nobody counts")
    }

    fn specs() -> Vec<TableSpec> {
        let table = |name: &str, rows, low| TableSpec {
            name: name.into(),
            rows,
            pooling: Pooling::Sum,
            init: Init::Uniform { low, high: 0.5 },
            by_dim: false,
            stream: 0,
        };
        vec![table("a", 70, -0.5), table("b", 50, 0.0), table("c", 90, 0.25)]
    }

    fn bags() -> Vec<Bags> {
        let of = |rows: &[&[u32]]| {
            let mut bags = Bags::new();
            rows.iter().for_each(|bag| bags.push(bag.iter().copied()));
            bags
        };
        vec![of(&[&[1, 69], &[]]), of(&[&[49], &[0, 0, 7]]), of(&[&[5, 6], &[89]])]
    }

    fn hyper(optimizer: OptimizerKind) -> Hyper {
        Hyper { optimizer, ..Hyper::adagrad(4, 1, 0.1) }
    }

    fn tables(settings: [Setting; 3], seed: u64) -> Tables<'static> {
        Tables::new(&specs(), &settings, &hyper(OptimizerKind::AdaGrad), seed, &Device::default(), None, &uncounted)
            .unwrap()
    }

    /// FP32 with a cache of all rows: another group with the same results.
    const CACHED: Setting = Setting { policy: Policy::Lru, cache_percent: 100.0, ..Setting::FP32 };

    /// Outputs before and after an update.
    fn trained(mut tables: Tables<'_>) -> [Vec<Vec<f32>>; 2] {
        let before = tables.forward(&bags()).unwrap();
        assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8], "two bags of dim 4 in each");
        let gradients: Vec<Vec<f32>> =
            (0..3).map(|table| (0..8).map(|i| (i + 8 * table) as f32 / 16.0).collect()).collect();
        tables.backward(&gradients).unwrap();
        [before, tables.forward_frozen(&bags()).unwrap()]
    }

    #[test]
    fn which_tables_share_a_group_changes_no_number() {
        let plain = Setting::FP32;
        let joint = tables([plain; 3], 7);
        let apart = tables([plain, CACHED, plain], 7);
        assert_eq!((joint.shared.len(), apart.shared.len()), (1, 2));
        let joint = trained(joint);
        assert_eq!(joint, trained(apart));
        assert_ne!(joint[0], joint[1]);
        assert_ne!(joint, trained(tables([plain; 3], 8)));
        // First values of each table lie within its own bounds.
        assert!(joint[0][1][4..].iter().all(|&x| (0.0..1.5).contains(&x)), "{:?}", joint[0][1]);
        assert!(joint[0][2][4..].iter().all(|&x| (0.25..0.5).contains(&x)));
    }

    const ROBE: Setting = Setting { compression: Some(4.0), chunk: 3, ..Setting::FP32 };

    #[test]
    fn tables_of_one_array_are_those_of_one_group() {
        let mut joint = tables([ROBE; 3], 7);
        assert_eq!((joint.shared.len(), joint.counters().unwrap().1.len()), (1, 0));
        // The same group made by hand: rows numbered on, bags one table after the other.
        let fresh = Fresh { specs: &specs(), hyper: &hyper(OptimizerKind::AdaGrad), seed: 7 };
        let config = fresh.array(&[0, 1, 2], ROBE).unwrap().unwrap();
        assert_eq!((config.weights, config.init), (210, specs()[2].init), "as the largest table begins");
        let mut group = CpuSharedGroup::new(config).unwrap();
        let Bags { indices, offsets } = Bags::joined(bags().iter());
        let wanted = group.forward(hotrow::Bags::new(&indices, &offsets), Mode::Train).unwrap();
        assert_eq!(joint.forward(&bags()).unwrap().concat(), wanted);
        let gradients: Vec<f32> = (0..24).map(|i| i as f32 / 16.0).collect();
        group.backward(&gradients).unwrap();
        joint.backward(&gradients.chunks(8).map(<[f32]>::to_vec).collect::<Vec<_>>()).unwrap();
        let after = joint.forward_frozen(&bags()).unwrap();
        assert_eq!(after.concat(), group.forward(hotrow::Bags::new(&indices, &offsets), Mode::Frozen).unwrap());
        assert_ne!(after.concat(), wanted);
        let (counters, _) = joint.counters().unwrap();
        assert_eq!((counters.accesses, counters.bus_bytes()), (9, 2 * 9 * 4 * 4));
        // Another way to update reaches the array, and moves the same weights by the same bits.
        for backward in [Backward::Auto, Backward::Dense, Backward::Sparse] {
            let setting = Setting { backward, ..ROBE };
            assert_eq!(fresh.array(&[0, 1, 2], setting).unwrap().unwrap().backward, backward);
            let [before, moved] = trained(tables([setting; 3], 7));
            assert_eq!((before.concat(), moved.concat()), (wanted.clone(), after.concat()), "{backward}");
        }
    }

    #[test]
    fn a_row_is_the_sum_of_its_quotient_and_its_remainder() {
        let quotient = Setting { quotient: Some(8), ..Setting::FP32 };
        for pooling in [Pooling::Sum, Pooling::None] {
            let specs: Vec<TableSpec> = specs().into_iter().map(|spec| TableSpec { pooling, ..spec }).collect();
            let mut tables = Tables::new(
                &specs,
                &[quotient; 3],
                &hyper(OptimizerKind::Sgd),
                7,
                &Device::default(),
                None,
                &uncounted,
            )
            .unwrap();
            // Each row of each table by itself: 70 rows of 9 quotients and 8 remainders, 50 of 7, 90 of 12.
            let all = |tables: &mut Tables<'_>| {
                let bags = |spec: &TableSpec| Bags {
                    indices: (0..90).map(|i| i % spec.rows).collect(),
                    offsets: (0..=90).collect(),
                };
                tables.forward_frozen(&specs.iter().map(bags).collect::<Vec<_>>()).unwrap()
            };
            let rows = all(&mut tables);
            let row = |table: usize, at: usize| &rows[table][4 * at..][..4];
            let close = |found: &[f32], wanted: &[f32]| found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5);
            let sum =
                |of: [usize; 2]| row(0, of[0]).iter().zip(row(0, of[1])).map(|(a, b)| a + b).collect::<Vec<f32>>();
            // Rows 3 and 20 have together the quotients and remainders of rows 4 and 19, not those of 5 and 18.
            assert!(close(&sum([3, 20]), &sum([4, 19])) && !close(&sum([3, 20]), &sum([5, 18])));
            let (formula, memory, kept) = tables.memory().unwrap();
            let of = |bytes: f64| bytes / f64::from(4 * 4 * (70 + 50 + 90));
            assert!(
                (formula - of(16.0 * 52.0)).abs() < 1e-9 && (memory - of(kept as f64)).abs() < 1e-9,
                "{formula} {memory}"
            );
            // A step on row 20 of the first table changes the rows of its quotient, 16 to 23, and those of its remainder, 4, 12, ..
            let bags = vec![Bags { indices: vec![20, 20], offsets: vec![0, 2] }; 3];
            let outputs = tables.forward(&bags).unwrap();
            let gradients = [1.0, 0.0, 0.0].iter().zip(&outputs).map(|(&of, values)| vec![of; values.len()]);
            let gradients: Vec<Vec<f32>> = gradients.collect();
            assert_eq!(gradients[0].len(), if pooling == Pooling::None { 8 } else { 4 });
            tables.backward(&gradients).unwrap();
            let after = all(&mut tables);
            let moved = |at: usize| (row(0, at)[0] - after[0][4 * at]).abs();
            for at in 0..70 {
                let wanted = 0.2 * f32::from(u8::from(at / 8 == 2) + u8::from(at % 8 == 4));
                assert!((moved(at) - wanted).abs() < 1e-5, "{at}: {} for {wanted}", moved(at));
            }
            assert_eq!(after[1..], rows[1..]);
        }
    }

    /// Each row is in one group; outputs are near those of FP32, those of the rows in FP16 nearer; the bytes are those of INT8 everywhere.
    #[test]
    fn rows_by_use_are_in_several_precisions() {
        let mixed = Setting { by_use: Precision::Int8, rounding: hotrow::Rounding::Nearest, ..Setting::FP32 };
        let counts = || -> anyhow::Result<Vec<Vec<u32>>> {
            Ok(specs()
                .iter()
                .map(|spec| (0..spec.rows).map(|row| if row < 20 { 1000 } else { row % 2 }).collect())
                .collect())
        };
        let hyper = Hyper { dim: 64, ..hyper(OptimizerKind::Sgd) };
        let of = |setting| Tables::new(&specs(), &[setting; 3], &hyper, 7, &Device::default(), None, &counts).unwrap();
        let (mut plain, mut tables) = (of(Setting::FP32), of(mixed));
        assert_eq!(tables.shared.len(), 3);
        let each =
            |spec: &TableSpec| Bags { indices: (0..90).map(|i| i % spec.rows).collect(), offsets: (0..=90).collect() };
        let bags: Vec<Bags> = specs().iter().map(each).collect();
        let (exact, found) = (plain.forward(&bags).unwrap(), tables.forward(&bags).unwrap());
        let error = |table: usize, row: usize| {
            let range = 64 * row..64 * (row + 1);
            exact[table][range.clone()].iter().zip(&found[table][range]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        for table in 0..3 {
            assert!((0..20).all(|row| error(table, row) < 5e-4), "FP16");
            assert!(
                (20..50).all(|row| error(table, row) < 0.04) && (20..50).any(|row| error(table, row) > 2e-3),
                "INT4, INT8"
            );
        }
        let int8 = of(Setting { precision: Precision::Int8, ..Setting::FP32 });
        let kept = |tables: &Tables<'_>| -> u64 {
            let of = |shared: &Shared<'_>| {
                let memory = shared.group.memory();
                memory.payload + memory.scales + memory.record_state
            };
            tables.shared.iter().map(of).sum()
        };
        assert!(kept(&tables) <= kept(&int8) && kept(&tables) > kept(&int8) * 9 / 10);
        // A gradient moves the rows of each group.
        let gradients = vec![vec![1.0; 90 * 64]; 3];
        plain.backward(&gradients).unwrap();
        tables.backward(&gradients).unwrap();
        let (exact, found) = (plain.forward_frozen(&bags).unwrap(), tables.forward_frozen(&bags).unwrap());
        let far = exact.concat().iter().zip(found.concat()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 0.08, "{far}");
    }

    #[test]
    fn a_cache_for_each_table_is_that_of_the_table_alone() {
        for (policy, percent, ways) in
            [(Policy::Lru, 40.0, 8), (Policy::Lfu, 40.0, 4), (Policy::Window, 50.0, 5), (Policy::Lfu, 100.0, 32)]
        {
            let shared = Setting {
                precision: Precision::Int8,
                policy,
                cache_percent: percent,
                ways,
                window_ways: 2,
                ..Setting::FP32
            };
            let each = Setting { cache_each: true, ..shared };
            let of = |specs: &[TableSpec], setting| {
                Tables::new(
                    specs,
                    &vec![setting; specs.len()],
                    &hyper(OptimizerKind::Sgd),
                    7,
                    &Device::default(),
                    None,
                    &uncounted,
                )
                .unwrap()
            };
            let hits = |mut tables: Tables<'_>, chosen: &[usize]| {
                for step in 0..40_u32 {
                    let row = |i: u32, rows: u32| fmix32(step * 64 + i) % rows * (fmix32(i * 97 + step) % 3) / 2;
                    let bags = |table: &usize| Bags {
                        indices: (0..16).map(|i| row(i, specs()[*table].rows)).collect(),
                        offsets: (0..=16).collect(),
                    };
                    tables.forward(&chosen.iter().map(bags).collect::<Vec<_>>()).unwrap();
                    tables.backward(&vec![vec![0.0; 64]; chosen.len()]).unwrap();
                }
                tables.counters().unwrap().1.values().map(|counters| counters.hits).collect::<Vec<_>>()
            };
            let joint = of(&specs(), each);
            assert_eq!(joint.shared.len(), 1);
            let alone: Vec<u64> = (0..3).flat_map(|at| hits(of(&specs()[at..=at], shared), &[at])).collect();
            assert_eq!(hits(joint, &[0, 1, 2]), alone, "{each:?}");
            assert_eq!(
                hits(of(&specs(), shared), &[0, 1, 2]) == alone,
                percent == 100.0,
                "one cache for all: {shared:?}"
            );
        }
    }

    #[test]
    fn the_rows_that_are_looked_up_most_are_pinned() {
        let of = |spec: &TableSpec| (0..spec.rows).map(|row| fmix32(row + 3 * spec.rows) % 50).collect();
        let counts: Vec<Vec<u32>> = specs().iter().map(of).collect();
        let pinned = |cache_percent, policy| {
            let pins = Setting { pinned_percent: 25.0, cache_percent, policy, ways: 64, ..Setting::FP32 };
            let mut tables = tables([pins, Setting::FP32, pins], 7);
            let pinned = tables.pin(&counts).unwrap();
            let before = tables.counters().unwrap().0;
            trained(tables);
            (pinned, before)
        };
        let (alone, moved) = pinned(0.0, Policy::Lru);
        assert!(alone[1].is_none() && moved.accesses == 0 && moved.bus_bytes() > 0, "pinning moves rows, too");
        let all: Vec<(u32, bool)> =
            [0, 2].iter().flat_map(|&at| counts[at].iter().copied().zip(alone[at].clone().unwrap())).collect();
        let [hot, cold] = [true, false].map(|is| all.iter().filter(move |one| one.1 == is).map(|one| one.0));
        let least = hot.clone().min().unwrap();
        // One set: the 64 rows of the most lookups of 160, of both tables.
        assert_eq!(hot.count(), 64);
        assert!(cold.max().unwrap() <= least, "{all:?}");
        // Beside a cache of as many rows they have half of the ways.
        let (beside, _) = pinned(25.0, Policy::Lfu);
        let count = |pinned: &[Option<Vec<bool>>]| pinned.iter().flatten().flatten().filter(|&&is| is).count();
        assert_eq!((count(&alone), count(&beside)), (64, 32 * 2));
    }

    #[test]
    fn the_largest_tables_have_caches() {
        let cached = |percent| {
            let setting =
                Setting { precision: Precision::Int8, cache_percent: 5.0, cached_tables: percent, ..Setting::FP32 };
            let setup =
                Setup { setting, tables: BTreeMap::new(), hyper: hyper(OptimizerKind::Sgd), varied: String::new() };
            setup.choice(&specs(), 60).unwrap().iter().map(|setting| setting.cache_percent).collect::<Vec<_>>()
        };
        assert_eq!(cached(100.0), [5.0, 0.0, 5.0], "table b is small");
        assert_eq!(
            (cached(67.0), cached(34.0), cached(1.0)),
            (vec![5.0, 0.0, 5.0], vec![0.0, 0.0, 5.0], vec![0.0, 0.0, 5.0])
        );
    }
}
