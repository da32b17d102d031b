//! exchange, and comparisons of records.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, Optimizer, Precision, RandomBits, Rounding, StatePrecision,
    internals::layout::{COMING, DIRTY, Field, NONE, Piece, Swap, WAYS, count, way_at},
    internals::{Layout, codec, rows},
};
use hotrow_harness::{
    naive::{Approx, Format},
    oracle,
};
use rand::{RngExt as _, seq::SliceRandom as _};
use rand_pcg::Pcg64;

use super::{
    DIMS, FROZEN, Like, TRAIN, check, distinct_rows, each, facts_of, floats, guarded, junk, layout_of, of, one_of,
    params, read, same, slot_rows, step, tables, ways, words,
};

/// The code of an element in an integer record.
pub(crate) fn code_at(layout: &Layout, record: &[u32], element: u32) -> u32 {
    let bits = layout.row.precision.bits();
    let at = layout.row.payload_half * 16 + element * bits;
    (record[at as usize / 32] >> (at % 32)) & ((1 << bits) - 1)
}

/// Numbers of codes written, and of codes that differ by one because the quotient before rounding differs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Codes {
    pub(super) written: u64,
    pub(super) different: u64,
}

/// Compares records bit for bit, except that integer codes may differ by one, which `codes` counts.
pub(super) fn records(layout: &Layout, found: &[u32], wanted: &[u32], codes: &mut Codes) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{} words on the GPU, {} in the mirror", found.len(), wanted.len()));
    }
    let stride = layout.row.record_words as usize;
    let whole = found.len() / stride * stride; // the rest is the guard, or a part of it
    for (row, (a, b)) in found.chunks(stride).zip(wanted.chunks(stride)).enumerate() {
        if a == b || !layout.row.precision.is_integer() || (row + 1) * stride > whole {
            same(&format!("record {row}"), a, b, Like::Bits)?;
            continue;
        }
        let mut corrected = a.to_vec();
        for element in 0..layout.row.dim {
            let (x, y) = (code_at(layout, a, element), code_at(layout, b, element));
            if x.abs_diff(y) > 1 {
                return Err(format!("record {row}, code {element}: {x} on the GPU, {y} in the mirror"));
            }
            codes.different += u64::from(x != y);
            let at = layout.row.payload_half * 16 + element * layout.row.precision.bits();
            corrected[at as usize / 32] ^= (x ^ y) << (at % 32);
        }
        // Scale, bias, state and padding must be equal.
        same(&format!("record {row} without its codes"), &corrected, b, Like::Bits)?;
    }
    Ok(())
}

/// Weights and state of a row: either ordinary values or one kind of difficult values.
fn row_of(source: &mut Pcg64, layout: &Layout) -> Vec<f32> {
    let (dim, words) = (layout.row.dim as usize, layout.row.row_words as usize);
    let mut row = floats(source, words, 1.0);
    row[dim..].iter_mut().for_each(|x| *x = x.abs());
    let at = source.random_range(0..words);
    match source.random_range(0..16) {
        0 => row[..dim].fill(0.25),
        1 => row[..dim].fill(-0.0),
        2 => row[at] = f32::NAN,
        3 => row[at] = [f32::INFINITY, f32::NEG_INFINITY][source.random_range(0..2)],
        4 => {
            // A range that overflows FP32.
            row[0] = -3e38;
            row[dim - 1] = 3e38;
        }
        5 => row[..dim].iter_mut().for_each(|x| *x *= 1e-38), // a scale below the smallest normal
        6 => row[..dim].iter_mut().for_each(|x| *x *= 1e5),   // beyond binary16
        7 => row[..dim].iter_mut().for_each(|x| *x *= 1e-6),  // subnormal in binary16
        8 => row[..dim].iter_mut().for_each(|x| *x = x.round()),
        9 => row[..dim].iter_mut().for_each(|x| *x += 100.0), // a bias far above the scale
        // Values on a grid whose step is no binary fraction: representable except for the last bits, so they are never rounded at random.
        10 | 11 => {
            let top = if layout.row.precision.is_integer() { (1 << layout.row.precision.bits()) - 1 } else { 255 };
            row[..dim].iter_mut().for_each(|x| *x = 0.3 + 0.0123 * source.random_range(0..=top) as f32);
            (row[0], row[dim - 1]) = (0.3, 0.3 + 0.0123 * top as f32);
        }
        // Magnitudes over binary16's whole range, and far below it.
        12 | 13 => row.iter_mut().for_each(|x| *x *= 2f32.powi(source.random_range(-45..17))),
        _ => {}
    }
    row
}

