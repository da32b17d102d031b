//! Tables filled by a kernel: every record is legal and a row of its own, and steps on them are those of the CPU backend.

use std::collections::BTreeSet;
use std::time::Duration;

use hotrow::internals::Pieces as _;
use hotrow::{Context, CpuGroup, Group, GroupConfig, Init, Layout, Optimizer, Placement, Precision, codec, prelude::*};
use hotrow_cli::fill::{REACH, check, fault, fill};
use hotrow_cli::lab::{Lab, Rounds};
use hotrow_harness::device::{skipped, with_gpu};
use hotrow_harness::lockstep::{Batch, Codes, Pair};

/// Three tables that are cut inside a table, and a last shard with fewer rows.
fn config(placement: Placement) -> GroupConfig {
    let mut config = GroupConfig::new(&[700, 300, 1203], 128).with_precision(Precision::Int8);
    (config.placement, config.init, config.cache_rows) = (placement, Init::Constant(0.0), 320);
    config.optimizer = Optimizer::row_wise_adagrad(0.05);
    config.set_shard_bytes(Some(140 * 300));
    config
}

fn lab(context: &Context) -> Lab {
    Lab::new(context, Rounds { whole: 1, detailed: 0, slice: Duration::ZERO })
}

/// Calls the test with each placement of the device's tables.
fn with_placements(test: impl Fn(&Lab, GroupConfig)) {
    with_gpu(|context| {
        test(&lab(context), config(Placement::Device));
        if context.caps().mappable {
            test(&lab(context), config(Placement::Mapped));
        } else {
            skipped(&format!("mapped placement: {} has no MAPPABLE_PRIMARY_BUFFERS", context.caps().name));
        }
    });
}

/// Whether every record could have been packed, has weights within the reach that take up half of it, and is the only one of its kind.
fn legal(layout: &Layout, records: &[u32]) -> Result<(), String> {
    let words = layout.row.record_words as usize;
    if records.len() != layout.total_rows as usize * words {
        return Err(format!("{} words", records.len()));
    }
    let mut payloads = BTreeSet::new();
    for (row, record) in records.chunks_exact(words).enumerate() {
        let mut values = vec![0.0; layout.row.row_words as usize];
        codec::unpack(&layout.row, record, &mut values);
        let (weights, states) = values.split_at(128);
        let [scale, bias] = [record[0], record[1]].map(f32::from_bits);
        let (low, high) = weights.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
        // Of 128 random codes the lowest and the highest are near the ends.
        let right = scale.is_normal()
            && scale > 0.0
            && bias.is_finite()
            && values.iter().all(|x| x.is_finite())
            && low >= -REACH * 1.000_001
            && high <= REACH * 1.000_001
            && high - low > 0.8 * REACH
            && states.iter().all(|state| (0.0..1.0).contains(state));
        if !right {
            return Err(format!("row {row}: scale {scale}, bias {bias}, weights {low} to {high}, state {states:?}"));
        }
        if !payloads.insert(&record[3..]) {
            return Err(format!("row {row}: the codes of an earlier row"));
        }
    }
    Ok(())
}

