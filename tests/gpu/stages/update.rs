use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Optimizer, Precision, RandomBits, Rounding, codec,
    internals::layout::{Params, Shard, Target},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, distinct_rows,
    exchange::{Codes, few_or_many_tables, records, some_records},
    floats, gradients, gradients_of, guarded, layout_of, on_each, params, placed, rate, read, rng, slot_rows, tables,
    targets_of, ways, words,
};

/// Number of rows in the bound shard.
const SHARD_ROWS: u32 = 300;

/// Counts of the situations that a test's cases have produced.
#[derive(Debug, Default)]
struct Seen {
    changed: usize,
    refused: usize,
    packed: usize,
    halves: usize,
    codes: Codes,
}

fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize, seen: &mut Seen) {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = few_or_many_tables(seed);
    config.cache_rows = 32 * source.random_range(0..4);
    config.seed = source.random();
    let layout = layout_of(&config);
    let (slots, dim, words_of) = (layout.slots(), layout.row.dim as usize, layout.slot_words() as usize);
    let rows = distinct_rows(&mut source, n, 900);
    let unique = placed(&mut source, &rows, slots);
    let places: Vec<(u32, u32)> = unique.iter().map(|one| (one.row, one.slot)).collect();
    let lengths: Vec<u32> = (0..n)
        .map(|_| {
            if source.random_bool(0.1) { [128, 129, 300][source.random_range(0..3)] } else { source.random_range(1..7) }
        })
        .collect();
    let (segment, mut targets) = targets_of(&lengths, &places);
    let t = source.random();
    targets[0].start = t;
    let half = source.random_bool(0.4);
    let inverse: f32 = [1.0, 2f32.powi(-10), 0.3][source.random_range(0..3)];
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
        seen.halves += 1;
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
    let what = format!("seed {seed}, {n} rows, shard {index}, half {half}, inverse {inverse}, {config:?}");
    let groups = [1, (n as u32).div_ceil(layout.at_once()).max(1) + 1][source.random_range(0..2)];
    let rules = [("cache", like), ("scratch", like), ("records", Like::Elsewhere)];
    let run = check(context, "update", &what, &bindings, groups, &rules, |b| {
        let [params, shard, targets, accesses, grads, records, cache, scratch, ways, tables, rate] = b else {
            unreachable!()
        };
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
        let sums = scratch.to_vec();
        stages::update(
            &resident,
            &whole,
            targets,
            accesses,
            grads,
            &mut no_records,
            &mut all,
            &sums,
            &mut marks,
            &mut counters,
            &read(rate),
        );
        stages::update(&params, &shard, targets, accesses, grads, records, cache, scratch, ways, tables, &read(rate));
        for one in targets[1..=n].iter().filter(|one: &&Target| one.place >= slots && shard.holds(one.row)) {
            let at = (one.place - slots) as usize * words_of;
            scratch[at..at + words_of].copy_from_slice(&all[one.place as usize * words_of..][..words_of]);
        }
    });
    seen.changed += run.changed;

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
            assert_eq!(bits(old), bits(new), "{what}: row {} moved", one.row);
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
        panic!("{what}: {difference}");
    }
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut seen = Seen::default();
        for mut optimizer in [
            Optimizer::sgd(0.1),
            Optimizer::adagrad(0.1),
            Optimizer::row_wise_adagrad(0.1),
            Optimizer::sgd(0.1).with_clip_norm(Some(1.5)).with_clip_value(Some(0.5)),
            Optimizer::momentum(0.1).with_clip_value(Some(0.5)).with_decoupled(true),
            Optimizer::adam(0.1).with_decoupled(true),
            Optimizer::adam(0.1).with_own_count(true),
            Optimizer::row_wise_adam(0.1),
            Optimizer::row_wise_adam(0.1).with_own_count(true).with_clip_norm(Some(1.5)),
        ] {
            for weight_decay in [0.0, 0.01] {
                (optimizer.weight_decay, optimizer.eps) = (weight_decay, 1e-3);
                for (seed, dim) in [1, 3, 4, 5, 63, 64, 65, 128, 130, 260].into_iter().enumerate() {
                    for precision in [Precision::Fp32, Precision::ALL[1 + seed % 4]] {
                        let rounding = [Rounding::Nearest, Rounding::Stochastic][seed / 4 % 2];
                        let random_bits = RandomBits::ALL[seed % 3];
                        let config = GroupConfig::new(&[1], dim)
                            .with_optimizer(optimizer)
                            .with_precision(precision)
                            .with_rounding(rounding)
                            .with_random_bits(random_bits);
                        run(context, seed as u64, &config, 60, &mut seen);
                    }
                }
                for n in [0, 1, 2, 3, 7] {
                    let config = GroupConfig::new(&[1], 3).with_optimizer(optimizer);
                    run(context, 11, &config, n, &mut seen);
                }
            }
        }
        assert!(seen.changed > 0 && seen.refused > 100 && seen.packed > 500 && seen.halves > 20, "{seen:?}");
    });
}
