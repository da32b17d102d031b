//! Groups over several ranks (SPEC 11): the same bits for every number of ranks, and those of a plain group with one shard.

use hotrow::{Bags, Counters, CpuGroup, Embedding, Error, GroupConfig, Lookup, Mode, Precision};
use hotrow_dist::{self as dist, RankError, Threads, WireForm, WireOptions};
use hotrow_harness::{
    ranks::{Batch, How, alone, configuration, listed, over, train},
    seeds,
};
use rand::{SeedableRng as _, rngs::StdRng};

use crate::{on, opened};

/// Whether this rank is the cause.
fn is_of(wanted: u32, error: &Error) -> bool {
    matches!(RankError::of(error), Some(&RankError::Other { rank, .. }) if rank == wanted)
}

/// A wire by its number, below 18.
fn wire(number: usize) -> WireOptions {
    let (rows, gradients) = (WireForm::ALL[number % 3], WireForm::ALL[number / 3 % 3]);
    WireOptions { rows, gradients, summed: number >= 9 }
}

/// Nor does prefetching. One shard is a plain group.
#[test]
fn ranks_change_no_bit() {
    for seed in seeds("wires", 64) {
        let random = &mut StdRng::seed_from_u64(seed);
        let config = configuration(random);
        // A lossy wire wants four floats a row.
        let wire = if config.dim < 4 { WireOptions::default() } else { wire(seed as usize % 18) };
        let deal = |batch: Batch| if wire.summed { batch.even() } else { batch };
        let batches: Vec<Batch> = (0..3).map(|_| deal(Batch::random(random, &config))).collect();
        let on = |ranks, ahead| over(How { ahead, ..wire.into() }, &config, (8, ranks), &batches, CpuGroup::new);
        let one = on(1, false);
        for (ranks, ahead) in [(1, true), (2, false), (2, true), (4, false), (8, false), (8, true)] {
            assert!(on(ranks, ahead) == one, "seed {seed}, {ranks} ranks, {wire:?}, ahead: {ahead}, {config:?}");
        }
        let plain = alone(CpuGroup::new(config.clone()).unwrap(), &batches);
        let exact = |shards| over(WireOptions::default(), &config, (shards, 1), &batches, CpuGroup::new);
        assert!(exact(1) == plain, "seed {seed}, one shard, {config:?}");
        // Shards change no FP32 rows without a cache.
        let same = config.precision != Precision::Fp32 || config.cache_rows > 0;
        assert!(same || exact(8).steps.outputs == plain.steps.outputs, "seed {seed}, {config:?}");
    }
}

/// The same batches in other bits, also where one rank reads its own rows.
#[test]
fn each_wire_has_bits_of_its_own() {
    let random = &mut StdRng::seed_from_u64(5);
    for precision in [Precision::Fp32, Precision::Fp16, Precision::Int8] {
        let mut config = GroupConfig::new(&[300, 40], 8).with_precision(precision).with_cache_rows(64);
        config.init = hotrow::Init::Uniform { low: -1.0, high: 1.0 };
        config.optimizer = hotrow::Optimizer::adagrad(0.05);
        let batches: Vec<Batch> = (0..4).map(|_| Batch::random(random, &config).even()).collect();
        let how = |number, spoil| How { spoil, ..wire(number).into() };
        let over = |number, ranks, spoil| over(how(number, spoil), &config, (8, ranks), &batches, CpuGroup::new);
        let seen: Vec<_> = (0..18).map(|number| over(number, 1, false)).collect();
        for a in 0..18 {
            for b in 0..a {
                assert!(seen[a] != seen[b], "{precision}: {:?}, {:?}", wire(a), wire(b));
            }
        }
        assert!(over(17, 8, true) != over(17, 8, false), "{precision}: the comparison can fail");
        assert!(over(17, 8, false) == seen[17], "{precision}: and be true");
    }
}

