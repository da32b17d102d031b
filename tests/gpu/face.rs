//! The calls that all tables share, on the GPU.

use hotrow::{Group, GroupConfig, Init, SharedGroup, robe};
use hotrow_harness::{
    device::with_gpu,
    face::{counters_arrive, outputs_in_slices},
};

#[test]
fn outputs_fill_the_callers_slice_and_counters_arrive_unasked() {
    with_gpu(|context| {
        let mut config = GroupConfig::new(&[40], 6);
        (config.cache_rows, config.init) = (32, Init::Uniform { low: -1.0, high: 1.0 });
        let group = || Group::new(context, config.clone()).unwrap();
        outputs_in_slices(&mut group(), &mut group());
        counters_arrive(&mut group());
        let shared = robe::Config::new(&[40], 6, 64, 4).with_init(config.init);
        let group = || SharedGroup::new(context, shared.clone()).unwrap();
        outputs_in_slices(&mut group(), &mut group());
        counters_arrive(&mut group());
    });
}
