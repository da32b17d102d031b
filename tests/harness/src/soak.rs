//! Many steps of long-lived groups, GPU against CPU, with a sample of the process's memory and handles now and then.

use hotrow::{
    Bags, Context, CpuGroup, FileStore, Group, GroupConfig, Mode, Placement, SharedStore, checkpoint, wgpu::PollType,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::lockstep::{Codes, Pair, floats, random_batch, random_config, random_turn};

/// A sample of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub step: u64,
    /// Memory of the process, bytes; 0 where the system does not tell.
    pub resident: u64,
    /// Bytes that Rust code has allocated and not freed: wgpu's objects and hotrow's are among them, the driver's memory is not.
    pub heap: u64,
    /// Bytes that wgpu has allocated on the device, and their number; 0 where it does not tell.
    pub allocated: u64,
    pub allocations: u64,
    /// Open files of the process; 0 where the system does not tell.
    pub handles: u64,
}

impl Sample {
    fn now(context: &Context, step: u64, heap: impl Fn() -> u64) -> Self {
        // wgpu frees what was dropped when it is polled.
        context.device().poll(PollType::wait_indefinitely()).unwrap();
        let heap = heap();
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages: Option<u64> = pages.and_then(|text| text.split(' ').nth(1)?.parse().ok());
        let report = context.device().generate_allocator_report();
        Self {
            step,
            resident: pages.unwrap_or(0) * 4096,
            heap,
            allocated: report.as_ref().map_or(0, |report| report.total_allocated_bytes),
            allocations: report.as_ref().map_or(0, |report| report.allocations.len() as u64),
            handles: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        }
    }
}

/// The growth from the first to the last value that a straight line gives, if it is more than chance explains: four standard errors of the
/// line, and one percent. The first quarter does not count: caches fill there. Neighbouring samples are alike, because groups live long, so the
/// line goes through the means of sixteen parts.
#[must_use]
pub fn growth(values: &[f64]) -> Option<f64> {
    let values = &values[values.len() / 4..];
    let parts = values.chunks(values.len().div_ceil(16));
    let values: Vec<_> = parts.map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let n = values.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let off = |(x, y): (usize, &f64)| (x as f64 - mean_x, y - mean_y);
    let square: f64 = values.iter().enumerate().map(|at| off(at).0.powi(2)).sum();
    let slope = values.iter().enumerate().map(|at| off(at).0 * off(at).1).sum::<f64>() / square;
    let rest: f64 = values.iter().enumerate().map(|at| (off(at).1 - slope * off(at).0).powi(2)).sum();
    let error = (rest / (n - 2.0) / square).sqrt();
    let grown = slope * (n - 1.0);
    (slope > 4.0 * error && grown > 0.01 * mean_y).then_some(grown)
}

/// Where the tables of a pair are.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Device,
    Mapped,
    Ram,
    File,
}

impl Place {
    pub const ALL: [Self; 4] = [Self::Device, Self::Mapped, Self::Ram, Self::File];
}

/// A group on the device and one on the CPU that live long.
struct Life {
    name: String,
    config: GroupConfig,
    gpu: Group,
    cpu: CpuGroup,
    source: Pcg64,
    codes: Codes,
    folder: tempfile::TempDir,
}

impl Life {
    /// `seed` makes the configuration, `calls` what is done with it.
    fn new(context: &Context, seed: u64, calls: u64, place: Place) -> Result<Self, String> {
        let source = Pcg64::seed_from_u64(calls);
        let mut config = random_config(&mut Pcg64::seed_from_u64(seed));
        config.placement = match place {
            Place::Device => Placement::Device,
            Place::Mapped => Placement::Mapped,
            Place::Ram | Place::File => Placement::Staged,
        };
        let name = format!("seed {seed}, calls {calls}, {config:?}");
        let folder = tempfile::tempdir().unwrap();
        let gpu = match place {
            Place::File => FileStore::create(folder.path().join("table"), &config)
                .and_then(|store| Group::with_store(context, config.clone(), SharedStore::new(store))),
            _ => Group::new(context, config.clone()),
        };
        let gpu = gpu.map_err(|error| format!("{name}: {error}"))?;
        let cpu = CpuGroup::new(config.clone()).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { name, config, gpu, cpu, source, codes: Codes::default(), folder })
    }

    /// A random call or two, and a step or two. Returns the number of steps.
    fn turn(&mut self, context: &Context) -> Result<u64, String> {
        let (source, config) = (&mut self.source, &self.config);
        let saved = source.random_bool(0.01);
        let mut pair =
            Pair { gpu: &mut self.gpu, cpu: &mut self.cpu, size: 64.0, codes: std::mem::take(&mut self.codes) };
        let mut turn = || {
            if source.random_bool(0.1) {
                return random_turn(context, &mut pair, config, source).map(|()| 1);
            }
            steps(&mut pair, config, source)
        };
        let steps = turn().map_err(|difference| format!("{}: {difference}", self.name))?;
        self.codes = pair.codes;
        if saved {
            let file = self.folder.path().join("checkpoint");
            let both = checkpoint::save(&mut self.gpu, &file).and_then(|()| checkpoint::load(&mut self.gpu, &file));
            both.map_err(|error| format!("{}: {error}", self.name))?;
            let mut pair =
                Pair { gpu: &mut self.gpu, cpu: &mut self.cpu, size: 64.0, codes: std::mem::take(&mut self.codes) };
            pair.compare("after a checkpoint").map_err(|difference| format!("{}: {difference}", self.name))?;
            self.codes = pair.codes;
        }
        Ok(steps)
    }
}

