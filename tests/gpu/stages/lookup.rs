//! The stages before a forward looks rows up, those that list what readers want, and the one behind it that rounds.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, OutOfRange, Pooling,
    internals::layout::{Feature, Halves, NONE, Params, Step, feedback as at},
    internals::stages,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    FROZEN, ROWS, TRAIN, check, each, floats, guarded, junk, layout_of, of, one_of, params, read, step, tables, words,
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
        check(case, "halves", &bindings, groups, &[], |[halves, sums, outputs]| {
            let elements = read::<Halves>(halves).elements as usize;
            let outputs: &mut [u16] = cast_slice_mut(outputs);
            outputs.iter_mut().zip(&sums[..elements]).for_each(|(half, &sum)| *half = half_of(sum));
            outputs[elements..elements.next_multiple_of(2)].fill(0);
        });
    });
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