/// Averaged over steps, rounded rows and gradients are the exact ones; in each step they are not.
#[test]
fn rounding_on_the_wire_has_no_bias() {
    const STEPS: usize = 4000;
    let mut config = GroupConfig::new(&[8], 8).with_precision(Precision::Fp32);
    config.optimizer = hotrow::Optimizer::sgd(1.0);
    config.init = hotrow::Init::Uniform { low: -1.0, high: 1.0 };
    let row = [0.1234, -0.777, 0.51, 0.9, -0.33, 0.0721, -0.0093, 0.25];
    for (number, range) in [(1, 1.0), (2, 2.0), (3, 1.0), (6, 1.7), (12, 1.0), (15, 1.7)] {
        let wire = wire(number);
        let of_rows = wire.rows != WireForm::Exact;
        let found = on((2, 2), &config, |group| {
            let mut group = group.with_wire(wire)?;
            let (mut sum, mut exact, mut differ) = (vec![0.0_f64; 8], vec![0.0_f64; 8], 0);
            for _ in 0..STEPS {
                let before = group.read_rows(&[3])?;
                let seen = group.forward(Bags::new(&[3], &[0, 1]), Mode::Train)?;
                let mine = if group.rank() == 0 { row } else { [0.0; 8] };
                group.backward(&mine)?;
                let after = group.read_rows(&[3])?;
                // What was read, or what the row has lost at a rate of 1.
                let (step, wanted) = if of_rows {
                    (seen, before.clone())
                } else {
                    (before.iter().zip(&after).map(|(before, after)| before - after).collect(), row.to_vec())
                };
                differ += usize::from(step != wanted);
                sum.iter_mut().zip(&step).for_each(|(sum, &x)| *sum += f64::from(x));
                exact.iter_mut().zip(&wanted).for_each(|(sum, &x)| *sum += f64::from(x));
                // Row 3 is the second row of shard 1.
                for (number, shard) in group.shards() {
                    if let Some(shard) = shard.filter(|_| number == 1) {
                        shard.write_rows(&[1], &before)?;
                    }
                }
            }
            Ok((sum, exact, differ))
        });
        for (sum, exact, differ) in found {
            assert!(differ > STEPS / 2, "{wire:?}: {differ}");
            for (sum, exact) in sum.iter().zip(&exact) {
                // Neighbours are 2^-11 apart in FP16 at most, and range / 255 in INT8; four standard deviations of a half of it each.
                let apart: f64 = if wire.rows == WireForm::Int8 || wire.gradients == WireForm::Int8 {
                    range / 255.0
                } else {
                    2f64.powi(-11)
                };
                let mean = (sum - exact) / STEPS as f64;
                let most = 4.0 * 0.5 * apart / (STEPS as f64).sqrt() + 1e-6;
                assert!(mean.abs() < most, "{wire:?}: mean error {mean}, at most {most}");
            }
        }
    }
}

/// A step whose slices of the batch are cut by a rank is refused on all ranks, and so are wires that differ.
#[test]
fn summed_gradients_want_even_parts_and_one_wire() {
    let config = GroupConfig::new(&[100], 4);
    let summed = WireOptions { summed: true, ..WireOptions::default() };
    let found = on((2, 4), &config, |group| {
        let mut group = group.with_wire(summed)?;
        let offsets = if group.rank() == 0 { &[0, 1, 2][..] } else { &[0, 2] };
        let uneven = group.forward(Bags::new(&[1, 2], offsets), Mode::Train).unwrap_err();
        let output = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
        group.backward(&output)?;
        let other = if group.rank() == 0 { WireOptions::default() } else { summed };
        let mut group = group.with_wire(other)?;
        Ok([uneven, group.forward(Bags::new(&[1], &[0, 1]), Mode::Train).unwrap_err()])
    });
    for [uneven, wire] in found {
        assert!(uneven.to_string().contains("on rank 0, for summed gradients, 0 to 1 of 3"), "{uneven}");
        assert!(wire.to_string().contains("wire"), "{wire}");
    }
    for (dim, rows) in [(1, WireForm::Fp16), (3, WireForm::Int8)] {
        let group = dist::Group::new(Threads::alone(), GroupConfig::new(&[9], dim), 1, CpuGroup::new).unwrap();
        refuses!(group.with_wire(WireOptions { rows, ..WireOptions::default() }), Error::Config { field: "wire", .. });
    }
}

