//! The figures. A browser's clock is coarse, and a submission has a cost of its own, so a figure is the time of a batch of calls in one
//! submission that takes at least 10 ms.

use std::time::Duration;

use futures_intrusive::channel::shared::oneshot_channel;
#[cfg(not(target_family = "wasm"))]
use hotrow::Lookup as _;
use hotrow::{
    Batch, Context, Error, Group, GroupConfig, Init, Mode, Optimizer, Precision, Sorter, Timeline,
    wgpu::{self, util::DeviceExt as _},
};
use hotrow_report::{
    fmix32,
    rows::{Job, LENGTHS, Rows},
};
use serde_json::{Value, json};
use web_time::Instant;

/// Least time of a batch of calls.
const LEAST: Duration = Duration::from_millis(10);
/// Most calls in a batch.
const MOST_CALLS: u32 = 4096;
const DIM: u32 = 64;
/// Indices of a bag.
const BAG: u32 = 8;

/// A description of the tables and batches.
pub(crate) fn shape(small: bool) -> String {
    let Sizes { rows, indices, .. } = Sizes::new(small);
    format!("{indices} indices in bags of {BAG}, {rows} rows x {DIM}, a cache of {} rows (LRU), SGD", rows / 32)
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    /// Forward, and forward with backward, at a share of rows that are in the cache.
    Step(Precision, f64),
    Sort,
    Copy,
    /// Random rows of 64 B to 4 KB in a table of so many MiB, a power of two.
    Random(u32),
    /// Each kernel of a step, by the device's own stamps.
    Kernels(Precision),
}

/// The sizes of the figures.
struct Sizes {
    rows: u32,
    indices: u32,
    keys: u32,
    copied: u64,
    rounds: usize,
}

impl Sizes {
    fn new(small: bool) -> Self {
        match small {
            true => Self { rows: 1 << 14, indices: 1 << 9, keys: 1 << 12, copied: 1 << 20, rounds: 3 },
            false => Self { rows: 1 << 18, indices: 1 << 14, keys: 1 << 20, copied: 1 << 26, rounds: 7 },
        }
    }
}

/// All figures, in the order of the page.
pub(crate) fn plan(small: bool) -> Vec<Figure> {
    let precisions: &[_] = if small { &[Precision::Fp32, Precision::Int8] } else { &Precision::ALL };
    let rates: &[_] = if small { &[0.0, 0.9] } else { &[0.0, 0.5, 0.9, 0.99, 1.0] };
    let tables: &[_] = if small { &[1, 4] } else { &[16, 64, 256] };
    let mut all = vec![Figure::Copy, Figure::Sort];
    all.splice(1..1, tables.iter().map(|&mib| Figure::Random(mib)));
    all.extend(precisions.iter().flat_map(|&precision| rates.iter().map(move |&rate| Figure::Step(precision, rate))));
    all.push(Figure::Kernels(Precision::Int8));
    all
}

impl Figure {
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Step(precision, rate) => {
                json!({ "measure": "step", "precision": precision.name(), "hit_rate": rate })
            }
            Self::Random(mib) => json!({ "measure": "random rows", "mib": mib }),
            Self::Sort => json!({ "measure": "sort" }),
            Self::Copy => json!({ "measure": "copy" }),
            Self::Kernels(precision) => json!({ "measure": "kernels", "precision": precision.name() }),
        }
    }
}

/// Measures a figure. Returns records as those of `hotrow bench`, and `what` and `why` of what could not be measured.
pub(crate) async fn run(context: &Context, figure: &Figure, small: bool) -> Result<Vec<Value>, Error> {
    let sizes = Sizes::new(small);
    match *figure {
        Figure::Copy => copy(context, &sizes).await,
        Figure::Random(mib) => random(context, &sizes, mib).await,
        Figure::Sort => sort(context, &sizes).await,
        Figure::Step(precision, rate) => step(context, &sizes, precision, rate).await,
        Figure::Kernels(precision) => kernels(context, &sizes, precision).await,
    }
}

/// Waits until the device has done everything.
async fn idle(context: &Context) {
    let (sender, receiver) = oneshot_channel();
    context.queue().on_submitted_work_done(move || {
        let _unheard = sender.send(());
    });
    receiver.receive().await;
}

fn encoder(context: &Context) -> wgpu::CommandEncoder {
    context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// The seconds of a call in several rounds, in ascending order.
#[derive(Clone, Debug)]
struct Rounds(Vec<f64>);

impl Rounds {
    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }
}

