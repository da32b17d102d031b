use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, Optimizer, Pooling, cpu, layout::Params};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, floats, gradients, gradients_of, guarded, layout_of,
    merge::{CHUNK, lengths},
    on_each, params, read, rng,
    robe::{SHAPES, chunks, lanes, robe},
    tables, words,
};

struct Case<'a> {
    lengths: &'a [u32],
    shape: [u32; 3],
    dense: bool,
    optimizer: Optimizer,
    /// Gradients that are not finite.
    broken: bool,
}

/// What the kernel left of weights, states and counters.
fn run(context: &Context, seed: u64, case: &Case<'_>) -> (usize, [Vec<u32>; 3]) {
    let &Case { lengths, shape, dense, optimizer, broken } = case;
    let mut source = rng(seed);
    let robe = hotrow::layout::Robe { dense: u32::from(dense), ..robe(shape) };
    let outputs = source.random_range(1..20);
    let half = source.random_bool(0.4);
    let mut sorted = chunks(&mut source, &robe, lengths, outputs);
    sorted.targets[0].end = 0.5f32.to_bits();
    let pooling = [Pooling::Sum, Pooling::None, Pooling::Mean][source.random_range(0..3)];
    let config = GroupConfig { pooling, optimizer, ..GroupConfig::new(&[7, 1500], robe.dim) };
    let width = robe.reach + 1;
    let tiles = (sorted.segment.len() as u32).div_ceil(CHUNK);
    let mut scratch = floats(&mut source, (2 * tiles * width) as usize, 1.0);
    // Behind the sums of a partial row: whether any of its chunks reaches the last weight.
    scratch.chunks_exact_mut(width as usize).for_each(|row| row[width as usize - 1] = source.random_range(0..2) as f32);
    let mut grads = floats(&mut source, (outputs * robe.dim) as usize, 1.0);
    if broken {
        grads.iter_mut().for_each(|g| {
            if source.random_bool(0.05) {
                *g = [f32::NAN, f32::INFINITY][source.random_range(0..2)];
            }
        });
    }
    let weights = robe.weights as usize;
    let states: Vec<f32> = (0..weights).map(|_| source.random_range(0.5..2.0)).collect();
    let bindings = [
        words(&Params {
            dim: width,
            lanes: lanes(width),
            weighted: source.random_range(0..2),
            half_grads: u32::from(half),
            ..params(&config, &layout_of(&config), TRAIN, 0)
        }),
        words(&robe),
        guarded(&sorted.targets),
        guarded(&sorted.accesses),
        gradients(&grads, half),
        guarded(&scratch),
        guarded(&floats(&mut source, weights, 1.0)),
        guarded(&states),
        guarded(&tables(&mut source, &config.tables, 3)),
    ];
    // SGD at a power of two without decay rounds once, at the end: the order of the sums shows in the bits. Else some hundred terms
    // below 4, and a division.
    let exact = optimizer == Optimizer::sgd(0.5);
    let like = if exact { Like::Bits } else { Like::Within(f32::EPSILON * 128.0 * 512.0) };
    let what = format!("seed {seed}, {lengths:?}, {robe:?}, {optimizer:?}, half {half}");
    let items = if dense { robe.weights } else { sorted.targets[0].row * robe.reach };
    let groups = [1, items.div_ceil(256).max(1)][source.random_range(0..2)];
    let run = check(context, "robe_update", &what, &bindings, groups, &[("memory", like), ("states", like)], |b| {
        let [params, robe, targets, accesses, grad_outputs, scratch, memory, states, tables] = b else {
            unreachable!()
        };
        let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
        let params = read(params);
        let grads = gradients_of(grad_outputs, &params);
        let (memory, states) = (cast_slice_mut(memory), cast_slice_mut(states));
        cpu::robe_update(&params, &read(robe), targets, accesses, grads, scratch, memory, states, tables);
    });
    let [memory, states, tables] = [6, 7, 8].map(|binding| run.found[binding].clone());
    (run.changed, [memory, states, tables])
}

#[test]
fn matches_the_mirror_dense_and_sparse() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        let decayed = Optimizer { weight_decay: 0.1, ..Optimizer::adagrad(0.1) };
        for lengths in lengths(&mut rng(1)) {
            // The last two shapes' arrays are larger than a test's.
            for shape in &SHAPES[..7] {
                seed += 1;
                let optimizer = [Optimizer::sgd(0.5), Optimizer::adagrad(0.1), decayed][seed as usize % 3];
                let broken = seed % 5 == 0;
                let [dense, sparse] = [true, false].map(|dense| {
                    run(context, seed, &Case { lengths: &lengths, shape: *shape, dense, optimizer, broken })
                });
                assert!(dense.1 == sparse.1, "seed {seed}: dense and sparse differ");
                changed += dense.0;
            }
        }
        assert!(changed > 0);
    });
}
