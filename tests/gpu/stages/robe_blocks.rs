use hotrow::Precision;

use super::{
    merge::lengths,
    on_each, rng,
    robe::SHAPES,
    robe_update::{rule, ways},
};

#[test]
pub(super) fn matches_the_mirror_dense_and_sparse() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        for lengths in lengths(&mut rng(1)) {
            for shape in &SHAPES[..7] {
                seed += 1;
                let precision = Precision::ALL[1 + seed as usize / 3 % 4];
                let state = [16, 8][seed as usize / 2 % 2];
                changed += ways(context, seed, (precision, state), &lengths, *shape, rule(seed), seed % 5 == 0);
            }
        }
        assert!(changed > 0);
    });
}