/// Seconds of a call that `record` records, `rounds` times, each from a batch of at least [`LEAST`].
async fn seconds(
    context: &Context,
    rounds: usize,
    mut encode: impl FnMut(&mut wgpu::CommandEncoder, u32) -> Result<(), Error>,
) -> Result<Rounds, Error> {
    let mut batch = async |calls: u32| -> Result<Duration, Error> {
        let mut encoder = encoder(context);
        for call in 0..calls {
            encode(&mut encoder, call)?;
        }
        let commands = encoder.finish();
        context.check_async().await?;
        let start = Instant::now();
        context.queue().submit([commands]);
        idle(context).await;
        let took = start.elapsed();
        context.check_async().await?;
        Ok(took)
    };
    batch(1).await?; // allocates scratch and warms up
    let mut calls = 1;
    loop {
        let took = batch(calls).await?;
        if took >= LEAST || calls >= MOST_CALLS {
            break;
        }
        // A little more than the time so far asks for, at most eight times as many.
        let more = (1.3 * LEAST.as_secs_f64() / took.as_secs_f64().max(1e-6)).clamp(2.0, 8.0);
        calls = ((f64::from(calls) * more) as u32).min(MOST_CALLS);
    }
    let mut found = Vec::new();
    for _ in 0..rounds {
        found.push(batch(calls).await?.as_secs_f64() / f64::from(calls));
    }
    found.sort_by(f64::total_cmp);
    Ok(Rounds(found))
}

async fn copy(context: &Context, sizes: &Sizes) -> Result<Vec<Value>, Error> {
    let size = sizes.copied.min(context.caps().binding_bytes);
    // Zeros, and memory that nobody wrote, copy faster than data on several GPUs.
    let [from, to] = [size, size].map(|size| Rows::new(context.device(), size));
    from.anew(context.queue(), LENGTHS[0], 1);
    let taken = seconds(context, sizes.rounds, |encoder, _| {
        encoder.copy_buffer_to_buffer(&from.words, 0, &to.words, 0, size);
        Ok(())
    })
    .await?;
    Ok(both("copy", "rate", "copy", &json!({ "bytes": size }), &taken, 2 * size))
}

/// Counts wrong words, and reads what the table's kernels results.
async fn results(context: &Context, rows: &Rows, job: Job) -> Result<[u32; 2], Error> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 8, usage, mapped_at_creation: false };
    let target = context.device().create_buffer(&descriptor);
    let mut encoder = encoder(context);
    rows.encode(&mut encoder, &rows.count, &rows.bind(&rows.count, job));
    encoder.copy_buffer_to_buffer(&rows.results, 0, &target, 0, 8);
    context.queue().submit([encoder.finish()]);
    let (sender, receiver) = oneshot_channel();
    target.map_async(wgpu::MapMode::Read, .., move |done| {
        let _unheard = sender.send(done.is_ok());
    });
    receiver.receive().await;
    let view = target.get_mapped_range(..).map_err(|error| Error::Device { reason: error.to_string() })?;
    Ok([0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|i| view[at + i]))))
}

/// Random rows of a table, read, and read and written back, as in `hotrow bench suite`; each length is checked after it was timed.
async fn random(context: &Context, sizes: &Sizes, mib: u32) -> Result<Vec<Value>, Error> {
    let (bytes, most, words) = (u64::from(mib) << 20, context.caps().binding_bytes, mib << 18);
    if bytes > most {
        let why = format!("beyond a binding of {} MiB", most >> 20);
        return Ok(vec![json!({ "what": format!("random rows of {mib} MiB"), "why": why })]);
    }
    let rows = Rows::new(context.device(), bytes);
    let filled = (0..words).map(fmix32).fold(0, u32::wrapping_add);
    let mut records = Vec::new();
    for length in LENGTHS.into_iter().step_by(2) {
        // At full size a dispatch reads 256 MiB, so that its own cost is small.
        let mut job = rows.anew(context.queue(), length, (4 * sizes.copied / bytes).clamp(1, 16) as u32);
        let (reads, mut passes) = (rows.bind(&rows.read, job), 0_u32);
        let reading = seconds(context, sizes.rounds, |encoder, _| {
            passes += job.passes;
            rows.encode(encoder, &rows.read, &reads);
            Ok(())
        })
        .await?;
        let updates = [0, 1, 2, 3].map(|first| rows.bind(&rows.update, Job { passes: 1, first, ..job }));
        let writing = seconds(context, sizes.rounds, |encoder, turn| {
            job.added += 1;
            rows.encode(encoder, &rows.update, &updates[turn as usize % 4]);
            Ok(())
        })
        .await?;
        let found = results(context, &rows, job).await?;
        // The companion: if each word should have one more, all are wrong.
        let spoilt = results(context, &rows, Job { added: job.added + 1, ..job }).await?;
        let (wanted, found) = ([0, words].map(|wrong| [filled.wrapping_mul(passes), wrong]), [found, spoilt]);
        if found != wanted {
            let reason =
                format!("rows of {length} B in {mib} MiB: wanted sums and wrong words {wanted:?}, found {found:?}");
            return Err(Error::Device { reason });
        }
        let setting = json!({ "row bytes": length, "table MiB": mib });
        let both = [("random read", reading, u64::from(job.passes) * bytes), ("random update", writing, 2 * bytes)];
        for (what, taken, moved) in both {
            // The slowest round has the lowest rate.
            let rates = Rounds(taken.0.iter().rev().map(|seconds| moved as f64 / seconds).collect());
            records.push(record(what, "random", &setting, rates.median(), "bytes_per_second", Some(&rates)));
        }
    }
    rows.words.destroy();
    Ok(records)
}