/// A gradient that is not finite leaves its rows as they were, in every form.
#[test]
fn a_gradient_that_is_not_finite_changes_no_row() {
    let config = GroupConfig::new(&[10], 4).with_init(hotrow::Init::Uniform { low: -1.0, high: 1.0 });
    for number in 0..18 {
        let found = on((2, 2), &config, |group| {
            let mut group = group.with_wire(wire(number))?;
            let before = group.read_rows(&[1, 2])?;
            group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train)?;
            group.backward(&[1.0, f32::INFINITY, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0])?;
            Ok((before, group.read_rows(&[1, 2])?))
        });
        for (before, after) in found {
            assert!(before[..4] == after[..4] && before[4..] != after[4..], "{:?}", wire(number));
        }
    }
}

/// The runs that `hotrow-mpi same` makes over MPI.
#[test]
fn the_listed_runs_have_the_same_bits_on_threads() {
    for run in listed() {
        let on = |ranks, ahead, spoil| {
            over(How { wire: run.wire, ahead, spoil }, &run.config, (8, ranks), &run.batches, CpuGroup::new)
        };
        let one = on(1, false, false);
        for (ranks, ahead) in [(2, false), (2, true), (4, false), (4, true), (8, false)] {
            assert!(on(ranks, ahead, false) == one, "{}, {ranks} ranks, ahead: {ahead}", run.name);
        }
        for ahead in [false, true] {
            assert!(on(4, ahead, true) != one, "{}: the comparison can fail", run.name);
        }
        let refused = one.steps.outputs.iter().filter(|outputs| outputs.is_empty()).count();
        assert_eq!(refused, usize::from(run.name.contains("refused")), "{}", run.name);
        let evicted = one.counters.iter().map(|counters| counters.evictions).sum::<u64>();
        let evicts = !["static", "no-cache"].iter().any(|part| run.name.contains(part));
        assert_eq!(evicted > 0, evicts, "{}: {evicted} evictions", run.name);
    }
}

/// A frozen forward of another batch keeps the rows that the gradient of the weights reads.
#[test]
fn a_frozen_forward_keeps_the_rows_of_the_one_that_waits() {
    let config = GroupConfig::new(&[100], 4).with_init(hotrow::Init::Uniform { low: -1.0, high: 1.0 });
    let gradients = |frozen: Option<[u32; 3]>| {
        on((2, 2), &config, |mut group| {
            let (indices, offsets) = ([7 + group.rank(), 3, 60], [0, 2, 3]);
            let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train)?;
            if let Some(frozen) = frozen {
                group.forward(Bags::new(&frozen, &offsets), Mode::Frozen)?;
            }
            group.weight_gradient(Bags::new(&indices, &offsets), &outputs)
        })
    };
    let wanted = gradients(None);
    assert_eq!(gradients(Some([90, 91, 92])), wanted);
    assert!(wanted[0] != wanted[1] && wanted[0].iter().all(|&gradient| gradient != 0.0), "the rows differ: {wanted:?}");
}

