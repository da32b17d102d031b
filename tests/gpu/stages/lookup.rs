//! The stages of a forward that look rows up and pool them.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    CounterBits, GroupConfig, LookupBody, Optimizer, OutOfRange, Policy, Pooling, RankBody,
    hash::miss_key,
    internals::layout::{Feature, Field, Halves, NONE, Params, Shard, Step, WAYS, count, way_at},
    internals::stages,
};
use hotrow_harness::device::{again, options, with_gpu};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    DIMS, FROZEN, Like, ROWS, TRAIN, check, each, each_on, floats, gradients, guarded, junk, layout_of, of, one_of,
    params, read, slot_of, slot_rows, step, tables, ways, words,
};

const POOLINGS: [Pooling; 3] = [Pooling::Sum, Pooling::Mean, Pooling::None];

/// Offsets of `bags` bags over `indices` indices, some bags empty.
pub(super) fn offsets(source: &mut Pcg64, bags: u32, indices: u32) -> Vec<u32> {
    let mut offsets: Vec<u32> = (0..=bags).map(|_| source.random_range(0..=indices)).collect();
    offsets.sort_unstable();
    offsets[0] = 0;
    offsets[bags as usize] = indices;
    offsets
}

/// The features that read these tables. The kernels take a table's numbers from here, not from `tables`.
fn features_of(rows: &[u32], features: &[u32]) -> Vec<Feature> {
    let of = |&table: &u32| {
        let base = rows[..table as usize].iter().sum();
        Feature { table, base, rows: rows[table as usize], pad0: 0 }
    };
    features.iter().map(of).collect()
}

/// With each fault in a batch's offsets, and indices out of range.
#[test]
pub(crate) fn linearize() {
    each("linearize", [6, 6, 4, 3, 3, 3], |case, mut source, [fault, size, per_feature, pooling, rule, mode]| {
        let indices = [0, 1, 255, 256, 257, 1100][size];
        let per_feature = [1, 2, 90, 256][per_feature];
        let rows: Vec<u32> = (0..source.random_range(1..5)).map(|_| source.random_range(1..300)).collect();
        let features: Vec<u32> =
            (0..source.random_range(1..4)).map(|_| source.random_range(0..rows.len() as u32)).collect();
        let mut config = GroupConfig::new(&rows, 4).with_pooling(POOLINGS[pooling]);
        config.out_of_range = [OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip][rule];
        // Some batches without a bag.
        let bags = if source.random_bool(0.1) { 0 } else { per_feature * features.len() as u32 };
        let mut offsets = offsets(&mut source, bags, indices);
        // Each case breaks one rule if possible, because a second fault would hide that the check of the first is missing.
        let (end, before, middle) =
            (bags as usize, bags.saturating_sub(1) as usize, source.random_range(0..=bags) as usize);
        match fault {
            0 => {}
            1 => offsets[0] = offsets[1.min(end)].max(1),
            2 => offsets[end] = offsets[before],
            3 => offsets[end] += 1,
            4 => offsets[middle] = 0,
            _ => offsets[middle] = u32::MAX,
        }
        let wild = source.random_range(0.0..0.1);
        let index = |_| {
            let rows = rows[features[source.random_range(0..features.len())] as usize];
            let index = source.random_range(0..rows);
            if source.random_bool(wild) { [300, u32::MAX, u32::MAX - 1][index as usize % 3] } else { index }
        };
        let list: Vec<u32> = (0..indices).map(index).collect();
        let params = params(&config, &layout_of(&config), [TRAIN, FROZEN, ROWS][mode], 0);
        let n = indices as usize;
        let bindings = [
            words(&Params { indices, bags, bags_per_feature: per_feature, ..params }),
            guarded(&list),
            guarded(&offsets),
            guarded(&features_of(&rows, &features)),
            guarded(&tables(&mut source, &rows, 5)),
            words(&Step::default()),
            guarded(&junk(&mut source, n)),
            guarded(&junk(&mut source, 2 * n)),
        ];
        let groups = indices.max(bags + 1).div_ceil(256);
        check(case, "linearize", &bindings, groups, &[], |b| {
            let [params, indices, offsets, features, tables, step, keys, access] = b;
            let (features, access) = (cast_slice(features), cast_slice_mut(access));
            stages::linearize(&read(params), indices, offsets, features, tables, of(step), keys, access);
        });
    });
}