/// Records of random bits, except that floats are normal numbers, because a driver may flush subnormals.
pub(super) fn some_records(source: &mut Pcg64, layout: &Layout, rows: u32) -> Vec<u32> {
    let mut records = junk(source, (rows * layout.row.record_words) as usize);
    for record in records.chunks_exact_mut(layout.row.record_words as usize) {
        let float = |word: &mut u32, low: f32, high: f32, x: u32| {
            *word = (low + (high - low) * (x as f32 / u32::MAX as f32)).to_bits();
        };
        if layout.row.precision.is_integer() {
            float(&mut record[0], 0.0, 0.1, source.random());
            float(&mut record[1], -1.0, 1.0, source.random());
        }
        let (state, payload) = (layout.row.state_word as usize, layout.row.payload_half as usize / 2);
        if layout.row.state_bits == 32 {
            record[state..state + layout.row.state as usize]
                .iter_mut()
                .for_each(|x| float(x, 0.0, 2.0, source.random()));
        }
        if layout.row.precision == Precision::Fp32 {
            record[payload..].iter_mut().for_each(|x| float(x, -2.0, 2.0, source.random()));
        }
    }
    records
}

/// Tables of 900 rows in all: few, as many as a workgroup counts by itself, or more.
pub(super) fn few_or_many_tables(source: &mut Pcg64) -> Vec<u32> {
    match source.random_range(0..4) {
        0 => [vec![14; 63], vec![18]].concat(),
        1 => [vec![14; 63], vec![17, 1]].concat(),
        2 => vec![4; 225],
        _ => vec![1, 500, 399],
    }
}

/// Every kind of swap that a group of 900 rows makes, over a piece with the rows `bound`. No row and no place is in two swaps.
fn some_swaps(source: &mut Pcg64, slots: u32, n: usize, bound: &std::ops::Range<u32>) -> Vec<Swap> {
    let mut rows = distinct_rows(source, 2 * n, 900);
    // Most rows belong to the bound piece.
    rows.sort_by_key(|row| !bound.contains(row) && row % 3 != 0);
    rows.truncate(2 * n);
    rows.shuffle(source);
    let mut free = distinct_rows(source, slots as usize, slots.max(1));
    free.truncate(slots as usize);
    (0..n as u32)
        .map(|i| {
            let (row, victim) = (rows[2 * i as usize], rows[2 * i as usize + 1]);
            let slot = if source.random_bool(0.7) { free.pop() } else { None };
            match (slot, source.random_range(0..5)) {
                (_, 0) => Swap { place: NONE, row, victim, flags: Swap::WRITE | Swap::KEEP },
                (Some(place), 1) => Swap { place, row: NONE, victim, flags: Swap::WRITE }, // flush
                (Some(place), 2) => Swap { place, row, victim: NONE, flags: 0 },
                (Some(place), _) => Swap { place, row, victim, flags: source.random_range(1..4) },
                (None, 1) => Swap { place: slots + i, row: NONE, victim, flags: Swap::WRITE }, // write rows
                (None, _) => Swap { place: slots + i, row, victim: NONE, flags: 0 },
            }
        })
        .collect()
}

#[derive(Debug, Default)]
struct Seen {
    kept: usize,
    clean: usize,
    published: usize,
    codes: Codes,
}

/// The oracle of exchange on its bindings.
fn mirror(layout: &Layout) -> impl Fn(&mut [Vec<u32>; 9]) {
    |[params, piece, step, swaps, records, cache, scratch, ways, tables]| {
        let (floats, swaps) = ([cast_slice_mut(cache), cast_slice_mut(scratch)], cast_slice(swaps));
        oracle::exchange(layout, (&read(params), &read(piece), of(step)), swaps, records, floats, ways, tables);
    }
}

/// The rounding of a group: to nearest, or stochastic with each number of random bits.
pub(super) fn rounded(config: GroupConfig, kind: usize) -> GroupConfig {
    let rounding = if kind == 0 { Rounding::Nearest } else { Rounding::Stochastic };
    config.with_rounding(rounding).with_random_bits(RandomBits::ALL[kind % 3])
}

