//! Dedup by sort (Yang 2020, section 5.1): sorts keys and finds where each distinct key begins. The sort is followed by two dispatches: heads
//! and segments.

use crate::{
    gpu::{
        engine::call::{Call, Groups, Named},
        stages::{
            HEADS, SEGMENTS,
            sort::{
                radix::{SMALL, encode_small},
                space::{DedupTo, SortJob, SortScratch, SortSpace, Sorted},
            },
        },
    },
    table::abi::DedupInfo,
};

/// Sorted keys of a block: `DEDUP_BLOCK` in `shaders/shared/dedup.wgsl`.
pub(crate) const BLOCK: u32 = 2048;

pub(crate) fn encode<'s>(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    space: &'s SortSpace,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
) -> Sorted<'s> {
    if job.capacity <= SMALL {
        let sorted = space.sorted(job.key_bits);
        encode_small(call, step, job, &sorted, Some(to), scratch);
        return sorted;
    }
    encode_large(call, step, job, space, scratch, to)
}

/// Encodes the dedup for many keys, whatever the number of keys.
pub(crate) fn encode_large<'s>(
    call: &mut Call<'_>,
    step: &wgpu::Buffer,
    job: &SortJob<'_>,
    space: &'s SortSpace,
    scratch: &SortScratch,
    to: &DedupTo<'_>,
) -> Sorted<'s> {
    let sorted = space.encode_large(call, step, job, scratch);
    let (capacity, count) = (job.capacity, job.count as u32);
    let (by_value, base) = to.by_value();
    let info = DedupInfo { capacity, count, segments: to.segments as u32, valid: to.valid as u32, by_value, base };
    let from: &[&dyn Named] = &[
        &("info", call.context.uniform(&info)),
        &("step", step),
        &("keys", sorted.keys),
        &("values", sorted.values),
        &("heads", &scratch.digits[0]),
        &("segment", to.segment),
        &("starts", to.starts),
    ];
    for stage in [&HEADS, &SEGMENTS] {
        call.run(stage, from, &Groups::capped(capacity, BLOCK));
    }
    sorted
}
