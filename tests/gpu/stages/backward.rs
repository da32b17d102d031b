//! The stages of a backward.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, Policy, Pooling, ScalerState,
    internals::layout::{Params, Step, count},
    internals::stages,
};
use hotrow_harness::oracle;
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    DIMS, Like, TRAIN, check, distinct_rows, each, floats, gradients, gradients_of, guarded, junk, layout_of, lookup,
    of, one_of, params, read, runs, step, targets_of, words,
};

#[test]
pub(crate) fn arrange() {
    each("arrange", [7, 4, 3], |case, mut source, [valid, void, rest]| {
        let valid = [0u32, 1, 2, 255, 256, 257, 700][valid];
        let n = valid as usize + [0, 1, 39][rest]; // the rest were left out
        let (mut segment, starts) = runs(&mut source, valid);
        segment.extend(junk(&mut source, n - valid as usize));
        let counts = [(count::VALID, valid), (count::UNIQUE, starts.len() as u32)];
        let scaler = ScalerState { inverse: source.random(), overflow: u32::from(void == 1), ..ScalerState::default() };
        let of_another =
            Step { wanted: u32::from(void == 2), continued: u32::from(void == 3), ..step(&mut source, 4, &counts) };
        // Missing rows have the places that admission gave their swaps, but not under LFU.
        let policy = one_of(&mut source, &[Policy::Lru, Policy::Lfu, Policy::Window]);
        let config = GroupConfig::new(&[1000], 4).with_cache_rows(32).with_policy(policy);
        let places: Vec<u32> = (0..n).map(|_| source.random_range(0..32 + n as u32)).collect();
        let swaps = junk(&mut source, 4 * n);
        let bindings = [
            words(&params(&config, &layout_of(&config), TRAIN, 0)),
            words(&of_another),
            guarded(&distinct_rows(&mut source, n, n as u32)),
            guarded(&segment),
            guarded(&junk(&mut source, n)),
            guarded(&places),
            guarded(&swaps),
            guarded(&junk(&mut source, 2 * n)),
            guarded(&junk(&mut source, 2 * n)),
            guarded(&junk(&mut source, 4 * (starts.len() + 3))),
            words(&scaler),
        ];
        let groups = n.max(1).div_ceil(256) as u32;
        let run = check(case, "arrange", &bindings, groups, &[], |b| {
            let [_, step, order, segment, keys, places, swaps, access, accesses, targets, scaler] = b;
            let placed = |&place: &u32| match place.checked_sub(32) {
                Some(u) if policy != Policy::Lfu && u < n as u32 => swaps[4 * u as usize],
                _ => place,
            };
            let places: Vec<u32> = places.iter().map(placed).collect();
            let (accesses, targets) = (cast_slice_mut(accesses), cast_slice_mut(targets));
            let (access, scaler) = (cast_slice(access), &read(scaler));
            stages::arrange(of(step), order, segment, keys, &places, access, accesses, targets, scaler);
        });
        // After an overflow, and for lists of another forward, only the header is written, and it says that the list is empty.
        if void > 0 {
            assert_eq!((run.found[9][..2].to_vec(), &run.found[8]), (vec![0, 0], &bindings[8]), "{case}");
        }
    });
}

/// Accesses of a chunk, which is also the size of a tile.
pub(super) const CHUNK: u32 = 128;

/// Number of kinds of [`lengths`].
pub(super) const LENGTHS: usize = 6;

/// Lengths of rows, in accesses: none, one row about the size of a chunk, chunks that end where tiles do, heavy rows that share a tile, any.
pub(super) fn lengths(source: &mut Pcg64, kind: usize) -> Vec<u32> {
    let any = |_| {
        let longest = one_of(source, &[1, 4, 129, 700]);
        source.random_range(1..=longest)
    };
    match kind {
        0 => vec![],
        1 => vec![one_of(source, &[1, 127, 128, 129, 128 * 8 - 1, 128 * 8, 128 * 8 + 1])],
        2 => vec![128, 129, 128],
        3 => one_of::<[u32; 6]>(source, &[[100, 129, 129, 5, 1, 1], [1, 300, 2, 300, 127, 300]]).to_vec(),
        4 => vec![257, 511, 256, 128, 3000, 1],
        _ => (0..20).map(any).collect(),
    }
}