#[test]
pub(crate) fn exchange() {
    let mut seen = Seen::default();
    each("exchange", [5, 4, 3, 5, 4], |case, mut source, [precision, rounding, state, dim, size]| {
        let n = if size == 0 { source.random_range(0..3) } else { 80 };
        let optimizer = [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)][state];
        let config = GroupConfig::new(&few_or_many_tables(&mut source), one_of(&mut source, DIMS[dim]))
            .with_precision(Precision::ALL[precision])
            .with_optimizer(optimizer)
            .with_cache_rows(32 * source.random_range(0..4))
            .with_seed(source.random());
        let config = rounded(config, rounding);

        let layout = layout_of(&config);
        let slots = layout.slots();
        let params =
            params(&config, &layout, [TRAIN, FROZEN][source.random_range(0..2)], 2 * source.random_range(0..3));
        let mut data = |rows: usize| slot_rows(&layout, rows, || row_of(&mut source, &layout));
        let (cache, scratch) = (data(slots as usize), data(n));
        // The second of three pieces, or the whole table, which a workgroup goes over without a list of its own.
        let bound = if source.random() { 300..600 } else { 0..900 };
        let (phases, rows) = (source.random_range(1..4), bound.end - bound.start);
        let piece = Piece { first_row: bound.start, rows, rows_each: rows, phases, ..Piece::default() };
        let swaps = some_swaps(&mut source, slots, n, &bound);
        let stale = some_records(&mut source, &layout, rows);
        let t = source.random();
        let mut flags = ways(&mut source, layout.sets, 900, 8, 0.9);
        // Some rows are admitted; others, such as pinned ones, come to a slot without that.
        for one in swaps.iter().filter(|one| one.place < slots && one.row != NONE && source.random_bool(0.7)) {
            flags[way_at(WAYS, one.place, Field::Flags)] |= COMING;
            flags[way_at(WAYS, one.place, Field::Stamp)] = one.row;
        }
        let later = source.random(); // another step may have begun since
        let bindings = [
            words(&params),
            words(&piece),
            words(&step(&mut source, t, &[(count::SWAPS, n as u32)])),
            guarded(&swaps),
            guarded(&stale),
            guarded(&cache),
            guarded(&scratch),
            guarded(&flags),
            guarded(&tables(&mut source, &config.tables, later)),
        ];
        let groups = one_of(&mut source, &[1, (n as u32).div_ceil(layout.at_once()).max(1) + 1]);
        // q * scale + bias, below 27, rounds once or twice: two ULP. The other precisions copy bits.
        let like = if config.precision.is_integer() { Like::Within(2.0 * f32::EPSILON) } else { Like::Bits };
        let rules = [("records", Like::Elsewhere), ("cache", like), ("scratch", Like::Elsewhere)];
        let run = check(case, "exchange", &bindings, groups, &rules, mirror(&layout));
        if let Err(difference) = records(&layout, &run.found[4], &run.wanted[4], &mut seen.codes) {
            panic!("{case}: {difference}");
        }
        // A kept row has the values of its record, which may differ from the mirror's record by a code.
        let (stride, slot) = (layout.row.record_words as usize, layout.slot_words() as usize);
        let record = |row: u32| (row - bound.start) as usize * stride..(row - bound.start + 1) as usize * stride;
        let mut wanted = run.wanted[6].clone();
        for (i, one) in swaps.iter().enumerate() {
            let comes = piece.phases & Piece::UNPACK != 0 && piece.holds(one.victim) && one.place != NONE;
            if comes && one.flags & Swap::KEEP != 0 {
                seen.kept += 1;
                let mut row = vec![0.0; layout.row.row_words as usize];
                codec::unpack(&layout.row, &run.found[4][record(one.victim)], &mut row);
                // The rounding error of q * scale + bias is relative to the largest element. A driver may flush subnormals.
                let most = row[..layout.row.dim as usize].iter().fold(0f32, |most, x| most.max(x.abs()));
                for (e, x) in row.iter().enumerate() {
                    let found = f32::from_bits(run.found[6][i * slot + e]);
                    let integer = f32::from(u8::from(config.precision.is_integer()));
                    let near = integer * (4.0 * f32::EPSILON * most + 2.0 * f32::MIN_POSITIVE);
                    assert!((found - x).abs() <= near, "{case}: kept row {}, element {e}: {found}, {x}", one.victim);
                }
                wanted[i * slot..(i + 1) * slot].copy_from_slice(&run.found[6][i * slot..(i + 1) * slot]);
            }
        }
        if let Err(difference) = same("scratch", &run.found[6], &wanted, like) {
            panic!("{case}: {difference}");
        }
        // What the case had, for the counts below.
        let tag = |one: &Swap| way_at(WAYS, one.place, Field::Tag);
        let came = |one: &&Swap| one.place < slots && run.found[7][tag(one)] != flags[tag(one)];
        seen.published += swaps.iter().filter(came).count();
        let cleaned = |one: &&Swap| one.flags & Swap::WRITE != 0 && one.place < slots && piece.holds(one.victim);
        let clean = |one: &Swap| flags[way_at(WAYS, one.place, Field::Flags)] & DIRTY == 0;
        seen.clean += swaps.iter().filter(cleaned).filter(|one| clean(one)).count();
        let moved = run.found[4].chunks(stride).zip(bindings[4].chunks(stride)).filter(|(a, b)| a != b).count();
        seen.codes.written += moved as u64 * u64::from(layout.row.dim);
    });
    let codes = &seen.codes;
    assert!(seen.kept > 0 && seen.clean > 0 && seen.published > 0 && codes.written > 500, "{seen:?}");
    // No driver so far has given another code in 10^5. If one in 10^5 differs, the chance of more than one in 500 is below 10^-9; of the codes of a
    // wrong rounding, every second to tenth differs.
    assert!(codes.different * 500 <= codes.written, "more than 1 in 500: {seen:?}");
}