/// Every mixture of bad and good offsets and indices, at random places.
#[test]
pub(crate) fn begin() {
    each("begin", [8, 3, 3], |case, mut source, [bad, mode, t]| {
        let features: Vec<u32> = (0..source.random_range(1..6)).map(|_| source.random_range(0..3)).collect();
        let per_feature = source.random_range(1..20);
        let (bags, indices) = (per_feature * features.len() as u32, source.random_range(1..400));
        let config = GroupConfig::new(&[7, 8, 9], 4);
        let params = params(&config, &layout_of(&config), [TRAIN, FROZEN, ROWS][mode], 0);
        let at = |bit: u32, place: u32| if bad >> bit & 1 == 1 { NONE - place } else { 0 };
        let offsets = offsets(&mut source, bags, indices);
        let bad_index = match source.random_bool(0.5) {
            true => offsets[source.random_range(0..bags) as usize].min(indices - 1), // the first of its bag
            false => source.random_range(0..indices),
        };
        let step = Step {
            bad_offset: at(0, source.random_range(0..=bags)),
            bad_index: at(1, bad_index),
            accesses: at(2, NONE - source.random_range(1..=indices)),
            ..Step::default()
        };
        let bindings = [
            words(&Params { indices, bags, bags_per_feature: per_feature, ..params }),
            guarded(&junk(&mut source, indices as usize)),
            guarded(&offsets),
            guarded(&features_of(&[7, 8, 9], &features)),
            guarded(&tables(&mut source, &[7, 8, 9], [0, 77, u32::MAX][t])),
            words(&step),
        ];
        check(case, "begin", &bindings, 1, &[], |[params, indices, offsets, features, tables, step]| {
            stages::begin(&read(params), indices, offsets, cast_slice(features), tables, of(step));
        });
    });
}

/// The listed misses as pairs, sorted, because the list has no fixed order.
fn listed(run: &[Vec<u32>], n: usize) -> Vec<(u32, u32)> {
    let mut pairs: Vec<_> = run[5][..n].iter().copied().zip(run[6][..n].iter().copied()).collect();
    pairs.sort_unstable();
    pairs
}

/// With each body that looks up rows and that the device runs.
#[test]
pub(crate) fn probe() {
    with_gpu(|context| {
        let has_32 = context.caps().subgroup == Some((32, 32));
        let bodies = LookupBody::ALL.into_iter().filter(|&body| has_32 || body != LookupBody::Lanes32);
        let mut contexts: Vec<_> = bodies.map(|body| again(&options().lookup(body))).collect();
        contexts.extend([context.clone(), again(&options().rank(RankBody::Portable).max_groups(3))]);
        let (mut hits, mut misses) = (0, 0);
        each_on(&contexts, "probe", [7, 4, 3, 3], |case, mut source, [n, sets, mode, active]| {
            let n = [0usize, 1, 31, 255, 256, 257, 1000][n];
            let (sets, active) = ([0u32, 1, 3, 8][sets], active > 0);
            let rows = [1, 400, 99];
            let config = GroupConfig::new(&rows, 4).with_cache_rows(32 * sets);
            let params = params(&config, &layout_of(&config), [TRAIN, FROZEN, ROWS][mode], 0);
            let keys: Vec<u32> =
                (0..n).map(|_| if source.random_bool(0.1) { NONE } else { source.random_range(0..500) }).collect();
            let before = source.random_range(0..3);
            let counts = [(count::INDICES, if active { n as u32 } else { 0 }), (count::MISSED, before)];
            let list = n + before as usize;
            let bindings = [
                words(&Params { indices: n as u32, ..params }),
                words(&step(&mut source, 9, &counts)),
                guarded(&keys),
                // A group without a cache also binds metadata of one set.
                guarded(&ways(&mut source, sets.max(1), 500, 8, 0.8)),
                guarded(&junk(&mut source, n)),
                guarded(&junk(&mut source, list)),
                guarded(&junk(&mut source, list)),
                guarded(&tables(&mut source, &rows, 9)),
            ];
            let any_order = [("miss_keys", Like::Elsewhere), ("miss_index", Like::Elsewhere)];
            let groups = n.div_ceil(256) as u32;
            let run = check(case, "probe", &bindings, groups, &any_order, |b| {
                let [params, step, keys, ways, places, miss_keys, miss_index, tables] = b;
                stages::probe(&read(params), of(step), keys, ways, places, miss_keys, miss_index, tables);
            });
            let missed = read::<Step>(&run.found[1]).counts[count::MISSED] as usize;
            let (found, wanted) = (listed(&run.found, missed), listed(&run.wanted, missed));
            assert_eq!(found, wanted, "{case}");
            for list in [5, 6] {
                assert_eq!(run.found[list][missed..], bindings[list][missed..], "{case}: beyond the list");
            }
            // Checked without the mirror: exactly the accesses that miss are listed, each with its key.
            let mut right: Vec<_> = (0..n)
                .filter(|&i| active && keys[i] != NONE && run.found[4][i] == NONE)
                .map(|i| (miss_key(keys[i], sets), i as u32))
                .collect();
            right.extend((0..before as usize).map(|k| (bindings[5][k], bindings[6][k])));
            right.sort_unstable();
            assert_eq!(found, right, "{case}");
            if missed > 0 {
                right[missed / 2].1 ^= 1;
                assert_ne!(found, right, "a wrong list is noticed");
            }
            misses += missed - before as usize;
            hits += run.found[4][..n].iter().filter(|&&place| place != NONE).count();
        });
        assert!(hits > 0 && misses > 0, "{hits} hits, {misses} misses");
    });
}

