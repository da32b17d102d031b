use hotrow::{
    GroupConfig,
    internals::{
        layout::{NONE, Params, feedback as at},
        stages,
    },
};
use rand::RngExt as _;

use super::{TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng, step, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let config = GroupConfig::new(&[700], 4);
        for seed in 0..30 {
            let mut source = rng(seed);
            let rows = [1, 2, 255, 256, 257, 900][source.random_range(0..6)];
            // An empty list, a part of it, a full one, and more than it holds.
            let listed = [0, source.random_range(0..=rows), rows, rows + 77][source.random_range(0..4)];
            let mut feedback = junk(&mut source, at::HEAD + rows as usize);
            feedback[at::LISTED] = listed;
            feedback[at::WANTED] = u32::MAX - 3; // its sum may wrap
            let params = Params { indices: rows, ..params(&config, &layout_of(&config), TRAIN, 0) };
            let bindings = [
                words(&params),
                guarded(&feedback),
                words(&step(&mut source, 5, &[])),
                guarded(&junk(&mut source, rows as usize)),
            ];
            let run =
                check(context, "wanted", &format!("{listed} of {rows}"), &bindings, rows.div_ceil(256), &[], |b| {
                    let [params, feedback, step, keys] = b else { unreachable!() };
                    stages::wanted(&read(params), feedback, of(step), keys);
                });
            // By hand.
            let here = listed.min(rows) as usize;
            let keys = &run.found[3][..rows as usize];
            assert_eq!(keys[..here], feedback[at::HEAD..at::HEAD + here]);
            assert!(keys[here..].iter().all(|&key| key == NONE));
            assert_eq!(run.found[1][at::FRAME], feedback[at::FRAME].wrapping_add(1));
            assert_eq!(run.found[1][at::LOST], feedback[at::LOST].wrapping_add(listed.saturating_sub(rows)));
        }
    });
}