/// Rows whose states have each combination of facts are packed, and read back, as by both codecs of the CPU and by the model in FP64.
#[test]
pub(crate) fn states_by_their_facts() {
    each("states by their facts", [20, 3, 2, 2], |case, mut source, [rule, state, wide, rounding]| {
        let (optimizer, facts) = facts_of(rule);
        let config = GroupConfig::new(&[20], [6, 8][wide]).with_cache_rows(32).with_seed(source.random());
        let config = config.with_precision(Precision::Fp16).with_state(Some(StatePrecision::ALL[state]));
        let config = rounded(config.with_optimizer(optimizer.with_own_count(rule % 2 == 1)), rounding);
        let mut layout = layout_of(&config);
        layout.row.facts = facts;
        let dim = layout.row.dim as usize;
        let mut rows: Vec<Vec<f32>> =
            (0..20).map(|_| floats(&mut source, layout.row.row_words as usize, 1.0)).collect();
        for (e, x) in rows.iter_mut().flat_map(|row| row[dim..].iter_mut().enumerate()) {
            let signed = facts >> (2 * u32::from(e >= dim)) & 1 == 1;
            *x = if signed { *x } else { x.abs() } * 2f32.powi(source.random_range(-8..8));
        }
        let mut flags = ways(&mut source, layout.sets, 20, 8, 0.0);
        (0..20).for_each(|slot| flags[way_at(WAYS, slot, Field::Flags)] = DIRTY);
        // Each row leaves its slot for its record, and is read from there into scratch.
        let swap = |i: u32| Swap { place: i, row: NONE, victim: i, flags: Swap::WRITE | Swap::KEEP };
        let piece = Piece { rows: 20, rows_each: 20, phases: Piece::PACK | Piece::UNPACK, ..Piece::default() };
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&piece),
            words(&step(&mut source, 9, &[(count::SWAPS, 20)])),
            guarded(&(0..20).map(swap).collect::<Vec<_>>()),
            guarded(&junk(&mut source, 20 * layout.row.record_words as usize)),
            guarded(&slot_rows(&layout, layout.slots() as usize, {
                let mut rows = rows.iter();
                move || rows.next().cloned().unwrap_or_default()
            })),
            guarded(&slot_rows(&layout, 20, Vec::new)),
            guarded(&flags),
            guarded(&tables(&mut source, &[20], 9)),
        ];
        let run = check(case, "exchange", &bindings, 1, &[], mirror(&layout));
        let (purpose, stripe) = (0, hotrow::ranks::Stripe::ALL);
        let (rounding, random_bits, seed) = (config.rounding, config.random_bits, config.seed);
        let noise = codec::Noise { rounding, random_bits, seed, step: 9, purpose, stripe };
        let model = |facts: u32| {
            let mut format = Format::new(&config);
            format.kinds = [facts, facts >> 2].map(|of| [of & 1 == 1, of & 2 == 2]);
            format
        };
        let stride = layout.row.record_words as usize;
        let mut rejected = 0;
        for ((row, values), record) in (0..).zip(&rows).zip(run.found[4].chunks_exact(stride)) {
            let (weights, states) = values.split_at(dim);
            let (mut packed, mut unpacked) = (vec![0; stride], vec![0.0; values.len()]);
            assert!(rows::pack(&layout.row, &noise, row, weights, states, &mut packed));
            let (weights, states) = unpacked.split_at_mut(dim);
            rows::unpack(&layout.row, record, weights, states);
            let read = &run.found[6][row as usize * layout.slot_words() as usize..];
            assert_eq!((&packed[..], cast_slice(&unpacked)), (record, &read[..values.len()]), "{case}: row {row}");
            let exact: Vec<Approx> = values.iter().map(|&x| Approx::exact(x)).collect();
            let found = model(facts).check(rounding, record, &exact);
            assert_eq!(found, Ok(()), "{case}: row {row}");
            let decoded = model(facts).decode(record);
            assert!(decoded.iter().zip(&unpacked).all(|(a, b)| a.value == f64::from(*b)), "{case}: row {row}");
            // With another sign INT8 codes have another base; a moment is stored in another form than a sum.
            let others = [facts ^ 5, facts ^ 10][usize::from(layout.row.state_bits == 16)];
            rejected += u32::from(model(others).check(rounding, record, &exact).is_err());
        }
        assert_eq!(rejected, if layout.row.state_bits == 32 { 0 } else { 20 }, "{case}: the model takes other facts");
    });
}

