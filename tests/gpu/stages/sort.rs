//! The prefix sums of a sort. The other stages of sorts run in `dedup.rs`, which compares the whole.

use hotrow::internals::layout::{ScanInfo, Step, count};

use super::{check, each, guarded, junk, of, read, step, words};

/// Lengths about four (one invocation's share), about a tile of 2,048, and of several tiles. In a dispatch of fewer workgroups than rows, as here, each
/// takes several rows.
#[test]
pub(crate) fn scan() {
    each("scan", [13, 3, 2], |case, mut source, [length, rows, clears]| {
        let length = [0u32, 1, 3, 4, 5, 15, 16, 17, 255, 2047, 2048, 2049, 7000][length];
        let (rows, per_block) = [(1, 2048), (3, 10), (256, 3072)][rows];
        // The last block has one element.
        let n = (length * per_block).saturating_sub(per_block - 1);
        let which = count::UNIQUE;
        let info = ScanInfo {
            count: which as u32,
            capacity: n + length % 3 * per_block,
            per_block,
            rows,
            clears: clears as u32,
        };
        // A row has room for all blocks of the capacity.
        let stride = info.capacity.div_ceil(per_block);
        // Any words will do, because sums wrap alike on both sides.
        let bindings = [
            words(&info),
            words(&step(&mut source, 3, &[(which, n)])),
            guarded(&junk(&mut source, (rows * stride) as usize)),
            guarded(&junk(&mut source, rows as usize)),
            guarded(&junk(&mut source, (rows * stride) as usize)),
        ];
        check(case, "scan", &bindings, rows.div_ceil(3), &[], |[info, step, data, totals, cleared]| {
            sums(&read(info), of(step), data, totals, cleared);
        });
    });
}

fn sums(info: &ScanInfo, step: &Step, data: &mut [u32], totals: &mut [u32], cleared: &mut [u32]) {
    let length = step.counts[info.count as usize].min(info.capacity).div_ceil(info.per_block) as usize;
    let stride = info.capacity.div_ceil(info.per_block) as usize;
    for (row, total) in totals[..info.rows as usize].iter_mut().enumerate() {
        let words = row * stride..row * stride + length;
        if info.clears == 1 {
            cleared[words.clone()].fill(0);
        }
        *total = 0;
        for word in &mut data[words] {
            (*total, *word) = (total.wrapping_add(*word), *total);
        }
    }
}