/// LRU, and LFU with counters of each width, some of which are about to saturate.
#[test]
pub(crate) fn touch() {
    let (mut saturated, mut stamped) = ([0; 3], 0);
    each("touch", [4, 6, 4], |case, mut source, [kind, n, sets]| {
        let n = [0u32, 1, 255, 256, 257, 2000][n];
        let (policy, width) = if kind == 0 { (Policy::Lru, 0) } else { (Policy::Lfu, kind - 1) };
        let most = CounterBits::ALL[width].most();
        let (per_shard, index) = (700u32, source.random_range(0..3u32));
        let rows = [3, 900, 3 * per_shard - 903];
        let mut config = GroupConfig::new(&rows, 4).with_cache_rows(32 * (sets as u32 + 1));
        (config.policy, config.counter_bits) = (policy, CounterBits::ALL[width]);
        let layout = layout_of(&config);
        let t = 9;
        let mut ways = ways(&mut source, layout.sets, 3 * per_shard, t - 1, 0.6);
        let near_the_end = [0, 5, most - 1, most - 3, most];
        for slot in 0..layout.slots() {
            ways[way_at(WAYS, slot, Field::Freq)] = one_of(&mut source, &near_the_end);
        }
        // One row occurs many times, others once.
        let hot = source.random_range(0..3 * per_shard);
        let key = |_| match source.random_range(0..10) {
            0 => NONE,
            1..4 => hot,
            _ => source.random_range(0..3 * per_shard),
        };
        let mut keys: Vec<u32> = (0..n).map(key).collect();
        let shard = match policy {
            Policy::Lfu => Shard { first_row: index * per_shard, rows: per_shard, ..Shard::default() },
            _ => Shard { first_row: 0, rows: 3 * per_shard, ..Shard::default() },
        };
        let mut freqs: Vec<u32> = (0..per_shard).map(|_| one_of(&mut source, &near_the_end)).collect();
        // By chance no hit row may be one short of the greatest frequency, so one is by hand. A third of the resident rows, 32 at least, are of this
        // shard, and each width meets four such cases: none has one with a chance of (2/3)^128.
        let mut resident = (0..layout.slots()).map(|slot| ways[way_at(WAYS, slot, Field::Tag)]);
        if let (Policy::Lfu, 255.., Some(row)) = (policy, n, resident.find(|&row| row != NONE && shard.holds(row))) {
            keys[n as usize / 2] = row;
            freqs[(row - shard.first_row) as usize] = most - 1;
        }
        let place = |&row: &u32| if row == NONE { NONE } else { slot_of(&ways, layout.sets, row) };
        let places: Vec<u32> = keys.iter().map(place).collect();
        let mut tables = tables(&mut source, &rows, t);
        tables[0] = t;
        let bindings = [
            words(&Params { indices: n, ..params(&config, &layout, TRAIN, 0) }),
            words(&shard),
            words(&step(&mut source, t, &[])),
            guarded(&keys),
            guarded(&places),
            guarded(&ways),
            guarded(&freqs),
            guarded(&tables),
        ];
        let run = check(case, "touch", &bindings, n.div_ceil(256), &[], |b| {
            let [params, shard, step, keys, places, ways, freqs, tables] = b;
            stages::touch(&read(params), &read(shard), of(step), keys, places, ways, freqs, tables);
        });
        saturated[width] += run.found[6].iter().zip(&freqs).filter(|&(&a, &b)| a == most && b != a).count();
        stamped += (0..layout.slots()).filter(|&s| run.found[5][way_at(WAYS, s, Field::Stamp)] == t).count();
        // Checked without the mirror: each row of this shard with a hit counts once as distinct.
        let hits = (0..n as usize).filter(|&i| places[i] != NONE && shard.holds(keys[i])).map(|i| keys[i]);
        let hit: std::collections::BTreeSet<u32> = hits.collect();
        let unique = |words: &[u32]| -> u64 {
            let tables = words[4..].chunks_exact(28).take(3);
            tables.map(|table| u64::from(table[6]) | u64::from(table[7]) << 32).fold(0, u64::wrapping_add)
        };
        assert_eq!(unique(&run.found[7]).wrapping_sub(unique(&tables)), hit.len() as u64, "{case}");
    });
    assert!(stamped > 0 && saturated.iter().all(|&rows| rows > 0), "{stamped} {saturated:?}");
}

