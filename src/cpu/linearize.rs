use super::{
    record::{MODE_ROWS, MODE_TRAIN, POOL_NONE},
    tables::{count, counter::OUT_OF_RANGE, table_base, table_rows},
};
use crate::layout::{NONE, Params, Step};

const CLAMP: u32 = 1;
const SKIP: u32 = 2;

/// Index to linear row, and the index's output row. Mirror of `shaders/linearize.wgsl`.
pub fn linearize(
    params: &Params,
    indices: &[u32],
    offsets: &[u32],
    features: &[u32],
    tables: &mut [u32],
    step: &mut Step,
    keys: &mut [u32],
    access: &mut [[u32; 2]],
) {
    for i in 0..=params.bags {
        let at = i as usize;
        let good = offsets[at] <= params.indices
            && (i != 0 || offsets[0] == 0)
            && (i != params.bags || offsets[at] == params.indices)
            && (i == params.bags || offsets[at] <= offsets[at + 1]);
        if !good {
            step.bad_offset = step.bad_offset.max(NONE - i);
        }
    }
    for i in 0..params.indices {
        let at = i as usize;
        let bag = last_at_most(offsets, params.bags, i);
        access[at] = [if params.pooling == POOL_NONE { i } else { bag }, 0];
        let mut index = indices[at];
        if params.mode == MODE_ROWS {
            keys[at] = index;
            step.accesses += 1;
            continue;
        }
        let table = features[(bag / params.bags_per_feature) as usize];
        let rows = table_rows(tables, table);
        if index >= rows {
            if params.mode == MODE_TRAIN {
                count(tables, table, OUT_OF_RANGE, 1);
            }
            if params.out_of_range == CLAMP {
                index = rows - 1;
            } else if params.out_of_range != SKIP {
                step.bad_index = step.bad_index.max(NONE - i);
            }
        }
        keys[at] = NONE;
        if index < rows {
            keys[at] = table_base(tables, table) + index;
            step.accesses += 1;
        }
    }
}

/// The last bag that starts at or before `i`; empty bags start where the next one does.
pub(super) fn last_at_most(offsets: &[u32], bags: u32, i: u32) -> u32 {
    let (mut low, mut high) = (0, bags);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if offsets[middle as usize] <= i {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
