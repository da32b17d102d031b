//! Whether one more cached row pays (SCARS, eq. 8 to 13), and the paper's binary search for the last one that does.
//!
//! Eq. 13, derived anew, because its summand is lost in the text at hand. With `f(e, b) = 1 - (1-P(e))^b`: caching e'
//! leaves `b' = b - d/a` lookups for a batch. By eq. 8 to 12 it pays when `f(e', b) >= t1`,
//! `t1 = sum (b f(e, b') - b' f(e, b)) / b'`, summed over the rows e that stay outside. One approximation is made: f(e,
//! b') is taken from the tangent at b, `f(e, b) + (b - b') (1-P)^b ln(1-P)`. Each summand is then
//! `(b - b')/b' [f(e, b) + b (1-P)^b ln(1-P)]`, and `(b - b')/b' = d/(M - |C'|d)`. So cache e' when
//!
//! `1 - (1-P(e'))^b >= d/(M - |C'|d) sum [1 - (1-P)^b + b (1-P)^b ln(1-P)]`.
//!
//! f is concave in b and lies below its tangent, so the approximated price is never below the exact one: eq. 13 never
//! advises a row that does not pay. The price is too high by at most the share `b (b-b') / b'^2`: with
//! `y = -b ln(1-P)`, `y^2 e^-y / (1 - e^-y - y e^-y) <= 2` bounds the second derivative by the sum itself. A fixed cost
//! of a batch adds the same exact term, `cost d/(M - |C'|d)`, to both.

use crate::{
    error::Error,
    scars::{positive, refused, skew::Skew},
};

/// The problem of SCARS: one distribution, one memory, a real number of lookups. Cost is rows that cross, and
/// optionally a fixed cost of each batch.
///
/// Sizes are in any common unit (the paper's is parameters).
///
/// ```
/// use hotrow::scars::{Marginal, Skew};
///
/// // 8 MB for rows of 256 bytes and batches whose lookups take 100 bytes each.
/// let skew = Skew::zipf(1_000_000, 1.1)?;
/// let problem = Marginal::new(&skew, 8e6, 256.0, 100.0, 0.0)?;
/// assert_eq!(problem.lookups(10_000), (8e6 - 10_000.0 * 256.0) / 100.0);
/// assert!(problem.exact(10).expect("room for another row").pays()); // row 10 is in every batch
/// assert!(problem.cost(problem.search()) < problem.cost(0));
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Marginal<'a> {
    skew: &'a Skew,
    memory: f64,
    row: f64,
    lookup: f64,
    batch_cost: f64,
}

/// The change of a batch's cost if the next row is cached too, in rows that cross.
///
/// Example: [`Marginal`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// Rows saved: the probability that the row is in a batch (left side of eq. 11 and 13).
    pub benefit: f64,
    /// Rows that the smaller batch costs (right side).
    pub price: f64,
}

impl Change {
    /// Whether the row is worth its memory.
    #[must_use]
    pub fn pays(&self) -> bool {
        self.benefit >= self.price
    }
}

impl<'a> Marginal<'a> {
    /// `memory` is M, `row` is d, `lookup` is the memory of one lookup of a batch (a, divided by the lookups of a
    /// sample), `batch_cost` is the fixed cost of a batch, in rows that cross (0 in the paper).
    ///
    /// # Errors
    /// [`Error::Scars`] for sizes that are not finite numbers above 0, a negative cost, or a memory that does not hold
    /// one lookup.
    pub fn new(skew: &'a Skew, memory: f64, row: f64, lookup: f64, batch_cost: f64) -> Result<Self, Error> {
        let remedy = "give the size in the unit of the others";
        positive("memory", memory, remedy)?;
        positive("size of a row", row, remedy)?;
        positive("size of a lookup", lookup, remedy)?;
        if !(batch_cost.is_finite() && batch_cost >= 0.0) {
            return Err(refused("cost of a batch", "0 or more rows", &batch_cost, "give rows"));
        }
        if memory < lookup {
            return Err(refused("memory", format!("{lookup} or more"), &memory, "raise it, or make a lookup smaller"));
        }
        Ok(Self { skew, memory, row, lookup, batch_cost })
    }

    /// Lookups of the largest batch beside `cached` rows: `b = (M - |C| d) / a` (eq. 7).
    #[must_use]
    pub fn lookups(&self, cached: u64) -> f64 {
        (self.memory - cached as f64 * self.row) / self.lookup
    }

    /// The most cached rows that leave room for a batch of one lookup.
    #[must_use]
    pub fn most(&self) -> u64 {
        (((self.memory - self.lookup) / self.row) as u64).min(self.skew.rows())
    }

