//! The gradients of a backward between ranks (SPEC 11): each in a message to the owner of its row, or summed first. Beside each function that writes a message
//! stands the one that reads it.

use hotrow::{
    Error, Pooling, ScalerState,
    ranks::{Shard, Vectors, WireForm},
};

use crate::{
    comm::{Comm, Parcels},
    error::{cut, whole},
    group::Group,
    step::{Asked, Waiting},
    sums::Sums,
    traffic::Phase,
};

/// An access to a row: its row in the upper half of the key, in the lower one its feature, by which accesses of one row are ordered; then the number of its
/// gradient, and the bits of its factor.
type Access = (u64, [u32; 2]);

/// The accesses of each shard, and the bits of the gradients.
type Listed = (Vec<Vec<Access>>, Vec<u32>);

impl<C: Comm, S: Shard> Group<C, S> {
    /// Sends the gradients to the owners of the rows, and updates this rank's rows.
    pub(crate) fn update(&mut self, waiting: &Waiting, grads: &[f32], scaler: &ScalerState) -> Result<(), Error> {
        let asked = &waiting.asked;
        let vectors = Vectors::gradients(self.config.dim, self.wire.gradients, (self.config.seed, waiting.step));
        let (factors, (lists, gradients)) = match &asked.sums {
            Some(sums) => {
                let received = self.send_sums(waiting, sums, grads, &vectors)?;
                (false, self.summed(asked, &received, &vectors)?)
            }
            None => {
                let received = self.send_each(waiting, grads, &vectors)?;
                let factors = self.config.pooling == Pooling::Mean || asked.weighted.contains(&true);
                (factors, self.separate(asked, &received, &vectors)?)
            }
        };
        self.apply(lists, factors, &gradients, scaler)
    }

    /// The factor of each output row's gradient, by mean pooling.
    fn scales(&self, waiting: &Waiting) -> impl Fn(u32) -> f32 + use<C, S> {
        let scales = waiting.requests.scales(&self.config, &waiting.offsets);
        move |output| scales.get(output as usize).copied().unwrap_or(1.0)
    }

    /// Sends the sums of each row's gradients.
    fn send_sums(
        &mut self,
        waiting: &Waiting,
        sums: &Sums,
        grads: &[f32],
        vectors: &Vectors,
    ) -> Result<Parcels, Error> {
        let (deal, ranks, dim) = (self.deal, self.link.ranks(), self.config.dim as usize);
        let (Waiting { requests, asked, weights, .. }, scale) = (waiting, self.scales(waiting));
        let gradient = |output: u32| &grads[output as usize * dim..][..dim];
        let rows_of = |rank: usize| asked.rows[rank].iter().map(|(rows, _)| rows.len()).sum::<usize>();
        let mut sum = vec![0.0; dim];
        let mut message = |rank: usize| {
            let mut message = Vec::new();
            if deal.each() > 1 {
                let rows = requests.of_rank(deal, rank);
                places(rows.map(|row| sums.of(row..row + 1).len() as u32 - 1), NARROW, &mut message);
            }
            for shard in deal.of(rank) {
                for row in requests.of(shard) {
                    let whole = requests.rows[row] << deal.shift | shard as u32;
                    for number in sums.of(row..row + 1) {
                        let (accesses, slice) = sums.sum(number);
                        sum.fill(-0.0);
                        for &access in accesses {
                            let output = requests.outputs[rank][requests.slots[access as usize] as usize];
                            let weight = weights.as_ref().map_or(1.0, |weights| weights[access as usize]);
                            let factor = scale(output) * weight;
                            sum.iter_mut().zip(gradient(output)).for_each(|(sum, grad)| *sum += factor * grad);
                        }
                        vectors.push([whole, slice], &sum, &mut message);
                    }
                }
            }
            message
        };
        let messages = (0..ranks).map(&mut message).collect();
        let numbers = |rows| if deal.each() > 1 { place_words(rows, NARROW) } else { 0 };
        let receive: Vec<usize> =
            (0..ranks).map(|rank| numbers(rows_of(rank)) + asked.sent_sums[rank] * vectors.words()).collect();
        self.link.exchange(Phase::Gradients, messages, &receive)
    }

