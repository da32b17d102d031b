use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Optimizer, Precision, Rounding, codec, cpu,
    layout::{Params, Shard},
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, distinct_rows,
    exchange::{Codes, records, some_records},
    floats, guarded, layout_of, on_each, params, placed, read, rng, slot_rows, tables, targets_of, ways, words,
};

/// Rows of the shard that is bound, and its first.
const SHARD_ROWS: u32 = 300;

/// What the cases of a test have met.
#[derive(Debug, Default)]
struct Seen {
    changed: usize,
    refused: usize,
    packed: usize,
    codes: Codes,
}

fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize, seen: &mut Seen) {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = vec![1, 500, 399];
    config.cache_rows = 32 * source.random_range(0..4);
    config.seed = source.random();
    let layout = layout_of(&config);
    let (slots, dim, words_of) = (layout.slots(), layout.dim as usize, layout.slot_words() as usize);
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
    let tiles = segment.len().div_ceil(128);
    let outputs = 3 * n + 1;
    let mut grads = floats(&mut source, outputs * dim, 1.0);
    // Every way a gradient can go wrong, and some that look alike and do not.
    for output in 0..outputs {
        let e = output * dim + source.random_range(0..dim);
        match source.random_range(0..30) {
            0 => grads[e] = f32::NAN,
            1 => grads[e] = f32::NEG_INFINITY,
            2 if layout.state > 0 => grads[e] = 1e25, // its square is no float
            3 => grads[output * dim..][..dim].fill(0.0),
            _ => {}
        }
    }
    let accesses: Vec<[u32; 2]> =
        segment.iter().map(|_| [source.random_range(0..outputs as u32), source.random()]).collect();
    // The state is a sum of squares: not negative, and not so small that its root tells roundings apart.
    let mut data = |n: usize| {
        slot_rows(&layout, n, || {
            let mut row = floats(&mut source, layout.row_words as usize, 1.0);
            row[dim..].iter_mut().for_each(|x| *x = x.abs() + 0.05);
            match source.random_range(0..20) {
                0 => row[source.random_range(0..dim)] = f32::INFINITY,
                1 if layout.state > 0 => row[dim] = f32::NAN,
                _ => {}
            }
            row
        })
    };
    let (cache, mut scratch) = (data(slots as usize), data(n));
    let partials = (scratch.len() / layout.width() as usize) as u32;
    scratch.extend(floats(&mut source, 2 * tiles * dim, 3.0));
    let index = source.random_range(0..3);
    let shard = Shard { first_row: index * SHARD_ROWS, rows: SHARD_ROWS, phases: Shard::PACK, ..Shard::default() };
    let before = some_records(&mut source, &layout, SHARD_ROWS);
    let params = Params { partials, ..params(&config, &layout, TRAIN, 0) };
    let later = source.random(); // another step may have begun since
    let bindings = [
        words(&params),
        words(&shard),
        guarded(&targets),
        guarded(&accesses),
        guarded(&grads),
        guarded(&before),
        guarded(&cache),
        guarded(&scratch),
        guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
        guarded(&tables(&mut source, &config.tables, later)),
    ];
    // A root, a quotient and a few sums of numbers near 1; row-wise also a mean, in the same order on both sides.
    let like = Like::Within(32.0 * f32::EPSILON);
    let what = format!("seed {seed}, {n} rows, shard {index}, {config:?}");
    let groups = [1, (n as u32).div_ceil(layout.at_once()).max(1) + 1][source.random_range(0..2)];
    let rules = [("cache", like), ("scratch", like), ("records", Like::Elsewhere)];
    let run = check(context, "update", &what, &bindings, groups, &rules, |b| {
        let [params, shard, targets, accesses, grads, records, cache, scratch, ways, tables] = b else {
            unreachable!()
        };
        let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
        let (targets, accesses, grads) = (cast_slice(targets), cast_slice(accesses), cast_slice(grads));
        cpu::update(&read(params), &read(shard), targets, accesses, grads, records, cache, scratch, ways, tables);
    });
    seen.changed += run.changed;

    // A record is what the codec makes of the row that the kernel left; a refused row keeps its bits, and its record.
    let mut wanted = before;
    let noise = codec::Noise { rounding: config.rounding, seed: config.seed, step: t, purpose: 0 };
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
            let stride = layout.record_words as usize;
            let range =
                (one.row - shard.first_row) as usize * stride..(one.row - shard.first_row + 1) as usize * stride;
            // Only the mirror tells a row that a zero gradient has left as it was from one that was refused.
            if run.wanted[5][range.clone()] == wanted[range.clone()] {
                continue;
            }
            let record = &mut wanted[range];
            let (weights, state) = new[..layout.row_words as usize].split_at(dim);
            seen.packed += usize::from(codec::pack(&layout, &noise, one.row, weights, state, record));
        }
    }
    if let Err(difference) = records(&layout, &run.found[5], &guarded(&wanted), &mut seen.codes) {
        panic!("{what}: {difference}");
    }
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut seen = Seen::default();
        for mut optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
            for weight_decay in [0.0, 0.01] {
                (optimizer.weight_decay, optimizer.eps) = (weight_decay, 1e-3);
                for (seed, dim) in [1, 3, 4, 5, 63, 64, 65, 128, 130, 260].into_iter().enumerate() {
                    for precision in [Precision::Fp32, Precision::ALL[1 + seed % 4]] {
                        let rounding = [Rounding::Nearest, Rounding::Stochastic][seed / 4 % 2];
                        let config = GroupConfig { optimizer, precision, rounding, ..GroupConfig::new(&[1], dim) };
                        run(context, seed as u64, &config, 60, &mut seen);
                    }
                }
                for n in [0, 1, 2, 3, 7] {
                    let config = GroupConfig { optimizer, ..GroupConfig::new(&[1], 3) };
                    run(context, 11, &config, n, &mut seen);
                }
            }
        }
        assert!(seen.changed > 0 && seen.refused > 100 && seen.packed > 500, "{seen:?}");
    });
}