#[test]
pub(crate) fn merge_and_combine() {
    each("merge", [LENGTHS + 1, 5, 4, 3, 2], |case, mut source, [kind, dim, weights, inverse, half]| {
        // The longest row has hundreds of chunks.
        let lengths = if kind < LENGTHS { lengths(&mut source, kind) } else { vec![3, 100_000, 150] };
        let dim = if kind < LENGTHS { one_of(&mut source, DIMS[dim]) } else { 4 };
        // With products that are exact the bits of a sum show its order.
        let (weighted, exact) = [(false, true), (true, true), (true, false), (true, true)][weights];
        let pooling = if weights == 3 { Pooling::Mean } else { one_of(&mut source, &[Pooling::Sum, Pooling::None]) };
        let config = GroupConfig::new(&[1500], dim).with_pooling(pooling);
        let layout = layout_of(&config);
        let (segment, mut targets) = targets_of(&lengths, &vec![(0, 0); lengths.len()]);
        let inverse: f32 = [1.0, 2f32.powi(-10), if exact { 0.5 } else { 0.3 }][inverse];
        targets[0].end = inverse.to_bits();
        let (outputs, partials) = (source.random_range(1..30), source.random_range(0..20));
        let coefficients = lookup::weights(&mut source, segment.len(), exact);
        // Without weights and mean pooling, nothing writes the coefficient.
        let coefficient = |source: &mut Pcg64, x: f32| if weighted { x.to_bits() } else { source.random() };
        let accesses: Vec<[u32; 2]> =
            (coefficients.iter()).map(|&x| [source.random_range(0..outputs), coefficient(&mut source, x)]).collect();
        let tiles = (segment.len() as u32).div_ceil(CHUNK);
        let params = Params {
            partials,
            weighted: u32::from(weighted && pooling != Pooling::Mean),
            half_grads: half as u32,
            ..params(&config, &layout, TRAIN, 0)
        };
        let scratch = (partials * layout.width() + 2 * tiles * dim) as usize;
        let bindings = [
            words(&params),
            guarded(&targets),
            guarded(&segment),
            guarded(&accesses),
            gradients(&floats(&mut source, (outputs * dim) as usize, 1.0 / inverse), half == 1),
            guarded(&junk(&mut source, scratch)),
        ];
        // In a sum of 128 terms below 2, each rounding is off by at most half an ULP of 256, on either side.
        let like = if exact { Like::Bits } else { Like::Within(f32::EPSILON * 128.0 * 256.0) };
        let groups = one_of(&mut source, &[1, (2 * tiles).div_ceil(layout.at_once()).max(1)]);
        check(case, "merge", &bindings, groups, &[("scratch", like)], |b| {
            let [params, targets, segment, accesses, grads, scratch] = b;
            let (targets, accesses) = (cast_slice(targets), cast_slice(accesses));
            let (grads, params) = (gradients_of(grads, &read(params)), read(params));
            oracle::merge((&params, &layout), targets, segment, accesses, grads, cast_slice_mut(scratch));
        });

        let before = floats(&mut source, scratch, 1.0);
        let bindings = [words(&params), guarded(&targets), guarded(&segment), guarded(&before)];
        let groups = one_of(&mut source, &[1, tiles.max(1)]);
        // Sums in a given order have the same bits.
        let run = check(case, "combine", &bindings, groups, &[], |[params, targets, segment, scratch]| {
            stages::combine(&read(params), cast_slice(targets), segment, cast_slice_mut(scratch));
        });
        // Checked without the mirror: the total of a row's chunks, in FP64.
        let after: &[f32] = cast_slice(&run.found[3]);
        let partial = |row: u32, e: u32| ((partials * layout.width()) + row * dim + e) as usize;
        for one in targets[1..].iter().filter(|one| one.end - one.start > CHUNK) {
            let tile = one.start / CHUNK;
            for e in 0..dim {
                let chunk = |k: u32| f64::from(before[partial(if k == 0 { 2 * tile + 1 } else { 2 * (tile + k) }, e)]);
                let chunks = (one.end - one.start).div_ceil(CHUNK);
                let total: f64 = (0..chunks).map(chunk).sum();
                let found = f64::from(after[partial(2 * tile + 1, e)]);
                assert!((found - total).abs() <= 1e-6 * f64::from(chunks), "{case}: {found} for {total}");
            }
        }
    });
}
