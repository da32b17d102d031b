use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, Pooling, internals::layout::Params, internals::stages};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    Like, TRAIN, check, floats, gradients, gradients_of, guarded, junk, layout_of, on_each, params, read, rng,
    targets_of, words,
};

/// Accesses of a chunk, which is also the size of a tile.
pub(super) const CHUNK: u32 = 128;

/// Lengths of rows, in accesses: one chunk, several chunks, chunks that end where tiles do, heavy rows that share a tile.
pub(super) fn lengths(source: &mut Pcg64) -> Vec<Vec<u32>> {
    let mut cases: Vec<Vec<u32>> = vec![
        vec![],
        vec![1],
        vec![127],
        vec![128],
        vec![129],
        vec![128 * 8 - 1],
        vec![128 * 8],
        vec![128 * 8 + 1],
        vec![128, 129, 128],
        vec![100, 129, 129, 5],
        vec![1, 300, 2, 300, 127, 300],
        vec![257, 511, 256, 128, 3000, 1],
    ];
    for _ in 0..4 {
        let length = |_| {
            let longest = [1, 4, 129, 700][source.random_range(0..4)];
            source.random_range(1..=longest)
        };
        cases.push((0..20).map(length).collect());
    }
    cases
}

struct Case<'a> {
    lengths: &'a [u32],
    dim: u32,
    weighted: bool,
    /// Coefficients are powers of two, so products are exact and the bits of a sum show its order.
    exact: bool,
}

fn run(context: &Context, seed: u64, case: &Case<'_>) -> usize {
    let &Case { lengths, dim, weighted, exact } = case;
    let mut source = rng(seed);
    let mut config = GroupConfig::new(&[1500], dim);
    config.pooling = [Pooling::Sum, Pooling::None][source.random_range(0..2)];
    if weighted && source.random_bool(0.5) {
        config.pooling = Pooling::Mean;
    }
    let layout = layout_of(&config);
    let (segment, mut targets) = targets_of(lengths, &vec![(0, 0); lengths.len()]);
    let half = source.random_bool(0.4);
    let inverse: f32 = [1.0, 2f32.powi(-10), if exact { 0.5 } else { 0.3 }][source.random_range(0..3)];
    targets[0].end = inverse.to_bits();
    let valid = segment.len() as u32;
    let outputs = source.random_range(1..30);
    let accesses: Vec<[u32; 2]> = (0..valid)
        .map(|_| {
            let coefficient: f32 = match exact {
                true => [0.5, -1.0, 2.0, 4.0][source.random_range(0..4)],
                false => source.random_range(-2.0..2.0),
            };
            // Without weights and mean pooling, nothing writes the coefficient.
            [source.random_range(0..outputs), if weighted { coefficient.to_bits() } else { source.random() }]
        })
        .collect();
    let partials = source.random_range(0..20);
    let tiles = valid.div_ceil(CHUNK);
    let bindings = [
        words(&Params {
            partials,
            weighted: u32::from(weighted && config.pooling != Pooling::Mean),
            half_grads: u32::from(half),
            ..params(&config, &layout, TRAIN, 0)
        }),
        guarded(&targets),
        guarded(&segment),
        guarded(&accesses),
        gradients(&floats(&mut source, (outputs * dim) as usize, 1.0 / inverse), half),
        guarded(&junk(&mut source, (partials * layout.width() + 2 * tiles * dim) as usize)),
    ];
    // In a sum of 128 terms below 2, each rounding is off by at most half an ULP of 256, on either side.
    let like = if exact { Like::Bits } else { Like::Within(f32::EPSILON * 128.0 * 256.0) };
    let what = format!(
        "seed {seed}, {lengths:?}, dim {dim}, weighted {weighted}, exact {exact}, half {half}, inverse {inverse}"
    );
    let groups = [1, (2 * tiles).div_ceil(layout.at_once()).max(1)][source.random_range(0..2)];
    check(context, "merge", &what, &bindings, groups, &[("scratch", like)], |b| {
        let [params, targets, segment, accesses, grad_outputs, scratch] = b else { unreachable!() };
        let (targets, accesses) = (cast_slice(targets), cast_slice(accesses));
        let params = read(params);
        let grads = gradients_of(grad_outputs, &params);
        stages::merge(&params, targets, segment, accesses, grads, cast_slice_mut(scratch));
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, lengths) in (0..).zip(lengths(&mut rng(1))) {
            for dim in [1, 4, 5, 64, 65, 128, 130, 260] {
                for (weighted, exact) in [(false, true), (true, true), (true, false)] {
                    changed += run(context, seed, &Case { lengths: &lengths, dim, weighted, exact });
                }
            }
        }
        changed += run(context, 99, &Case { lengths: &[3, 100_000, 150], dim: 4, weighted: false, exact: true });
        assert!(changed > 0);
    });
}
