//! The need for stochastic rounding (Zhang 2018, section 2.1), and of nearest rounding for weights that are rounded once, shown on the CPU backend.

use hotrow::{
    CpuGroup, CpuSharedGroup, Error, GroupConfig, Precision, Rounding, Searched, Source, checkpoint, prelude::*, robe,
};
use hotrow_harness::closed_form::{check_error, check_given, given, on_cpu};
use hotrow_harness::formats;
use hotrow_harness::lockstep::bits;

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
    formats::check_known();
    formats::check(&|config, source| {
        Ok(Box::new(match source {
            Some(source) => CpuGroup::filled(config, source)?,
            None => CpuGroup::new(config)?,
        }))
    });
}

/// The rows of tests/data/searched.bin, with the values that another program, in numpy, finds under searched ranges: six rows each.
fn searched() -> Vec<(Precision, u32, Vec<f32>, Vec<f32>)> {
    let file = include_bytes!("data/searched.bin").chunks_exact(4);
    let mut floats = file.map(|x| f32::from_le_bytes(x.try_into().unwrap()));
    let kinds = [(Precision::Int2, 37), (Precision::Int4, 64), (Precision::Int8, 16), (Precision::Int4x32, 96)];
    let mut take = |dim: u32| floats.by_ref().take(6 * dim as usize).collect::<Vec<_>>();
    kinds.map(|(precision, dim)| (precision, dim, take(dim), take(dim))).into()
}

#[test]
fn a_searched_range_is_that_of_another_program_and_loses_less() {
    let square = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    for (precision, dim, given, wanted) in searched() {
        let config = GroupConfig::new(&[6], dim).with_precision(precision).with_forward_only(!precision.trains());
        let read = |config: &GroupConfig, source: &dyn Source| {
            CpuGroup::filled(config.clone(), source).unwrap().read_rows(&[0, 1, 2, 3, 4, 5]).unwrap()
        };
        let (whole, found) = (read(&config, &given), read(&config, &Searched(&given)));
        assert_eq!(bits(&found), bits(&wanted), "{precision}");
        let (less, more) = (square(&found, &given), square(&whole, &given));
        assert!(less <= more && (less < more || precision == Precision::Int8), "{precision}: {less} {more}");
        let mut wrong = wanted;
        wrong[0] += 0.25;
        assert_ne!(bits(&found), bits(&wrong));
        let stochastic = config.with_write_rounding(Rounding::Stochastic);
        let refused = CpuGroup::filled(stochastic, &Searched(&given)).map(drop);
        assert!(matches!(refused, Err(Error::Config { field: "write_rounding", .. })), "{refused:?}");
    }
    // Floats have no range. A row that cannot be packed is refused as ever.
    let halves = GroupConfig::new(&[1], 4).with_precision(Precision::Fp16);
    let mut group = CpuGroup::filled(halves.clone(), &Searched(&vec![0.1, 0.2, 0.3, 9.0])).unwrap();
    assert_eq!(group.read_rows(&[0]).unwrap()[3], 9.0);
    for wrong in [vec![f32::NAN; 4], vec![f32::MAX, f32::MIN, 0.0, 0.0]] {
        let refused = CpuGroup::filled(halves.clone().with_precision(Precision::Int4), &Searched(&wrong)).map(drop);
        assert!(matches!(refused, Err(Error::Source { row: 0, .. })), "{refused:?}");
    }
}

#[test]
fn int4x32_refuses_by_name_what_it_cannot_do_and_files_tell_it_from_int4() {
    let config = GroupConfig::new(&[40], 64).with_precision(Precision::Int4x32).with_forward_only(true);
    let refused = [
        (config.clone().with_dim(48).check(), "dim"),
        (config.clone().with_forward_only(false).check(), "forward_only"),
        (config.clone().with_optimizer(hotrow::Optimizer::adagrad(0.1)).check(), "optimizer"),
        (hotrow::ranks::shards(&config, 2).map(drop), "precision"),
        (robe::Config::direct(&[40], 64).unwrap().with_precision(config.precision).check(), "precision"),
    ];
    for (found, wanted) in refused {
        assert!(matches!(&found, Err(Error::Config { field, .. }) if *field == wanted), "{wanted}: {found:?}");
    }
    let (mut group, folder) = (CpuGroup::new(config.clone()).unwrap(), tempfile::tempdir().unwrap());
    group.write_rows(&[7], &[0.3; 64]).unwrap();
    let [saved, table] = ["saved", "table"].map(|name| folder.path().join(name));
    checkpoint::save(&mut group, &saved).unwrap();
    let mut again = CpuGroup::new(checkpoint::contents(&saved).unwrap().0).unwrap();
    checkpoint::load(&mut again, &saved).unwrap();
    assert_eq!(again.snapshot().unwrap(), group.snapshot().unwrap());
    drop(hotrow::FileStore::create(&table, &config).unwrap());
    let int4 = config.with_precision(Precision::Int4);
    let loaded = checkpoint::load(&mut CpuGroup::new(int4.clone()).unwrap(), &saved);
    for error in [loaded.unwrap_err(), hotrow::FileStore::open(&table, &int4).unwrap_err()] {
        assert!(error.to_string().contains("precision: wanted int4, found int4x32"), "{error}");
    }
}
