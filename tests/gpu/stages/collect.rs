use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{GroupConfig, internals::layout::count, internals::stages};

use super::{Like, TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng, step, tables, ways, words};

/// Sorts the Moves by place, because they come in any order. The words behind the list must stay as they were.
fn in_order(words: &[u32]) -> Vec<[u32; 4]> {
    let mut moves: Vec<[u32; 4]> = cast_slice(words).to_vec();
    moves.sort_unstable();
    moves
}

#[test]
fn a_wrong_move_is_told_apart() {
    let right = [3, 0, 7, 1, 5, 0, 2, 1];
    assert_eq!(in_order(&right), in_order(&[5, 0, 2, 1, 3, 0, 7, 1]));
    for at in 0..8 {
        let mut wrong = right;
        wrong[at] ^= 1;
        assert_ne!(in_order(&right), in_order(&wrong), "word {at}");
    }
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        // No set, about one block of 8 sets, and several blocks.
        for sets in [0u32, 1, 7, 8, 9, 33] {
            let mut source = rng(u64::from(sets));
            let mut config = GroupConfig::new(&[3000], 4);
            config.cache_rows = 32 * sets;
            let layout = layout_of(&config);
            let slots = layout.slots() as usize;
            let bindings = [
                words(&params(&config, &layout, TRAIN, 0)),
                words(&step(&mut source, 9, &[(count::MOVES, 0)])),
                guarded(&ways(&mut source, sets, 3000, 9, 0.5)),
                guarded(&junk(&mut source, 4 * slots)),
                guarded(&tables(&mut source, &[3000], 17)),
            ];
            let groups = slots.div_ceil(256) as u32;
            let rules = [("moves", Like::Elsewhere)];
            let run = check(context, "collect", &format!("{sets} sets"), &bindings, groups, &rules, |b| {
                if groups == 0 {
                    return; // no workgroup is dispatched
                }
                let [params, step, ways, moves, tables] = b else { unreachable!() };
                stages::collect(&read(params), of(step), ways, cast_slice_mut(moves), tables);
            });
            changed += run.changed;
            assert_eq!(in_order(&run.found[3]), in_order(&run.wanted[3]), "{sets} sets");
        }
        assert!(changed > 0);
    });
}
