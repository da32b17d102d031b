//! Groups over several ranks, on a device: the same bits for every number of ranks, and those of a plain group with one shard.

use hotrow::{
    Bags, Context, CpuGroup, Error, Group, GroupConfig, Init, Mode, Optimizer, Placement, Policy, Precision, prelude::*,
};
use hotrow_dist::{self as dist, RankError, Shard, Threads, WireForm, WireOptions};
use hotrow_harness::{
    device::{share, skipped, with_gpu},
    gpu_test,
    ranks::{Batch, How, alone, configuration, over},
    seeds,
};
use rand::{SeedableRng as _, rngs::StdRng};

#[gpu_test]
fn ranks_change_no_bit(context: &Context) {
    let (mut spoiled, mut rounded) = (0, 0);
    // In the first run, whose seed is held, the wrong results below are noticed.
    for (k, seed) in share((0..).zip(seeds("ranks on a device", 5))) {
        let random = &mut StdRng::seed_from_u64(seed);
        let mut config = configuration(random);
        config.ways = 32;
        if k == 1 {
            (config.policy, config.cache_rows) = (Policy::Static, config.total_rows() as u32);
        }
        config.placement = match k % 3 {
            1 if context.caps().mappable => Placement::Mapped,
            2 => Placement::Staged,
            _ => Placement::Device,
        };
        let batches: Vec<Batch> = (0..3).map(|_| Batch::random(random, &config)).collect();
        let make = {
            let context = context.clone();
            move |config| Group::new(&context, config)
        };
        let exact = How::default();
        let one = over(exact, &config, (4, 1), &batches, make.clone());
        let more = over(exact, &config, (4, 2), &batches, make.clone());
        assert!(more == one, "seed {seed}, {config:?}");
        let plain = alone(Group::new(context, config.clone()).unwrap(), &batches);
        assert!(over(exact, &config, (1, 1), &batches, make.clone()) == plain, "seed {seed}, {config:?}");
        assert!(
            over(How { ahead: true, ..exact }, &config, (4, 2), &batches, make.clone()) == one,
            "seed {seed}, ahead, {config:?}"
        );
        // A lossy wire wants four floats a row.
        let mut wide = config.clone();
        wide.dim = wide.dim.max(4);
        let even: Vec<Batch> = batches.iter().map(|batch| batch.clone().even()).collect();
        let wire = WireOptions { rows: WireForm::Int8, gradients: WireForm::Fp16, summed: true };
        let lossily = |how: How, ranks| over(how, &wide, (4, ranks), &even, make.clone());
        let lossy = lossily(wire.into(), 1);
        assert!(lossily(wire.into(), 2) == lossy, "seed {seed}, lossy, {wide:?}");
        assert!(lossily(How { ahead: true, ..wire.into() }, 2) == lossy, "seed {seed}, ahead, {wide:?}");
        rounded += u32::from(lossily(exact, 1) != lossy);
        spoiled += u32::from(over(How { spoil: true, ..exact }, &config, (4, 2), &batches, make) != one);
    }
    assert!(spoiled > 0 && rounded > 0, "the comparison can fail: {spoiled}, {rounded} lossy");
}

