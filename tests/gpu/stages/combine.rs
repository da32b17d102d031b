use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{GroupConfig, cpu, layout::count};

use super::{TRAIN, check, floats, guarded, junk, layout_of, of, on_each, params, read, rng, runs, step, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..6 {
            for valid in [0, 1, 31, 32, 33, 63, 64, 65, 700] {
                for dim in [1, 5, 63, 64, 65, 130] {
                    let mut source = rng(seed);
                    let config = GroupConfig::new(&[1500], dim);
                    let layout = layout_of(&config);
                    let (_, mut starts) = runs(&mut source, valid);
                    let unique = starts.len() as u32;
                    starts.extend(junk(&mut source, 3)); // room that is not used
                    let tiles = valid.div_ceil(32);
                    let bindings = [
                        words(&params(&config, &layout, TRAIN, 0)),
                        words(&step(&mut source, 4, &[(count::VALID, valid), (count::UNIQUE, unique)])),
                        guarded(&starts),
                        guarded(&floats(&mut source, (2 * tiles * dim) as usize, 1.0)),
                        guarded(&floats(&mut source, (unique * dim) as usize, 1.0)),
                    ];
                    // Sums alone, in a given order: the same bits.
                    let what = format!("seed {seed}, {valid} accesses, dim {dim}");
                    changed += check(context, "combine", &what, &bindings, unique + 3, &[], |b| {
                        let [params, step, starts, partials, grads] = b else { unreachable!() };
                        cpu::combine(&read(params), of(step), starts, cast_slice(partials), cast_slice_mut(grads));
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
