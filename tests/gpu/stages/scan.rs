use hotrow::{cpu, layout::ScanInfo};

use super::{check, guarded, junk, on_each, read, rng, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for n in [0u32, 1, 3, 4, 5, 1023, 1024, 1025, 5000, 8 * 1024] {
            let mut source = rng(u64::from(n));
            let blocks = n.div_ceil(1024);
            // Any words at all: sums wrap the same way on both sides.
            let bindings = [
                words(&ScanInfo { n, ..ScanInfo::default() }),
                guarded(&junk(&mut source, n as usize)),
                guarded(&junk(&mut source, blocks as usize)),
            ];
            changed += check(context, "scan", &format!("{n}"), &bindings, blocks, &[], |b| {
                let [info, data, sums] = b else { unreachable!() };
                let guard = sums.len() - 4;
                cpu::scan(&read(info), data, &mut sums[..guard]);
            })
            .changed;
        }
        assert!(changed > 0);
    });
}

/// Not the mirror's own code: a sum that begins at zero and leaves out the element itself.
#[test]
fn the_sum_is_exclusive() {
    on_each(|context| {
        let data: Vec<u32> = (1..=2000).collect();
        let bindings = [words(&ScanInfo { n: 2000, ..ScanInfo::default() }), data, vec![0; 2]];
        let found = context.run_stage(super::kernel("scan"), &bindings, 2).unwrap();
        assert_eq!(found[1][..4], [0, 1, 3, 6]);
        assert_eq!(found[1][1023..1026], [1023 * 1024 / 2, 0, 1025]);
        assert_eq!(found[2], [1024 * 1025 / 2, (1025..=2000).sum::<u32>()]);
    });
}
