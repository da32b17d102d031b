use bytemuck::cast_slice;
use hotrow::{
    GroupConfig, cpu,
    layout::{NONE, Params, count},
};
use rand::RngExt as _;

use super::{
    TRAIN, check, distinct_rows, guarded, junk, layout_of, of, on_each, params, placed, read, rng, runs, step, words,
};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..4 {
            for n in [0u32, 1, 255, 256, 257, 1000] {
                for active in [true, false] {
                    let mut source = rng(seed);
                    let mut config = GroupConfig::new(&[1500], 4);
                    config.cache_rows = 64 * source.random_range(0..2);
                    let layout = layout_of(&config);
                    let left_out = source.random_range(0..=n / 2);
                    let (mut segment, starts) = runs(&mut source, n - left_out);
                    let mut rows = distinct_rows(&mut source, starts.len(), 1500);
                    rows.sort_unstable();
                    let mut keys: Vec<u32> = segment.iter().map(|&u| rows[u as usize]).collect();
                    keys.resize(n as usize, NONE);
                    segment.extend(junk(&mut source, left_out as usize)); // no segment where there is no key
                    let params = Params { indices: n, ..params(&config, &layout, TRAIN, 0) };
                    let bindings = [
                        words(&params),
                        words(&step(&mut source, 9, &[(count::INDICES, if active { n } else { 0 })])),
                        guarded(&keys),
                        guarded(&distinct_rows(&mut source, n as usize, n)),
                        guarded(&segment),
                        guarded(&placed(&mut source, &rows, layout.slots())),
                        guarded(&junk(&mut source, n as usize)),
                    ];
                    let what = format!("seed {seed}, {n} indices, active {active}");
                    changed += check(context, "locate", &what, &bindings, n.div_ceil(256), &[], |b| {
                        let [params, step, keys, order, segment, unique, places] = b else { unreachable!() };
                        cpu::locate(&read(params), of(step), keys, order, segment, cast_slice(unique), places);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