/// A step whose backward was given up, or that overflowed, is over: the group saves, and goes on.
#[test]
fn a_step_without_a_backward_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut overflow = hotrow::CpuScaler::new(hotrow::LossScale::Static { scale: 2.0 }).unwrap();
    overflow.inspect(hotrow::GradSlice::F32(&[f32::INFINITY]));
    let overflow = overflow.decide().unwrap();
    let config = GroupConfig::new(&[100], 4).with_cache_rows(32);
    on((2, 2), &config, |mut group| {
        let first = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
        // The comparison can fail: between forward and backward nothing is saved.
        refuses!(group.save(folder.path().join("early")), Error::Order { .. });
        // Another forward would lose the gradient of this one, on one rank or on all.
        for _ in 0..2 {
            refuses!(group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train), Error::Order { call: "forward", .. });
            assert_eq!(group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Frozen)?, first);
        }
        group.backward_scaled(hotrow::GradSlice::F32(&first), &overflow)?;
        assert!(!group.pending());
        group.save(folder.path().join("overflow"))?;
        group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
        group.discard_pending();
        assert!(!group.pending());
        group.save(folder.path().join("abandoned"))?;
        group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
        if group.rank() == 0 {
            group.discard_pending();
        }
        let refused = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train);
        refuses!(opened(refused), Err(Error::Order { call: "forward", .. }) | Ok(RankError::Other { rank: 1, .. }));
        group.discard_pending();
        assert_eq!(group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?, first, "no row has changed");
        Ok(())
    });
}

/// A save removes the files of the save before, of as many shards as that had.
#[test]
fn a_save_leaves_its_own_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let config = GroupConfig::new(&[100], 4);
    for shards in [8, 2, 4] {
        on((2, shards), &config, |mut group| group.save(folder.path()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1 + shards as usize, "a file each, and the list");
    }
}

/// A folder stands where the list would be.
#[test]
fn a_save_whose_list_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("shards.json/full")).unwrap();
    let found = on((2, 4), &GroupConfig::new(&[100], 4), |mut group| Ok(group.save(folder.path()).unwrap_err()));
    assert!(is_of(0, &found[1]));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the folder alone");
}

#[test]
fn a_bad_index_on_one_rank_refuses_the_step_on_all() {
    let config = GroupConfig::new(&[100, 50], 4).with_cache_rows(32);
    let found = on((4, 4), &config, |mut group| {
        let rank = group.rank();
        let bad = [[7, 3], [99, 50], [0, 0], [1, 90]][rank as usize];
        let before = group.counters()?;
        let error = group.forward(Bags::new(&bad, &[0, 1, 2]), Mode::Train).unwrap_err();
        assert!(matches!(group.backward(&[]), Err(Error::Order { .. } | Error::Ranks(_))));
        let after = group.counters()?;
        let t: Result<Vec<_>, Error> = group.shards().map(|(_, s)| s.unwrap().snapshot().map(|s| s.t)).collect();
        // The next step takes place.
        let good = group.forward(Bags::new(&[rank, rank], &[0, 1, 2]), Mode::Train)?;
        group.backward(&good)?;
        Ok((error, before, after, t?, group.counters()?))
    });
    for (rank, (error, before, after, t, last)) in found.iter().enumerate() {
        match rank {
            1 | 3 => {
                assert!(matches!(error, Error::IndexOutOfRange { table: 1, rows: 50, position: 1, .. }), "{error}");
            }
            _ => {
                let Some(RankError::Other { rank: 1, reason }) = RankError::of(error) else { panic!("{error}") };
                assert!(reason.contains("50"), "{reason}");
            }
        }
        assert_eq!(t, &[0]);
        assert_eq!(after[1].out_of_range, 2);
        assert_eq!(Counters { out_of_range: 0, ..after[1] }, before[1]);
        assert_eq!((last[0].accesses, last[1].accesses), (4, 4));
    }
}

