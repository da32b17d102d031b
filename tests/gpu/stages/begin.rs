use bytemuck::cast_slice;
use hotrow::{
    GroupConfig,
    internals::layout::{NONE, Params, Step},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    FROZEN, ROWS, TRAIN, check, guarded, junk, layout_of,
    linearize::{features_of, offsets},
    of, on_each, params, read, rng, tables, words,
};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..30 {
            for case in 0..8 {
                for mode in [TRAIN, FROZEN, ROWS] {
                    let mut source = rng(seed);
                    let features: Vec<u32> =
                        (0..source.random_range(1..6)).map(|_| source.random_range(0..3)).collect();
                    let per_feature = source.random_range(1..20);
                    let (bags, indices) = (per_feature * features.len() as u32, source.random_range(1..400));
                    let config = GroupConfig::new(&[7, 8, 9], 4);
                    let params = Params {
                        indices,
                        bags,
                        bags_per_feature: per_feature,
                        ..params(&config, &layout_of(&config), mode, 0)
                    };
                    // Every mixture of bad and good offsets and indices, at random places.
                    let at = |bit: u32, place: u32| if case >> bit & 1 == 1 { NONE - place } else { 0 };
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
                    let t = [0, 77, u32::MAX][source.random_range(0..3)];
                    let bindings = [
                        words(&params),
                        guarded(&junk(&mut source, indices as usize)),
                        guarded(&offsets),
                        guarded(&features_of(&[7, 8, 9], &features)),
                        guarded(&tables(&mut source, &[7, 8, 9], t)),
                        words(&step),
                    ];
                    let what = format!("seed {seed}, {step:?}, mode {mode}");
                    changed += check(context, "begin", &what, &bindings, 1, &[], |b| {
                        let [params, indices, offsets, features, tables, step] = b else { unreachable!() };
                        stages::begin(&read(params), indices, offsets, cast_slice(features), tables, of(step));
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
