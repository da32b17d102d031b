use bytemuck::cast_slice_mut;
use hotrow::{Context, GroupConfig, Optimizer, internals::stages};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, floats, guarded, layout_of, on_each, params, rate, read, rng,
    robe::{SHAPES, robe, states, with_states},
    tables, words,
};

fn run(context: &Context, seed: u64, shape: [u32; 3], optimizer: Optimizer) -> usize {
    let mut source = rng(seed);
    let robe = with_states(32, optimizer, robe(shape));
    let weights = robe.weights as usize;
    let config = GroupConfig::new(&[7, 1500], robe.dim).with_optimizer(optimizer);
    let mut sums = floats(&mut source, weights, 1.0);
    for sum in &mut sums {
        match source.random_range(0..10) {
            0 => *sum = [f32::NAN, f32::INFINITY, -0.0, 1e-45][source.random_range(0..4)],
            1..5 => *sum = 0.0,
            _ => {}
        }
    }
    let marks: Vec<u32> = (0..weights.div_ceil(32)).map(|_| [0, source.random()][source.random_range(0..2)]).collect();
    let memory = floats(&mut source, weights, 1.0);
    let bindings = [
        words(&params(&config, &layout_of(&config), TRAIN, 0)),
        words(&robe),
        guarded(&sums),
        guarded(&marks),
        guarded(&memory),
        guarded(&states(&mut source, optimizer, &robe)),
        guarded(&tables(&mut source, &config.tables, 3)),
        words(&rate(&config)),
    ];
    // SGD at a power of two without decay rounds once. The other optimisers round a few times and divide.
    let exact = optimizer == Optimizer::sgd(0.5);
    let like = if exact { Like::Bits } else { Like::Within(f32::EPSILON * 16.0) };
    let groups = [1, robe.weights.div_ceil(256)][source.random_range(0..2)];
    let what = format!("seed {seed}, {robe:?}, {optimizer:?}");
    let run = check(context, "robe_step", &what, &bindings, groups, &[("memory", like), ("states", like)], |b| {
        let [params, robe, sums, covered, memory, states, tables, rate] = b else { unreachable!() };
        let (sums, memory, states) = (cast_slice_mut(sums), cast_slice_mut(memory), cast_slice_mut(states));
        stages::robe_step(&read(params), &read(robe), sums, covered, memory, states, tables, &read(rate));
    });
    // Checked without the mirror: sums and marks are cleared, and only covered weights have changed.
    let marked = robe.marks == 1;
    assert!(run.found[2][..weights].iter().all(|&sum| sum == 0), "{what}");
    assert!(!marked || run.found[3][..marks.len()].iter().all(|&marks| marks == 0), "{what}");
    for w in 0..weights {
        let covered = if marked { marks[w / 32] >> (w % 32) & 1 == 1 } else { sums[w].to_bits() != 0 };
        assert!(covered || run.found[4][w] == memory[w].to_bits(), "{what}, weight {w}");
    }
    run.changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        let decayed = |optimizer: Optimizer| optimizer.with_weight_decay(0.1);
        let (adagrad, adam) = (Optimizer::adagrad(0.1), Optimizer::adam(0.1));
        let rules = [Optimizer::sgd(0.5), adagrad, adam, decayed(Optimizer::sgd(0.5)), decayed(adagrad)];
        for optimizer in rules.into_iter().chain([Optimizer::momentum(0.1), decayed(adam).with_decoupled(true)]) {
            for shape in &SHAPES[..7] {
                seed += 1;
                changed += run(context, seed, *shape, optimizer);
            }
        }
        assert!(changed > 0);
    });
}
