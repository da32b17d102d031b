//! Groups over several ranks (SPEC 11): the same bits for every number of ranks, and those of a plain group with one shard.

use hotrow::{
    Counters, CpuGroup, Error, GroupConfig, Lookup, Precision,
    dist::{self, Threads},
};
use hotrow_harness::ranks::{Batch, alone, configuration, listed, over_ranks};
use rand::{SeedableRng as _, rngs::StdRng};

#[test]
fn ranks_change_no_bit() {
    let mut spoiled = 0;
    for seed in 0..60 {
        let random = &mut StdRng::seed_from_u64(seed);
        let config = configuration(random);
        let batches: Vec<Batch> = (0..6).map(|_| Batch::random(random, &config)).collect();
        let one = over_ranks(&config, 8, 1, &batches, false, CpuGroup::new);
        for ranks in [2, 4, 8] {
            let more = over_ranks(&config, 8, ranks, &batches, false, CpuGroup::new);
            assert!(more == one, "seed {seed}, {ranks} ranks, {config:?}");
        }
        let plain = alone(CpuGroup::new(config.clone()).unwrap(), &batches);
        assert!(
            over_ranks(&config, 1, 1, &batches, false, CpuGroup::new) == plain,
            "seed {seed}, one shard, {config:?}"
        );
        // Shards change neither FP32 rows without evictions to lose, nor what is counted of accesses.
        if config.precision == Precision::Fp32 && config.cache_rows == 0 {
            assert_eq!(plain.outputs, one.outputs, "seed {seed}");
        }
        spoiled += u32::from(over_ranks(&config, 8, 4, &batches, true, CpuGroup::new) != one);
    }
    assert!(spoiled > 30, "the comparison can fail: {spoiled}");
}

