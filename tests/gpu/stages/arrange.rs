use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{ScalerState, internals::layout::count, internals::stages};
use rand::RngExt as _;

use super::{check, distinct_rows, guarded, junk, of, on_each, read, rng, runs, step, words};

#[test]
pub(super) fn matches_the_mirror() {
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
                    words(&ScalerState {
                        inverse: source.random(),
                        overflow: u32::from(seed % 2 == 1),
                        ..ScalerState::default()
                    }),
                ];
                let what = format!("seed {seed}, {valid} of {indices} indices");
                let groups = indices.max(1).div_ceil(256);
                let run = check(context, "arrange", &what, &bindings, groups, &[], |b| {
                    let [step, order, segment, keys, places, access, accesses, targets, scaler] = b else {
                        unreachable!()
                    };
                    let (accesses, targets) = (cast_slice_mut(accesses), cast_slice_mut(targets));
                    let (access, scaler) = (cast_slice(access), &read(scaler));
                    stages::arrange(of(step), order, segment, keys, places, access, accesses, targets, scaler);
                });
                // After an overflow only the header is written, and it says that the list is empty.
                if seed % 2 == 1 {
                    assert_eq!((run.found[7][..2].to_vec(), &run.found[6]), (vec![0, 0], &bindings[6]), "{what}");
                }
                changed += run.changed;
            }
        }
        assert!(changed > 0);
    });
}