/// A place for each of `n` accesses: a slot, a row of scratch, or none.
fn some_places(source: &mut Pcg64, n: u32, reach: u32) -> Vec<u32> {
    (0..n).map(|_| if source.random_bool(0.1) { NONE } else { source.random_range(0..reach) }).collect()
}

fn with_any_state(source: &mut Pcg64, config: GroupConfig) -> GroupConfig {
    let state = [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)];
    config.with_cache_rows(64 * source.random_range(0..2)).with_optimizer(one_of(source, &state))
}

/// Weights; `exact` ones are powers of two, so products are exact and the bits of a sum show its order.
pub(super) fn weights(source: &mut Pcg64, n: usize, exact: bool) -> Vec<f32> {
    let weight = |_| if exact { one_of(source, &[0.5, -1.0, 2.0, 4.0]) } else { source.random_range(-2.0..2.0) };
    (0..n).map(weight).collect()
}

/// How outputs and coefficients of pooled rows may differ.
pub(super) fn pooled(offsets: &[u32], indices: u32, exact: bool, mean: bool) -> [(&'static str, Like); 2] {
    // In a sum of m terms below 2, each rounding is off by at most half an ULP of 2 m, on either side. Mean divides once more.
    let longest = offsets.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0).min(indices) as f32;
    let (rounded, divided) = (f32::EPSILON * (longest + 2.0) * longest.max(1.0) * 2.0, 4.0 * f32::EPSILON);
    let outputs = if exact && !mean { Like::Bits } else { Like::Within(rounded) };
    [("outputs", outputs), ("access", if mean { Like::Pairs(divided) } else { Like::Bits })]
}

