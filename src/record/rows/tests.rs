//! Compares every loop, as compiled for every processor that this machine can run, with the readable code of `codec`
//! and of this file, bit for bit.

use multiversion::multiversion;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{
    config::{Optimizer, OptimizerKind, Precision, RandomBits, Rounding, StatePrecision, with_rule},
    record::{
        codec::{self, Noise},
        rows::{
            move_record::move_record_in,
            optimise::{RowStep, optimise_row},
            pack::pack_row,
            unpack::unpack_row,
        },
    },
    rules::{Element, Known as _, Numbers},
    stripe::Stripe,
    table::{rng::Purpose, row::RowLayout},
};

type Optimise = fn(&RowStep, &mut [f32], &mut [f32], &mut [f32], &mut [f32]) -> bool;
type MoveRecord = fn(&RowLayout, &RowStep, &Noise, u32, &mut [f32], &mut [f32], &mut [u32]) -> bool;
type Pack = fn(&RowLayout, &Noise, u32, &[f32], &[f32], &mut [u32]) -> bool;

/// The loops as compiled for one kind of processor.
struct Path {
    name: &'static str,
    unpack: fn(&RowLayout, &[u32], &mut [f32], &mut [f32]),
    pack: Pack,
    optimise: Optimise,
    move_record: MoveRecord,
}

/// The loops for `$target`; the default loops if this machine lacks it.
macro_rules! path {
    ($name:ident, $target:literal) => {{
        #[multiversion(targets($target))]
        fn unpack(layout: &RowLayout, record: &[u32], weights: &mut [f32], states: &mut [f32]) {
            unpack_row(layout, record, weights, states);
        }
        #[multiversion(targets($target))]
        fn pack(
            layout: &RowLayout,
            noise: &Noise,
            row: u32,
            weights: &[f32],
            state: &[f32],
            record: &mut [u32],
        ) -> bool {
            pack_row(layout, noise, row, weights, state, record)
        }
        #[multiversion(targets($target))]
        fn optimise(
            rule: &RowStep,
            grads: &mut [f32],
            weights: &mut [f32],
            states: &mut [f32],
            before: &mut [f32],
        ) -> bool {
            optimise_row(rule, grads, weights, states, before)
        }
        #[multiversion(targets($target))]
        fn move_record(
            layout: &RowLayout,
            rule: &RowStep,
            noise: &Noise,
            row: u32,
            grads: &mut [f32],
            room: &mut [f32],
            record: &mut [u32],
        ) -> bool {
            move_record_in(layout, rule, noise, row, grads, room, record)
        }
        Path { name: stringify!($name), unpack, pack, optimise, move_record }
    }};
}

fn paths() -> [Path; 4] {
    [
        Path { name: "plain", unpack: unpack_row, pack: pack_row, optimise: optimise_row, move_record: move_record_in },
        path!(sse4, "x86_64+sse4.1"),
        path!(avx2, "x86_64+avx2+fma+f16c"),
        Path {
            name: "picked",
            unpack: crate::record::rows::unpack,
            pack: crate::record::rows::pack,
            optimise: crate::record::rows::optimise,
            move_record: crate::record::rows::move_record,
        },
    ]
}

const KINDS: &[OptimizerKind] = &OptimizerKind::ALL;

/// A rule with every setting that concerns its kind.
fn rule_of(kind: OptimizerKind, eps: f32, weight_decay: f32, case: usize) -> RowStep {
    let hyper = Optimizer::sgd(0.1).with_kind(kind).with_eps(eps).hyper();
    let shrink = if case % 4 == 1 { 0.01 } else { 0.0 };
    let numbers = Numbers { lr: 0.1, shrink, hyper, fix: [1.0; 2], own: 0.0, t: 0 }.at([1, 7, 100_000][case % 3]);
    let clip_value = [0.0, 0.5, 0.75, 0.0][case % 4];
    RowStep { kind, numbers, weight_decay, own_count: false, clip_value, clip_norm: 0.0 }
}

fn layout_of(precision: Precision, kind: OptimizerKind, dim: u32) -> RowLayout {
    RowLayout::new(dim, precision, kind)
}

/// A layout for each precision, each optimiser and each dim up to a little more than two blocks.
fn layouts() -> impl Iterator<Item = RowLayout> {
    let full = Precision::ALL.into_iter().skip(1).map(|precision| (precision, Some(StatePrecision::Fp32)));
    Precision::ALL.into_iter().map(|precision| (precision, None)).chain(full).flat_map(|(precision, state)| {
        let of = move |kind, dim| RowLayout::of(dim, precision, &Optimizer::sgd(0.0).with_kind(kind), state);
        KINDS.iter().flat_map(move |&kind| (1..=140).map(move |dim| of(kind, dim)))
    })
}