    /// Rows that cross for each lookup: eq. 6 without its constants, `sum f_b / b`, and the fixed cost.
    #[must_use]
    pub fn cost(&self, cached: u64) -> f64 {
        let lookups = self.lookups(cached);
        (self.skew.distinct(lookups, cached) + self.batch_cost) / lookups
    }

    /// Whether one more row pays beside the `cached` hottest: eq. 11 and 12, exactly. `None` without such a row, or
    /// without room for it.
    #[must_use]
    pub fn exact(&self, cached: u64) -> Option<Change> {
        let (now, then) = self.batches(cached)?;
        let sum: f64 = self
            .skew
            .rest(cached + 1)
            .map(|part| {
                // `b f(b') - b' f(b) = (b - b') f(b) - b (f(b) - f(b'))`, computed without a difference of nearly equal
                // numbers.
                let seen = -(now * part.log).exp_m1();
                let lost = -(then * part.log).exp() * ((now - then) * part.log).exp_m1();
                part.rows * if part.probability < 1.0 { (now - then) * seen - now * lost } else { now - then }
            })
            .sum();
        Some(Change { benefit: self.benefit(cached, now), price: (sum + self.batch_cost * (now - then)) / then })
    }

    /// [`Marginal::exact`] by eq. 13. The price is never below the exact one, and above it by at most the share
    /// `b (b - b') / b'^2`.
    #[must_use]
    pub fn approximate(&self, cached: u64) -> Option<Change> {
        let (now, _) = self.batches(cached)?;
        let sum: f64 = self.skew.rest(cached + 1).map(|part| part.rows * rounded(-now * part.log)).sum();
        let price = self.row / (self.memory - (cached + 1) as f64 * self.row) * (sum + self.batch_cost);
        Some(Change { benefit: self.benefit(cached, now), price })
    }

    /// Lookups of a batch before and after caching one more row.
    fn batches(&self, cached: u64) -> Option<(f64, f64)> {
        (cached < self.most()).then(|| (self.lookups(cached), self.lookups(cached + 1)))
    }

    fn benefit(&self, cached: u64, lookups: f64) -> f64 {
        -(lookups * (-self.skew.probability(cached)).ln_1p()).exp_m1()
    }

    /// The paper's binary search for the number of rows to cache, in O(log rows) steps, each a sum over the
    /// distribution. Both ends of the range are tried too.
    ///
    /// It finds a number of rows after which one more does not pay. That is the best number only if rows pay up to it
    /// and none pays after it. As a function of b, the cost of eq. 6 falls, rises and falls again within the rows of
    /// one probability: its slope times b^2 is `phi(b)`, and `phi' / (b q^b)`, q = 1 - P, descends. Without a fixed
    /// cost it only rises and falls, so if all rows are alike, an end of the range is best. With several probabilities
    /// it need not be. Example: 100 rows share half of the lookups, 50,000 the rest, and the memory holds 1,000 rows or
    /// 10,000 lookups; the cost is 0.486 with none cached, 0.478 with the hot ones, 0.491 with 1,000. There may be
    /// several minima: in 1,387 random problems of up to three kinds of rows this search missed the best of one, by 1.7
    /// %. [`Planner::best`](crate::scars::planner::Planner::best) always finds it.
    #[must_use]
    pub fn search(&self) -> u64 {
        let most = self.most();
        // One more row pays after `few` (or few = 0), and does not pay after `many`.
        let (mut few, mut many) = (0, most);
        while many > few {
            let middle = few + (many - few) / 2;
            if self.exact(middle).is_some_and(|change| change.pays()) { few = middle + 1 } else { many = middle }
        }
        let best = [0, most].into_iter().fold((self.cost(few), few), |best, rows| {
            let cost = self.cost(rows);
            if cost < best.0 { (cost, rows) } else { best }
        });
        best.1
    }
}

