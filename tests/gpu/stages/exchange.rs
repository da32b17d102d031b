//! The stage that moves rows between records and FP32, where one workgroup has more swaps than it lists at once.

use hotrow::{
    GroupConfig, Precision,
    internals::layout::{NONE, Piece, Swap, count},
};
use hotrow_harness::device::with_gpu;

use super::{TRAIN, layout_of, params, run, step, tables, words};

/// The second of three pieces is bound: the rows of that piece come to their places, and no other.
#[test]
pub(crate) fn lists_of_several_blocks() {
    with_gpu(|context| {
        for n in [2047u32, 2048, 2049, 5000] {
            let config = GroupConfig::new(&[15_000], 1).with_precision(Precision::Fp32).with_cache_rows(0);
            let layout = layout_of(&config);
            let bound =
                Piece { first_row: 5000, rows: 5000, rows_each: 5000, phases: Piece::UNPACK, ..Piece::default() };
            let row = |place: u32| place * 7919 % 15_000;
            let swap = |place| words(&Swap { place, row: row(place), victim: NONE, flags: 0 });
            let each = layout.slot_words() as usize;
            let bindings = [
                words(&params(&config, &layout, TRAIN, 0)),
                words(&bound),
                step(1, count::SWAPS, n),
                (0..n).flat_map(swap).collect(),
                (5000..10_000).collect(),
                vec![0],
                vec![7; n as usize * each],
                vec![0],
                tables(15_000, 1),
            ];
            let found: Vec<u32> = run(context, "exchange", &bindings, 1)[6].iter().copied().step_by(each).collect();
            let wanted = (0..n).map(row).map(|row| if (5000..10_000).contains(&row) { row } else { 7 });
            assert_eq!(found, wanted.collect::<Vec<_>>(), "{n} swaps");
        }
    });
}
