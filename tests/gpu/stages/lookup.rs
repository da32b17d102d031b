//! The stage that lists what readers want.

use hotrow::{
    GroupConfig,
    internals::{
        Device as _,
        layout::{NONE, Params, Step, count, feedback as at},
    },
    ranks::features,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{TRAIN, check, each, guarded, junk, layout_of, of, one_of, params, step, tables, words};

/// Weights; `exact` ones are powers of two, so products are exact and the bits of a sum show its order.
pub(super) fn weights(source: &mut Pcg64, n: usize, exact: bool) -> Vec<f32> {
    let weight = |_| if exact { one_of(source, &[0.5, -1.0, 2.0, 4.0]) } else { source.random_range(-2.0..2.0) };
    (0..n).map(weight).collect()
}

/// Lists of a reader that are empty, filled in part or whole, and asked for more than they hold.
#[test]
pub(crate) fn wanted() {
    each("wanted", [6, 4, 4], |case, mut source, [rows, missing, present]| {
        let padding = [None, Some(3), Some(900)][case.seed as usize % 3];
        let config = GroupConfig::new(&[300, 400], 4).with_padding(vec![Some(7), padding]);
        let rows = [1, 2, 255, 256, 257, 900][rows];
        let mut listed = |kind: usize| [0, source.random_range(0..=rows), rows, rows + 77][kind];
        let (missing, present) = (listed(missing), listed(present));
        let mut feedback = junk(&mut source, at::HEAD + 2 * rows as usize);
        for (list, row) in [(0, 7), (rows as usize, 303)] {
            feedback[at::HEAD + list + source.random_range(0..rows as usize)] = row;
        }
        feedback[at::MISSING] = missing;
        feedback[at::PRESENT] = present;
        feedback[at::WANTED] = u32::MAX - 3; // its sum may wrap
        let bindings = [
            words(&Params { indices: rows, ..params(&config, &layout_of(&config), TRAIN, 0) }),
            bytemuck::cast_slice(&features(&config)).to_vec(),
            guarded(&feedback),
            guarded(&tables(&mut source, &[300, 400], 5)),
            words(&Step { done: 0, ..step(&mut source, 5, &[]) }),
            guarded(&junk(&mut source, rows as usize)),
        ];
        check(case, "wanted", &bindings, rows.div_ceil(256), &[], |[_, _, feedback, tables, step, keys]| {
            let (head, lists) = feedback.split_at_mut(at::HEAD);
            let (first, second) = lists.split_at(rows as usize);
            let lists = first[..missing.min(rows) as usize].iter().chain(&second[..present.min(rows) as usize]);
            let all = lists.chain(std::iter::repeat(&NONE));
            let pads = |row: u32| row == 7 || padding.is_some_and(|index| index < 400 && row == 300 + index);
            let all = all.map(|&row| if pads(row) { NONE } else { row });
            keys.iter_mut().zip(all.take(rows as usize)).for_each(|(key, row)| *key = row);
            let here = (missing + present).min(rows);
            let step: &mut Step = of(step);
            step.accesses = keys[..here as usize].iter().filter(|&&row| row != NONE).count() as u32;
            let groups = rows.div_ceil(256);
            let across = groups.min(case.context.max_groups());
            step.done = across * groups.div_ceil(across);
            if step.accesses > 0 {
                step.counts[count::INDICES] = rows;
                tables[0] += 1;
            }
            step.t = tables[0];
            for (field, more) in [(at::FRAME, 1), (at::WANTED, here), (at::LOST, missing + present - here)] {
                head[field] = head[field].wrapping_add(more);
            }
        });
    });
}
