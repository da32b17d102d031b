//! Tells data apart that have the same name and size.

use super::task::{Batch, Task};
use crc32fast::Hasher;

/// Most samples of each set that are looked at.
const SAMPLES: usize = 1024;

/// CRC-32 of the first samples to train and to test with, as 8 hexadecimal digits. The same on every machine, for every seed of a run.
pub(crate) fn fingerprint(task: &dyn Task) -> String {
    let mut hasher = Hasher::new();
    add(&mut hasher, &task.test_batch(0..SAMPLES.min(task.about().test)));
    let places: Vec<u32> = (0..SAMPLES.min(task.about().train) as u32).collect();
    add(&mut hasher, &task.train_batch(&places, 0, 0));
    format!("{:08x}", hasher.finalize())
}

fn add(hasher: &mut Hasher, batch: &Batch) {
    for bags in &batch.bags {
        add_words(hasher, bags.indices.iter().copied());
        add_words(hasher, bags.offsets.iter().copied());
    }
    add_words(hasher, batch.dense.iter().map(|x| x.to_bits()));
    add_words(hasher, batch.labels.iter().copied());
}

/// With their count, so that nothing moves from one list to the next unnoticed.
fn add_words(hasher: &mut Hasher, words: impl ExactSizeIterator<Item = u32>) {
    hasher.update(&(words.len() as u64).to_le_bytes());
    words.for_each(|word| hasher.update(&word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::task::Bags;

    fn of(batch: &Batch) -> u32 {
        let mut hasher = Hasher::new();
        add(&mut hasher, batch);
        hasher.finalize()
    }

    fn batch() -> Batch {
        let bags = vec![Bags { indices: vec![1, 2, 3], offsets: vec![0, 1, 3] }];
        Batch { bags, dense: vec![0.5, 0.0], labels: vec![0, 1], samples: 2 }
    }

    #[test]
    fn every_part_counts() {
        let known = of(&batch());
        assert_eq!(of(&batch()), known);
        let changes: [fn(&mut Batch); 6] = [
            |batch| batch.bags[0].indices[2] = 4,
            |batch| batch.bags[0].offsets[1] = 2,
            |batch| batch.dense[1] = -0.0,
            |batch| batch.labels[0] = 1,
            |batch| batch.bags.push(Bags::new()),
            // The same words in the same order, split elsewhere.
            |batch| {
                batch.dense.truncate(1);
                batch.labels.insert(0, 0);
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut other = batch();
            change(&mut other);
            assert_ne!(of(&other), known, "change {at}");
        }
    }
}
