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
    let n = targets[0] as usize;
    let (mut runs, mut blocks) = (vec![[0; 2]; n], vec![0; n.div_ceil(256)]);
    let sorted = (cast_slice(&targets), cast_slice(&accesses), cast_slice(&scratch));
    stages::robe_runs(&read(&params), &robe, sorted.0, sorted.1, sorted.2, &mut runs, &mut blocks);
    let mut total = 0;
    blocks.iter_mut().for_each(|block| (*block, total) = (total, total + *block));
    let places = guarded(&junk(&mut source, total as usize));
    let sums = guarded(&junk(&mut source, total as usize));
    let (runs, blocks) = (guarded(&runs), guarded(&blocks));
    let bindings = [params, uniform, targets, accesses, grads, scratch, runs, blocks, places, sums];
    let groups = [1, (n as u32 * robe.reach).div_ceil(256).max(1)][source.random_range(0..2)];
    // Gradients times powers of two, added in a given order, have the same bits.
    let run = check(context, "robe_covered", &format!("seed {seed}, {robe:?}"), &bindings, groups, &[], |b| {
        let [params, robe, targets, accesses, grads, scratch, runs, blocks, places, sums] = b else { unreachable!() };
        let params = read(params);
        let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
        let (grads, runs, sums) = (gradients_of(grads, &params), cast_slice(runs), cast_slice_mut(sums));
        stages::robe_covered(&params, &read(robe), targets, accesses, grads, scratch, runs, blocks, places, sums);
    });
    let places = &run.found[8][..total as usize];
    assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|&w| w < robe.weights), "seed {seed}");
    run.changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        let many = [256, 257, 3000].map(|n| vec![1; n]);
        for lengths in lengths(&mut rng(1)).into_iter().chain([vec![]]).chain(many) {
            for shape in SHAPES {
                seed += 1;
                changed += run(context, seed, &lengths, shape);
            }
        }
        assert!(changed > 0);
    });
}