/// Values of one of five sorts: usual weights, any finite bits, few distinct ones, subnormals of halves, zeros of both
/// signs.
fn values(random: &mut StdRng, sort: usize, n: u32) -> Vec<f32> {
    let mut value = || match sort % 5 {
        0 => random.random_range(-1.0..1.0),
        1 => loop {
            let x = f32::from_bits(random.random());
            if x.is_finite() {
                break x;
            }
        },
        2 => [0.0, 0.25, 0.5, 1.0, -65504.0, 65520.0][random.random_range(0..6)],
        3 => random.random_range(-1.0f32..1.0) * 2f32.powi(random.random_range(-60..-10)),
        _ => [0.0, -0.0, f32::MIN_POSITIVE, f32::from_bits(1), -f32::from_bits(1)][random.random_range(0..5)],
    };
    (0..n).map(|_| value()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// The first difference between `pack` and the codec, over all layouts.
fn pack_differs(pack: Pack) -> Option<String> {
    let mut random = StdRng::seed_from_u64(5);
    let mut refused = 0;
    for (case, layout) in layouts().enumerate() {
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            let noise = Noise {
                rounding,
                random_bits: RandomBits::ALL[case % 3],
                seed: random.random(),
                step: random.random(),
                purpose: Purpose::Write as u32,
                stripe: Stripe::ALL,
            };
            for sort in 0..5 {
                let mut weights = values(&mut random, sort, layout.dim);
                let mut state = values(&mut random, sort + case, layout.state);
                let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
                match (case + sort) % 16 {
                    0 => weights[case % layout.dim as usize] = bad[case % 3],
                    1 if !state.is_empty() => *state.last_mut().unwrap() = bad[case % 3],
                    _ => {}
                }
                let row = random.random();
                let stale = vec![0xdead_beef; layout.record_words as usize];
                let (mut found, mut wanted) = (stale.clone(), stale);
                let taken = codec::pack(&layout, &noise, row, &weights, &state, &mut wanted);
                refused += u32::from(!taken);
                if pack(&layout, &noise, row, &weights, &state, &mut found) != taken || found != wanted {
                    return Some(format!("{layout:?} {rounding:?} {weights:?} {state:?}: {found:x?}, not {wanted:x?}"));
                }
            }
        }
    }
    assert!(refused > 100);
    None
}

#[test]
fn packing_is_the_codec_s() {
    for path in paths() {
        assert_eq!(pack_differs(path.pack), None, "{}", path.name);
    }
}

#[test]
fn packing_at_random_is_not_packing_to_the_nearest() {
    let nearest: Pack = |layout, noise, row, weights, state, record| {
        crate::record::rows::pack(layout, &Noise { rounding: Rounding::Nearest, ..*noise }, row, weights, state, record)
    };
    assert!(pack_differs(nearest).is_some());
    let other_purpose: Pack = |layout, noise, row, weights, state, record| {
        crate::record::rows::pack(layout, &Noise { purpose: noise.purpose + 1, ..*noise }, row, weights, state, record)
    };
    assert!(pack_differs(other_purpose).is_some());
}

#[test]
fn any_half_unpacks_as_the_codec_says() {
    let layout = layout_of(Precision::Fp16, OptimizerKind::Sgd, 1 << 16);
    let record: Vec<u32> = (0..1 << 15).map(|i| (2 * i) | (2 * i + 1) << 16).collect();
    let mut wanted = vec![0.0; 1 << 16];
    codec::unpack(&layout, &record, &mut wanted);
    for path in paths() {
        let mut found = vec![f32::NAN; 1 << 16];
        (path.unpack)(&layout, &record, &mut found, &mut []);
        assert_eq!(bits(&found), bits(&wanted), "{}", path.name);
    }
}

/// A table of `rows` records of random bits whose scale, bias and FP32 values are finite.
fn records(random: &mut StdRng, layout: &RowLayout, rows: usize) -> Vec<u32> {
    let finite = |word: u32| if word & 0x7f80_0000 == 0x7f80_0000 { word & !(1 << 30) } else { word };
    let mut words: Vec<u32> = (0..rows * layout.record_words as usize).map(|_| random.random()).collect();
    for record in words.chunks_exact_mut(layout.record_words as usize) {
        if layout.precision.is_integer() {
            record[0] = random.random_range(0.0f32..1.0).to_bits();
            record[1] = random.random_range(-1.0f32..1.0).to_bits();
        }
        let floats = match (layout.precision, layout.state_bits < 32) {
            (Precision::Fp32, _) => 0..record.len(),
            (_, false) => layout.state_word as usize..layout.payload_half as usize / 2,
            _ => 0..0,
        };
        record[floats].iter_mut().for_each(|word| *word = finite(*word));
    }
    words
}

#[test]
fn unpacking_is_the_codec_s() {
    let mut random = StdRng::seed_from_u64(6);
    for layout in layouts() {
        let record = records(&mut random, &layout, 1);
        let mut wanted = vec![0.0; (layout.dim + layout.state) as usize];
        codec::unpack(&layout, &record, &mut wanted);
        for path in paths() {
            let mut found = vec![f32::NAN; wanted.len()];
            let (weights, states) = found.split_at_mut(layout.dim as usize);
            (path.unpack)(&layout, &record, weights, states);
            assert_eq!(bits(&found), bits(&wanted), "{} {layout:?}", path.name);
            // The comparison must notice one changed bit of the payload.
            let mut wrong = record.clone();
            wrong[layout.payload_half as usize / 2] ^= 1 << (layout.payload_half % 2 * 16);
            let (weights, states) = found.split_at_mut(layout.dim as usize);
            (path.unpack)(&layout, &wrong, weights, states);
            assert_ne!(bits(&found), bits(&wanted), "{} {layout:?}", path.name);
        }
    }
}

/// A row after its rule's step, one element at a time; `None` if it is refused.
fn moved(rule: &RowStep, grads: &[f32], row: &[f32]) -> Option<Vec<f32>> {
    let dim = grads.len();
    let mut row = row.to_vec();
    if grads.iter().any(|g| !g.is_finite()) {
        return None;
    }
    let most = if rule.clip_value == 0.0 { f32::MAX } else { rule.clip_value };
    let grads: Vec<f32> = grads.iter().zip(&row).map(|(g, w)| g.clamp(-most, most) + rule.weight_decay * w).collect();
    let mut numbers = rule.numbers;
    let facts = rule.kind.facts();
    if facts.of_row {
        let (width, lanes) = if dim.is_multiple_of(4) { (4, dim / 4) } else { (1, dim) };
        let mut lanes = vec![0.0f32; lanes.clamp(4, 32).next_power_of_two()];
        let n = lanes.len();
        grads.iter().enumerate().for_each(|(e, g)| lanes[e / width % n] += g * g);
        while lanes.len() > 1 {
            let high = lanes.split_off(lanes.len() / 2);
            lanes.iter_mut().zip(high).for_each(|(a, b)| *a += b);
        }
        let mean = lanes[0] / dim as f32;
        let own = &mut row[dim * (1 + facts.states.len())];
        *own = with_rule!(rule.kind, R => R::row(&numbers, *own, mean));
        numbers.own = *own;
    }
    for (e, &g) in grads.iter().enumerate() {
        let at = [0, 1].map(|k| (k < facts.states.len()).then_some((k + 1) * dim + e));
        let element = Element { g, w: row[e], states: at.map(|at| at.map_or(0.0, |at| row[at])) };
        let after = with_rule!(rule.kind, R => R::element(&numbers, element));
        row[e] = after.w;
        at.into_iter().zip(after.states).for_each(|(at, state)| at.into_iter().for_each(|at| row[at] = state));
    }
    grads.iter().chain(&row).all(|x| x.is_finite()).then_some(row)
}

#[test]
fn optimisers_move_each_element_by_the_rule() {
    let mut random = StdRng::seed_from_u64(8);
    let (mut taken, mut refused) = (0, 0);
    for dim in 1..=140 {
        for &kind in KINDS {
            for sort in 0..15 {
                let weight_decay = [0.0, 0.01][sort % 2];
                let eps = [1e-8, 0.0][usize::from(sort == 3)];
                let rule = rule_of(kind, eps, weight_decay, sort);
                let mut grads = values(&mut random, sort, dim);
                if sort == 7 {
                    grads[dim as usize / 2] = [f32::NAN, f32::INFINITY][dim as usize % 2];
                }
                let mut row = values(&mut random, 0, dim);
                let state = layout_of(Precision::Fp32, kind, dim).state;
                row.extend(values(&mut random, 2 * (sort % 2), state).into_iter().map(f32::abs));
                let wanted = moved(&rule, &grads, &row);
                *if wanted.is_some() { &mut taken } else { &mut refused } += 1;
                for path in paths() {
                    let mut found = row.clone();
                    let (weights, states) = found.split_at_mut(dim as usize);
                    assert_eq!(
                        (path.optimise)(&rule, &mut grads.clone(), weights, states, &mut vec![0.0; row.len()]),
                        wanted.is_some()
                    );
                    // A refused row stays as it was.
                    assert_eq!(bits(&found), bits(wanted.as_ref().unwrap_or(&row)), "{} {rule:?} {dim}", path.name);
                }
            }
        }
    }
    assert!(taken > 1000 && refused > 500, "{taken} {refused}");
    let rule = rule_of(OptimizerKind::AdaGrad, 0.0, 0.0, 0);
    assert_ne!(
        moved(&rule, &[1.0], &[1.0, 1.0]),
        moved(&RowStep { numbers: Numbers { lr: 0.2, ..rule.numbers }, ..rule }, &[1.0], &[1.0, 1.0])
    );
}

/// The first difference between `move_record` and unpacking, moving and packing in turn, over all layouts; and how many rows moved and how many
/// were refused.
fn move_record_differs(move_record: MoveRecord) -> (Option<String>, [u32; 2]) {
    let mut random = StdRng::seed_from_u64(9);
    let mut seen = [0; 2];
    for (case, layout) in layouts().enumerate() {
        let kind = KINDS[case / 140 % KINDS.len()];
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            let rule = rule_of(kind, 1e-8, [0.0, 0.01][case % 2], case);
            let noise = Noise {
                rounding,
                random_bits: RandomBits::ALL[case % 3],
                seed: random.random(),
                step: random.random(),
                purpose: Purpose::Update as u32,
                stripe: Stripe::ALL,
            };
            let mut grads = values(&mut random, [0, 0, 0, 1][case % 4], layout.dim);
            if case % 7 == 3 {
                grads[case % layout.dim as usize] = [f32::NAN, f32::INFINITY, 3e38][case % 3];
            }
            let mut record = records(&mut random, &layout, 1);
            if layout.state_bits == 16 {
                // A state is never negative.
                record[layout.state_word as usize..layout.payload_half as usize / 2]
                    .iter_mut()
                    .for_each(|word| *word &= 0x7fff_7fff);
            }
            let row = random.random();
            let (mut wanted, mut floats) = (record.clone(), vec![0.0; layout.row_words as usize]);
            codec::unpack(&layout, &record, &mut floats);
            let taken = moved(&rule, &grads, &floats).is_some_and(|moved| {
                // A record whose row does not change keeps its bytes.
                if moved.iter().zip(&floats).all(|(a, b)| a.to_bits() == b.to_bits()) {
                    return true;
                }
                let floats = moved;
                let (weights, states) = floats.split_at(layout.dim as usize);
                codec::pack(&layout, &noise, row, weights, states, &mut wanted)
            });
            seen[usize::from(!taken)] += 1;
            let found = move_record(&layout, &rule, &noise, row, &mut grads.clone(), &mut floats, &mut record);
            if found != taken || record != wanted {
                return (Some(format!("{layout:?} {rule:?} {noise:?}: {record:x?}, not {wanted:x?}")), seen);
            }
        }
    }
    (None, seen)
}

#[test]
fn a_row_packed_in_one_go_is_moved_and_packed() {
    for path in paths() {
        let (difference, [moved, refused]) = move_record_differs(path.move_record);
        assert_eq!(difference, None, "{}", path.name);
        assert!(moved > 1000 && refused > 100, "{moved} {refused}");
    }
    let other_step: MoveRecord = |layout, rule, noise, row, grads, floats, record| {
        let noise = Noise { step: noise.step ^ 1, ..*noise };
        crate::record::rows::move_record(layout, rule, &noise, row, grads, floats, record)
    };
    assert!(move_record_differs(other_step).0.is_some());
    let careless: MoveRecord = |layout, rule, noise, row, grads, floats, record| {
        let mut finite: Vec<f32> = grads.iter().map(|g| if g.is_finite() { *g } else { 0.0 }).collect();
        crate::record::rows::move_record(layout, rule, noise, row, &mut finite, floats, record)
    };
    assert!(move_record_differs(careless).0.is_some());
}
