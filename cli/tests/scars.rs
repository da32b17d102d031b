//! The distinct rows that the model predicts, against those counted in the real traces, shuffled and in order.

use hotrow::scars::Skew;
use hotrow_cli::trace::{Source, load};
use hotrow_harness::data;
use rand::{SeedableRng, seq::SliceRandom};

/// The mean number of distinct rows with rank `pinned` or more, over all whole batches.
fn counted(ranks: &[u32], rows: usize, batch: usize, pinned: u32) -> f64 {
    let mut last = vec![u32::MAX; rows];
    let batches = ranks.len() / batch;
    let mut distinct = 0u64;
    for (number, batch) in (0..).zip(ranks.chunks_exact(batch)) {
        for &rank in batch {
            distinct += u64::from(rank >= pinned && last[rank as usize] != number);
            last[rank as usize] = number;
        }
    }
    distinct as f64 / batches as f64
}

#[test]
fn distinct_rows_of_shuffled_traces_are_predicted() {
    let Some(folder) = data::folder("the model of distinct rows") else { return };
    println!("trace, batch, pinned: shuffled, predicted independent, of an epoch; in order");
    for name in data::TRACES {
        let trace = load(name, &Source { data: Some(&folder), seed: 0 }).unwrap();
        let rows = trace.distinct as usize;
        let mut counts = vec![0u64; rows];
        trace.ids.iter().for_each(|&id| counts[id as usize] += 1);
        let mut order: Vec<u32> = (0..trace.distinct).collect();
        order.sort_by_key(|&id| std::cmp::Reverse(counts[id as usize]));
        let mut rank_of = vec![0u32; rows];
        (0..).zip(&order).for_each(|(rank, &id)| rank_of[id as usize] = rank);
        let skew = Skew::from_counts(counts).unwrap();
        let ordered: Vec<u32> = trace.ids.iter().map(|&id| rank_of[id as usize]).collect();
        let mut shuffled = ordered.clone();
        shuffled.shuffle(&mut rand_pcg::Pcg64::seed_from_u64(6));
        for share in [100, 4] {
            let batch = ordered.len() / share;
            for pinned in [0, trace.distinct / 100] {
                let found = counted(&shuffled, rows, batch, pinned);
                let independent = skew.distinct(batch as f64, pinned.into());
                let epoch = skew.distinct_of_epoch(batch as u64, pinned.into()).unwrap();
                let off = |predicted: f64| predicted / found - 1.0;
                let real = counted(&ordered, rows, batch, pinned) / found - 1.0;
                println!(
                    "{name}, {batch}, {pinned}: {found:.1}, {:+.3} %, {:+.3} %; {:+.1} %",
                    100.0 * off(independent),
                    100.0 * off(epoch),
                    100.0 * real
                );
                assert!(off(epoch).abs() < 0.01, "{name} {batch} {pinned}: {epoch}, counted {found}");
                // Independent lookups describe batches of at most 1 % of the trace, but not batches of a quarter.
                assert_eq!(
                    off(independent).abs() < 0.01,
                    share >= 100,
                    "{name} {batch} {pinned}: {independent}, counted {found}"
                );
            }
        }
    }
}
