//! Tables filled from given rows have the records of the CPU backend in every placement.

use hotrow::internals::Pieces as _;
use hotrow::{Context, CpuGroup, Error, Group, GroupConfig, Init, Optimizer, Placement, Precision, prelude::*};

use hotrow_harness::{
    closed_form::{check_given, on_cpu},
    device::placements,
    gpu_test,
};

/// A table of more than one chunk of 8 MiB, and of two pieces.
fn config(precision: Precision, placement: Placement) -> GroupConfig {
    let config = GroupConfig::new(&[150_000, 7], 30).with_precision(precision).with_placement(placement);
    config.with_seed(5).with_optimizer(Optimizer::adagrad(0.05)).with_piece_bytes(Some(10 << 20))
}

fn source(first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
    for (i, x) in (first_row as usize * dim..).zip(out) {
        *x = ((i * 37) % 1001) as f32 / 999.0 - 0.5;
    }
    Ok(())
}

#[gpu_test]
fn the_same_records_everywhere(context: &Context) {
    for precision in [Precision::Int8, Precision::Fp16] {
        let expected = CpuGroup::filled(config(precision, Placement::Device), &source).unwrap().snapshot().unwrap();
        for placement in placements(context) {
            let mut group = Group::filled(context, config(precision, placement), &source).unwrap();
            assert!(group.snapshot().unwrap() == expected, "{precision:?} {placement:?}");
        }
        let other = |row: u32, dim: usize, out: &mut [f32]| source(row + u32::from(row > 149_000), dim, out);
        let mut other = Group::filled(context, config(precision, Placement::Device), &other).unwrap();
        assert!(other.snapshot().unwrap() != expected, "the comparison can fail");
    }
}

#[gpu_test]
fn a_row_that_is_not_finite_is_named(context: &Context) {
    let wrong = |first_row: u32, dim: usize, out: &mut [f32]| {
        out.fill(1.0);
        if let Some(x) = 140_000u32.checked_sub(first_row).and_then(|k| out.get_mut(k as usize * dim + 3)) {
            *x = f32::NAN;
        }
        Ok(())
    };
    for placement in [Placement::Device, Placement::Staged] {
        let refused = Group::filled(context, config(Precision::Int8, placement), &wrong).unwrap_err();
        assert!(
            matches!(&refused, Error::Source { row: 140_000, found, .. } if found == "NaN at element 3"),
            "{refused}"
        );
    }
    let short = vec![0f32; 12];
    let refused = Group::filled(context, config(Precision::Int8, Placement::Device), &short).unwrap_err();
    assert_eq!(refused, Error::Length { what: "source", wanted: 150_007 * 30, found: 12 });
}

#[gpu_test]
fn a_table_of_zeros_has_zeros_where_another_was(context: &Context) {
    for placement in placements(context) {
        let config = config(Precision::Int8, placement);
        let mut before = Group::new(context, config.clone().with_init(Init::Constant(0.5))).unwrap();
        assert!(before.snapshot().unwrap().records.iter().any(|&word| word != 0), "the comparison can fail");
        drop(before);
        let zeros = config.with_init(Init::Constant(0.0));
        let expected = CpuGroup::new(zeros.clone()).unwrap().snapshot().unwrap();
        assert!(Group::new(context, zeros).unwrap().snapshot().unwrap() == expected, "{placement:?}");
    }
}

#[gpu_test]
fn formats_are_packed_and_read_as_their_rules_say(context: &Context) {
    for placement in placements(context) {
        hotrow_harness::formats::check(&|config, source| {
            let config = config.with_placement(placement);
            let made = match source {
                Some(source) => Group::filled(context, config, source)?,
                None => Group::new(context, config)?,
            };
            Ok(Box::new(made))
        });
    }
}

/// Weights that a caller gives have the error of nearest rounding, and the bits of the CPU, in every placement.
#[gpu_test]
fn given_weights_are_rounded_as_on_the_cpu(context: &Context) {
    let precisions = [Precision::Fp16, Precision::Int4];
    let wanted = check_given(&precisions, on_cpu);
    for placement in placements(context) {
        let found = check_given(&precisions, |config, source| {
            let config = config.with_placement(placement);
            let new = || Group::new(context, config.clone());
            Box::new(source.map_or_else(new, |source| Group::filled(context, config.clone(), source)).unwrap())
        });
        assert!(found == wanted, "{placement:?}");
    }
}