#[test]
pub(crate) fn gather() {
    each("gather", [3, 2, 5, 6, 2], |case, mut source, [pooling, weighted, dim, size, exact]| {
        let (pooling, exact, dim) = (POOLINGS[pooling], exact == 1, one_of(&mut source, DIMS[dim]));
        let (indices, bags) = [(0, 1), (1, 1), (7, 9), (130, 1), (300, 4), (50, 12)][size];
        let config = with_any_state(&mut source, GroupConfig::new(&[1500], dim).with_pooling(pooling));
        let layout = layout_of(&config);
        let (slots, n, in_scratch) = (layout.slots(), indices as usize, 20);
        let mut places = some_places(&mut source, indices, slots + in_scratch);
        let weights = weights(&mut source, n, exact);
        let mut offsets = offsets(&mut source, bags, indices);
        if bags == 12 {
            // A broken step is a no-op whose places are all NONE. But the kernel reads its offsets, and must stay within the buffers.
            let broken = |at: &mut u32| {
                if source.random_bool(0.3) {
                    *at = source.random();
                }
            };
            offsets.iter_mut().for_each(broken);
            offsets.sort_unstable_by(|a, b| b.cmp(a));
            places.fill(NONE);
        }
        let rows = if pooling == Pooling::None { indices } else { bags };
        let mut slot_rows =
            |n: u32| slot_rows(&layout, n as usize, || floats(&mut source, layout.row.row_words as usize, 1.0));
        let (cache, scratch) = (slot_rows(slots), slot_rows(in_scratch));
        let bindings = [
            words(&Params { indices, bags, weighted: weighted as u32, ..params(&config, &layout, TRAIN, 0) }),
            guarded(&offsets),
            guarded(&places),
            guarded(&weights),
            guarded(&cache),
            guarded(&scratch),
            guarded(&junk(&mut source, 2 * n)),
            guarded(&junk(&mut source, (rows * dim) as usize)),
        ];
        let rules = pooled(&offsets, indices, exact, pooling == Pooling::Mean);
        let groups = rows.div_ceil(layout.at_once() * if pooling == Pooling::None { 4 } else { 1 }) + 1;
        check(case, "gather", &bindings, groups, &rules, |b| {
            let [params, offsets, places, weights, cache, scratch, access, outputs] = b;
            let (access, outputs) = (cast_slice_mut(access), cast_slice_mut(outputs));
            let (weights, cache, scratch) = (cast_slice(weights), cast_slice(cache), cast_slice(scratch));
            stages::gather(&read(params), offsets, places, weights, cache, scratch, access, outputs);
        });
    });
}

/// For each index its output row, and a coefficient that the stage does not read.
pub(super) fn access(source: &mut Pcg64, pooling: Pooling, offsets: &[u32]) -> Vec<u32> {
    let bags = (0..).zip(offsets.windows(2));
    let bag_of = bags.flat_map(|(bag, pair)| (pair[0]..pair[1]).map(move |_| bag));
    (0..).zip(bag_of).flat_map(|(i, bag)| [if pooling == Pooling::None { i } else { bag }, source.random()]).collect()
}

/// The floats of words that [`gradients`] made, for a mirror that takes floats. Halves stand for themselves.
pub(super) fn as_floats(words: &[u32], params: &Params) -> Vec<f32> {
    match params.half_grads {
        1 => cast_slice::<u32, u16>(words).iter().map(|&half| half::f16::from_bits(half).to_f32()).collect(),
        _ => cast_slice(words).to_vec(),
    }
}

#[test]
pub(crate) fn weight_gradient() {
    each("weight_gradient", [3, 2, 5, 5, 2], |case, mut source, [pooling, exact, dim, size, half]| {
        let (pooling, dim) = (POOLINGS[pooling], one_of(&mut source, DIMS[dim]));
        let (indices, bags) = [(0, 1), (1, 1), (7, 9), (130, 1), (300, 4)][size];
        let config = with_any_state(&mut source, GroupConfig::new(&[1500], dim).with_pooling(pooling));
        let layout = layout_of(&config);
        let params = Params { indices, bags, half_grads: half as u32, ..params(&config, &layout, TRAIN, 0) };
        let (slots, n, in_scratch) = (layout.slots(), indices as usize, 20);
        let places = some_places(&mut source, indices, slots + in_scratch);
        let offsets = offsets(&mut source, bags, indices);
        let access = access(&mut source, pooling, &offsets);
        let rows = if pooling == Pooling::None { indices } else { bags };
        // Multiples of 1/8 below 4: FP32 holds their products and sums exactly, and they are halves too.
        let mut values = |n: usize| match exact {
            1 => (0..n).map(|_| f32::from(source.random_range(-31i8..32)) / 8.0).collect(),
            _ => floats(&mut source, n, 1.0),
        };
        let mut slot_rows = |n: u32| slot_rows(&layout, n as usize, || values(layout.row.row_words as usize));
        let (cache, scratch) = (slot_rows(slots), slot_rows(in_scratch));
        let bindings = [
            words(&params),
            guarded(&offsets),
            guarded(&access),
            guarded(&places),
            guarded(&cache),
            guarded(&scratch),
            gradients(&values((rows * dim) as usize), half == 1),
            guarded(&junk(&mut source, n)),
        ];
        // Products below 1, each rounded once, and once in each sum that it is part of; mean divides once more.
        let like = match (exact, pooling) {
            (0, _) => Like::Within(f32::EPSILON * (dim as f32 + 4.0) * dim as f32),
            (_, Pooling::Mean) => Like::Within(4.0 * f32::EPSILON),
            _ => Like::Bits,
        };
        let (groups, rules) = (indices.div_ceil(layout.at_once()) + 1, [("grad_weights", like)]);
        check(case, "weight_gradient", &bindings, groups, &rules, |b| {
            let [params, offsets, access, places, cache, scratch, grads, found] = b;
            let (cache, scratch, access) = (cast_slice(cache), cast_slice(scratch), cast_slice(access));
            let (params, found) = (&read(params), cast_slice_mut(found));
            let grads = as_floats(grads, params);
            stages::weight_gradient(params, offsets, access, places, cache, scratch, &grads, found);
        });
    });
}

