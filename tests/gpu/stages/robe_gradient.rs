use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::Context;
use hotrow::internals::stages;
use rand::RngExt as _;

use super::{
    check, gradients_of, guarded, junk,
    merge::lengths,
    on_each, read, rng,
    robe::{SHAPES, due},
};

fn run(context: &Context, seed: u64, lengths: &[u32], shape: [u32; 3]) -> usize {
    let mut source = rng(seed);
    let (robe, [params, uniform, targets, accesses, grads, scratch]) = due(&mut source, lengths, shape);
    let sums = guarded(&junk(&mut source, robe.weights as usize));
    let bindings = [params, uniform, targets, accesses, grads, scratch, sums];
    let groups = [1, robe.weights.div_ceil(256)][source.random_range(0..2)];
    // Gradients times powers of two, added in a given order, have the same bits.
    let run = check(context, "robe_gradient", &format!("seed {seed}, {robe:?}"), &bindings, groups, &[], |b| {
        let [params, robe, targets, accesses, grads, scratch, sums] = b else { unreachable!() };
        let params = read(params);
        let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
        let grads = gradients_of(grads, &params);
        stages::robe_gradient(&params, &read(robe), targets, accesses, grads, scratch, cast_slice_mut(sums));
    });
    // Checked without the mirror: without a start the gradient is 0.
    if bindings[2][0] == 0 {
        assert!(run.found[6][..robe.weights as usize].iter().all(|&sum| sum == 0));
    }
    run.changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        for lengths in lengths(&mut rng(1)).into_iter().chain([vec![]]) {
            // The last two shapes have too large an array for this test.
            for shape in &SHAPES[..7] {
                seed += 1;
                changed += run(context, seed, &lengths, *shape);
            }
        }
        assert!(changed > 0);
    });
}
