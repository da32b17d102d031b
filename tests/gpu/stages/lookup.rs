//! The stage before a forward looks rows up, and the one that lists what readers want.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, OutOfRange, Pooling,
    internals::layout::{Feature, NONE, Params, Step, feedback as at},
    internals::stages,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    FROZEN, ROWS, TRAIN, check, each, guarded, junk, layout_of, of, one_of, params, read, step, tables, words,
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

/// Weights; `exact` ones are powers of two, so products are exact and the bits of a sum show its order.
pub(super) fn weights(source: &mut Pcg64, n: usize, exact: bool) -> Vec<f32> {
    let weight = |_| if exact { one_of(source, &[0.5, -1.0, 2.0, 4.0]) } else { source.random_range(-2.0..2.0) };
    (0..n).map(weight).collect()
}

/// Lists of a reader that are empty, filled in part or whole, and asked for more than they hold.
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
        check(case, "wanted", &bindings, rows.div_ceil(256), &[], |[_, feedback, step, keys]| {
            let (head, lists) = feedback.split_at_mut(at::HEAD);
            let (first, second) = lists.split_at(rows as usize);
            let lists = first[..missing.min(rows) as usize].iter().chain(&second[..present.min(rows) as usize]);
            let all = lists.chain(std::iter::repeat(&NONE));
            keys.iter_mut().zip(all.take(rows as usize)).for_each(|(key, row)| *key = *row);
            let here = (missing + present).min(rows);
            of::<Step>(step).accesses = here;
            for (field, more) in [(at::FRAME, 1), (at::WANTED, here), (at::LOST, missing + present - here)] {
                head[field] = head[field].wrapping_add(more);
            }
        });
    });
}