/// A group on a device sends the words that one on the CPU sends from the same state: packed records, dirty rows in FP32, and rounded rows.
#[test]
pub(crate) fn messages_are_those_of_the_cpu() {
    with_gpu(|context| {
        let (mut stored, mut dirty, mut differ) = (0, 0, 0);
        for precision in Precision::ALL {
            for placement in [Placement::Device, Placement::Mapped, Placement::Staged] {
                if placement == Placement::Mapped && !context.caps().mappable {
                    continue;
                }
                let mut config = GroupConfig::new(&[300, 100], 20).with_precision(precision).with_cache_rows(96);
                config.init = Init::Uniform { low: -1.0, high: 1.0 };
                config.optimizer = Optimizer::adagrad(0.05);
                let mut cpu = CpuGroup::new(config.clone()).unwrap();
                config.placement = placement;
                let mut gpu = Group::new(context, config.clone()).unwrap();
                let indices: Vec<u32> = (0..60).map(|i| i * 7 % 100).collect();
                let outputs = cpu.forward(Bags::new(&indices, &[0, 30, 60]), Mode::Train).unwrap();
                cpu.backward(&outputs).unwrap();
                // Rows in clean slots, too.
                cpu.forward(Bags::new(&[250, 251, 52], &[0, 2, 3]), Mode::Train).unwrap();
                gpu.restore(&cpu.snapshot().unwrap()).unwrap();
                let rows: Vec<u32> = (0..400).step_by(3).collect();
                for form in WireForm::ALL {
                    let (mut wanted, mut found) = (vec![7], vec![7]);
                    let are_stored = cpu.send_rows(&rows, form, 3, &mut wanted).unwrap();
                    assert_eq!(gpu.send_rows(&rows, form, 3, &mut found).unwrap(), are_stored, "{precision}, {form}");
                    assert!(found == wanted, "{precision}, {placement:?}, {form}");
                    stored += are_stored.iter().filter(|&&is| is).count();
                    dirty += are_stored.iter().filter(|&&is| !is).count();
                    // Another step rounds otherwise.
                    let mut other = vec![7];
                    gpu.send_rows(&rows, form, 4, &mut other).unwrap();
                    differ += usize::from(other != wanted);
                }
                refuses!(gpu.send_rows(&[400], WireForm::Exact, 0, &mut Vec::new()), Error::RowOutOfRange { .. });
            }
        }
        assert!(stored > 1000 && dirty > 200 && differ > 5, "{stored} records, {dirty} dirty rows, {differ} messages");
    });
}

/// A batch whose outputs, or whose gradients from all ranks, find no buffer is refused on every rank, and nothing has changed.
#[gpu_test]
fn a_batch_too_large_for_a_buffer_is_refused(context: &Context) {
    let limit = context.device().limits().max_storage_buffer_binding_size;
    if limit > 1 << 28 {
        skipped(&format!("a batch too large for a buffer: wanted bindings of at most 256 MiB, found {limit} bytes"));
        return;
    }
    const DIM: u32 = 1024;
    let config = GroupConfig::new(&[10], DIM).with_precision(Precision::Int8);
    for ranks in [1, 2] {
        let bags = (limit / u64::from(4 * DIM)) as usize / ranks as usize + 1;
        let found = Threads::run(ranks, |comm: &mut Threads| {
            let context = context.clone();
            let mut group = dist::Group::new(comm, config.clone(), 2, move |config| Group::new(&context, config))?;
            let offsets: Vec<u32> = (0..=bags as u32).collect();
            // All ranks ask for rows of the first.
            let error = group.forward(Bags::new(&vec![4; bags], &offsets), Mode::Train).unwrap_err();
            let frozen = group.forward(Bags::new(&vec![4; bags], &offsets), Mode::Frozen);
            let outputs = group.forward(Bags::new(&[4, 5], &[0, 1, 2]), Mode::Train)?;
            group.backward(&outputs)?;
            let t: Vec<u32> = group.shards().map(|(_, s)| s.unwrap().snapshot().unwrap().t).collect();
            Ok((error, frozen.is_err(), t))
        })
        .unwrap();
        for (rank, (error, frozen, t)) in found.iter().enumerate() {
            let named = if rank == 0 {
                matches!(error, Error::TooLarge { wanted, .. } if *wanted == bags as u64 * u64::from(ranks * 4 * DIM))
            } else {
                matches!(RankError::of(error), Some(RankError::Other { rank: 0, .. }))
            };
            assert!(named, "{ranks} ranks: {error}");
            assert_eq!(*frozen, ranks == 1, "a frozen forward has no gradients");
            assert!(t.iter().all(|&t| t == 1), "only the small step took place: {t:?}");
        }
    }
}
