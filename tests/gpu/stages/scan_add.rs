use hotrow::{cpu, layout::ScanInfo};

use super::{check, guarded, junk, on_each, read, rng, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for n in [0u32, 1, 255, 256, 257, 1023, 1024, 1025, 5000, 8 * 1024] {
            let mut source = rng(u64::from(n));
            let blocks = n.div_ceil(1024);
            let bindings = [
                words(&ScanInfo { n, ..ScanInfo::default() }),
                guarded(&junk(&mut source, n as usize)),
                guarded(&junk(&mut source, blocks as usize)),
            ];
            changed += check(context, "scan_add", &format!("{n}"), &bindings, blocks, &[], |b| {
                let [info, data, sums] = b else { unreachable!() };
                cpu::scan_add(&read(info), data, sums);
            })
            .changed;
        }
        assert!(changed > 0);
    });
}
