use hotrow::{
    Context,
    internals::layout::{Pass, ScanInfo, count},
    internals::stages,
};
use rand::RngExt as _;

use super::{check, guarded, junk, of, on_each, read, rng, step, words};

/// The scanned digit counts of a pass, and the total of each digit.
fn scanned(pass: &Pass, step: &hotrow::internals::layout::Step, keys: &[u32], blocks: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut digits, mut totals) = (vec![0; 256 * blocks as usize], vec![0; 256]);
    stages::histogram(pass, step, keys, &mut digits);
    let info = ScanInfo { count: pass.count, capacity: pass.capacity, per_block: 3072, rows: 256, clears: 0 };
    stages::scan(&info, step, &mut digits, &mut totals, &mut []);
    (digits, totals)
}

pub(crate) fn all(context: &Context) {
    let mut changed = 0;
    for (seed, capacity) in [1, 255, 256, 257, 3071, 3072, 3073, 20_000].into_iter().enumerate() {
        for live in [0, capacity / 2, capacity] {
            for spread in [0xffff_ffff, 0x0101_0101, 0] {
                let mut source = rng(seed as u64);
                let which = [count::INDICES, count::MOVES][seed % 2];
                let positions = source.random_range(0..2);
                let mask = [255, 255, 1, 31][seed % 4];
                let shift = 8 * (seed as u32 % 4);
                let next_mask = if shift == 24 { 0 } else { [255, 0, 3][seed % 3] };
                let pass = Pass { shift, mask, count: which as u32, capacity, positions, next_mask };
                let keys: Vec<u32> = (0..capacity).map(|_| source.random::<u32>() & spread).collect();
                let step = step(&mut source, 3, &[(which, live)]);
                let blocks = capacity.div_ceil(3072);
                let (digits, totals) = scanned(&pass, &step, &keys, blocks);
                let n = capacity as usize;
                let bindings = [
                    words(&pass),
                    words(&step),
                    guarded(&keys),
                    guarded(&junk(&mut source, n)),
                    guarded(&digits),
                    guarded(&totals),
                    guarded(&junk(&mut source, n)),
                    guarded(&junk(&mut source, n)),
                    guarded(&vec![0; 256 * blocks as usize]),
                ];
                let case = format!("{live} of {capacity}, spread {spread:#x}, positions {positions}");
                let groups = blocks.div_ceil(2);
                let run = check(context, "scatter", &case, &bindings, groups, &[], |b| {
                    let [pass, step, keys_in, values_in, digits, totals, keys_out, values_out, next_digits] = b else {
                        unreachable!()
                    };
                    let pass = read(pass);
                    stages::scatter(
                        &pass,
                        of(step),
                        keys_in,
                        values_in,
                        digits,
                        totals,
                        keys_out,
                        values_out,
                        next_digits,
                    );
                });
                changed += run.changed;
                // Checked without the mirror: scatter counts what a histogram of its output would count.
                if next_mask != 0 {
                    let next = Pass { shift: shift + 8, mask: next_mask, ..pass };
                    let mut counted = vec![0; 256 * blocks as usize];
                    stages::histogram(&next, &step, &run.found[6], &mut counted);
                    assert_eq!(run.found[8][..counted.len()], counted, "{case}");
                    counted[0] ^= 1;
                    assert_ne!(run.found[8][..counted.len()], counted, "a wrong count is noticed");
                }
                // Checked without the mirror: the pass is stable, so equal digits keep their order.
                if positions == 1 {
                    let key = |i: u32| ((keys[i as usize] >> pass.shift) & mask, i);
                    assert!(run.found[7][..live as usize].is_sorted_by_key(|&i| key(i)), "{case}");
                }
            }
        }
    }
    assert!(changed > 0);
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(all);
}
