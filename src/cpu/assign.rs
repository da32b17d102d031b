use super::{
    disjoint::each_target,
    tables::{count, counter::SKIPPED_ROWS, table_of},
};
use crate::layout::{Field, NONE, Params, Step, Unique, count as counts, way_at};

/// The caller's values replace the weights of the listed rows. Mirror of `shaders/assign.wgsl`.
pub fn assign(
    params: &Params,
    step: &Step,
    unique: &[Unique],
    values: &[f32],
    cache: &mut [f32],
    scratch: &mut [f32],
    ways: &mut [u32],
    sources: &mut [u32],
    tables: &mut [u32],
) {
    let unique = &unique[..step.counts[counts::UNIQUE] as usize];
    let (dim, row_words) = (params.dim as usize, params.row_words as usize);
    let set = |u: usize, row: &mut [f32]| {
        let values = &values[u * dim..][..dim];
        let finite = values.iter().all(|x| x.is_finite());
        if finite {
            row[..dim].copy_from_slice(values);
        }
        finite
    };
    let slot_of = |u: usize| (unique[u].slot < params.slots).then_some(unique[u].slot as usize);
    let scratch_of = |u: usize| unique[u].slot.checked_sub(params.slots).map(|at| at as usize);
    sources[..unique.len()].fill(NONE);
    each_target(cache, row_words, 0..unique.len(), slot_of, set, |u, taken| {
        if taken {
            ways[way_at(unique[u].slot, Field::Dirty)] = 1;
        } else {
            count(tables, table_of(params, tables, unique[u].row), SKIPPED_ROWS, 1);
        }
    });
    each_target(scratch, row_words, 0..unique.len(), scratch_of, set, |u, taken| {
        if taken {
            sources[u] = unique[u].slot;
        } else {
            count(tables, table_of(params, tables, unique[u].row), SKIPPED_ROWS, 1);
        }
    });
}
