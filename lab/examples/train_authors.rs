//! Finds the author of a paragraph: mean-pooled word embeddings and a linear softmax over eight authors, trained twice: with a plain FP32 table,
//! and with an INT4 table whose hottest 5 % of rows train in an FP32 cache.
//!
//! `cargo run --release --example train_authors -- --steps 200`, with `HOTROW_DATA` naming the folder that holds `ebooks_words`.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use hotrow::hash::fmix32;
use hotrow::{
    Calls, Counters, CpuGroup, Embedding, Group, GroupConfig, Init, MemoryReport, Optimizer, Policy, Pooling,
    Precision, adapter, memory_factor,
};
use hotrow_cli::trace;
use std::time::{Duration, Instant};

const DIM: usize = 32;
const CLASSES: usize = 8;
const BATCH: usize = 64;
const TESTED: usize = 1024;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let steps = match (args.next().as_deref(), args.next()) {
        (None, _) => 200,
        (Some("--steps"), Some(n)) => n.parse()?,
        _ => return Err("usage: train_authors [--steps N]".into()),
    };
    let data = load_or_plant()?;
    let context = adapter::open_best(adapter::Wanted::Any);
    match &context {
        Ok(context) => println!("embedding on {} ({:?})", context.caps().name, context.caps().backend),
        Err(error) => println!("embedding on the CPU backend: {error}"),
    }

    let plain = GroupConfig::new(&[data.rows], DIM as u32)
        .with_precision(Precision::Fp32)
        .with_pooling(Pooling::Mean)
        .with_optimizer(Optimizer::row_wise_adagrad(0.3))
        .with_init(Init::Uniform { low: -0.1, high: 0.1 });
    // GroupConfig::new rounds stochastically.
    let packed = plain.clone().with_precision(Precision::Int4).with_cache_rows(data.rows / 20).with_policy(Policy::Lfu);
    let mut columns = Vec::new();
    for config in [plain, packed] {
        let (run, memory) = match &context {
            Ok(context) => {
                let mut group = Group::new(context, config.clone())?;
                (train(&mut group, &data, steps)?, group.memory())
            }
            Err(_) => {
                let mut group = CpuGroup::new(config.clone())?;
                let run = train(&mut group, &data, steps)?;
                (run, MemoryReport::plan(&config, group.layout(), Calls::default())) // without scratch
            }
        };
        columns.push(column(&config, &run, &memory, steps));
    }
    println!("{steps} steps of {BATCH} paragraphs, {TESTED} held out\n");
    for ((name, plain), (_, packed)) in columns[0].iter().zip(&columns[1]) {
        println!("{name:<44}{plain:>12}{packed:>16}");
    }
    Ok(())
}

/// Bags of words, and the author of each.
struct Data {
    rows: u32,
    ids: Vec<u32>,
    offsets: Vec<u32>,
    labels: Vec<u8>,
}

impl Data {
    /// Indices, offsets and labels of some bags.
    fn batch(&self, bags: &[usize]) -> (Vec<u32>, Vec<u32>, Vec<u8>) {
        let (mut indices, mut offsets) = (Vec::new(), vec![0]);
        for &bag in bags {
            indices.extend(&self.ids[self.offsets[bag] as usize..self.offsets[bag + 1] as usize]);
            offsets.push(indices.len() as u32);
        }
        (indices, offsets, bags.iter().map(|&bag| self.labels[bag]).collect())
    }
}

/// The linear softmax, with its own AdaGrad.
struct Dense {
    /// `CLASSES` rows of `DIM` weights and a bias, and the sums of their squared gradients.
    weights: Vec<f32>,
    squares: Vec<f32>,
}

impl Dense {
    fn new() -> Self {
        let weights = (0..(CLASSES * (DIM + 1)) as u32).map(|i| fmix32(i + 1) as f32 / u32::MAX as f32 - 0.5).collect();
        Self { weights, squares: vec![0.0; CLASSES * (DIM + 1)] }
    }

