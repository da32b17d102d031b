use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{cpu, layout::count};
use rand::RngExt as _;

use super::{check, distinct_rows, guarded, junk, of, on_each, rng, runs, step, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..4 {
            for valid in [0u32, 1, 2, 255, 256, 257, 700] {
                let mut source = rng(seed);
                let indices = valid + source.random_range(0..40); // the rest were left out
                let (mut segment, starts) = runs(&mut source, valid);
                segment.extend(junk(&mut source, (indices - valid) as usize));
                let mut order = distinct_rows(&mut source, indices as usize, indices);
                order.truncate(indices as usize);
                let n = indices as usize;
                let bindings = [
                    words(&step(&mut source, 4, &[(count::VALID, valid), (count::UNIQUE, starts.len() as u32)])),
                    guarded(&order),
                    guarded(&segment),
                    guarded(&junk(&mut source, n)),
                    guarded(&junk(&mut source, n)),
                    guarded(&junk(&mut source, 2 * n)),
                    guarded(&junk(&mut source, 2 * n)),
                    guarded(&junk(&mut source, 4 * (starts.len() + 3))),
                ];
                let what = format!("seed {seed}, {valid} of {indices} indices");
                let groups = indices.max(1).div_ceil(256);
                changed += check(context, "arrange", &what, &bindings, groups, &[], |b| {
                    let [step, order, segment, keys, places, access, accesses, targets] = b else { unreachable!() };
                    let (accesses, targets) = (cast_slice_mut(accesses), cast_slice_mut(targets));
                    cpu::arrange(of(step), order, segment, keys, places, cast_slice(access), accesses, targets);
                })
                .changed;
            }
        }
        assert!(changed > 0);
    });
}