/// `1 - e^-y - y e^-y`, accurate for small y too, where it is `y^2/2 - y^3/3 + y^4/8 - y^5/30 ..`.
fn rounded(y: f64) -> f64 {
    if y.is_infinite() {
        1.0
    } else if y < 1e-3 {
        y * y * (0.5 - y * (1.0 / 3.0 - y * (0.125 - y / 30.0)))
    } else {
        -(-y).exp_m1() - y * (-y).exp()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

    use super::*;

    fn skews() -> impl Strategy<Value = Skew> {
        let counts = prop_oneof![Just(0u64), Just(1), 1u64..10, 1u64..1000];
        prop_oneof![
            prop::collection::vec(counts, 1..60).prop_filter_map("no lookups", |counts| Skew::from_counts(counts).ok()),
            (1usize..6, 1u64..500, 1usize..60).prop_map(|(hot, count, cold)| {
                Skew::from_counts(std::iter::repeat_n(count, hot).chain(std::iter::repeat_n(1, cold))).unwrap()
            }),
            (1u64..300, 0.0..2.0).prop_map(|(rows, s)| Skew::zipf(rows, s).unwrap()),
            (1u64..300, 0.1..50.0).prop_map(|(rows, scale)| Skew::exponential(rows, scale).unwrap()),
            (1u64..300, 0.1..50.0).prop_map(|(rows, scale)| Skew::half_normal(rows, scale).unwrap()),
        ]
    }

    /// Memory as a number of rows, the size of a row as a number of lookups, the cost of a batch.
    fn sizes() -> impl Strategy<Value = (f64, f64, f64)> {
        (1.0..200.0, prop_oneof![0.01..1.0, 1.0..30.0], prop_oneof![Just(0.0), 0.0..50.0])
    }

    fn least(problem: &Marginal<'_>) -> f64 {
        (0..=problem.most()).map(|cached| problem.cost(cached)).fold(f64::INFINITY, f64::min)
    }

    fn ends(problem: &Marginal<'_>) -> f64 {
        problem.cost(0).min(problem.cost(problem.most()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_row_pays_exactly_when_the_cost_falls(skew in skews(), (memory, row, cost) in sizes()) {
            let Ok(problem) = Marginal::new(&skew, memory * row, row, 1.0, cost) else { return Ok(()) };
            for cached in 0..problem.most() {
                let change = problem.exact(cached).unwrap();
                // Eq. 8 is the price less the benefit, divided by the batch before.
                let by_cost = problem.cost(cached + 1) - problem.cost(cached);
                let by_change = (change.price - change.benefit) / problem.lookups(cached);
                let error = (1e-11 + skew.error()) * problem.cost(cached) + 1e-200;
                prop_assert!((by_cost - by_change).abs() <= error, "{cached}: {by_cost} {by_change}");
            }
            prop_assert!(problem.exact(problem.most()).is_none());
        }

        #[test]
        fn the_approximated_price_is_above_the_exact_one_by_its_bound(skew in skews(), (memory, row, cost) in sizes()) {
            let Ok(problem) = Marginal::new(&skew, memory * row, row, 1.0, cost) else { return Ok(()) };
            for cached in 0..problem.most() {
                let (exact, near) = (problem.exact(cached).unwrap(), problem.approximate(cached).unwrap());
                let (now, then) = problem.batches(cached).unwrap();
                prop_assert_eq!(exact.benefit, near.benefit);
                prop_assert!(near.price >= exact.price * (1.0 - 1e-9) - 1e-12, "{:?} {:?}", exact, near);
                let bound = now * (now - then) / then.powi(2);
                prop_assert!(near.price - exact.price <= bound * near.price + 1e-12, "{:?} {:?} {}", exact, near, bound);
                // Each row that eq. 13 advises pays, and it advises each row that clearly pays.
                prop_assert!(!near.pays() || exact.benefit >= exact.price * (1.0 - 1e-9));
                prop_assert!(near.pays() || exact.benefit * (1.0 - bound) <= exact.price * (1.0 + 1e-9));
            }
        }

        #[test]
        fn rows_that_are_alike_have_the_best_at_an_end(rows in 1u64..200, (memory, row, _) in sizes()) {
            let skew = Skew::uniform(rows).unwrap();
            let Ok(problem) = Marginal::new(&skew, memory * row, row, 1.0, 0.0) else { return Ok(()) };
            prop_assert!(ends(&problem) <= least(&problem) * (1.0 + 1e-9));
        }

        #[test]
        fn rows_of_one_probability_fall_rise_and_fall_with_the_batch(hot in 1usize..6, count in 1u64..300, cold in 1usize..120, (memory, row, cost) in sizes()) {
            let counts = std::iter::repeat_n(count, hot).chain(std::iter::repeat_n(1, cold));
            let skew = Skew::from_counts(counts).unwrap();
            let Ok(problem) = Marginal::new(&skew, memory * row, row, 1.0, cost) else { return Ok(()) };
            let mut end = 0;
            for bin in skew.bins() {
                let start = end;
                end += bin.rows;
                // In order of batch size.
                let costs: Vec<f64> = (start..=end.min(problem.most())).rev().map(|cached| problem.cost(cached)).collect();
                let mut signs: Vec<bool> = costs.windows(2).filter(|two| (two[1] / two[0] - 1.0).abs() > 1e-11).map(|two| two[1] > two[0]).collect();
                signs.dedup();
                prop_assert!([&[][..], &[false], &[true], &[false, true], &[true, false], &[false, true, false]].contains(&&signs[..]), "{:?}", signs);
                if cost == 0.0 {
                    prop_assert!(signs.first() != Some(&false) || signs.len() == 1, "without a cost it only rises and falls: {:?}", signs);
                }
            }
        }
    }

    /// Up to three kinds of rows of very different probability, and very different sizes.
    fn wide() -> impl Strategy<Value = (Skew, (f64, f64, f64))> {
        let kinds = prop::collection::vec((0.0..8.0, 0.0..8.0), 1..4).prop_map(|kinds| {
            let kinds = kinds.into_iter().map(|(rows, count): (f64, f64)| (rows.exp() as usize, count.exp() as u64));
            Skew::from_counts(kinds.flat_map(|(rows, count)| std::iter::repeat_n(count, rows))).unwrap()
        });
        let cost = prop_oneof![Just(0.0), (-3.0..6.0).prop_map(f64::exp)];
        (kinds, ((1.0..7.0).prop_map(f64::exp), (-4.0..5.0).prop_map(f64::exp), cost))
    }

    #[test]
    fn search_finds_the_best_but_where_there_are_several_minima() {
        let mut runner = TestRunner::deterministic();
        let (mut all, mut missed, mut inside) = (0, 0, 0);
        for _ in 0..1500 {
            let (skew, (memory, row, cost)) = wide().new_tree(&mut runner).unwrap().current();
            let Ok(problem) = Marginal::new(&skew, memory * row, row, 1.0, cost) else { continue };
            let least = least(&problem);
            all += 1;
            missed += u32::from(problem.cost(problem.search()) > least * (1.0 + 1e-9));
            inside += u32::from(cost == 0.0 && ends(&problem) > least * (1.0 + 1e-9));
        }
        println!("of {all} problems {missed} missed; best between the ends without a batch's cost: {inside}");
        assert!(all > 1000 && missed < 5 && inside > 0);
    }

    #[test]
    fn the_best_may_lie_between_the_ends_and_be_missed() {
        // The example of `search`: half of the lookups on 100 rows, half on 50,000.
        let hot = std::iter::repeat_n(500, 100).chain(std::iter::repeat_n(1, 50_000));
        let skew = Skew::from_counts(hot).unwrap();
        let problem = Marginal::new(&skew, 1000.0, 1.0, 0.1, 0.0).unwrap();
        let costs = [0, 100, problem.most()].map(|cached| (problem.cost(cached) * 1000.0).round());
        assert_eq!(costs, [486.0, 478.0, 491.0]);
        assert_eq!(problem.search(), 100);
        // Two kinds of hot rows and a cold kind: the search ends in the worse of two minima.
        let counts =
            [(179, 220), (100, 116), (1762, 1)].into_iter().flat_map(|(rows, count)| std::iter::repeat_n(count, rows));
        let skew = Skew::from_counts(counts).unwrap();
        let problem = Marginal::new(&skew, 326.0, 1.0, 0.01, 0.0).unwrap();
        let more = problem.cost(problem.search()) / least(&problem) - 1.0;
        assert!(more > 0.01, "{more}");
    }

    #[test]
    fn search_takes_few_steps_of_a_thousand_million_rows() {
        let rows = 1_000_000_000;
        let skew = Skew::zipf(rows, 1.0).unwrap();
        let problem = Marginal::new(&skew, 1e9, 200.0, 150.0, 20_000.0).unwrap();
        let found = problem.search();
        assert!(0 < found && found < problem.most(), "{found}");
        // A minimum: farther numbers of rows cost more; near ones may differ by rounding only.
        let best = problem.cost(found);
        for share in [0.5, 0.9, 1.05] {
            assert!(problem.cost((found as f64 * share) as u64) > best, "{share}");
        }
        assert!(problem.cost(problem.most()) > 2.0 * best && problem.cost(0) > 1.1 * best);
    }

    #[test]
    fn what_is_no_problem_is_refused() {
        let skew = Skew::uniform(10).unwrap();
        let new = |memory, row, lookup, cost| Marginal::new(&skew, memory, row, lookup, cost).is_ok();
        assert!(new(10.0, 1.0, 1.0, 0.0));
        assert!(!new(0.5, 1.0, 1.0, 0.0) && !new(f64::NAN, 1.0, 1.0, 0.0) && !new(10.0, 0.0, 1.0, 0.0));
        assert!(!new(10.0, 1.0, -1.0, 0.0) && !new(10.0, 1.0, 1.0, -1.0) && !new(10.0, 1.0, 1.0, f64::INFINITY));
        // One row that every batch contains.
        let one = Skew::uniform(1).unwrap();
        let problem = Marginal::new(&one, 10.0, 2.0, 1.0, 0.0).unwrap();
        let change = problem.exact(0).unwrap();
        assert_eq!((change.benefit, change.price, problem.search()), (1.0, 0.0, 1));
        assert_eq!(problem.approximate(0), Some(change));
    }
}