#[test]
fn a_filled_table_has_legal_rows_of_their_own() {
    with_placements(|lab, config| {
        let mut group = Group::new(&lab.timed, config).unwrap();
        let layout = group.layout().clone();
        assert_eq!((layout.shards, layout.shard_rows(7)), (8, 103));
        assert!(group.snapshot().unwrap().records.iter().all(|&word| word == 0), "a table of zeros");
        assert!(fault(&[1, 2], &group.read_rows(&[1, 2]).unwrap()).is_some(), "equal rows are no filled ones");
        assert!(fill(lab, &group, 7).unwrap() > 0.0);
        assert_eq!(check(&mut group).unwrap(), None);
        let records = group.snapshot().unwrap().records;
        assert_eq!(legal(&layout, &records), Ok(()));
        // Read through the group: the same rows.
        let rows: Vec<u32> = (0..layout.total_rows).collect();
        let read = group.read_rows(&rows).unwrap();
        assert_eq!(fault(&rows, &read), None);
        for (row, (record, read)) in records.chunks_exact(35).zip(read.chunks_exact(128)).enumerate() {
            for (element, &weight) in (0..).zip(read) {
                let wanted = codec::weight(&layout.row, record, element);
                // A device may round once or twice.
                assert!((weight - wanted).abs() <= REACH * f32::EPSILON, "row {row}: {weight}, wanted {wanted}");
            }
        }
        // The same seed gives the same records, another seed others.
        for (seed, same) in [(7, true), (8, false)] {
            fill(lab, &group, seed).unwrap();
            assert_eq!(group.snapshot().unwrap().records == records, same, "seed {seed}");
        }
        // The companion: a record that is wrong in one word is noticed.
        let at = |row: usize, word: usize| row * 35 + word;
        for (place, word) in [
            (at(1000, 0), f32::NAN.to_bits()),
            (at(1000, 0), 0),
            (at(1000, 0), 0.01f32.to_bits()),
            (at(1000, 1), f32::INFINITY.to_bits()),
            (at(1000, 1), 0.05f32.to_bits()),
            (at(2202, 2), (-0.5f32).to_bits()),
            (at(2202, 2), f32::NAN.to_bits()),
        ] {
            let mut broken = records.clone();
            broken[place] = word;
            assert!(legal(&layout, &broken).is_err(), "{place}: {word:#x}");
        }
        let mut twice = records.clone();
        twice.copy_within(at(5, 0)..at(6, 0), at(2000, 0));
        assert!(legal(&layout, &twice).is_err() && legal(&layout, &records[35..]).is_err());
        let mut read = read;
        read[128 * 9 + 3] = 0.11;
        assert!(fault(&rows, &read).is_some_and(|fault| fault.starts_with("row 9: ")));
        read[128 * 9 + 3] = f32::NAN;
        assert!(fault(&rows, &read).is_some_and(|fault| fault.contains("NaN")));
    });
}

#[test]
fn steps_on_a_filled_table_are_those_of_the_cpu() {
    with_placements(|lab, config| {
        let steps = |spoil: bool| -> Result<u64, String> {
            let mut gpu = Group::new(&lab.timed, config.clone()).unwrap();
            fill(lab, &gpu, 3).unwrap();
            let mut cpu = CpuGroup::new(config.clone()).unwrap();
            let mut snapshot = gpu.snapshot().unwrap();
            if spoil {
                // One code of row 0, which the first batch looks up.
                snapshot.records[3] ^= 0x80;
            }
            cpu.restore(&snapshot).unwrap();
            let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 1.0, codes: Codes::default() };
            for step in 0..3u32 {
                // 40 bags of 4 in each table; later batches push rows of the first out of a cache of 320.
                let rows = |table: usize| config.tables[table];
                let indices = (0..480u32).map(|i| i.wrapping_mul(i).wrapping_mul(7 + step) % rows(i as usize / 160));
                let batch = Batch {
                    indices: indices.collect(),
                    offsets: (0..=120).map(|bag| bag * 4).collect(),
                    weights: None,
                };
                pair.step(&batch, |i| (i % 17) as f32 / 8.0 - 1.0)?;
            }
            Ok(pair.codes.written)
        };
        assert!(steps(false).unwrap() > 0, "no row was written back");
        let found = steps(true).unwrap_err();
        assert!(found.contains("on the GPU"), "{found}");
    });
}

#[test]
fn other_rows_are_refused() {
    with_gpu(|context| {
        for (precision, optimizer) in
            [(Precision::Fp32, Optimizer::sgd(0.1)), (Precision::Int8, Optimizer::adagrad(0.1))]
        {
            let config = config(Placement::Device).with_precision(precision).with_optimizer(optimizer);
            let group = Group::new(context, config).unwrap();
            let refused = fill(&lab(context), &group, 1).unwrap_err().to_string();
            assert!(refused.contains("wanted integer rows") && refused.contains("found"), "{refused}");
        }
    });
}
