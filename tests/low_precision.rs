//! What stochastic rounding is for (P2 2.1), on the CPU backend.

#[path = "common/closed_form.rs"]
mod closed_form;

#[test]
fn small_updates_add_up_at_random_and_are_lost_to_the_nearest() {
    closed_form::check(256, |config| {
        Box::new(hotrow::cpu::Group::new(config).unwrap_or_else(|error| panic!("{error}")))
    });
}