/// Floats whose halves are known: their bits, and those of the half.
const KNOWN: [(u32, u16); 22] = [
    (0x0000_0000, 0x0000),
    (0x8000_0000, 0x8000),
    (0x3f80_0000, 0x3c00),
    (0x3f80_1000, 0x3c00), // half way between two halves: to the even one below
    (0x3f80_3000, 0x3c02), // half way: to the even one above
    (0x3f80_1001, 0x3c01),
    (0xbf80_0fff, 0xbc00),
    (0x3880_0000, 0x0400), // 2^-14, the smallest normal half
    (0x387f_ffff, 0x0400),
    (0x3380_0000, 0x0001), // 2^-24, the smallest half
    (0x3300_0000, 0x0000), // half of it
    (0x3300_0001, 0x0001),
    (0xb340_0000, 0x8001),
    (0x0000_0001, 0x0000), // subnormal as a float
    (0x477f_e000, 0x7bff), // 65504
    (0x477f_f000, 0x7bff), // 65520 saturates
    (0xff7f_ffff, 0xfbff), // the largest float
    (0x7f80_0000, 0x7c00), // infinity
    (0xff80_0000, 0xfc00),
    (0x7f80_0001, 0x7e00), // NaN
    (0xffc0_1234, 0x7e00),
    (0x7fff_ffff, 0x7e00),
];

/// The half as the crate `half` rounds, and saturated.
fn half_of(bits: u32) -> u16 {
    let x = f32::from_bits(bits);
    if x.is_nan() {
        return 0x7e00;
    }
    half::f16::from_f32(if x.is_infinite() { x } else { x.clamp(-65504.0, 65504.0) }).to_bits()
}

#[test]
pub(crate) fn halves() {
    for (bits, half) in KNOWN {
        assert_eq!(half_of(bits), half, "{bits:#x}");
    }
    each("halves", [10, 3], |case, mut source, [elements, kind]| {
        let elements = [0, 1, 2, 7, 64, 255, 511, 512, 1025, 5000][elements];
        let n = elements as usize;
        let mut sums: Vec<u32> = match kind {
            0 => junk(&mut source, n), // any bits
            1 => floats(&mut source, n, 70_000.0).into_iter().map(f32::to_bits).collect(),
            _ => floats(&mut source, n, 1e-4).into_iter().map(f32::to_bits).collect(),
        };
        for (sum, (bits, _)) in sums.iter_mut().skip(source.random_range(0..3)).step_by(2).zip(KNOWN) {
            *sum = bits;
        }
        let before = guarded(&junk(&mut source, n.div_ceil(2)));
        let bindings = [words(&Halves { elements, ..Halves::default() }), guarded(&sums), before];
        let groups = elements.div_ceil(512).max(1);
        let run = check(case, "halves", &bindings, groups, &[], |[halves, sums, outputs]| {
            stages::halves(&read(halves), cast_slice(sums), outputs);
        });
        // Checked without the mirror, and without the crate's own rounding.
        let found: &[u16] = cast_slice(&run.found[2]);
        for (i, &bits) in sums.iter().enumerate() {
            assert_eq!(found[i], half_of(bits), "{case}: output {i}, {bits:#x}");
        }
        assert!(elements.is_multiple_of(2) || found[n] == 0, "{case}: the upper half of the last word");
    });
}