/// More swaps than a workgroup lists at once, for one of several pieces: each comes to the row of its own piece, and no other.
#[test]
pub(crate) fn lists_of_several_blocks() {
    each("lists of several blocks", [4], |case, mut source, [n]| {
        let n = [2047u32, 2048, 2049, 5000][n];
        let config = GroupConfig::new(&[15_000], 1).with_precision(Precision::Fp32).with_cache_rows(0);
        let layout = layout_of(&config);
        let piece = Piece { first_row: 5000, rows: 5000, rows_each: 5000, phases: Piece::UNPACK, ..Piece::default() };
        let rows = distinct_rows(&mut source, n as usize, 15_000);
        let places = (layout.slots()..).zip(rows);
        let swaps: Vec<Swap> = places.map(|(place, row)| Swap { place, row, victim: NONE, flags: 0 }).collect();
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&piece),
            words(&step(&mut source, 1, &[(count::SWAPS, n)])),
            guarded(&swaps),
            guarded(&some_records(&mut source, &layout, 5000)),
            guarded(&slot_rows(&layout, 1, || vec![0.0])),
            guarded(&slot_rows(&layout, n as usize, || vec![7.0])),
            guarded(&ways(&mut source, 1, 900, 8, 0.9)),
            guarded(&tables(&mut source, &config.tables, 1)),
        ];
        check(case, "exchange", &bindings, 1, &[], mirror(&layout));
    });
}

#[test]
fn a_wrong_record_is_told_apart() {
    let mut config = GroupConfig::new(&[10], 5);
    config.precision = Precision::Int4;
    config.optimizer = Optimizer::adagrad(0.1);
    let layout = layout_of(&config);
    let noise = codec::Noise {
        rounding: Rounding::Nearest,
        random_bits: RandomBits::TwentyFour,
        seed: 1,
        step: 1,
        purpose: 0,
        stripe: hotrow::ranks::Stripe::ALL,
    };
    let mut right = vec![0; layout.row.record_words as usize];
    assert!(codec::pack(&layout.row, &noise, 0, &[0.0, 0.3, 0.5, 0.8, 1.0], &[1.0; 5], &mut right));
    let code = |element: u32| layout.row.payload_half as usize * 16 + 4 * element as usize;
    let judged = |bit: usize| {
        let mut wrong = right.clone();
        wrong[bit / 32] ^= 1 << (bit % 32);
        let mut codes = Codes::default();
        records(&layout, &wrong, &right, &mut codes).map(|()| codes.different)
    };
    for element in 0..5 {
        assert_eq!(judged(code(element)), Ok(1), "off by one is counted");
        assert!(judged(code(element) + 1).is_err(), "off by two is wrong");
    }
    assert!(judged(code(5)).is_err(), "padding");
    assert!(judged(0).is_err() && judged(32).is_err() && judged(64).is_err(), "scale, bias, state");
    assert!(records(&layout, &right[1..], &right, &mut Codes::default()).is_err());
}
