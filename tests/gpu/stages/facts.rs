//! States with each combination of facts, also those that no rule has today: in records, and in the packed blocks of parameter-shared tables.

use bytemuck::cast_slice;
use hotrow::{
    Context, GradSlice, GroupConfig, Optimizer, Precision, RandomBits, Rounding, StatePrecision,
    internals::{
        codec,
        layout::{DIRTY, Field, NONE, Params, Piece, Rate, Robe, Swap, Target, WAYS, count, way_at},
        rows, stages,
    },
};
use hotrow_harness::{
    device::with_gpu,
    lockstep::bits,
    naive::{Approx, Format},
    seed_for,
};
use rand::RngExt as _;

use super::{TRAIN, facts_of, layout_of, params, rng, run, slot_rows, step, tables, words};

/// An optimiser with as many states as rule `number`.
fn rule(number: u32) -> Optimizer {
    if number < 4 { Optimizer::adagrad(0.1) } else { Optimizer::adam(0.1) }
}

/// Runs `case` for each rule of 20, with each type of states.
fn each(name: &str, states: &[StatePrecision], case: impl Fn(&Context, u64, u32, StatePrecision)) {
    with_gpu(|context| {
        let first = seed_for(name);
        for (seed, number) in (first..).zip(0..20) {
            states.iter().for_each(|&state| case(context, seed, number, state));
        }
    });
}

/// Rows are packed, and read back, as by both codecs of the CPU and by the model in FP64.
#[test]
pub(crate) fn states_by_their_facts() {
    each("states by their facts", &StatePrecision::ALL, |context, seed, number, state| {
        let (mut source, facts) = (rng(seed), facts_of(number));
        let config = GroupConfig::new(&[20], [6, 8][seed as usize % 2]).with_cache_rows(32).with_seed(source.random());
        let config = config.with_precision(Precision::Fp16).with_state(Some(state));
        let config = config.with_optimizer(rule(number).with_own_count(number % 2 == 1));
        let rounding = Rounding::ALL[seed as usize / 2 % 2];
        let random_bits = RandomBits::ALL[seed as usize % 3];
        let config = config.with_rounding(rounding).with_random_bits(random_bits);
        let mut layout = layout_of(&config);
        layout.row.facts = facts;
        let (dim, floats) = (layout.row.dim as usize, layout.row.row_words as usize);
        let mut values: Vec<Vec<f32>> =
            (0..20).map(|_| (0..floats).map(|_| source.random_range(-1.0..1.0)).collect()).collect();
        for (e, x) in values.iter_mut().flat_map(|row| row[dim..].iter_mut().enumerate()) {
            let signed = facts >> (2 * u32::from(e >= dim)) & 1 == 1;
            *x = if signed { *x } else { x.abs() } * 2f32.powi(source.random_range(-8..8));
        }
        let mut flags: Vec<u32> = (0..128).map(|word| if word < 32 { NONE } else { 0 }).collect();
        (0..20).for_each(|slot| flags[way_at(WAYS, slot, Field::Flags)] = DIRTY);
        // Each row leaves its slot for its record, and is read from there into scratch.
        let swap = |i: u32| words(&Swap { place: i, row: NONE, victim: i, flags: Swap::WRITE | Swap::KEEP });
        let piece = Piece { rows: 20, rows_each: 20, phases: Piece::PACK | Piece::UNPACK, ..Piece::default() };
        let (stride, slot) = (layout.row.record_words as usize, layout.slot_words() as usize);
        let mut cache = slot_rows(&layout, &values);
        cache.resize(layout.slots() as usize * slot, 0);
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&piece),
            step(9, count::SWAPS, 20),
            (0..20).flat_map(swap).collect(),
            vec![7; 20 * stride],
            cache,
            vec![7; 20 * slot],
            flags,
            tables(20, 9),
        ];
        let found = run(context, "exchange", &bindings, 1);
        let noise = codec::Noise {
            rounding,
            random_bits,
            seed: config.seed,
            step: 9,
            purpose: 0,
            stripe: hotrow::ranks::Stripe::ALL,
        };
        let model = |facts: u32| {
            let mut format = Format::new(&config);
            format.kinds = [facts, facts >> 2].map(|of| [of & 1 == 1, of & 2 == 2]);
            format
        };
        let mut rejected = 0;
        for ((row, values), record) in (0..).zip(&values).zip(found[4].chunks_exact(stride)) {
            let what = format!("seed {seed}, rule {number}, {state:?}, row {row}");
            let (weights, states) = values.split_at(dim);
            let [mut one, mut other] = [(); 2].map(|()| vec![0; stride]);
            assert!(codec::pack(&layout.row, &noise, row, weights, states, &mut one));
            assert!(rows::pack(&layout.row, &noise, row, weights, states, &mut other));
            assert_eq!([&one[..], &other], [record; 2], "{what}");
            let [mut one, mut other] = [(); 2].map(|()| vec![0.0; floats]);
            codec::unpack(&layout.row, record, &mut one);
            let (weights, states) = other.split_at_mut(dim);
            rows::unpack(&layout.row, record, weights, states);
            let read = &found[6][row as usize * slot..][..floats];
            assert_eq!([bits(&one), bits(&other)], [read; 2], "{what}");
            let exact: Vec<Approx> = values.iter().map(|&x| Approx::exact(x)).collect();
            assert_eq!(model(facts).check(rounding, record, &exact), Ok(()), "{what}");
            let decoded = model(facts).decode(record);
            assert!(decoded.iter().zip(&one).all(|(a, b)| a.value == f64::from(*b)), "{what}");
            // With another sign INT8 codes have another base; a moment is stored in another form than a sum.
            let others = [facts ^ 5, facts ^ 10][usize::from(layout.row.state_bits == 16)];
            rejected += u32::from(model(others).check(rounding, record, &exact).is_err());
        }
        assert_eq!(rejected, if layout.row.state_bits == 32 { 0 } else { 20 }, "the model takes other facts: {number}");
    });
}