#[test]
fn bad_calls_are_named() {
    let config = GroupConfig::new(&[100], 4);
    let with = |shards: u32, ranks: u32| {
        Threads::run(ranks, |comm: &mut Threads| {
            dist::Group::new(comm, config.clone(), shards, CpuGroup::new).map(drop)
        })
    };
    assert!(with(8, 4).is_ok());
    for (shards, ranks) in [(3, 1), (0, 1), (1, 2), (8, 3)] {
        let error = with(shards, ranks).unwrap_err().to_string();
        assert!(error.contains("shards"), "{error}");
    }
    // A shape that is wrong on one rank, and another call on one rank.
    let found = on((2, 2), &config, |mut group| {
        let first = group.rank() == 0;
        let shape = group.forward(Bags::new(&[1, 2], if first { &[0, 3] } else { &[0, 2] }), Mode::Train).unwrap_err();
        let call = if first { group.forward(Bags::new(&[1], &[0, 1]), Mode::Train) } else { group.read_rows(&[1]) }
            .unwrap_err();
        // One rank counts indices outside, the other does not: calls are compared first.
        let both = if first {
            group.forward(Bags::new(&[500], &[0, 1]), Mode::Train)
        } else {
            group.forward(Bags::new(&[1], &[0, 1]), Mode::Frozen)
        };
        refuses!(opened(both), Ok(RankError::Exchange { what: "call", .. }));
        let row = group.read_rows(&[if first { 100 } else { 0 }]).unwrap_err();
        // A refused forward leaves the one before it on every rank.
        group.forward(Bags::new(&[1], &[0, 1]), Mode::Train)?;
        group.forward(Bags::new(&[1, 2], if first { &[0, 3] } else { &[0, 2] }), Mode::Train).unwrap_err();
        assert!(group.pending());
        group.discard_pending();
        let output = group.forward(Bags::new(&[1], &[0, 1]), Mode::Train)?;
        // Each rank has a scale of its own.
        let scale = hotrow::LossScale::Static { scale: 2.0 + group.rank() as f32 };
        let mut scaler = hotrow::CpuScaler::new(scale)?;
        scaler.inspect(hotrow::GradSlice::F32(&output));
        let refused = group.backward_scaled(hotrow::GradSlice::F32(&output), &scaler.decide()?);
        refuses!(opened(refused), Ok(RankError::Exchange { what: "scaler", .. }));
        let length = group.backward(if first { &output } else { &output[1..] }).unwrap_err();
        group.backward(&output)?;
        Ok([shape, call, row, length])
    });
    let [shape, call, row, length] = &found[0];
    let call = RankError::of(call);
    assert!(
        matches!(shape, Error::BadOffsets { .. }) && matches!(call, Some(RankError::Exchange { what: "call", .. }))
    );
    assert!(matches!(row, Error::RowOutOfRange { row: 100, .. }) && is_of(1, length));
    let [shape, _, row, length] = &found[1];
    assert!(is_of(0, shape) && is_of(0, row));
    assert!(matches!(length, Error::Length { what: "grad_outputs", wanted: 4, found: 3 }), "{length}");
}

