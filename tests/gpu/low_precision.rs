//! The need for stochastic rounding (Zhang 2018, section 2.1), shown on a device.

use hotrow::Group;

use hotrow_harness::{closed_form, device::with_gpu};

#[test]
fn small_updates_add_up_at_random_and_are_lost_to_the_nearest() {
    with_gpu(|context| {
        closed_form::check(96, |config| {
            Box::new(Group::new(context, config).unwrap_or_else(|error| panic!("{error}")))
        });
    });
}