    /// Sends each gradient, with the accesses of its output row.
    fn send_each(&mut self, waiting: &Waiting, grads: &[f32], vectors: &Vectors) -> Result<Parcels, Error> {
        let (deal, ranks, dim) = (self.deal, self.link.ranks(), self.config.dim as usize);
        let (Waiting { requests, asked, offsets, weights, .. }, scale) = (waiting, self.scales(waiting));
        let mean = self.config.pooling == Pooling::Mean;
        let gradient = |output: u32| &grads[output as usize * dim..][..dim];
        let accesses_of = |rank: usize| {
            asked.rows[rank].iter().flat_map(|(_, counts)| counts).map(|&count| count as usize).sum::<usize>()
        };
        // What makes the random bits of each gradient, if that is rounded.
        let rounded = self.wire.gradients != WireForm::Exact;
        let numbers = if rounded { asked.share.numbers(&self.config, offsets) } else { Vec::new() };
        let mut first = 0;
        let message = |rank: usize| {
            let outputs = &requests.outputs[rank];
            let mut message = requests.by_feature[rank].clone();
            for &output in outputs {
                let number = numbers.get(output as usize).copied().unwrap_or_default();
                vectors.push(number, gradient(output), &mut message);
            }
            if weights.is_none() && mean {
                message.extend(outputs.iter().map(|&bag| scale(bag).to_bits()));
            }
            let accesses: u32 = requests.counts[requests.of_rank(deal, rank)].iter().sum();
            let order = &requests.order[first..first + accesses as usize];
            first += accesses as usize;
            places(order.iter().map(|&access| requests.slots[access as usize]), outputs.len(), &mut message);
            if let Some(weights) = weights {
                let scale = |access: u32| scale(outputs[requests.slots[access as usize] as usize]);
                message.extend(order.iter().map(|&access| (scale(access) * weights[access as usize]).to_bits()));
            }
            message
        };
        let messages = (0..ranks).map(message).collect();
        let receive: Vec<usize> = (0..ranks)
            .map(|rank| {
                let (accesses, outputs) = (accesses_of(rank), asked.outputs[rank]);
                let factors = match (asked.weighted[rank], mean) {
                    (true, _) => accesses,
                    (false, true) => outputs,
                    (false, false) => 0,
                };
                requests.by_feature[rank].len() + outputs * vectors.words() + place_words(accesses, outputs) + factors
            })
            .collect();
        self.link.exchange(Phase::Gradients, messages, &receive)
    }

    /// Reads the sums that have come to this rank's shards. They have factors of 1.
    fn summed(&self, asked: &Asked, received: &Parcels, vectors: &Vectors) -> Result<Listed, Error> {
        let dim = self.config.dim as usize;
        // The first gradient is zero.
        let mut gradients: Vec<u32> = vec![0; dim];
        let mut lists: Vec<Vec<Access>> = vec![Vec::new(); self.shards.len()];
        for (mut message, shards) in received.iter().zip(&asked.rows) {
            let rows = shards.iter().map(|(rows, _)| rows.len()).sum();
            let numbers = cut(&mut message, if self.deal.each() > 1 { place_words(rows, NARROW) } else { 0 })?;
            let (mut row_number, mut next) = (0, (gradients.len() / dim) as u32);
            for ((rows, counts), list) in shards.iter().zip(&mut lists) {
                for (&row, &count) in rows.iter().zip(counts) {
                    let sums = if numbers.is_empty() { 1 } else { place(numbers, row_number, NARROW) + 1 };
                    // The sums of a row in order of the ranks: so of the slices. There are fewer than accesses, and behind all of them zeros for the others.
                    list.extend((next..next + sums).map(|sum| (u64::from(row) << 32, [sum, 1f32.to_bits()])));
                    list.extend((sums..count).map(|_| (u64::from(row) << 32 | 1, [0, 1f32.to_bits()])));
                    (row_number, next) = (row_number + 1, next + sums);
                }
            }
            whole(vectors.take(next as usize - gradients.len() / dim, &mut message, &mut gradients))?;
        }
        Ok((lists, gradients))
    }

