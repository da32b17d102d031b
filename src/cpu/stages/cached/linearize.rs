//! CPU mirror of `shaders/cached/linearize.wgsl`: turns indices into linear rows, and checks indices and offsets.

use crate::{
    cpu::stages::counters::{
        count,
        counter::{OUT_OF_RANGE, PADDING},
    },
    table::{
        abi::{Feature, NONE, POOL_NONE, Params, Step, count as counts},
        params::MODE_ROWS,
    },
};

const CLAMP: u32 = 1;
const SKIP: u32 = 2;
/// Number of indices of a workgroup.
const GROUP: u32 = 256;

/// Computes the linear row and the output row of each index, and decides whether the step takes place. Mirror of `shaders/cached/linearize.wgsl`.
pub(crate) fn linearize(
    params: &Params,
    indices: &[u32],
    offsets: &[u32],
    features: &[Feature],
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
    let ascending = step.bad_offset == 0;
    let (mut bag, mut last) = (0, NONE);
    let mut feature = Feature::default();
    for i in 0..params.indices {
        let at = i as usize;
        if !ascending {
            bag = bag_in_group(offsets, params, i);
        }
        while ascending && bag + 1 < params.bags && offsets[bag as usize + 1] <= i {
            bag += 1;
        }
        access[at] = [if params.pooling == POOL_NONE { i } else { bag }, 0];
        let mut index = indices[at];
        let mut key = index;
        if params.mode != MODE_ROWS {
            if bag != last {
                last = bag;
                feature = features[(bag / params.bags_per_feature) as usize];
            }
            let Feature { table, base, rows, .. } = feature;
            let mut pads = feature.pads(index);
            if pads {
                if params.trains() {
                    count(tables, table, PADDING, 1);
                }
            } else if index >= rows {
                if params.trains() {
                    count(tables, table, OUT_OF_RANGE, 1);
                }
                if params.out_of_range == CLAMP {
                    index = rows - 1;
                    pads = feature.pads(index);
                } else if params.out_of_range != SKIP {
                    step.bad_index = step.bad_index.max(NONE - i);
                }
            }
            key = if index < rows && !pads { base + index } else { NONE };
        }
        keys[at] = key;
        step.accesses += u32::from(key != NONE);
    }
    decide(params, indices, offsets, features, tables, step);
}

/// Says what is wrong with a batch; if nothing is, takes its step and advances the clock.
fn decide(
    params: &Params,
    indices: &[u32],
    offsets: &[u32],
    features: &[Feature],
    tables: &mut [u32],
    step: &mut Step,
) {
    if step.bad_offset != 0 {
        step.error = 2;
        step.error_position = NONE - step.bad_offset;
        step.error_value = offsets[step.error_position as usize];
    } else if step.bad_index != 0 {
        step.error = 1;
        step.error_position = NONE - step.bad_index;
        step.error_value = indices[step.error_position as usize];
        let bag = bag_between(offsets, step.error_position, 0, params.bags.max(1) - 1);
        step.error_table = features[(bag / params.bags_per_feature) as usize].table;
    } else if step.accesses > 0 {
        step.counts[counts::INDICES] = params.indices;
        if params.trains() {
            tables[0] = tables[0].wrapping_add(1);
        }
    }
    step.t = tables[0];
}

/// The bag of index `i`, found as its workgroup finds it. If the offsets do not ascend, the result is arbitrary, but
/// equal to the shader's.
fn bag_in_group(offsets: &[u32], params: &Params, i: u32) -> u32 {
    let first = i / GROUP * GROUP;
    let last = (first + GROUP).min(params.indices) - 1;
    let [first_bag, last_bag] = [first, last].map(|i| bag_by_group(offsets, params.bags, i));
    bag_between(offsets, i, first_bag, last_bag)
}

/// The last bag that begins at or before `i`, searched as a workgroup does: 256 offsets a round.
fn bag_by_group(offsets: &[u32], bags: u32, i: u32) -> u32 {
    let (mut low, mut size) = (0, bags);
    while size > 1 {
        let stride = size.div_ceil(GROUP);
        let lanes = (0..GROUP).take_while(|lane| lane * stride < size);
        let last = lanes.filter(|lane| offsets[(low + lane * stride) as usize] <= i).last().unwrap_or(0);
        low += last * stride;
        size = stride.min(size - last * stride);
    }
    low
}

/// The last bag from `first` to `last` that begins at or before `i`. An empty bag begins where the next one does.
pub(crate) fn bag_between(offsets: &[u32], i: u32, first: u32, last: u32) -> u32 {
    let (mut low, mut high) = (first, last + 1);
    while high > low + 1 {
        let middle = low + (high - low) / 2;
        if offsets[middle as usize] <= i {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