    /// Returns loss and hits, summed over the bags. The gradients of the weights and of `pooled` belong to the mean loss.
    fn loss(&self, pooled: &[f32], labels: &[u8]) -> (f64, usize, Vec<f32>, Vec<f32>) {
        let (mut loss, mut hits) = (0.0, 0);
        let (mut grad_weights, mut grad_pooled) = (vec![0.0; self.weights.len()], vec![0.0; pooled.len()]);
        for (bag, &label) in labels.iter().enumerate() {
            let x = &pooled[bag * DIM..(bag + 1) * DIM];
            let rows = || self.weights.chunks_exact(DIM + 1);
            let logits: Vec<f32> = rows().map(|w| w[DIM] + w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>()).collect();
            let top = logits.iter().copied().fold(f32::MIN, f32::max);
            let sum: f32 = logits.iter().map(|z| (z - top).exp()).sum();
            loss += f64::from(sum.ln() + top - logits[usize::from(label)]);
            hits += usize::from(logits[usize::from(label)] == top);
            for (class, w) in rows().enumerate() {
                let p = (logits[class] - top).exp() / sum;
                let g = (p - f32::from(u8::from(class == usize::from(label)))) / labels.len() as f32;
                for e in 0..DIM {
                    grad_weights[class * (DIM + 1) + e] += g * x[e];
                    grad_pooled[bag * DIM + e] += g * w[e];
                }
                grad_weights[class * (DIM + 1) + DIM] += g;
            }
        }
        (loss, hits, grad_weights, grad_pooled)
    }

    fn update(&mut self, gradient: &[f32]) {
        for ((w, s), g) in self.weights.iter_mut().zip(&mut self.squares).zip(gradient) {
            *s += g * g;
            *w -= 0.1 * g / (s.sqrt() + 1e-8);
        }
    }
}

struct Run {
    loss: [f64; 2],
    accuracy: f64,
    counters: Counters,
    busy: Duration,
    logical_bytes: u64,
}

fn train(table: &mut impl Embedding, data: &Data, steps: usize) -> Result<Run, AnyError> {
    // A fifth of the bags is held out, by number. The books come one after another, so the other bags are shuffled.
    let (test, mut bags): (Vec<usize>, Vec<usize>) =
        (0..data.labels.len()).partition(|&bag| fmix32(bag as u32).is_multiple_of(5));
    bags.sort_by_key(|&bag| fmix32(!bag as u32));
    let test: Vec<usize> = (0..TESTED.min(test.len())).map(|i| test[i * test.len() / TESTED.min(test.len())]).collect();
    let mut dense = Dense::new();
    let (start, _) = evaluate(table, &dense, data, &test)?;
    let (mut busy, mut logical_bytes) = (Duration::ZERO, 0);
    for step in 0..steps {
        let bags: Vec<usize> = (0..BATCH).map(|i| bags[(step * BATCH + i) % bags.len()]).collect();
        let (indices, offsets, labels) = data.batch(&bags);
        let begin = Instant::now();
        let pooled = table.forward(&indices, &offsets, None)?;
        busy += begin.elapsed();
        let (_, _, grad_weights, grad_pooled) = dense.loss(&pooled, &labels);
        dense.update(&grad_weights);
        let begin = Instant::now();
        table.backward(&grad_pooled)?;
        busy += begin.elapsed();
        // Forward reads a row for each access and writes the outputs. Backward counts twice as many bytes.
        logical_bytes += 3 * 4 * (pooled.len() + DIM * indices.len()) as u64;
    }
    let (end, accuracy) = evaluate(table, &dense, data, &test)?;
    let counters = table.counters()?.into_iter().sum();
    Ok(Run { loss: [start, end], accuracy, counters, busy, logical_bytes })
}

