use hotrow::{Optimizer, Precision};

use super::{merge::lengths, on_each, rng, robe::SHAPES, robe_update::ways};

#[test]
pub(super) fn matches_the_mirror_dense_and_sparse() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        let decayed = Optimizer::adagrad(0.1).with_weight_decay(0.1);
        for lengths in lengths(&mut rng(1)) {
            for shape in &SHAPES[..7] {
                seed += 1;
                let optimizer = [Optimizer::sgd(0.5), Optimizer::adagrad(0.1), decayed][seed as usize % 3];
                let precision = Precision::ALL[1 + seed as usize / 7 % 4];
                changed += ways(context, seed, precision, &lengths, *shape, optimizer, seed % 5 == 0);
            }
        }
        assert!(changed > 0);
    });
}
