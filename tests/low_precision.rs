//! The need for stochastic rounding (Zhang 2018, section 2.1), and of nearest rounding for weights that are rounded once, shown on the CPU backend.

use hotrow::{CpuGroup, CpuSharedGroup, Precision, Rounding, prelude::*, robe};
use hotrow_harness::closed_form::{check_error, check_given, given, on_cpu};
use hotrow_harness::formats;

#[test]
fn small_updates_add_up_at_random_and_are_lost_to_the_nearest() {
    hotrow_harness::closed_form::check(256, |config| {
        Box::new(CpuGroup::new(config).unwrap_or_else(|error| panic!("{error}")))
    });
}

#[test]
fn given_weights_are_rounded_to_the_nearest() {
    check_given(&Precision::ALL[1..], on_cpu);
    let (originals, values) = given(400 * 32);
    for (k, precision) in (0..8).map(|k| (k, Precision::ALL[1 + k / 2])) {
        let rounding = Rounding::ALL[k % 2];
        let config = robe::Config::direct(&[400], 32).unwrap().with_precision(precision).with_write_rounding(rounding);
        let mut array = CpuSharedGroup::new(config.with_block(32)).unwrap();
        array.write_weights(&values).unwrap();
        let stored = array.read_rows(&(0..400).collect::<Vec<_>>()).unwrap();
        check_error(precision, 32, &originals, &stored, rounding);
    }
}

#[test]
fn formats_are_packed_and_read_as_their_rules_say() {
    formats::check(&|config, source| {
        Ok(Box::new(match source {
            Some(source) => CpuGroup::filled(config, source)?,
            None => CpuGroup::new(config)?,
        }))
    });
}
