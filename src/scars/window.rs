//! Shuffles a stream by a seed, in bounded memory.

use crate::table::rng::{Purpose, pcg4d};

/// Holds up to `size` items; each new item releases one of them, drawn uniformly.
///
/// An item leaves at most `size` places before its own place and stays for `size` items on average, geometrically
/// distributed: it leaves more than `k size` places late with probability e^-(k + 1). With at most `size + 1` items
/// every order is equally likely, up to the bias of a draw, `size` in 2^32.
#[derive(Clone, Debug)]
pub(crate) struct Window<T> {
    held: Vec<T>,
    size: usize,
    seed: u32,
    drawn: u64,
}

impl<T> Window<T> {
    pub(crate) const fn new(size: usize, seed: u32) -> Self {
        Self { held: Vec::new(), size, seed, drawn: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes an item and, once the window is full, returns an item: another one or the same.
    pub(crate) fn push(&mut self, item: T) -> Option<T> {
        self.held.push(item);
        if self.held.len() > self.size { self.pop() } else { None }
    }

    /// Returns any of the items that wait.
    pub(crate) fn pop(&mut self) -> Option<T> {
        // A single item needs no draw.
        let at = match self.held.len() {
            0 => return None,
            1 => 0,
            len => self.draw(len),
        };
        Some(self.held.swap_remove(at))
    }

    fn draw(&mut self, below: usize) -> usize {
        let count = self.drawn;
        self.drawn += 1;
        let [word, ..] = pcg4d([self.seed, count as u32, (count >> 32) as u32, (Purpose::Shuffle as u32) << 24]);
        ((u64::from(word) * below as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(items: usize, size: usize, seed: u32) -> Vec<usize> {
        let mut window = Window::new(size, seed);
        let mut out: Vec<usize> = (0..items).filter_map(|item| window.push(item)).collect();
        out.extend(std::iter::from_fn(|| window.pop()));
        out
    }

    #[test]
    fn without_a_window_the_order_stays() {
        assert_eq!(shuffled(100, 0, 1), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_leaves_earlier_than_the_window_allows_and_stays_as_long_as_said() {
        let (items, size) = (100_000, 500);
        let out = shuffled(items, size, 3);
        assert!(out.iter().enumerate().all(|(place, &item)| item <= place + size));
        // Away from the ends: how long each item stayed, counted from `size` places before its own.
        let stays: Vec<f64> = (0..)
            .zip(&out)
            .filter(|&(_, &item)| item > 5000 && item < items - 10_000)
            .map(|(place, &item): (usize, _)| (place + size) as f64 - item as f64)
            .collect();
        let mean = stays.iter().sum::<f64>() / stays.len() as f64;
        // The standard error of a mean of 85,000 is 1.7; neighbours are hardly correlated.
        assert!((mean - size as f64).abs() < 10.0, "{mean}");
        let long = stays.iter().filter(|&&stay| stay > 3.0 * size as f64).count() as f64 / stays.len() as f64;
        assert!((long - (-3.0_f64).exp()).abs() < 0.005, "{long}");
    }

    #[test]
    fn every_order_of_what_fits_is_as_likely() {
        let mut times = std::collections::BTreeMap::new();
        let seeds = 24_000;
        (0..seeds).for_each(|seed| *times.entry(shuffled(4, 4, seed)).or_insert(0) += 1);
        assert_eq!(times.len(), 24);
        let expected = f64::from(seeds) / 24.0;
        let chi: f64 = times.values().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(chi < 60.0, "23 degrees of freedom: {chi}");
        // The test must reject a window of 2.
        let mut narrow = std::collections::BTreeMap::new();
        (0..seeds).for_each(|seed| *narrow.entry(shuffled(4, 2, seed)).or_insert(0) += 1);
        let chi: f64 = narrow.values().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        assert!(narrow.len() < 24 || chi > 60.0, "{} {chi}", narrow.len());
    }
}
