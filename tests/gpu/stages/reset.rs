use hotrow::GroupConfig;
use hotrow::internals::stages;

use super::{TRAIN, check, guarded, layout_of, on_each, params, read, rng, ways, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for sets in [0u32, 1, 7, 8, 9, 33] {
            let mut source = rng(u64::from(sets));
            let mut config = GroupConfig::new(&[3000], 4);
            config.cache_rows = 32 * sets;
            let layout = layout_of(&config);
            let bindings =
                [words(&params(&config, &layout, TRAIN, 0)), guarded(&ways(&mut source, sets, 3000, 9, 0.9))];
            let groups = layout.slots().div_ceil(256);
            changed += check(context, "reset", &format!("{sets} sets"), &bindings, groups, &[], |b| {
                let [params, ways] = b else { unreachable!() };
                stages::reset(&read(params), ways);
            })
            .changed;
        }
        assert!(changed > 0);
    });
}
