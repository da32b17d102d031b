//! CPU mirror of `shaders/cached/reset.wgsl`: empties the cache.

use crate::table::layout::{Field, NONE, Params, way_at};

/// Empties the cache. Mirror of `shaders/cached/reset.wgsl`.
pub fn reset(params: &Params, ways: &mut [u32]) {
    let width = params.ways();
    for slot in 0..params.slots {
        ways[way_at(width, slot, Field::Tag)] = NONE;
        ways[way_at(width, slot, Field::Stamp)] = 0;
        ways[way_at(width, slot, Field::Freq)] = 0;
        ways[way_at(width, slot, Field::Flags)] = 0;
    }
}
