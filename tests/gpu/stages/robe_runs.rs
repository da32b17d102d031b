use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, internals::layout::Target, internals::stages};
use rand::RngExt as _;

use super::{
    check, guarded, junk,
    merge::lengths,
    on_each, read, rng,
    robe::{SHAPES, due},
};

fn run(context: &Context, seed: u64, lengths: &[u32], shape: [u32; 3]) -> usize {
    let mut source = rng(seed);
    let (robe, [params, uniform, targets, accesses, _, scratch]) = due(&mut source, lengths, shape);
    let n = targets[0] as usize;
    let (runs, blocks) = (guarded(&junk(&mut source, 2 * n)), guarded(&junk(&mut source, n.div_ceil(256))));
    let bindings = [params, uniform, targets, accesses, scratch, runs, blocks];
    let groups = [1, n.div_ceil(256).max(1) as u32][source.random_range(0..2)];
    let run = check(context, "robe_runs", &format!("seed {seed}, {robe:?}"), &bindings, groups, &[], |b| {
        let [params, robe, targets, accesses, scratch, runs, blocks] = b else { unreachable!() };
        let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
        let runs = cast_slice_mut(runs);
        stages::robe_runs(&read(params), &read(robe), targets, accesses, scratch, runs, blocks);
    });
    // Checked without the mirror: a run begins at its start, ends at the next start at the latest, and is at most as long as the longest
    // chunk.
    let starts: &[Target] = &cast_slice::<u32, Target>(&bindings[2][..4 * (n + 1)])[1..];
    let runs: &[[u32; 2]] = cast_slice(&run.found[5][..2 * n]);
    for d in 0..n {
        let most = starts.get(d + 1).map_or(robe.reach, |next| (next.row - starts[d].row).min(robe.reach));
        assert!((most.min(robe.tail)..=most).contains(&runs[d][1]), "seed {seed}, start {d}");
        let before: u32 = runs[d / 256 * 256..d].iter().map(|run| run[1]).sum();
        assert_eq!(runs[d][0], before);
    }
    run.changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        let many = [255, 256, 257, 3000].map(|n| vec![1; n]);
        for lengths in lengths(&mut rng(1)).into_iter().chain([vec![]]).chain(many) {
            for shape in SHAPES {
                seed += 1;
                changed += run(context, seed, &lengths, shape);
            }
        }
        assert!(changed > 0);
    });
}