async fn sort(context: &Context, sizes: &Sizes) -> Result<Vec<Value>, Error> {
    let keys: Vec<u32> = (0..sizes.keys).map(fmix32).collect();
    let keys = upload(context, bytemuck::cast_slice(&keys));
    let sorter = Sorter::new(context, sizes.keys)?;
    let taken = seconds(context, sizes.rounds, |encoder, _| {
        sorter.encode_sort(encoder, keys.slice(..), None, None, 32).map(drop)
    })
    .await?;
    // Keys and values, read and written once in each of four passes.
    let bytes = u64::from(sizes.keys) * 8 * 2 * 4;
    Ok(both("sort, 32 bits", "bytes a second", "sort", &json!({ "pairs": sizes.keys }), &taken, bytes))
}

fn upload(context: &Context, contents: &[u8]) -> wgpu::Buffer {
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
}

/// A group, and batches of which a share of the indices comes from rows that stay in its cache.
struct Work {
    group: Group,
    /// Each batch has cold rows of its own.
    indices: Vec<wgpu::Buffer>,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
}

impl Work {
    async fn new(context: &Context, sizes: &Sizes, precision: Precision, rate: f64) -> Result<Self, Error> {
        let config = GroupConfig::new(&[sizes.rows], DIM)
            .with_precision(precision)
            .with_cache_rows(sizes.rows / 32)
            .with_init(Init::Uniform { low: -0.5, high: 0.5 })
            .with_optimizer(Optimizer::sgd(1e-3));
        let group = Group::new_async(context, config).await?;
        let (n, hot) = (sizes.indices, sizes.rows / 64);
        // So many that the cold rows of a turn are three times what the cache has room for beside the hot ones.
        let turn = (3.0 * f64::from(hot) / (f64::from(n) * (1.0 - rate)).max(1.0)) as u32;
        let count = turn.clamp(8, 128);
        let cold = (sizes.rows - hot) / count;
        let batches = (0..count).map(|batch| {
            let rows = (0..n).map(|i| {
                let drawn = fmix32(batch * n + i + 1);
                let is_hot = f64::from(fmix32(drawn)) < rate * 4_294_967_296.0;
                if is_hot { drawn % hot } else { hot + batch * cold + drawn % cold }
            });
            upload(context, bytemuck::cast_slice(&rows.collect::<Vec<u32>>()))
        });
        let indices = batches.collect();
        let offsets: Vec<u32> = (0..=n / BAG).map(|bag| bag * BAG).collect();
        let (offsets, outputs) =
            (upload(context, bytemuck::cast_slice(&offsets)), upload(context, &vec![0; (n / BAG * DIM) as usize * 4]));
        let mut work = Self { group, indices, offsets, outputs };
        // The hot rows come into the cache, and the cold rows of a batch leave it before they come again.
        for batch in 0..count {
            let mut encoder = encoder(context);
            work.forward(&mut encoder, batch)?;
            context.queue().submit([encoder.finish()]);
        }
        idle(context).await;
        Ok(work)
    }

    fn forward(&mut self, encoder: &mut wgpu::CommandEncoder, batch: u32) -> Result<(), Error> {
        let indices = Some(self.indices[batch as usize % self.indices.len()].slice(..));
        let batch = Batch { indices, offsets: self.offsets.slice(..), weights: None };
        self.group.discard_pending();
        self.group.encode_forward(encoder, &batch, self.outputs.slice(..), Mode::Train)
    }

    fn step(&mut self, encoder: &mut wgpu::CommandEncoder, batch: u32) -> Result<(), Error> {
        self.forward(encoder, batch)?;
        self.group.encode_backward(encoder, self.outputs.slice(..))
    }
}

