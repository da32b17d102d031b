//! The stages of a backward.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, Optimizer, Pooling, Precision, ScalerState, codec,
    internals::layout::{Params, Shard, Target, count},
    internals::stages,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    DIMS, Like, TRAIN, check, distinct_rows, each,
    exchange::{Codes, few_or_many_tables, records, rounded, some_records},
    floats, gradients, gradients_of, guarded, junk, layout_of, lookup, of, one_of, params, placed, rate, read, runs,
    slot_rows, step, tables, targets_of, ways, words,
};

#[test]
pub(crate) fn arrange() {
    each("arrange", [7, 2, 3], |case, mut source, [valid, overflow, rest]| {
        let valid = [0u32, 1, 2, 255, 256, 257, 700][valid];
        let n = valid as usize + [0, 1, 39][rest]; // the rest were left out
        let (mut segment, starts) = runs(&mut source, valid);
        segment.extend(junk(&mut source, n - valid as usize));
        let counts = [(count::VALID, valid), (count::UNIQUE, starts.len() as u32)];
        let scaler = ScalerState { inverse: source.random(), overflow: overflow as u32, ..ScalerState::default() };
        let bindings = [
            words(&step(&mut source, 4, &counts)),
            guarded(&distinct_rows(&mut source, n, n as u32)),
            guarded(&segment),
            guarded(&junk(&mut source, n)),
            guarded(&junk(&mut source, n)),
            guarded(&junk(&mut source, 2 * n)),
            guarded(&junk(&mut source, 2 * n)),
            guarded(&junk(&mut source, 4 * (starts.len() + 3))),
            words(&scaler),
        ];
        let groups = n.max(1).div_ceil(256) as u32;
        let run = check(case, "arrange", &bindings, groups, &[], |b| {
            let [step, order, segment, keys, places, access, accesses, targets, scaler] = b;
            let (accesses, targets) = (cast_slice_mut(accesses), cast_slice_mut(targets));
            let (access, scaler) = (cast_slice(access), &read(scaler));
            stages::arrange(of(step), order, segment, keys, places, access, accesses, targets, scaler);
        });
        // After an overflow only the header is written, and it says that the list is empty.
        if overflow == 1 {
            assert_eq!((run.found[7][..2].to_vec(), &run.found[6]), (vec![0, 0], &bindings[6]), "{case}");
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
            stages::merge(&params, targets, segment, accesses, grads, cast_slice_mut(scratch));
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

/// Number of rows in the bound shard.
const SHARD_ROWS: u32 = 300;

/// Counts of the situations that a test's cases have produced.
#[derive(Debug, Default)]
struct Seen {
    refused: usize,
    packed: usize,
    codes: Codes,
}

#[test]
pub(crate) fn update() {
    let mut seen = Seen::default();
    each("update", [9, 2, 5, 5, 4, 2, 2], |case, mut source, [rule, decay, dim, precision, rounding, few, half]| {
        let mut optimizer = [
            Optimizer::sgd(0.1),
            Optimizer::adagrad(0.1),
            Optimizer::row_wise_adagrad(0.1),
            Optimizer::sgd(0.1).with_clip_norm(Some(1.5)).with_clip_value(Some(0.5)),
            Optimizer::momentum(0.1).with_clip_value(Some(0.5)).with_decoupled(true),
            Optimizer::adam(0.1).with_decoupled(true),
            Optimizer::adam(0.1).with_own_count(true),
            Optimizer::row_wise_adam(0.1),
            Optimizer::row_wise_adam(0.1).with_own_count(true).with_clip_norm(Some(1.5)),
        ][rule];
        (optimizer.weight_decay, optimizer.eps) = ([0.0, 0.01][decay], 1e-3);
        let (n, half) = (if few == 1 { one_of(&mut source, &[0, 1, 2, 3, 7]) } else { 60 }, half == 1);
        let config = GroupConfig::new(&few_or_many_tables(&mut source), one_of(&mut source, DIMS[dim]))
            .with_optimizer(optimizer)
            .with_precision(Precision::ALL[precision])
            .with_cache_rows(32 * source.random_range(0..4))
            .with_seed(source.random());
        let config = rounded(config, rounding);
        let layout = layout_of(&config);
        let (slots, dim, words_of) = (layout.slots(), layout.row.dim as usize, layout.slot_words() as usize);
        let rows = distinct_rows(&mut source, n, 900);
        let unique = placed(&mut source, &rows, slots);
        let places: Vec<(u32, u32)> = unique.iter().map(|one| (one.row, one.slot)).collect();
        let lengths: Vec<u32> = (0..n)
            .map(|_| {
                if source.random_bool(0.1) { one_of(&mut source, &[128, 129, 300]) } else { source.random_range(1..7) }
            })
            .collect();
        let (segment, mut targets) = targets_of(&lengths, &places);
        let t = source.random();
        targets[0].start = t;
        let inverse: f32 = one_of(&mut source, &[1.0, 2f32.powi(-10), 0.3]);
        targets[0].end = inverse.to_bits();
        let tiles = segment.len().div_ceil(128);
        let outputs = 3 * n + 1;
        let mut grads = floats(&mut source, outputs * dim, 1.0 / inverse);
        // Every kind of gradient that must be refused, and some that look alike and must not.
        for output in 0..outputs {
            let e = output * dim + source.random_range(0..dim);
            match source.random_range(0..30) {
                0 => grads[e] = f32::NAN,
                1 => grads[e] = f32::NEG_INFINITY,
                2 if layout.row.state > 0 => grads[e] = 1e25, // its square is no float
                3 => grads[output * dim..][..dim].fill(0.0),
                _ => {}
            }
        }
        if half {
            grads.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
        }
        let accesses: Vec<[u32; 2]> =
            segment.iter().map(|_| [source.random_range(0..outputs as u32), source.random()]).collect();
        // The state is a sum of squares: not negative, and not so small that the root enlarges rounding errors.
        let mut data = |n: usize| {
            slot_rows(&layout, n, || {
                let mut row = floats(&mut source, layout.row.row_words as usize, 1.0);
                row[dim..].iter_mut().for_each(|x| *x = x.abs() + 0.05);
                match source.random_range(0..20) {
                    0 => row[source.random_range(0..dim)] = f32::INFINITY,
                    1 if layout.row.state > 0 => row[dim] = f32::NAN,
                    _ => {}
                }
                row
            })
        };
        let (cache, mut scratch) = (data(slots as usize), data(n));
        let partials = (scratch.len() / layout.width() as usize) as u32;
        scratch.extend(floats(&mut source, 2 * tiles * dim, 3.0));
        let index = source.random_range(0..3);
        let shard = Shard {
            first_row: index * SHARD_ROWS,
            rows: SHARD_ROWS,
            rows_each: SHARD_ROWS,
            phases: Shard::PACK,
            ..Shard::default()
        };
        // Records of other values than the rows in scratch, so that reading one would show.
        let before = some_records(&mut source, &layout, SHARD_ROWS);
        let noise = codec::Noise {
            rounding: config.rounding,
            random_bits: config.random_bits,
            seed: config.seed,
            step: t,
            purpose: 0,
            stripe: hotrow::Stripe::ALL,
        };
        let params = Params { partials, half_grads: u32::from(half), ..params(&config, &layout, TRAIN, 0) };
        let later = source.random(); // another step may have begun since
        let bindings = [
            words(&params),
            words(&shard),
            guarded(&targets),
            guarded(&accesses),
            gradients(&grads, half),
            guarded(&before),
            guarded(&cache),
            guarded(&scratch),
            guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
            guarded(&tables(&mut source, &config.tables, later)),
            words(&rate(&config)),
        ];
        // The errors of a root, a quotient and a few sums of numbers near 1; row-wise also of a mean, in the same order on both sides.
        let like = Like::Within(32.0 * f32::EPSILON);
        let groups = one_of(&mut source, &[1, (n as u32).div_ceil(layout.at_once()).max(1) + 1]);
        let rules = [("cache", like), ("scratch", like), ("records", Like::Elsewhere)];
        let run = check(case, "update", &bindings, groups, &rules, |b| {
            let [params, shard, targets, accesses, grads, records, cache, scratch, ways, tables, rate] = b;
            let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
            let (targets, accesses) = (cast_slice(targets), cast_slice(accesses));
            let (params, shard): (Params, Shard) = (read(params), read(shard));
            let grads = gradients_of(grads, &params);
            // Only the kernel leaves updated bypassed rows in scratch. To check them, the mirror runs again as if all rows had slots.
            let sets = (slots + n as u32).div_ceil(32);
            let resident = Params { slots: 32 * sets, sets, ..params };
            let (mut all, mut no_records) = ([&cache[..slots as usize * words_of], scratch].concat(), Vec::new());
            let (mut marks, mut counters) = (vec![0; (resident.slots as usize + 32) * 4], tables.clone());
            let whole = Shard::default();
            let (sums, rate) = (scratch.to_vec(), read(rate));
            let (records_of, ways_of, counters_of) = (&mut no_records, &mut marks, &mut counters);
            stages::update(
                &resident,
                &whole,
                targets,
                accesses,
                grads,
                records_of,
                &mut all,
                &sums,
                ways_of,
                counters_of,
                &rate,
            );
            stages::update(&params, &shard, targets, accesses, grads, records, cache, scratch, ways, tables, &rate);
            for one in targets[1..=n].iter().filter(|one: &&Target| one.place >= slots && shard.holds(one.row)) {
                let at = (one.place - slots) as usize * words_of;
                scratch[at..at + words_of].copy_from_slice(&all[one.place as usize * words_of..][..words_of]);
            }
        });

        // A record must be the codec's packing of the row that the kernel left. A refused row keeps its bits and its record.
        let mut wanted = before;
        let (found_cache, found_scratch): (&[f32], &[f32]) = (cast_slice(&run.found[6]), cast_slice(&run.found[7]));
        let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for one in &targets[1..] {
            let bypass = one.place >= slots;
            let (old, new, at) = if bypass {
                (&scratch[..], found_scratch, one.place - slots)
            } else {
                (&cache[..], found_cache, one.place)
            };
            let range = at as usize * words_of..(at as usize + 1) * words_of;
            let (old, new) = (&old[range.clone()], &new[range]);
            let mine = if bypass { shard.holds(one.row) } else { index == 0 };
            let light = (one.end - one.start) <= 128;
            let wrong = light
                && accesses[one.start as usize..one.end as usize]
                    .iter()
                    .any(|one| grads[one[0] as usize * dim..][..dim].iter().any(|g| !g.is_finite()));
            if !mine || wrong {
                assert_eq!(bits(old), bits(new), "{case}: row {} moved", one.row);
                seen.refused += usize::from(mine);
            } else if bypass {
                let stride = layout.row.record_words as usize;
                let range =
                    (one.row - shard.first_row) as usize * stride..(one.row - shard.first_row + 1) as usize * stride;
                // Only the mirror can tell whether a row was refused, or updated by a zero gradient without a change.
                if run.wanted[5][range.clone()] == wanted[range.clone()] {
                    continue;
                }
                let record = &mut wanted[range];
                let (weights, state) = new[..layout.row.row_words as usize].split_at(dim);
                seen.packed += usize::from(codec::pack(&layout.row, &noise, one.row, weights, state, record));
            }
        }
        if let Err(difference) = records(&layout, &run.found[5], &guarded(&wanted), &mut seen.codes) {
            panic!("{case}: {difference}");
        }
    });
    assert!(seen.refused > 0 && seen.packed > 0, "{seen:?}");
}