#[test]
fn a_checkpoint_goes_on_with_the_same_bits_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let random = &mut StdRng::seed_from_u64(3);
    let mut config = configuration(random);
    (config.precision, config.cache_rows, config.out_of_range) = (Precision::Int4, 70, hotrow::OutOfRange::Skip);
    config.tables = vec![200, 3];
    config.features = vec![0, 1, 0];
    config.state = None;
    let batches: Vec<Batch> = (0..4).map(|_| Batch::random(random, &config)).collect();
    let run = |ranks: u32, steps: std::ops::Range<usize>, from: Option<&str>, to: &str| {
        on((ranks, 8), &config, |mut group| {
            from.map_or(Ok(()), |from| group.load(folder.path().join(from)))?;
            let each = 8 / ranks as usize;
            let first = group.rank() as usize * each;
            train(&mut group, &config, &batches, steps.clone(), &(first..first + each), false)?;
            // Saved twice: the files of the first are removed.
            group.save(folder.path().join(to))?;
            group.save(folder.path().join(to))
        });
    };
    let files = |name: &str| -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> =
            std::fs::read_dir(folder.path().join(name)).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| (f.file_name().unwrap().to_string_lossy().into(), std::fs::read(f).unwrap())).collect()
    };
    run(1, 0..4, None, "straight");
    run(4, 0..2, None, "half");
    run(2, 2..4, Some("half"), "whole");
    let (straight, whole) = (files("straight"), files("whole"));
    assert_eq!(straight.len(), 9, "a file for each shard, and the list");
    assert!(straight == whole, "the same bytes");
    assert!(files("half") != whole, "the comparison can fail");
    // A shard's file is an ordinary checkpoint of a group that knows its rows.
    let path = folder.path().join("whole/save-2-shard-3.safetensors");
    let mut shard = CpuGroup::new(hotrow::checkpoint::contents(&path).unwrap().0).unwrap();
    hotrow::checkpoint::load(&mut shard, &path).unwrap();
    // Bad input: another number of shards, no list, a file too few on one rank.
    let load = |shards: u32, name: &str| {
        on((2, shards), &config, |mut group| Ok(group.load(folder.path().join(name)).unwrap_err()))
    };
    assert!(load(4, "whole")[0].to_string().contains("shards: wanted 4, found 8"), "{}", load(4, "whole")[0]);
    assert!(matches!(load(8, "none")[1], Error::Checkpoint { what: "file", .. }));
    std::fs::remove_file(path).unwrap();
    let errors = load(8, "whole");
    assert!(matches!(errors[0], Error::Checkpoint { .. }) && is_of(0, &errors[1]));
    // A shard of another step: the group refuses steps until a checkpoint is loaded. Where there is none at all, it goes on.
    let other = folder.path().join("half/save-2-shard-3.safetensors");
    std::fs::copy(other, folder.path().join("whole/save-2-shard-3.safetensors")).unwrap();
    on((2, 8), &config, |mut group| {
        assert!(group.load(folder.path().join("none")).is_err());
        group.forward(Bags::new(&[], &[0]), Mode::Train)?;
        refuses!(group.load(folder.path().join("half")), Error::Order { call: "load", .. });
        group.backward(&[])?;
        let error = group.load(folder.path().join("whole")).unwrap_err().to_string();
        assert!(error.contains("step: wanted the same in the files of all shards, found steps from 2 to 4"), "{error}");
        let error = group.forward(Bags::new(&[], &[0]), Mode::Train).unwrap_err().to_string();
        assert!(error.contains("a checkpoint that was not loaded"), "{error}");
        group.load(folder.path().join("half"))?;
        group.forward(Bags::new(&[], &[0]), Mode::Train).map(drop)
    });
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let saved = on((2, 8), &config, |mut group| Ok(group.save(file.join("folder")).unwrap_err()));
    assert!(saved.iter().all(|error| matches!(error, Error::Checkpoint { what: "folder", .. })));
    let mut group = dist::Group::new(Threads::alone(), config.clone(), 2, CpuGroup::new).unwrap();
    assert!(hotrow::checkpoint::save_lookup(&mut group, "x").unwrap_err().to_string().contains("dist::Group::save"));
}

#[test]
fn a_list_with_the_last_number_is_followed_by_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("table");
    let config = GroupConfig::new(&[9], 2);
    let save = || on((2, 2), &config, |mut group| group.save(&place));
    let loaded = || on((2, 2), &config, |mut group| Ok(group.load(&place).is_ok()));
    save();
    let list = r#"{"format":"hotrow shards 1","save":4294967295,"shards":2,"tables":[9],"cache_rows":0}"#;
    std::fs::write(place.join("shards.json"), list).unwrap();
    assert_eq!(loaded(), [false; 2]);
    save();
    let found = std::fs::read_to_string(place.join("shards.json")).unwrap();
    assert!(found.contains("\"save\":1,"), "{found}");
    assert_eq!(loaded(), [true; 2]);
}
