//! The calls that all tables share, on the GPU.

use hotrow::{Context, Group, GroupConfig, Init, Placement, SharedGroup, robe};
use hotrow_harness::{face, gpu_test};

#[gpu_test]
fn outputs_fill_the_callers_slice_and_counters_arrive_unasked(context: &Context) {
    let init = Init::Uniform { low: -1.0, high: 1.0 };
    let rows = GroupConfig::new(&[40], 6).with_cache_rows(32).with_init(init);
    face::calls(|| Group::new(context, rows.clone()).unwrap());
    let array = robe::Config::new(&[40], 6, 64, 4).with_init(init);
    face::calls(|| SharedGroup::new(context, array.clone()).unwrap());
}

#[gpu_test]
fn padding_forward_only_and_rows_that_stay(context: &Context) {
    for placement in [Placement::Device, Placement::Staged] {
        let new = |config: GroupConfig| Group::new(context, config.with_placement(placement)).unwrap();
        face::padding(new);
        face::forward_only(new);
        face::frozen(new);
    }
}