/// Mean loss and accuracy, with the table frozen.
fn evaluate(table: &mut impl Embedding, dense: &Dense, data: &Data, bags: &[usize]) -> Result<(f64, f64), AnyError> {
    let (mut loss, mut hits) = (0.0, 0);
    for bags in bags.chunks(BATCH) {
        let (indices, offsets, labels) = data.batch(bags);
        let pooled = table.forward_frozen(&indices, &offsets, None)?;
        let (more, right, ..) = dense.loss(&pooled, &labels);
        loss += more;
        hits += right;
    }
    Ok((loss / bags.len() as f64, hits as f64 / bags.len() as f64))
}

fn column(config: &GroupConfig, run: &Run, memory: &MemoryReport, steps: usize) -> Vec<(&'static str, String)> {
    let cached = f64::from(config.cache_rows) / config.total_rows() as f64;
    let weights = (memory.rows * u64::from(memory.dim) * 4) as f64;
    let steps = steps.max(1) as u64;
    vec![
        ("", format!("{:?}{}", config.precision, if cached > 0.0 { " + 5 % LFU" } else { "" })),
        ("held-out loss, start", format!("{:.4}", run.loss[0])),
        ("held-out loss, end", format!("{:.4}", run.loss[1])),
        ("held-out accuracy, %", format!("{:.1}", 100.0 * run.accuracy)),
        (
            "hit rate, %",
            if cached > 0.0 { format!("{:.1}", 100.0 * run.counters.hit_rate()) } else { "no cache".into() },
        ),
        ("KiB to and from the table a step", format!("{:.1}", run.counters.bus_bytes() as f64 / 1024.0 / steps as f64)),
        ("logical GB/s (TBE's measure, with up/downloads)", {
            format!("{:.3}", run.logical_bytes as f64 / run.busy.as_secs_f64().max(1e-9) / 1e9)
        }),
        ("ms a step", format!("{:.1}", run.busy.as_secs_f64() * 1e3 / steps as f64)),
        ("memory factor, Yang 2020", {
            format!("{:.4}", memory_factor(config.dim, config.precision, cached, config.policy))
        }),
        ("memory factor, all that stays, AdaGrad too", format!("{:.4}", memory.kept() as f64 / weights)),
        ("memory factor, with step scratch", {
            if memory.scratch > 0 { format!("{:.4}", memory.factor()) } else { "not counted".into() }
        }),
    ]
}

/// The eight books of `HOTROW_DATA`, or else made-up words, of which each author has favourites.
fn load_or_plant() -> Result<Data, AnyError> {
    if let Some(folder) = std::env::var_os("HOTROW_DATA").filter(|folder| !folder.is_empty()) {
        let folder = std::path::Path::new(&folder);
        let words = trace::load("ebooks_words", &trace::Source { data: Some(folder), seed: 0 })?;
        let labels = std::fs::File::open(folder.join("ebooks_words.labels.u8.zst"))?;
        let labels = zstd::decode_all(labels)?;
        let offsets = words.offsets.ok_or("ebooks_words has no offsets beside it")?;
        println!("ebooks_words: {} paragraphs, {} words, {} distinct", labels.len(), words.ids.len(), words.distinct);
        return Ok(Data { rows: words.distinct, ids: words.ids, offsets, labels });
    }
    println!(
        "no HOTROW_DATA: a planted task, 40,000 bags over 50,000 generated words of which one in eight tells the author"
    );
    let (mut ids, mut offsets, mut labels) = (Vec::new(), vec![0], Vec::new());
    for bag in 0..40_000u32 {
        let author = fmix32(bag + 1) % CLASSES as u32;
        for word in 0..80 {
            let random = fmix32(bag * 80 + word + 0x5eed);
            // Nearly Zipf: the exponent is drawn uniformly.
            let mut id = (50_000f32.powf((random >> 8) as f32 / (1 << 24) as f32) as u32 - 1).min(49_992);
            if random.is_multiple_of(8) {
                id = id / 8 * 8 + author;
            }
            ids.push(id);
        }
        offsets.push(ids.len() as u32);
        labels.push(author as u8);
    }
    Ok(Data { rows: 50_000, ids, offsets, labels })
}