    /// Reads the gradients that have come to this rank's shards.
    fn separate(&self, asked: &Asked, received: &Parcels, vectors: &Vectors) -> Result<Listed, Error> {
        let dim = self.config.dim as usize;
        let features = self.config.feature_count() as usize;
        let mean = self.config.pooling == Pooling::Mean;
        let mut gradients: Vec<u32> = Vec::new();
        let mut lists: Vec<Vec<Access>> = vec![Vec::new(); self.shards.len()];
        let ranks = received.iter().zip(&asked.rows).zip(asked.outputs.iter().zip(&asked.weighted));
        for ((mut message, shards), (&outputs, &weighted)) in ranks {
            let before = (gradients.len() / dim) as u32;
            let mut ends = cut(&mut message, features)?.to_vec();
            (1..features).for_each(|feature| ends[feature] += ends[feature - 1]);
            whole(vectors.take(outputs, &mut message, &mut gradients))?;
            let scales = cut(&mut message, if mean && !weighted { outputs } else { 0 })?;
            let accesses = shards.iter().flat_map(|(_, counts)| counts).map(|&count| count as usize).sum();
            let places = cut(&mut message, place_words(accesses, outputs))?;
            let factors = cut(&mut message, if weighted { accesses } else { 0 })?;
            let mut access = 0;
            for ((rows, counts), list) in shards.iter().zip(&mut lists) {
                for (&row, &count) in rows.iter().zip(counts) {
                    for _ in 0..count {
                        let place = place(places, access, outputs);
                        let feature = ends.partition_point(|&end| end <= place) as u64;
                        let scale = scales.get(place as usize).copied();
                        let factor = factors.get(access).copied().or(scale).unwrap_or(1f32.to_bits());
                        list.push((u64::from(row) << 32 | feature, [before + place, factor]));
                        access += 1;
                    }
                }
            }
        }
        Ok((lists, gradients))
    }

    /// Runs the backward of this rank's shards: `lists` has the accesses of each, those of a rank before those of the next.
    fn apply(
        &mut self,
        lists: Vec<Vec<Access>>,
        factors: bool,
        gradients: &[u32],
        scaler: &ScalerState,
    ) -> Result<(), Error> {
        for (shard, mut list) in self.shards.iter_mut().zip(lists) {
            let Some(shard) = shard else { continue };
            // Stable: within a row and a feature the ranks' accesses stay in order.
            list.sort_by_key(|&(key, _)| key);
            let accesses: Vec<[u32; 2]> = list.into_iter().map(|(_, access)| access).collect();
            shard.apply(&accesses, factors, bytemuck::cast_slice(gradients), scaler)?;
        }
        Ok(())
    }
}

/// The most output rows whose places take 16 bits.
const NARROW: usize = 1 << 16;

/// Words of the places of `accesses` accesses among `outputs` output rows.
fn place_words(accesses: usize, outputs: usize) -> usize {
    if outputs <= NARROW { accesses.div_ceil(2) } else { accesses }
}

fn places(places: impl Iterator<Item = u32>, outputs: usize, message: &mut Vec<u32>) {
    if outputs > NARROW {
        return message.extend(places);
    }
    let mut places = places.peekable();
    while let Some(low) = places.next() {
        message.push(low | places.next().unwrap_or(0) << 16);
    }
}

fn place(places: &[u32], access: usize, outputs: usize) -> u32 {
    if outputs > NARROW { places[access] } else { places[access / 2] >> (access % 2 * 16) & 0xffff }
}