/// An array of 128 weights in two blocks, rows of one chunk of 8.
fn robe(states: u32, state_bits: u32) -> Robe {
    let state_words = if state_bits == 8 { 1 + 16 * states } else { 32 * states };
    Robe {
        dim: 8,
        chunk: 8,
        chunks: 1,
        starts: 121,
        weights: 128,
        reach: 8,
        tail: 8,
        dense_from: 16,
        block: 64,
        block_words: 32,
        window: 128,
        window_words: 128,
        state_bits,
        state_words,
        ..Robe::default()
    }
}

/// Two steps of a packed array, whose states FP32 has exactly, are those of the CPU.
#[test]
pub(crate) fn robe_blocks_by_facts() {
    each("robe_blocks", &[StatePrecision::Fp16, StatePrecision::Int8], |context, seed, number, state| {
        let (mut source, facts) = (rng(seed), facts_of(number));
        let robe = robe(if number < 4 { 1 } else { 2 }, if state == StatePrecision::Int8 { 8 } else { 16 });
        // 100 chunks of one access each, at starts side by side.
        let chunk = |i: u32| Target { row: i, place: i, start: i, end: i + 1 };
        let mut targets: Vec<Target> = std::iter::once(Target::default()).chain((0..100).map(chunk)).collect();
        let accesses: Vec<u32> = (0..100).flat_map(|_| [8 * source.random_range(0..20), 1f32.to_bits()]).collect();
        let grads: Vec<f32> = (0..160).map(|_| f32::from(source.random_range(1..9u8)) / 8.0).collect();
        let config = GroupConfig::new(&[16], 8).with_precision(Precision::Fp16).with_state(Some(StatePrecision::Int8));
        let config =
            config.with_optimizer(rule(number).with_lr(0.5).with_beta1(0.5).with_beta2(0.5)).with_seed(source.random());
        let of = |facts| Params { dim: 9, lanes: 16, facts, ..params(&config, &layout_of(&config), TRAIN, 2) };
        let rate = Rate { lr: 0.5, ..Rate::default() };
        let (mut weights, mut kept) = (vec![0; 64], vec![0; 2 * robe.state_words as usize]);
        for t in 1..=2 {
            targets[0] = Target { row: 100, place: 100, start: t, end: 1f32.to_bits() };
            let lists: Vec<u32> = targets.iter().flat_map(words).collect();
            let (grads, scratch) = (cast_slice::<_, u32>(&grads).to_vec(), vec![0; 18]);
            let [first, second] = [weights.clone(), kept.clone()];
            let head = [words(&of(facts)), words(&robe), lists, accesses.clone(), grads, scratch];
            let mut bindings = [&head[..], &[first, second, tables(16, t), words(&rate)]].concat();
            let found = run(context, "robe_blocks", &bindings, 2);
            // Other facts give other states: other signs other codes, another form other halves.
            let mut others = bindings.clone();
            others[0] = words(&of(if robe.state_bits == 16 { facts ^ 10 } else { facts ^ 5 }));
            let what = format!("seed {seed}, rule {number}, {state:?}, step {t}");
            assert_ne!(run(context, "robe_blocks", &others, 2)[7], found[7], "{what}");
            let [_, _, _, _, grads, scratch, memory, states, tables, _] = &mut bindings[..] else { unreachable!() };
            let grads = GradSlice::F32(cast_slice(grads));
            let (params, accesses, scratch) = (of(facts), cast_slice(&accesses), cast_slice(scratch));
            let storage = stages::Storage::new(config.precision, &robe, params.each, facts);
            stages::robe_blocks(
                &config, &storage, &params, &robe, &targets, accesses, grads, scratch, memory, states, tables,
            );
            assert!([&*states, &*tables] == [&found[7], &found[8]], "{what}");
            (weights, kept) = (found[6].clone(), found[7].clone());
        }
    });
}
