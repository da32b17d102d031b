//! The need for stochastic rounding (Zhang 2018, section 2.1), shown on the CPU backend.

#[test]
fn small_updates_add_up_at_random_and_are_lost_to_the_nearest() {
    hotrow_harness::closed_form::check(256, |config| {
        Box::new(hotrow::CpuGroup::new(config).unwrap_or_else(|error| panic!("{error}")))
    });
}
