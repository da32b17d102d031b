use hotrow::internals::layout::{ScanInfo, count};
use hotrow::internals::stages;

use super::{check, guarded, junk, kernel, of, on_each, read, rng, step, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        // Lengths about four (one invocation's share), about a tile of 2,048, and of several tiles.
        for length in [0u32, 1, 3, 4, 5, 15, 16, 17, 255, 2047, 2048, 2049, 7000] {
            for (rows, per_block) in [(1, 2048), (3, 10), (256, 3072)] {
                let mut source = rng(u64::from(length));
                // The last block has one element.
                let n = (length * per_block).saturating_sub(per_block - 1);
                let which = count::UNIQUE;
                let clears = length / 2 % 2;
                let info = ScanInfo { count: which as u32, capacity: n + length % 2, per_block, rows, clears };
                // Any words will do, because sums wrap alike on both sides.
                let bindings = [
                    words(&info),
                    words(&step(&mut source, 3, &[(which, n)])),
                    guarded(&junk(&mut source, (rows * length) as usize)),
                    guarded(&junk(&mut source, rows as usize)),
                    guarded(&junk(&mut source, (rows * length) as usize)),
                ];
                let case = format!("{rows} rows of {length}");
                changed += check(context, "scan", &case, &bindings, rows.div_ceil(3), &[], |b| {
                    let [info, step, data, totals, cleared] = b else { unreachable!() };
                    stages::scan(&read(info), of(step), data, totals, cleared);
                })
                .changed;
            }
        }
        assert!(changed > 0);
    });
}

/// Checked without the mirror's code: each sum leaves out its own element and begins at zero in each row.
#[test]
pub(super) fn the_sum_is_exclusive() {
    on_each(|context| {
        let data: Vec<u32> = (1..=6000).collect();
        let info = ScanInfo { count: 0, capacity: 3000, per_block: 1, rows: 2, clears: 1 };
        // A count above the capacity counts as the capacity.
        let bindings = [words(&info), words(&step(&mut rng(1), 1, &[(0, 4000)])), data, vec![0; 2], vec![7; 6002]];
        let found = context.run_stage(kernel("scan"), &bindings, 2).unwrap();
        assert_eq!(found[2][..4], [0, 1, 3, 6]);
        assert_eq!(found[2][2998..3002], [2998 * 2999 / 2, 2999 * 3000 / 2, 0, 3001]);
        assert_eq!(found[3], [3000 * 3001 / 2, (3001..=6000).sum::<u32>()]);
        assert!(found[4][..6000].iter().all(|&word| word == 0), "cleared");
        assert_eq!(found[4][6000..], [7; 2], "no word beyond the rows");
    });
}
