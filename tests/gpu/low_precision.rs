//! What stochastic rounding is for (P2 2.1), by the kernels.

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
