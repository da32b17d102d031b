use hotrow::{GroupConfig, cpu};

use super::{TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng, step, ways, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        // 0 slots, a block of 8 sets and around it, and several.
        for sets in [0u32, 1, 7, 8, 9, 33] {
            let mut source = rng(u64::from(sets));
            let mut config = GroupConfig::new(&[3000], 4);
            config.cache_rows = 32 * sets;
            let layout = layout_of(&config);
            let slots = layout.slots() as usize;
            let bindings = [
                words(&params(&config, &layout, TRAIN, 0)),
                words(&step(&mut source, 9, &[])),
                guarded(&ways(&mut source, sets, 3000, 9, 0.5)),
                guarded(&junk(&mut source, slots)),
                guarded(&junk(&mut source, slots)),
            ];
            let groups = slots.div_ceil(256) as u32;
            changed += check(context, "collect", &format!("{sets} sets"), &bindings, groups, &[], |b| {
                if groups == 0 {
                    return; // not dispatched at all
                }
                let [params, step, ways, rows, sources] = b else { unreachable!() };
                cpu::collect(&read(params), of(step), ways, rows, sources);
            })
            .changed;
        }
        assert!(changed > 0);
    });
}
