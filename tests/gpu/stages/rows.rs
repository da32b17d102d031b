//! The stages of a caller's own rows, and of the lists of readers.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, Optimizer, Precision,
    internals::layout::{NONE, Params, Shard, feedback as at},
    internals::stages,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    DIMS, ROWS, TRAIN, check, distinct_rows, each, exchange::some_records, floats, guarded, junk, layout_of, of,
    one_of, params, placed, read, slot_rows, step, tables, ways, words,
};

/// A group of 900 rows with each kind of state.
fn group(source: &mut Pcg64, state: usize, dim: usize, precision: Precision) -> GroupConfig {
    let optimizer = [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)][state];
    GroupConfig::new(&[1, 500, 399], one_of(source, DIMS[dim]))
        .with_optimizer(optimizer)
        .with_precision(precision)
        .with_cache_rows(32 * source.random_range(0..8))
}

/// Distinct ascending rows, and a place for each.
fn rows_and_places(source: &mut Pcg64, n: usize, slots: u32) -> (Vec<u32>, Vec<u32>) {
    let mut rows = distinct_rows(source, n, 900);
    rows.sort_unstable();
    let places = placed(source, &rows, slots).iter().map(|one| one.slot).collect();
    (rows, places)
}

#[test]
pub(crate) fn assign() {
    each("assign", [3, 5, 6], |case, mut source, [state, dim, n]| {
        let n = [0, 1, 2, 3, 7, 50][n];
        let config = group(&mut source, state, dim, Precision::Fp16);
        let layout = layout_of(&config);
        let (rows, places) = rows_and_places(&mut source, n, layout.slots());
        let dim = layout.row.dim as usize;
        let mut values = floats(&mut source, n * dim, 1.0);
        for row in values.chunks_exact_mut(dim).filter(|_| source.random_bool(0.4)).collect::<Vec<_>>() {
            row[source.random_range(0..dim)] =
                one_of(&mut source, &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0]);
        }
        let mut data = |n: usize| slot_rows(&layout, n, || floats(&mut source, layout.row.row_words as usize, 1.0));
        let (cache, scratch) = (data(layout.slots() as usize), data(n));
        let bindings = [
            words(&Params { indices: n as u32, ..params(&config, &layout, ROWS, 0) }),
            guarded(&rows),
            guarded(&places),
            guarded(&values),
            guarded(&cache),
            guarded(&scratch),
            guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
            guarded(&junk(&mut source, 4 * n)),
            guarded(&tables(&mut source, &config.tables, 4)),
        ];
        let groups = (n as u32).div_ceil(layout.at_once()) + 1;
        // Values are copied, not computed, so their bits are the same.
        check(case, "assign", &bindings, groups, &[], |b| {
            let [params, keys, places, values, cache, scratch, ways, moves, tables] = b;
            let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
            let (values, moves) = (cast_slice(values), cast_slice_mut(moves));
            stages::assign(&read(params), keys, places, values, cache, scratch, ways, moves, tables);
        });
    });
}

/// The rows of the bound shard are the middle third.
#[test]
pub(crate) fn send() {
    let mut kinds = [0; 3];
    each("send", [5, 3, 5, 6], |case, mut source, [precision, state, dim, n]| {
        let n = [0, 1, 2, 7, 50, 60][n];
        let config = group(&mut source, state, dim, Precision::ALL[precision]);
        let layout = layout_of(&config);
        let (rows, places) = rows_and_places(&mut source, n, layout.slots());
        let mut data = |n: usize| slot_rows(&layout, n, || floats(&mut source, layout.row.row_words as usize, 1.0));
        let (cache, scratch) = (data(layout.slots() as usize), data(n));
        let each = 1 + layout.row.dim.max(layout.row.record_words) as usize;
        let bindings = [
            words(&Params { indices: n as u32, ..params(&config, &layout, ROWS, 0) }),
            words(&Shard { first_row: 300, rows: 300, rows_each: 300, ..Shard::default() }),
            guarded(&rows),
            guarded(&places),
            guarded(&some_records(&mut source, &layout, 300)),
            guarded(&cache),
            guarded(&scratch),
            guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
            guarded(&junk(&mut source, n * each)),
        ];
        let groups = (n as u32).div_ceil(layout.at_once()) + 1;
        let run = check(case, "send", &bindings, groups, &[], |b| {
            let [params, shard, keys, places, records, cache, _, ways, sent] = b;
            stages::send(&read(params), &read(shard), keys, places, records, cast_slice(cache), ways, sent);
        });
        for (entry, row) in run.found[8].chunks_exact(each).zip(&rows) {
            kinds[if entry[0] == 0 { 0 } else { 2 - usize::from((300..600).contains(row)) }] += 1;
        }
    });
    assert!(kinds.iter().all(|&kind| kind > 0), "dirty rows, records here, records elsewhere: {kinds:?}");
}

/// Lists that are empty, filled in part or whole, and asked for more than they hold.
#[test]
pub(crate) fn wanted() {
    each("wanted", [6, 4, 4], |case, mut source, [rows, missing, present]| {
        let config = GroupConfig::new(&[700], 4);
        let rows = [1, 2, 255, 256, 257, 900][rows];
        let mut listed = |kind: usize| [0, source.random_range(0..=rows), rows, rows + 77][kind];
        let (missing, present) = (listed(missing), listed(present));
        let mut feedback = junk(&mut source, at::HEAD + 2 * rows as usize);
        feedback[at::MISSING] = missing;
        feedback[at::PRESENT] = present;
        feedback[at::WANTED] = u32::MAX - 3; // its sum may wrap
        let bindings = [
            words(&Params { indices: rows, ..params(&config, &layout_of(&config), TRAIN, 0) }),
            guarded(&feedback),
            words(&step(&mut source, 5, &[])),
            guarded(&junk(&mut source, rows as usize)),
        ];
        let run = check(case, "wanted", &bindings, rows.div_ceil(256), &[], |[params, feedback, step, keys]| {
            stages::wanted(&read(params), feedback, of(step), keys);
        });
        // By hand.
        let (first, second) = feedback[at::HEAD..].split_at(rows as usize);
        let lists = first[..missing.min(rows) as usize].iter().chain(&second[..present.min(rows) as usize]);
        let by_hand: Vec<u32> = lists.copied().chain(std::iter::repeat(NONE)).take(rows as usize).collect();
        assert_eq!(run.found[3][..rows as usize], by_hand, "{case}");
        let here = (missing + present).min(rows);
        assert_eq!(run.found[1][at::FRAME], feedback[at::FRAME].wrapping_add(1));
        assert_eq!(run.found[1][at::LOST], feedback[at::LOST].wrapping_add(missing + present - here));
    });
}
