//! How unevenly the rows of a table are used (P1 Figure 3).

use crate::plot::{Chart, Series};
use std::collections::HashMap;

/// How often each row of a table was used.
#[derive(Clone, Debug)]
pub(crate) struct Uses {
    pub(crate) name: String,
    pub(crate) rows: u32,
    counts: HashMap<u32, u64>,
}

impl Uses {
    pub(crate) fn new(name: &str, rows: u32) -> Self {
        Self { name: name.to_owned(), rows, counts: HashMap::new() }
    }

    /// Counts each index once for every time it stands there.
    pub(crate) fn count(&mut self, indices: &[u32]) {
        for &index in indices {
            *self.counts.entry(index).or_default() += 1;
        }
    }

    pub(crate) fn accesses(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Rows used at all.
    pub(crate) fn distinct(&self) -> usize {
        self.counts.len()
    }

    /// The share of the accesses, 0 to 1, that goes to the `percent` of the rows that are used most.
    pub(crate) fn share_of_top(&self, percent: f64) -> f64 {
        let rows = (f64::from(self.rows) * percent / 100.0).ceil() as usize;
        let sorted = self.sorted();
        let top: u64 = sorted.iter().take(rows).sum();
        top as f64 / self.accesses().max(1) as f64
    }

    /// Uses of each row used at all, most used first.
    fn sorted(&self) -> Vec<u64> {
        let mut sorted: Vec<u64> = self.counts.values().copied().collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        sorted
    }

    /// (percent of the rows, percent of the accesses that they take), most used rows first: at most some 200 points, dense at
    /// the left end.
    fn curve(&self) -> Vec<(f64, f64)> {
        let accesses = self.accesses() as f64;
        let (mut points, mut taken, mut next) = (Vec::new(), 0, 1.0_f64);
        for (i, uses) in self.sorted().into_iter().enumerate() {
            taken += uses;
            let rows = (i + 1) as f64;
            if rows >= next || i + 1 == self.counts.len() {
                points.push((100.0 * rows / f64::from(self.rows), 100.0 * taken as f64 / accesses));
                next = (rows * 1.08).max(rows + 1.0);
            }
        }
        if points.last().is_some_and(|&(x, _)| x < 100.0) {
            points.push((100.0, 100.0));
        }
        points
    }
}

/// P1 Figure 3: a line for each table, largest tables first; colours repeat beyond eight, where the line is dashed.
pub(crate) fn chart(task: &str, tables: &[&Uses]) -> Chart {
    let mut chart = Chart::new("Rows, most used first, % of the table", "Accesses that they take, %");
    chart.title = format!("{task}: how unevenly rows are used");
    let mut tables: Vec<&&Uses> = tables.iter().filter(|uses| uses.distinct() > 0).collect();
    tables.sort_by_key(|uses| std::cmp::Reverse(uses.rows));
    for (colour, uses) in tables.into_iter().take(16).enumerate() {
        let label = format!("{} ({} rows)", uses.name, uses.rows);
        let (points, dashed) = (uses.curve(), colour >= 8);
        chart.series.push(Series { label, points, colour, dashed, markers: false, spread: Vec::new() });
    }
    chart.log_x = true;
    chart.y_range = Some((0.0, 100.0));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses() -> Uses {
        let mut uses = Uses::new("made up", 8);
        uses.count(&[3, 3, 3, 3, 1, 1, 5, 5]);
        uses
    }

    #[test]
    fn shares_count_the_most_used_rows() {
        let uses = uses();
        assert_eq!((uses.accesses(), uses.distinct()), (8, 3));
        assert_eq!([12.5, 25.0, 26.0, 100.0].map(|percent| uses.share_of_top(percent)), [0.5, 0.75, 1.0, 1.0]);
        assert_eq!(Uses::new("none", 8).share_of_top(10.0), 0.0);
    }

    #[test]
    fn the_curve_ends_at_everything() {
        assert_eq!(uses().curve(), [(12.5, 50.0), (25.0, 75.0), (37.5, 100.0), (100.0, 100.0)]);
        assert!(Uses::new("none", 8).curve().is_empty());
        let mut many = Uses::new("many", 100_000);
        (0..100_000).for_each(|row| many.count(&vec![row; 1 + 1000 / (row as usize + 1)]));
        let curve = many.curve();
        assert!(curve.len() < 250 && curve.last() == Some(&(100.0, 100.0)), "{}", curve.len());
        assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    }

    #[test]
    fn tables_without_accesses_are_not_drawn() {
        let (some, none) = (uses(), Uses::new("none", 8));
        let chart = chart("made up", &[&none, &some]);
        assert_eq!(chart.series.len(), 1);
        assert_eq!(chart.series[0].label, "made up (8 rows)");
    }
}
