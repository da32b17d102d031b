use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, Optimizer, cpu, layout::Params};
use rand::RngExt as _;

use super::{
    ROWS, check, floats, guarded, of, on_each, read, rng,
    update::{Rows, rows},
    words,
};

fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize) -> usize {
    let mut source = rng(seed ^ 77);
    let Rows { layout, params, arrays, .. } = rows(seed, config, n);
    let [step, unique, cache, scratch, ways, sources, tables] = arrays;
    let params = Params { mode: ROWS, ..params };
    let dim = layout.dim as usize;
    let mut values = floats(&mut source, (n + 3) * dim, 1.0);
    for u in 0..n {
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0];
        if source.random_bool(0.4) {
            values[u * dim + source.random_range(0..dim)] = bad[source.random_range(0..5)];
        }
    }
    let bindings = [words(&params), step, unique, guarded(&values), cache, scratch, ways, sources, tables];
    let what = format!("seed {seed}, {n} rows, {config:?}");
    // Values are moved, never computed: the same bits.
    check(context, "assign", &what, &bindings, n as u32 + 3, &[], |b| {
        let [params, step, unique, values, cache, scratch, ways, sources, tables] = b else { unreachable!() };
        let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
        let (unique, values) = (cast_slice(unique), cast_slice(values));
        cpu::assign(&read(params), of(step), unique, values, cache, scratch, ways, sources, tables);
    })
    .changed
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
            for (seed, dim) in [1, 5, 63, 64, 65, 130].into_iter().enumerate() {
                let config = GroupConfig { optimizer, ..GroupConfig::new(&[1], dim) };
                changed += run(context, seed as u64, &config, 50);
            }
            for n in [0, 1, 2, 3, 7] {
                changed += run(context, 11, &GroupConfig { optimizer, ..GroupConfig::new(&[1], 3) }, n);
            }
        }
        assert!(changed > 0);
    });
}
