//! Rounding by the kernel: difficult rows as by the codec, the last bits of the noise decide, and representable values stay. The codec's own tests show that
//! rounding is unbiased.

use hotrow::{
    Context, GroupConfig, Optimizer, Precision, RandomBits, Rounding,
    internals::layout::{NONE, Piece, Swap, count},
    internals::{Layout, codec, rng},
    ranks::Stripe,
};
use hotrow_harness::{gpu_test, seed_for};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use crate::stages::{TRAIN, layout_of, params, rng as source_of, run, slot_rows, step, tables, words};

/// Runs `exchange` over rows 0, 1, .. from scratch at step `t`, and returns their records. A row that is refused has a record of 7.
fn write(context: &Context, config: &GroupConfig, rows: &[Vec<f32>], t: u32) -> Vec<Vec<u32>> {
    let n = rows.len() as u32;
    let config = config.clone().with_tables(vec![n]);
    let layout = layout_of(&config);
    // Without a cache, place i is row i of scratch.
    let swap = |i| words(&Swap { place: i, row: NONE, victim: i, flags: Swap::WRITE });
    let stride = layout.row.record_words as usize;
    let bindings = [
        words(&params(&config, &layout, TRAIN, 0)),
        words(&Piece { rows: n, rows_each: n, phases: Piece::PACK, ..Piece::default() }),
        step(t, count::SWAPS, n),
        (0..n).flat_map(swap).collect(),
        vec![7; rows.len() * stride],
        vec![0],
        slot_rows(&layout, rows),
        vec![0],
        tables(n, t),
    ];
    run(context, "exchange", &bindings, n)[4].chunks_exact(stride).map(<[u32]>::to_vec).collect()
}

/// The code of an element in an integer record.
fn code_at(layout: &Layout, record: &[u32], element: u32) -> u32 {
    let bits = layout.row.precision.bits();
    let at = layout.row.payload_half * 16 + element * bits;
    (record[at as usize / 32] >> (at % 32)) & ((1 << bits) - 1)
}

/// Weights and state of a row: either ordinary values or one kind of difficult values.
fn difficult(source: &mut Pcg64, layout: &Layout) -> Vec<f32> {
    let (dim, words) = (layout.row.dim as usize, layout.row.row_words as usize);
    let mut row: Vec<f32> = (0..words).map(|_| source.random_range(-1.0..1.0)).collect();
    row[dim..].iter_mut().for_each(|x| *x = x.abs());
    let at = source.random_range(0..words);
    let scale = |row: &mut [f32], size: f32| row.iter_mut().for_each(|x| *x *= size);
    match source.random_range(0..14) {
        0 => row[..dim].fill(0.25),
        1 => row[..dim].fill(-0.0),
        2 => row[at] = f32::NAN,
        3 => row[at] = [f32::INFINITY, f32::NEG_INFINITY][source.random_range(0..2)],
        4 => (row[0], row[dim - 1]) = (-3e38, 3e38), // a range that overflows FP32
        5 => scale(&mut row[..dim], 1e-38),          // a scale below the smallest normal
        6 => scale(&mut row[..dim], 1e5),            // beyond binary16
        7 => scale(&mut row[..dim], 1e-6),           // subnormal in binary16
        8 => row[..dim].iter_mut().for_each(|x| *x += 100.0), // a bias far above the scale
        // Values on a grid whose step is no binary fraction: representable except for the last bits, so they are never rounded at random.
        9 => {
            let top = if layout.row.precision.is_integer() { (1 << layout.row.precision.bits()) - 1 } else { 255 };
            row[..dim].iter_mut().for_each(|x| *x = 0.3 + 0.0123 * source.random_range(0..=top) as f32);
            (row[0], row[dim - 1]) = (0.3, 0.3 + 0.0123 * top as f32);
        }
        // Magnitudes over binary16's whole range, and far below it.
        10 | 11 => row.iter_mut().for_each(|x| *x *= 2f32.powi(source.random_range(-45..17))),
        _ => {}
    }
    row
}

/// Bit for bit, but for integer codes: one in 10^5 may be the next one, so that more than one in 500 are with a chance below 10^-9. Of the codes of a wrong
/// rounding every second to tenth is.
#[gpu_test]
fn difficult_rows_are_packed_as_by_the_codec(context: &Context) {
    let mut source = source_of(seed_for("difficult rows"));
    let (mut codes, mut apart, mut others, mut refused) = (0, 0, 0, 0);
    for turn in 0..30 {
        let optimizer = [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)][turn / 5 % 3];
        let random_bits = RandomBits::ALL[turn % 3];
        let rounding = if turn % 4 == 0 { Rounding::Nearest } else { Rounding::Stochastic };
        let dims = [1, 3, 4, 31, 64, 65, 130, 260];
        let config = GroupConfig::new(&[1], dims[source.random_range(0..8)]).with_precision(Precision::ALL[turn % 5]);
        let config = config.with_optimizer(optimizer).with_rounding(rounding).with_random_bits(random_bits);
        let layout = layout_of(&config);
        let rows: Vec<Vec<f32>> = (0..100).map(|_| difficult(&mut source, &layout)).collect();
        let integers = layout.row.precision.is_integer();
        for (row, (values, found)) in (0..).zip(rows.iter().zip(write(context, &config, &rows, 5))) {
            let (weights, states) = values.split_at(layout.row.dim as usize);
            let packed = |step| {
                let (seed, stripe) = (config.seed, Stripe::ALL);
                let noise = codec::Noise { rounding, random_bits, seed, step, purpose: 0, stripe };
                let mut record = vec![7; found.len()];
                (codec::pack(&layout.row, &noise, row, weights, states, &mut record), record)
            };
            let (taken, wanted) = packed(5);
            refused += u32::from(!taken);
            let exact = if integers && taken { layout.row.payload_half as usize / 2 } else { found.len() };
            assert_eq!(found[..exact], wanted[..exact], "{config:?}, row {row}: {values:?}");
            if integers && taken {
                let [wanted, other] = [wanted, packed(6).1]
                    .map(|record| (0..layout.row.dim).map(|e| code_at(&layout, &record, e)).collect::<Vec<_>>());
                let found: Vec<u32> = (0..layout.row.dim).map(|e| code_at(&layout, &found, e)).collect();
                assert!(found.iter().zip(&wanted).all(|(a, b)| a.abs_diff(*b) <= 1), "{config:?}, row {row}");
                codes += found.len();
                apart += found.iter().zip(&wanted).filter(|(a, b)| a != b).count();
                others += found.iter().zip(&other).filter(|(a, b)| a != b).count();
            }
        }
    }
    assert!(refused > 100 && codes > 10_000 && 500 * apart <= codes, "{refused} refused, {apart} of {codes} codes");
    assert!(20 * others > codes, "{others} of {codes}: the comparison can fail");
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
