//! Orders of lookups, and their batches of bags.

use super::super::input::Samples;
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

/// Lookups in an order, cut into batches of bags.
pub(in super::super) struct Order {
    /// `shuffled`, `samples shuffled` or `real`.
    pub(super) name: &'static str,
    pub(super) ids: Vec<u32>,
    /// The start of each bag, and the end of the last one.
    offsets: Vec<u32>,
    /// The first bag of each batch, and the number of bags.
    batches: Vec<usize>,
}

/// The order that the prediction is for.
pub(super) const SHUFFLED: &str = "shuffled";
pub(super) const SAMPLES: &str = "samples shuffled";
pub(super) const REAL: &str = "real";

impl Order {
    /// Independent lookups, as the prediction assumes, in bags of one size. The last bag of a batch may be smaller.
    pub(in super::super) fn shuffled(ids: Vec<u32>, batch: usize, bag: usize) -> Self {
        let batch = batch.min(ids.len()).max(1);
        let (mut offsets, mut batches) = (vec![0], vec![0]);
        for first in (0..ids.len()).step_by(batch) {
            let end = (first + batch).min(ids.len());
            offsets.extend((first + bag..end).step_by(bag).chain([end]).map(|offset| offset as u32));
            batches.push(offsets.len() - 1);
        }
        Self { name: SHUFFLED, ids, offsets, batches }
    }

    /// The bags of a trace in batches of `batch` samples, at most `batches` of them: in random order if any sample has several lookups, and
    /// in real order.
    pub(in super::super) fn of_samples(
        trace: &Samples,
        batch: usize,
        batches: usize,
        random: &mut impl Rng,
    ) -> Vec<Self> {
        let mut samples = trace.samples();
        let most = batches.saturating_mul(batch).min(samples.len());
        let order = |name, samples: &[&[u32]]| {
            let mut offsets = vec![0];
            for sample in samples {
                offsets.push(offsets[offsets.len() - 1] + sample.len() as u32);
            }
            let batches = (0..most).step_by(batch).chain([most]).collect();
            Self { name, ids: samples.concat(), offsets, batches }
        };
        let mut orders = vec![order(REAL, &samples[..most])];
        if samples.iter().any(|sample| sample.len() > 1) {
            samples.shuffle(random);
            orders.insert(0, order(SAMPLES, &samples[..most]));
        }
        orders
    }

    /// The batches: lookups, and offsets of the bags.
    pub(super) fn batches(&self) -> impl Iterator<Item = (&[u32], Vec<u32>)> {
        self.batches.windows(2).map(|bags| {
            let offsets = &self.offsets[bags[0]..=bags[1]];
            let (start, end) = (offsets[0], offsets[offsets.len() - 1]);
            (&self.ids[start as usize..end as usize], offsets.iter().map(|offset| offset - start).collect())
        })
    }

    /// The number of batches of each size in lookups.
    pub(super) fn sizes(&self) -> BTreeMap<u64, u64> {
        let mut sizes = BTreeMap::new();
        for (ids, _) in self.batches() {
            *sizes.entry(ids.len() as u64).or_default() += 1;
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::input::{Input, Source};
    use hotrow_report::trace::Trace;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[test]
    fn bags_are_the_traces_own() {
        let trace =
            Trace { ids: vec![1, 2, 3, 4, 5, 6], offsets: Some(vec![0, 3, 3, 4, 6]), distinct: 6, ..Trace::default() };
        let Source::Trace(lookups) = Input::of_trace(trace, None).unwrap().source else { unreachable!() };
        let orders = Order::of_samples(&lookups, 3, usize::MAX, &mut Pcg64::seed_from_u64(1));
        let names: Vec<_> = orders.iter().map(|order| order.name).collect();
        assert_eq!(names, [SAMPLES, REAL]);
        let real: Vec<_> = orders[1].batches().collect();
        assert_eq!(real, [(&[1, 2, 3, 4][..], vec![0, 3, 3, 4]), (&[5, 6], vec![0, 2])]);
        assert_eq!(orders[1].sizes(), BTreeMap::from([(4, 1), (2, 1)]));
        // Whole samples, each once.
        let mut bags: Vec<Vec<u32>> = Vec::new();
        for (ids, offsets) in orders[0].batches() {
            bags.extend(offsets.windows(2).map(|ends| ids[ends[0] as usize..ends[1] as usize].to_vec()));
        }
        bags.sort();
        assert_eq!(bags, [vec![], vec![1, 2, 3], vec![4], vec![5, 6]]);
    }

    #[test]
    fn shuffled_lookups_are_cut_evenly() {
        let order = Order::shuffled(vec![7; 8], 5, 2);
        let found: Vec<_> = order.batches().map(|(_, offsets)| offsets).collect();
        assert_eq!(found, [vec![0, 2, 4, 5], vec![0, 2, 3]]);
        assert_eq!(order.sizes(), BTreeMap::from([(5, 1), (3, 1)]));
    }
}