/// The runs that `hotrow-mpi same` makes over MPI.
#[test]
fn the_listed_runs_have_the_same_bits_on_threads() {
    for run in listed() {
        let over = |ranks, spoil| over_ranks(&run.config, 8, ranks, &run.batches, spoil, CpuGroup::new);
        let one = over(1, false);
        for ranks in [2, 4, 8] {
            assert!(over(ranks, false) == one, "{}, {ranks} ranks", run.name);
        }
        assert!(over(8, true) != one, "{}: the comparison can fail", run.name);
        let refused = one.outputs.iter().filter(|outputs| outputs.is_empty()).count();
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
        Threads::run(2, |comm: &mut Threads| {
            let mut group = dist::Group::new(comm, config.clone(), 2, CpuGroup::new)?;
            let (indices, offsets) = ([7 + group.rank(), 3, 60], [0, 2, 3]);
            let outputs = group.forward(&indices, &offsets, None)?;
            if let Some(frozen) = frozen {
                group.forward_frozen(&frozen, &offsets, None)?;
            }
            group.weight_gradient(&indices, &offsets, &outputs)
        })
        .unwrap()
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
    Threads::run(2, |comm: &mut Threads| {
        let mut group = dist::Group::new(comm, config.clone(), 2, CpuGroup::new)?;
        let first = group.forward(&[1, 2], &[0, 2], None)?;
        // The comparison can fail: between forward and backward nothing is saved.
        let early = group.save(folder.path().join("early")).unwrap_err();
        assert!(matches!(early, Error::Order { .. }), "{early}");
        group.backward_scaled(hotrow::GradSlice::F32(&first), &overflow)?;
        assert!(!group.pending());
        group.save(folder.path().join("overflow"))?;
        group.forward(&[1, 2], &[0, 2], None)?;
        group.abandon_backward();
        assert!(!group.pending());
        group.save(folder.path().join("abandoned"))?;
        assert_eq!(group.forward(&[1, 2], &[0, 2], None)?, first, "no row has changed");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_bad_index_on_one_rank_refuses_the_step_on_all() {
    let config = GroupConfig::new(&[100, 50], 4).with_cache_rows(32);
    let found = Threads::run(4, |comm: &mut Threads| {
        let mut group = dist::Group::new(comm, config.clone(), 4, CpuGroup::new)?;
        let rank = group.rank();
        let bad = [[7, 3], [99, 50], [0, 0], [1, 90]][rank as usize];
        let before = group.counters()?;
        let error = group.forward(&bad, &[0, 1, 2], None).unwrap_err();
        assert!(matches!(group.backward(&[]).unwrap_err(), Error::Order { .. } | Error::Rank { .. }));
        let after = group.counters()?;
        let t: Result<Vec<_>, Error> = group.shards().map(|(_, s)| s.unwrap().snapshot().map(|s| s.t)).collect();
        // The next step takes place.
        let good = group.forward(&[rank, rank], &[0, 1, 2], None)?;
        group.backward(&good)?;
        Ok((error, before, after, t?, group.counters()?))
    })
    .unwrap();
    for (rank, (error, before, after, t, last)) in found.iter().enumerate() {
        match rank {
            1 | 3 => {
                assert!(matches!(error, Error::IndexOutOfRange { table: 1, rows: 50, position: 1, .. }), "{error}");
            }
            _ => {
                let Error::Rank { rank: 1, reason } = error else { panic!("{error}") };
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
    let found = Threads::run(2, |comm: &mut Threads| {
        let mut group = dist::Group::new(comm, config.clone(), 2, CpuGroup::new)?;
        let first = group.rank() == 0;
        let shape = group.forward(&[1, 2], if first { &[0, 3] } else { &[0, 2] }, None).unwrap_err();
        let call = if first { group.forward(&[1], &[0, 1], None) } else { group.read_rows(&[1]) }.unwrap_err();
        let row = group.read_rows(&[if first { 100 } else { 0 }]).unwrap_err();
        let output = group.forward(&[1], &[0, 1], None)?;
        let length = group.backward(if first { &output } else { &output[1..] }).unwrap_err();
        group.backward(&output)?;
        Ok([shape, call, row, length])
    })
    .unwrap();
    let [shape, call, row, length] = &found[0];
    assert!(matches!(shape, Error::BadOffsets { .. }) && matches!(call, Error::Exchange { what: "call", .. }));
    assert!(matches!(row, Error::RowOutOfRange { row: 100, .. }) && matches!(length, Error::Rank { rank: 1, .. }));
    let [shape, _, row, length] = &found[1];
    assert!(matches!(shape, Error::Rank { rank: 0, .. }) && matches!(row, Error::Rank { rank: 0, .. }));
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
    let step = |group: &mut dyn Lookup, batch: &Batch, pieces: std::ops::Range<usize>| {
        let part = batch.part(&config, pieces);
        let outputs = group.forward(&part.indices, &part.offsets, part.weights.as_deref())?;
        group.backward(&outputs)
    };
    let run = |ranks: u32, steps: std::ops::Range<usize>, from: Option<&str>, to: &str| {
        Threads::run(ranks, |comm: &mut Threads| {
            let mut group = dist::Group::new(comm, config.clone(), 8, CpuGroup::new)?;
            from.map_or(Ok(()), |from| group.load(folder.path().join(from)))?;
            let each = 8 / ranks as usize;
            let first = group.rank() as usize * each;
            for batch in &batches[steps.clone()] {
                step(&mut group, batch, first..first + each)?;
            }
            // Saved twice: the files of the first are removed.
            group.save(folder.path().join(to))?;
            group.save(folder.path().join(to))
        })
        .unwrap();
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
    let mut shard = CpuGroup::new(hotrow::checkpoint::contents(&path).unwrap().config).unwrap();
    hotrow::checkpoint::load(&mut shard, &path).unwrap();
    // Bad input: another number of shards, no list, a file too few on one rank.
    let load = |shards: u32, name: &str| {
        Threads::run(2, |comm: &mut Threads| {
            Ok(dist::Group::new(comm, config.clone(), shards, CpuGroup::new)?
                .load(folder.path().join(name))
                .unwrap_err())
        })
        .unwrap()
    };
    assert!(load(4, "whole")[0].to_string().contains("shards: wanted 4, found 8"), "{}", load(4, "whole")[0]);
    assert!(matches!(load(8, "none")[1], Error::Checkpoint { what: "file", .. }));
    std::fs::remove_file(path).unwrap();
    let errors = load(8, "whole");
    assert!(matches!(errors[0], Error::Checkpoint { .. }) && matches!(errors[1], Error::Rank { rank: 0, .. }));
    let saved = Threads::run(2, |comm: &mut Threads| {
        let mut group = dist::Group::new(comm, config.clone(), 8, CpuGroup::new)?;
        Ok(group.save("/dev/null/folder").unwrap_err())
    });
    assert!(saved.unwrap().iter().all(|error| matches!(error, Error::Checkpoint { what: "folder", .. })));
    let mut group = dist::Group::new(dist::Solo::default(), config.clone(), 2, CpuGroup::new).unwrap();
    assert!(hotrow::checkpoint::save_lookup(&mut group, "x").unwrap_err().to_string().contains("dist::Group::save"));
}

#[test]
fn a_list_with_the_last_number_is_followed_by_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("table");
    let on_two = |load: bool| {
        Threads::run(2, |comm: &mut Threads| {
            let mut group = dist::Group::new(comm, GroupConfig::new(&[9], 2), 2, CpuGroup::new)?;
            if load { group.load(&place) } else { group.save(&place) }
        })
    };
    on_two(false).unwrap();
    let list =
        |save: u32| format!(r#"{{"format":"hotrow shards 1","save":{save},"shards":2,"tables":[9],"cache_rows":0}}"#);
    std::fs::write(place.join("shards.json"), list(u32::MAX)).unwrap();
    on_two(true).unwrap_err();
    on_two(false).unwrap();
    let found = std::fs::read_to_string(place.join("shards.json")).unwrap();
    assert!(found.contains("\"save\":1,"), "{found}");
    on_two(true).unwrap();
}
