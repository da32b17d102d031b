use bytemuck::cast_slice;
use hotrow::{
    Context, GroupConfig, Layout, Optimizer, Precision, Rounding, codec, cpu,
    layout::{NONE, Shard},
};
use rand::{RngExt as _, seq::SliceRandom as _};
use rand_pcg::Pcg64;

use super::{
    FROZEN, Like, TRAIN, check, distinct_rows, floats, guarded, junk, layout_of, on_each, params, read, rng, tables,
    words,
};

/// The code of an integer record's element.
pub(crate) fn code_at(layout: &Layout, record: &[u32], element: u32) -> u32 {
    let bits = layout.precision.bits();
    let at = layout.payload_half * 16 + element * bits;
    (record[at as usize / 32] >> (at % 32)) & ((1 << bits) - 1)
}

/// Codes seen, and those that differ by one because the quotient before rounding did.
#[derive(Debug, Default, PartialEq)]
struct Codes {
    written: u64,
    different: u64,
}

/// Everything bit for bit, but integer codes may be one apart, which is counted.
fn records(layout: &Layout, found: &[u32], wanted: &[u32], codes: &mut Codes) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{} words on the GPU, {} in the mirror", found.len(), wanted.len()));
    }
    let stride = layout.record_words as usize;
    let whole = found.len() / stride * stride; // what is left over is the guard, or a part of it
    for (row, (a, b)) in found.chunks(stride).zip(wanted.chunks(stride)).enumerate() {
        if a == b || !layout.precision.is_integer() || (row + 1) * stride > whole {
            super::same(&format!("record {row}"), a, b, Like::Bits)?;
            continue;
        }
        let mut corrected = a.to_vec();
        for element in 0..layout.dim {
            let (x, y) = (code_at(layout, a, element), code_at(layout, b, element));
            if x.abs_diff(y) > 1 {
                return Err(format!("record {row}, code {element}: {x} on the GPU, {y} in the mirror"));
            }
            codes.different += u64::from(x != y);
            let at = layout.payload_half * 16 + element * layout.precision.bits();
            corrected[at as usize / 32] ^= (x ^ y) << (at % 32);
        }
        // Scale, bias, state and the padding have no excuse.
        super::same(&format!("record {row} without its codes"), &corrected, b, Like::Bits)?;
    }
    Ok(())
}

/// Weights and state of a row: ordinary ones, and each kind of trouble.
fn row_of(source: &mut Pcg64, layout: &Layout) -> Vec<f32> {
    let (dim, words) = (layout.dim as usize, layout.row_words as usize);
    let mut row = floats(source, words, 1.0);
    row[dim..].iter_mut().for_each(|x| *x = x.abs());
    let at = source.random_range(0..words);
    match source.random_range(0..16) {
        0 => row[..dim].fill(0.25),
        1 => row[..dim].fill(-0.0),
        2 => row[at] = f32::NAN,
        3 => row[at] = [f32::INFINITY, f32::NEG_INFINITY][source.random_range(0..2)],
        4 => {
            // A range that is no float.
            row[0] = -3e38;
            row[dim - 1] = 3e38;
        }
        5 => row[..dim].iter_mut().for_each(|x| *x *= 1e-38), // a scale below the smallest normal
        6 => row[..dim].iter_mut().for_each(|x| *x *= 1e5),   // beyond binary16
        7 => row[..dim].iter_mut().for_each(|x| *x *= 1e-6),  // its subnormals
        8 => row[..dim].iter_mut().for_each(|x| *x = x.round()),
        9 => row[..dim].iter_mut().for_each(|x| *x += 100.0), // a bias far above the scale
        // Codes of a step that is no binary fraction: representable but for the last bits, and so never rounded at random.
        10 | 11 => {
            let top = if layout.precision.is_integer() { (1 << layout.precision.bits()) - 1 } else { 255 };
            row[..dim].iter_mut().for_each(|x| *x = 0.3 + 0.0123 * source.random_range(0..=top) as f32);
            (row[0], row[dim - 1]) = (0.3, 0.3 + 0.0123 * top as f32);
        }
        // Every size that binary16 tells apart, and well below.
        12 | 13 => row.iter_mut().for_each(|x| *x *= 2f32.powi(source.random_range(-45..17))),
        _ => {}
    }
    row
}

fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize, codes: &mut Codes) -> usize {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = vec![1, 500, 399];
    config.seed = source.random();
    config.cache_rows = 32 * source.random_range(0..4);
    let layout = layout_of(&config);
    let slots = layout.slots();
    let params = params(&config, &layout, [TRAIN, FROZEN][source.random_range(0..2)], 2 * source.random_range(0..3));
    let in_scratch = n as u32 + 1;
    let mut data = |rows: u32| -> Vec<f32> { (0..rows).flat_map(|_| row_of(&mut source, &layout)).collect() };
    let (cache, scratch) = (data(slots), data(in_scratch));
    // The second of three shards. Rows need not be in order here: only the range says what is whose.
    let (per_shard, index, before) = (300, 1, 5);
    let mut rows = distinct_rows(&mut source, n + before, per_shard);
    rows.iter_mut().for_each(|row| *row += index * per_shard);
    let mut places: Vec<u32> = (0..slots + in_scratch).collect();
    places.shuffle(&mut source);
    let mut sources: Vec<u32> = (0..n + before).map(|i| places[i % places.len()]).collect();
    for i in 0..n + before {
        match source.random_range(0..10) {
            0 => rows[i] = NONE,    // a clean slot of a flush
            1 => sources[i] = NONE, // a resident row of a backward
            _ => {}
        }
    }
    let mut range = junk(&mut source, 6);
    range[2..4].copy_from_slice(&[before as u32, (n + before) as u32]);
    let stale = junk(&mut source, (per_shard * layout.record_words) as usize);
    let t = source.random();
    let bindings = [
        words(&params),
        words(&Shard { index, first_row: index * per_shard, ..Shard::default() }),
        guarded(&range),
        guarded(&rows),
        guarded(&sources),
        guarded(&stale),
        guarded(&cache),
        guarded(&scratch),
        guarded(&tables(&mut source, &config.tables, t)),
    ];
    let what = format!("seed {seed}, {n} rows, {config:?}");
    let run = check(context, "write_back", &what, &bindings, n as u32, &[("records", Like::Elsewhere)], |b| {
        let [params, shard, range, rows, sources, records, cache, scratch, tables] = b else { unreachable!() };
        let (cache, scratch) = (cast_slice(cache), cast_slice(scratch));
        let (params, shard) = (read(params), read(shard));
        cpu::write_back(&params, &shard, cast_slice(range), rows, sources, records, cache, scratch, tables);
    });
    if let Err(difference) = records(&layout, &run.found[5], &run.wanted[5], codes) {
        panic!("{what}: {difference}");
    }
    let stride = layout.record_words as usize;
    let written = run.found[5].chunks(stride).zip(bindings[5].chunks(stride)).filter(|(a, b)| a != b).count();
    codes.written += written as u64 * u64::from(layout.dim);
    // Said without the mirror: exactly the rows that are finite, and whose range is, have been written.
    let mut wanted = 0;
    for i in before..n + before {
        if rows[i] == NONE || sources[i] == NONE {
            continue;
        }
        let (from, place) = if sources[i] < slots { (&cache, sources[i]) } else { (&scratch, sources[i] - slots) };
        let row = &from[place as usize * layout.row_words as usize..][..layout.row_words as usize];
        let weights = &row[..layout.dim as usize];
        let span = weights.iter().fold(f32::MIN, |a, &b| a.max(b)) - weights.iter().fold(f32::MAX, |a, &b| a.min(b));
        wanted +=
            usize::from(row.iter().all(|x| x.is_finite()) && (!config.precision.is_integer() || span.is_finite()));
    }
    assert_eq!(written, wanted, "{what}");
    run.changed
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut codes) = (0, Codes::default());
        for precision in Precision::ALL {
            for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                for optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
                    for (seed, dim) in [1, 2, 3, 5, 31, 63, 64, 65, 100, 128, 129, 131, 200].into_iter().enumerate() {
                        let config = GroupConfig { precision, rounding, optimizer, ..GroupConfig::new(&[1], dim) };
                        changed += run(context, seed as u64, &config, 60, &mut codes);
                    }
                    for n in [0, 1, 2] {
                        let config = GroupConfig { precision, rounding, optimizer, ..GroupConfig::new(&[1], 7) };
                        changed += run(context, 20 + n as u64, &config, n, &mut codes);
                    }
                }
            }
        }
        eprintln!("{} of {} written codes differ, each by one", codes.different, codes.written);
        assert!(changed > 0 && codes.written > 100_000, "{codes:?}");
        assert!(codes.different * 10_000 <= codes.written, "more than 1 in 10^4: {codes:?}");
    });
}

#[test]
fn a_wrong_record_is_told_apart() {
    let mut config = GroupConfig::new(&[10], 5);
    config.precision = Precision::Int4;
    config.optimizer = Optimizer::adagrad(0.1);
    let layout = layout_of(&config);
    let noise = codec::Noise { rounding: Rounding::Nearest, seed: 1, step: 1, purpose: 0 };
    let mut right = vec![0; layout.record_words as usize];
    assert!(codec::pack(&layout, &noise, 0, &[0.0, 0.3, 0.5, 0.8, 1.0], &[1.0; 5], &mut right));
    let code = |element: u32| layout.payload_half as usize * 16 + 4 * element as usize;
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
