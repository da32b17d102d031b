//! The order of samples: mixed, or with batches of hot ones.

use super::model::{Model, TESTED};
use crate::order::Order;
use hotrow_plan::scars::HotBatches;

impl Model<'_, '_> {
    /// The epoch of the next batch, and the places of its samples.
    pub(super) fn next_samples(&mut self) -> (u32, Vec<u64>) {
        let (seed, count, size) = (self.seed, self.options.samples(self.task) as u64, self.options.hyper.batch as u64);
        let each = count.div_ceil(size).max(1);
        let (epoch, done) = ((self.steps / each) as u32, self.steps % each);
        let order = match self.order.take() {
            Some((of, order)) if of == epoch => order,
            _ => Order::of(self.task.mixed(), count, seed, epoch),
        };
        let (_, order) = self.order.insert((epoch, order));
        (epoch, order.samples(done * size..count.min((done + 1) * size)))
    }

    /// Puts hot samples of an epoch, whose rows are all pinned, into batches of their own (SCARS, section III). The last samples of both kinds,
    /// which fill no batch, follow the others, so an epoch has as many steps as ever.
    pub(super) fn order_by_heat(&mut self) -> anyhow::Result<()> {
        let (count, size) = (self.options.samples(self.task), self.options.hyper.batch);
        let epoch = (self.steps / count.div_ceil(size).max(1) as u64) as u32;
        if self.order.as_ref().is_some_and(|&(of, _)| of == epoch) {
            return Ok(());
        }
        let samples = Order::of(self.task.mixed(), count as u64, self.seed, epoch).samples(0..count as u64);
        let mut kinds = Vec::with_capacity(count);
        for samples in samples.chunks(TESTED) {
            let batch = self.task.train_batch(samples, self.seed, epoch)?;
            let is_hot = |sample: usize| {
                self.pins.iter().zip(&batch.bags).all(|(pins, bags)| {
                    let rows = bags.offsets[sample] as usize..bags.offsets[sample + 1] as usize;
                    pins.as_ref().is_none_or(|pins| bags.indices[rows].iter().all(|&row| pins[row as usize]))
                })
            };
            kinds.extend(samples.iter().enumerate().map(|(at, &sample)| (sample as u32, is_hot(at))));
        }
        self.hot[0] += count as u64;
        self.hot[1] += kinds.iter().filter(|&&(_, hot)| hot).count() as u64;
        let batches = HotBatches::new(kinds, size, |&(_, hot)| hot);
        let order = batches.flat_map(|(_, batch)| batch.into_iter().map(|(sample, _)| sample)).collect();
        self.order = Some((epoch, Order::Whole(order)));
        Ok(())
    }
}
