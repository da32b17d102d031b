//! Whether one more cached row pays (SCARS, eq. 8 to 13): the paper's cache holds the hottest rows and nothing else, and a batch has the rest of the memory.

use super::input::Input;
use hotrow_plan::scars::{Budget, Skew};
use hotrow_report::object::Object;

/// The share by which eq. 13's price may be above the exact one before a sentence says so, in percent.
const OFF: f64 = 1.0;

/// SCARS' problem: the lookups of a batch are `b = (M - |C| d) / a` (eq. 7), and its cost the rows that cross.
struct Marginal<'s> {
    skew: &'s Skew,
    memory: f64,
    row: f64,
    lookup: f64,
}

impl Marginal<'_> {
    /// Lookups of a batch beside `cached` rows.
    fn lookups(&self, cached: u64) -> f64 {
        (self.memory - cached as f64 * self.row) / self.lookup
    }

    /// Rows of a batch that the row after the `cached` hottest saves, and those that the smaller batch costs: exactly (eq. 11, 12) and by eq. 13, which
    /// takes the change of a batch from its tangent. `None` without room for the row.
    fn one_more(&self, cached: u64) -> Option<[f64; 3]> {
        let (now, then) = (self.lookups(cached), self.lookups(cached + 1));
        let room = then >= 1.0 && cached < self.skew.rows();
        let (mut end, mut exact, mut by_13) = (0, 0.0, 0.0);
        for &(rows, probability) in self.skew.bins() {
            end += rows;
            let rest = rows.min(end.saturating_sub(cached + 1)) as f64;
            let log = (-probability).ln_1p();
            // `b f(b') - b' f(b)`, without a difference of nearly equal numbers.
            let lost = -(then * log).exp() * ((now - then) * log).exp_m1();
            exact += rest * ((now - then) * -(now * log).exp_m1() - now * lost);
            let y = (-now * log).min(700.0);
            by_13 += rest * if y < 1e-3 { y * y * (0.5 - y / 3.0) } else { -(-y).exp_m1() - y * (-y).exp() };
        }
        let own = self.skew.mass(cached + 1) - self.skew.mass(cached);
        let saved = -(now * (-own).ln_1p()).exp_m1();
        room.then(|| [saved, exact / then, by_13 * self.row / (self.memory - (cached + 1) as f64 * self.row)])
    }
}

/// One more row beside some numbers of cached rows, those that leave room for it, in batches that are a part of an epoch and have no cost of their own.
pub(super) fn one_more_row(input: &Input, budget: &Budget, mut cached: Vec<u64>) -> Vec<Object> {
    let marginal = Marginal {
        skew: &input.skew,
        memory: budget.bytes as f64,
        row: budget.group.slot as f64,
        lookup: budget.sample as f64 / input.per_sample,
    };
    cached.sort_unstable();
    cached.dedup();
    let epoch = input.samples as f64 * input.per_sample;
    let fixed = budget.smallest_batch == budget.largest_batch;
    let part = |&cached: &u64| !fixed && marginal.lookups(cached) <= epoch;
    let of = |cached| {
        let [saved, price, by_13] = marginal.one_more(cached)?;
        let row = Object::default().with("pinned_rows", cached).with("batch_lookups", marginal.lookups(cached) as u64);
        let row = row.with("saved_rows", saved).with("cost_rows", price).with("cost_by_eq_13", by_13);
        Some(row.with("pays", saved >= price))
    };
    cached.into_iter().filter(part).filter_map(of).collect()
}

/// Where eq. 13 is off.
pub(super) fn off(rows: &[Object]) -> Option<String> {
    let above = |row: &Object| 100.0 * (row.number("cost_by_eq_13") / row.number("cost_rows") - 1.0);
    let worst = rows.iter().filter(|row| above(row) >= OFF).max_by(|a, b| above(a).total_cmp(&above(b)))?;
    let (rows, percent) = (worst.number("pinned_rows"), above(worst));
    Some(format!(
        "Equation 13 is off where a row takes much of the batch's memory: beside {rows} pinned rows its cost is {percent:.1} % above the exact one."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_change_is_that_of_equation_8_and_13_is_above_it() {
        let skew = Skew::from_bins((1..61).map(|row| (100_000 / row, 1))).unwrap();
        let of = |row: f64| Marginal { skew: &skew, memory: 400.0, row, lookup: 1.0 };
        // The cost of a lookup (eq. 6), row by row.
        let cost = |of: &Marginal<'_>, cached: u64| {
            let seen = |row| 1.0 - (1.0 - (skew.mass(row + 1) - skew.mass(row))).powf(of.lookups(cached));
            (cached..60).map(seen).sum::<f64>() / of.lookups(cached)
        };
        let mut rows = Vec::new();
        for (row, cached) in [1.0, 6.0].into_iter().flat_map(|row| (0..59).map(move |cached| (row, cached))) {
            let of = of(row);
            let [saved, exact, by_13] = of.one_more(cached).unwrap();
            let (now, then) = (of.lookups(cached), of.lookups(cached + 1));
            let change = cost(&of, cached + 1) - cost(&of, cached);
            assert!((change - (exact - saved) / now).abs() < 1e-12, "{cached}: {change}, {saved}, {exact}");
            assert!((change - (exact - saved) / then).abs() > 1e-9, "the batch before divides");
            // Never below, and above by at most this share.
            let bound = now * (now - then) / then.powi(2);
            assert!((0.0..=bound).contains(&((by_13 - exact) / by_13 + 1e-12)), "{cached}: {exact}, {by_13}, {bound}");
            rows.push(
                Object::default().with("pinned_rows", cached).with("cost_rows", exact).with("cost_by_eq_13", by_13),
            );
        }
        assert!(of(399.5).one_more(0).is_none() && of(1.0).one_more(60).is_none(), "no room, no row");
        // With rows of one lookup each it is nearly exact, with larger ones it is off where they leave a small batch.
        assert_eq!(off(&rows[..30]), None);
        let said = off(&rows).unwrap();
        assert!(said.contains("beside 58 pinned rows its cost is 1"), "{said}");
    }
}