/// A step, or two with the second one prefetched; compared behind the last. Returns the number of steps.
pub fn steps(pair: &mut Pair<'_>, config: &GroupConfig, source: &mut Pcg64) -> Result<u64, String> {
    let (batch, next) = (random_batch(config, source), random_batch(config, source));
    let weights = batch.weights.as_deref();
    let (prefetched, salt) = (source.random_bool(0.2), source.random_range(1..1000u32));
    let grads = |n: usize| (0..n as u32).map(|i| (i.wrapping_mul(salt) % 17) as f32 / 8.0 - 1.0).collect::<Vec<f32>>();
    let (mut taken, mut near) = (0, Ok(()));
    let outputs = pair.both("forward", |group| {
        group.forward(Bags::new(&batch.indices, &batch.offsets).with_weights(weights), Mode::Train)
    })?;
    if let Some([a, b]) = outputs {
        floats("outputs", &a, &b, pair.size)?;
        let grads_of = grads(a.len());
        if source.random_bool(0.1)
            && let Some([a, b]) = pair.both("weight_gradient", |group| {
                group.weight_gradient(Bags::new(&batch.indices, &batch.offsets), &grads_of)
            })?
        {
            floats("gradients of weights", &a, &b, pair.size * pair.size)?;
        }
        let ready = prefetched && pair.both("prefetch", |group| group.prefetch(next.bags()))?.is_some();
        pair.both("backward", |group| group.backward(&grads_of))?;
        taken += 1;
        if ready && let Some([a, b]) = pair.both("forward_prefetched", |group| group.forward_prefetched())? {
            near = floats("prefetched outputs", &a, &b, pair.size);
            pair.both("backward", |group| group.backward(&grads(a.len())))?;
            taken += 1;
        }
    }
    let before = pair.codes.different;
    pair.compare("after a step")?;
    // The second step began from rows that nobody has compared. Only a code that differs explains an output too far away.
    if pair.codes.different == before {
        near?;
    }
    Ok(taken)
}

/// Steps of groups in every place, two at a time in each, compared after each turn. A group gives way to another one after a few hundred turns; after
/// three the first configuration comes again, so that memory has a level to return to. `report` gets a sample `samples` times; `heap` tells
/// the bytes that Rust code holds.
pub fn soak(
    context: &Context,
    steps: u64,
    seed: u64,
    samples: u64,
    heap: impl Fn() -> u64,
    mut report: impl FnMut(&Sample),
) -> Result<(Vec<Sample>, Codes), String> {
    let places: Vec<_> = Place::ALL.into_iter().flat_map(|place| [place; 2]).collect();
    let mut born = vec![0; places.len()];
    let mut next = |at: usize| {
        born[at] += 1;
        Life::new(context, seed + 3 * at as u64 + born[at] % 3, seed + 1000 * at as u64 + born[at], places[at])
    };
    let mut lives = (0..places.len()).map(&mut next).collect::<Result<Vec<_>, _>>()?;
    let mut source = Pcg64::seed_from_u64(seed);
    let (mut taken, mut all, mut codes) = (0, Vec::new(), Codes::default());
    while taken < steps {
        let at = source.random_range(0..lives.len());
        taken += lives[at].turn(context)?;
        if source.random_bool(1.0 / 400.0) || taken >= steps {
            codes.written += lives[at].codes.written;
            codes.different += lives[at].codes.different;
            lives[at] = next(at)?;
        }
        if taken * samples >= steps * (all.len() as u64 + 1) {
            all.push(Sample::now(context, taken, &heap));
            report(&all[all.len() - 1]);
        }
    }
    Ok((all, codes))
}
