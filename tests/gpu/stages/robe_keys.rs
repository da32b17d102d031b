use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig,
    internals::layout::{NONE, Params, count},
    internals::stages,
    robe::hash::chunk_start,
};
use rand::RngExt as _;

use super::{
    TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng,
    robe::{SHAPES, hashes, robe},
    step, words,
};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        // In the last shape a row has so many chunks that the product with a chunk's number exceeds P many times.
        for (seed, shape) in SHAPES.into_iter().chain([[1 << 16, 1, 5000]]).enumerate() {
            let most = (1 << 18) / shape[0] as usize;
            for n in [0, 1, 3, 100.min(most), 300.min(most)] {
                let mut source = rng(seed as u64);
                let robe = robe(shape);
                let config = GroupConfig::new(&[1500], robe.dim);
                let params = Params { indices: n as u32, ..params(&config, &layout_of(&config), TRAIN, 0) };
                let chunks = n * robe.chunks as usize;
                let access: Vec<[u32; 2]> = (0..n).map(|_| [source.random_range(0..1000), source.random()]).collect();
                let bindings = [
                    words(&params),
                    words(&robe),
                    words(&step(&mut source, 9, &[(count::INDICES, n as u32)])),
                    guarded(&hashes(&mut source, n)),
                    guarded(&access),
                    guarded(&junk(&mut source, chunks)),
                    guarded(&junk(&mut source, 2 * chunks)),
                ];
                let what = format!("{robe:?}, {n} accesses");
                let groups = chunks.div_ceil(256).max(1) as u32;
                let run = check(context, "robe_keys", &what, &bindings, groups, &[], |b| {
                    let [params, robe, step, hashes, access, chunk_keys, chunk_access] = b else { unreachable!() };
                    let (access, chunk_access) = (cast_slice(access), cast_slice_mut(chunk_access));
                    stages::robe_keys(&read(params), &read(robe), of(step), hashes, access, chunk_keys, chunk_access);
                });
                // Checked without the mirror: the chunks of one index follow those of the index before.
                for (k, &key) in run.found[5][..chunks].iter().enumerate() {
                    let (hash, j) = (bindings[3][k / robe.chunks as usize], k as u32 % robe.chunks);
                    let wanted = if hash == NONE { NONE } else { chunk_start(hash, j, robe.starts) };
                    assert_eq!(key, wanted, "{what}: chunk {k}");
                }
                changed += run.changed;
            }
        }
        assert!(changed > 0);
    });
}
