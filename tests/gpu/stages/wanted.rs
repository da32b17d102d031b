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
            // Lists that are empty, filled in part or whole, and asked for more than they hold.
            let mut listed = || [0, source.random_range(0..=rows), rows, rows + 77][source.random_range(0..4)];
            let (missing, present) = (listed(), listed());
            let mut feedback = junk(&mut source, at::HEAD + 2 * rows as usize);
            feedback[at::MISSING] = missing;
            feedback[at::PRESENT] = present;
            feedback[at::WANTED] = u32::MAX - 3; // its sum may wrap
            let params = Params { indices: rows, ..params(&config, &layout_of(&config), TRAIN, 0) };
            let bindings = [
                words(&params),
                guarded(&feedback),
                words(&step(&mut source, 5, &[])),
                guarded(&junk(&mut source, rows as usize)),
            ];
            let run = check(
                context,
                "wanted",
                &format!("{missing} and {present} of {rows}"),
                &bindings,
                rows.div_ceil(256),
                &[],
                |b| {
                    let [params, feedback, step, keys] = b else { unreachable!() };
                    stages::wanted(&read(params), feedback, of(step), keys);
                },
            );
            // By hand.
            let keys = &run.found[3][..rows as usize];
            let (first, second) = feedback[at::HEAD..].split_at(rows as usize);
            let lists = first[..missing.min(rows) as usize].iter().chain(&second[..present.min(rows) as usize]);
            let by_hand: Vec<u32> = lists.copied().chain(std::iter::repeat(NONE)).take(rows as usize).collect();
            assert_eq!(keys, by_hand);
            let here = (missing + present).min(rows);
            assert_eq!(run.found[1][at::FRAME], feedback[at::FRAME].wrapping_add(1));
            assert_eq!(run.found[1][at::LOST], feedback[at::LOST].wrapping_add(missing + present - here));
        }
    });
}
