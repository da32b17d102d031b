use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, OutOfRange, Pooling,
    internals::layout::{Feature, Params, Step},
    internals::stages,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{FROZEN, ROWS, TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng, tables, words};

/// Offsets of `bags` bags over `indices` indices, some bags empty.
pub(super) fn offsets(source: &mut Pcg64, bags: u32, indices: u32) -> Vec<u32> {
    let mut offsets: Vec<u32> = (0..=bags).map(|_| source.random_range(0..=indices)).collect();
    offsets.sort_unstable();
    offsets[0] = 0;
    offsets[bags as usize] = indices;
    offsets
}

/// The features that read these tables. The kernels take a table's numbers from here, not from `tables`.
pub(super) fn features_of(rows: &[u32], features: &[u32]) -> Vec<Feature> {
    let of = |&table: &u32| {
        let base = rows[..table as usize].iter().sum();
        Feature { table, base, rows: rows[table as usize], pad0: 0 }
    };
    features.iter().map(of).collect()
}

/// The fault in a batch's offsets.
#[derive(Clone, Copy, Debug)]
enum Broken {
    No,
    Start,
    Short,
    Long,
    Descending,
    Beyond,
}

fn case(context: &Context, seed: u64, indices: u32, per_feature: u32, broken: Broken) -> usize {
    let mut source = rng(seed);
    let rows: Vec<u32> = (0..source.random_range(1..5)).map(|_| source.random_range(1..300)).collect();
    let features: Vec<u32> =
        (0..source.random_range(1..4)).map(|_| source.random_range(0..rows.len() as u32)).collect();
    let mut config = GroupConfig::new(&rows, 4);
    config.pooling = [Pooling::Sum, Pooling::Mean, Pooling::None][source.random_range(0..3)];
    config.out_of_range = [OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip][source.random_range(0..3)];
    let mode = [TRAIN, FROZEN, ROWS][source.random_range(0..3)];
    let bags = per_feature * features.len() as u32;
    let mut offsets = offsets(&mut source, bags, indices);
    // Each case breaks one rule if possible, because a second fault would hide that the check of the first is missing.
    let (end, before, middle) =
        (bags as usize, bags.saturating_sub(1) as usize, source.random_range(0..=bags) as usize);
    match broken {
        Broken::No => {}
        Broken::Start => offsets[0] = offsets[1.min(end)].max(1),
        Broken::Short => offsets[end] = offsets[before],
        Broken::Long => offsets[end] += 1,
        Broken::Descending => offsets[middle] = 0,
        Broken::Beyond => offsets[middle] = u32::MAX,
    }
    let wild = source.random_range(0.0..0.1);
    let mut list: Vec<u32> = Vec::new();
    for _ in 0..indices {
        let rows = rows[features[source.random_range(0..features.len())] as usize];
        let index = source.random_range(0..rows);
        list.push(if source.random_bool(wild) { [300, u32::MAX, u32::MAX - 1][index as usize % 3] } else { index });
    }
    let params =
        Params { indices, bags, bags_per_feature: per_feature.max(1), ..params(&config, &layout_of(&config), mode, 0) };
    let n = indices as usize;
    let bindings = [
        words(&params),
        guarded(&list),
        guarded(&offsets),
        guarded(&features_of(&rows, &features)),
        guarded(&tables(&mut source, &rows, 5)),
        words(&Step::default()),
        guarded(&junk(&mut source, n)),
        guarded(&junk(&mut source, 2 * n)),
    ];
    let groups = indices.max(bags + 1).div_ceil(256);
    let what = format!("seed {seed}, {indices} indices, {bags} bags, {broken:?}, {config:?}");
    check(context, "linearize", &what, &bindings, groups, &[], |b| {
        let [params, indices, offsets, features, tables, step, keys, access] = b else { unreachable!() };
        stages::linearize(
            &read(params),
            indices,
            offsets,
            cast_slice(features),
            tables,
            of(step),
            keys,
            cast_slice_mut(access),
        );
    })
    .changed
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..6 {
            for indices in [0, 1, 255, 256, 257, 1100] {
                for per_feature in [1, 2, 90] {
                    let kinds =
                        [Broken::No, Broken::Start, Broken::Short, Broken::Long, Broken::Descending, Broken::Beyond];
                    changed +=
                        kinds.map(|broken| case(context, seed, indices, per_feature, broken)).iter().sum::<usize>();
                }
            }
            changed += case(context, seed, 0, 0, Broken::No);
            changed += case(context, seed, 3, 0, Broken::Long);
            changed += case(context, seed, 10, 256, Broken::No);
        }
        assert!(changed > 0);
    });
}

/// Checked without the mirror: the error names the first bad index.
#[test]
fn the_first_offender_wins() {
    on_each(|context| {
        let config = GroupConfig::new(&[10], 4);
        let layout = layout_of(&config);
        let mut list = vec![1u32; 2000];
        list[700] = 10;
        list[1999] = 11;
        let params = Params { indices: 2000, bags: 1, bags_per_feature: 1, ..params(&config, &layout, TRAIN, 0) };
        let tables = tables(&mut rng(0), &[10], 0);
        let bindings = [
            words(&params),
            list,
            vec![0, 2000],
            words(&features_of(&[10], &[0])[0]),
            tables,
            words(&Step::default()),
            vec![0; 2000],
            vec![0; 4000],
        ];
        let found = context.run_stage(super::kernel("linearize"), &bindings, 8).unwrap();
        let step: Step = read(&found[5]);
        assert_eq!((u32::MAX - step.bad_index, step.bad_offset, step.accesses), (700, 0, 1998));
    });
}