async fn step(context: &Context, sizes: &Sizes, precision: Precision, rate: f64) -> Result<Vec<Value>, Error> {
    let mut work = Work::new(context, sizes, precision, rate).await?;
    // Each call takes the batch after the last one's, so that rows have left before they come again.
    let mut next = 0;
    let mut turn = || {
        next += 1;
        next
    };
    let before = work.group.counters_async().await?;
    let forward = seconds(context, sizes.rounds, |encoder, _| work.forward(encoder, turn())).await?;
    let after = work.group.counters_async().await?;
    let count =
        |of: fn(&hotrow::Counters) -> u64| after.iter().map(of).sum::<u64>() - before.iter().map(of).sum::<u64>();
    let hits = count(|counters| counters.hits) as f64 / count(|counters| counters.accesses).max(1) as f64;
    let step = seconds(context, sizes.rounds, |encoder, _| work.step(encoder, turn())).await?;
    let bytes = u64::from(sizes.indices) * u64::from(DIM) * 4;
    let setting = json!({
        "precision": precision.name().to_uppercase(), "dim": DIM, "rows": sizes.rows, "aim": 100.0 * rate, "hits": 100.0 * hits,
    });
    let of = |what: &str, taken: &Rounds, bytes| both(what, &format!("{what} logical"), "page", &setting, taken, bytes);
    let mut records = [of("forward", &forward, bytes), of("step", &step, 2 * bytes)].concat();
    // A backward needs its forward, so its time is the difference. Where noise eats it, there is no figure.
    let backward = step.median() - forward.median();
    if backward > 0.02 * forward.median() {
        records.extend(of("backward", &Rounds(vec![backward]), bytes));
    } else {
        let what = format!("backward, {}, about {} % hits", precision.name(), 100.0 * rate);
        records.push(json!({ "what": what, "why": "a step took hardly longer than its forward" }));
    }
    Ok(records)
}

/// The time of each kernel of a step, from as many steps as its stamps need to add up to [`LEAST`].
async fn kernels(context: &Context, sizes: &Sizes, precision: Precision) -> Result<Vec<Value>, Error> {
    let timeline = Timeline::new(context);
    let timed = context.timed(&timeline);
    if !timeline.has_stamps() {
        return Ok(vec![json!({ "what": "kernels", "why": "the device has no time stamps (timestamp-query)" })]);
    }
    let mut work = Work::new(&timed, sizes, precision, 0.9).await?;
    timeline.read_async().await?;
    let (start, mut steps) = (Instant::now(), 0u32);
    let mut sums: Vec<(&'static str, f64, u32)> = Vec::new();
    let patience = Duration::from_secs(if sizes.rounds > 3 { 8 } else { 2 });
    while start.elapsed() < patience && (sums.is_empty() || sums.iter().any(|(_, sum, _)| *sum < LEAST.as_secs_f64())) {
        let mut encoder = encoder(context);
        for _ in 0..4 {
            work.step(&mut encoder, steps)?;
            steps += 1;
        }
        timeline.resolve(&mut encoder);
        context.queue().submit([encoder.finish()]);
        for span in timeline.read_async().await?.spans.iter().filter(|span| span.dispatch) {
            let Some(nanoseconds) = span.nanoseconds else { continue };
            let place = sums.iter().position(|(stage, ..)| *stage == span.stage).unwrap_or_else(|| {
                sums.push((span.stage, 0.0, 0));
                sums.len() - 1
            });
            sums[place].1 += nanoseconds * 1e-9;
            sums[place].2 += 1;
        }
    }
    // The stamps of browsers are coarse: a kernel whose times do not add up to enough has no figure.
    let records = sums.iter().map(|(stage, sum, dispatches)| {
        if *sum < LEAST.as_secs_f64() {
            return json!({ "what": stage, "why": format!("its times added up to {:.2} of the 10 ms that coarse stamps need", sum * 1e3) });
        }
        let setting = json!({
            "precision": precision.name().to_uppercase(), "dim": DIM, "rows": sizes.rows, "kernel": stage, "dispatches": dispatches,
        });
        record("time", "page", &setting, sum / f64::from(steps), "seconds", None)
    });
    Ok(records.collect())
}

/// The time of a call, and the bytes that it counts a second.
fn both(what: &str, rate: &str, shape: &str, setting: &Value, taken: &Rounds, bytes: u64) -> Vec<Value> {
    let seconds = record(what, shape, setting, taken.median(), "seconds", Some(taken));
    vec![seconds, record(rate, shape, setting, bytes as f64 / taken.median(), "bytes_per_second", None)]
}

/// A record as those of `hotrow bench`.
fn record(what: &str, shape: &str, setting: &Value, value: f64, unit: &str, of: Option<&Rounds>) -> Value {
    let mut record = json!({ "what": what, "shape": shape, "setting": setting, "value": value, "unit": unit });
    if let Some([lowest, .., highest]) = of.map(|of| &of.0[..]) {
        let rounds = of.map_or(0, |of| of.0.len());
        record["spread"] = json!({ "median": value, "lowest": lowest, "highest": highest, "rounds": rounds });
    }
    record
}
