//! Rounding by the kernel: the last bits of the noise decide, and representable values stay. The codec's own tests show that rounding is unbiased;
//! `stages/exchange.rs` compares the kernel with the codec, for every precision and rounding.

use hotrow::{
    Context, GroupConfig, Optimizer, Precision, RandomBits, Rounding,
    internals::layout::{CLOCK_WORDS, NONE, Piece, Step, Swap, TABLE_WORDS, count},
    internals::{codec, rng},
};
use rand::RngExt as _;

use crate::stages::{TRAIN, exchange::code_at, kernel, layout_of, params, rng as source_of, slot_rows, words};
use hotrow_harness::{gpu_test, seed_for};

/// Runs `exchange` over rows 0, 1, .. from scratch at step `t`, and returns their records.
fn write(context: &Context, config: &GroupConfig, rows: &[Vec<f32>], t: u32) -> Vec<Vec<u32>> {
    let mut config = config.clone();
    config.tables = vec![rows.len() as u32];
    let layout = layout_of(&config);
    // Without a cache, place i is row i of scratch.
    let swaps: Vec<Vec<u32>> =
        (0..rows.len() as u32).map(|i| words(&Swap { place: i, row: NONE, victim: i, flags: Swap::WRITE })).collect();
    let mut step = Step { t, ..Step::default() };
    step.counts[count::SWAPS] = rows.len() as u32;
    let mut tables = vec![0; CLOCK_WORDS + TABLE_WORDS];
    (tables[0], tables[CLOCK_WORDS + 1]) = (t, rows.len() as u32);
    let bindings = [
        words(&params(&config, &layout, TRAIN, 0)),
        words(&Piece {
            rows: rows.len() as u32,
            rows_each: rows.len() as u32,
            phases: Piece::PACK,
            ..Piece::default()
        }),
        words(&step),
        swaps.concat(),
        vec![0; rows.len() * layout.row.record_words as usize],
        vec![0],
        slot_rows(&layout, rows.len(), {
            let mut rows = rows.iter();
            move || rows.next().unwrap().clone()
        })
        .iter()
        .map(|x| x.to_bits())
        .collect(),
        vec![0],
        tables,
    ];
    let found = context.run_stage(kernel("exchange"), &bindings, rows.len() as u32);
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    found[4].chunks_exact(layout.row.record_words as usize).map(<[u32]>::to_vec).collect()
}

/// The comparison of noise and fraction is right to the last few of 24 bits: a quotient may be 2.5 ULP off.
#[gpu_test]
fn the_noise_decides_to_its_last_bits(context: &Context) {
    for bits in RandomBits::ALL {
        let config = GroupConfig::new(&[1], 66).with_precision(Precision::Int2);
        let config = config.with_rounding(Rounding::Stochastic).with_seed(seed_for("the last bits") as u32);
        let config = config.with_random_bits(bits);
        let t = 3;
        let noise = |row: u32, element: u32| rng::noise(bits, config.seed, t, row, element, 0) >> 8;
        // With a range from 0 to 3 at INT2 the scale is 1, so a value is its own quotient.
        let x = |row: u32, element: u32, up: bool| match element {
            0 => 0.0,
            1 => 3.0,
            _ => (f64::from(noise(row, element)) + if up { 4.0 } else { -4.0 }) as f32 * 2f32.powi(-24),
        };
        let rows: Vec<Vec<f32>> =
            (0..400).map(|row| (0..66).map(|e| x(row, e, (row + e) % 2 == 0)).collect()).collect();
        let layout = layout_of(&config);
        for (row, record) in (0..).zip(write(context, &config, &rows, t)) {
            for element in 2..66 {
                // Values next to a whole number are not rounded at random.
                if (64..(1 << 24) - 64).contains(&noise(row, element)) {
                    let up = u32::from((row + element) % 2 == 0);
                    assert_eq!(code_at(&layout, &record, element), up, "{bits:?}, row {row}, element {element}");
                }
            }
        }
    }
}

/// A packed row keeps its values when it is packed again, with any rounding and noise.
#[gpu_test]
fn what_is_representable_never_moves(context: &Context) {
    for precision in [Precision::Fp16, Precision::Int8, Precision::Int4, Precision::Int2] {
        let config = GroupConfig::new(&[1], 67).with_precision(precision);
        let mut config = config.with_optimizer(Optimizer::adagrad(0.1));
        let layout = layout_of(&config);
        let mut source = source_of(seed_for("representable"));
        let rows: Vec<Vec<f32>> = (0..300)
            .map(|row| {
                // Ranges near zero, far from it, tiny and huge.
                let (size, shift) =
                    [(1.0, 0.0), (1.0, 100.0), (1e-3, -5.0), (1e4, 3.0), (1e-7, 0.0), (0.0, 0.3)][row % 6];
                (0..layout.row.row_words).map(|_| shift + size * source.random_range(-1.0f32..1.0)).collect()
            })
            .collect();
        config.rounding = Rounding::Stochastic;
        let first = write(context, &config, &rows, 1);
        let mut row_of = vec![0.0; layout.row.row_words as usize];
        let unpacked: Vec<Vec<f32>> = first
            .iter()
            .map(|record| {
                codec::unpack(&layout.row, record, &mut row_of);
                row_of.clone()
            })
            .collect();
        for rounding in [Rounding::Stochastic, Rounding::Nearest] {
            config.rounding = rounding;
            for t in 2..6 {
                let again = write(context, &config, &unpacked, t);
                for (row, (a, b)) in first.iter().zip(&again).enumerate() {
                    // Scale and bias may be rounded again; codes, halves and state may not.
                    let from = layout.row.state_word as usize;
                    assert_eq!(a[from..], b[from..], "{precision:?}, {rounding:?}, row {row}, step {t}");
                }
            }
        }
        // The comparison must notice the rows as they were before the first packing.
        assert_ne!(first, write(context, &config, &rows, 2), "{precision:?}");
    }
}
