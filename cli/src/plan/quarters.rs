//! The samples that use each quarter of the pinned rows (SCARS, Figure 4).

use hotrow_plan::scars::Skew;

/// The samples that are counted, as in the figure.
const OF: f64 = 1024.0;

/// How many of 1,024 `samples` look up a row of each quarter of the `pinned` rows, hottest first.
pub(super) fn counted(samples: &[&[u32]], pinned: &[u32], rows: u32) -> [f64; 4] {
    let mut bit = vec![0u8; rows as usize];
    pinned.iter().enumerate().for_each(|(rank, &row)| bit[row as usize] = 1 << (4 * rank / pinned.len()));
    let used: Vec<u8> = samples.iter().map(|rows| rows.iter().fold(0, |all, &row| all | bit[row as usize])).collect();
    let users = |quarter: usize| used.iter().filter(|&used| used >> quarter & 1 == 1).count();
    std::array::from_fn(|quarter| OF * users(quarter) as f64 / samples.len() as f64)
}

/// The same, expected for samples of so many independent lookups. `pinned` has the number of pinned rows in each bin of the skew.
pub(super) fn expected(skew: &Skew, pinned: &[f64], lookups: f64) -> [f64; 4] {
    let (quarter, mut before, mut masses) = (pinned.iter().sum::<f64>() / 4.0, 0.0, [0.0; 4]);
    for (&(_, probability), &rows) in skew.bins().iter().zip(pinned) {
        for (begin, mass) in [0.0, quarter, 2.0 * quarter, 3.0 * quarter].into_iter().zip(&mut masses) {
            *mass += probability * ((begin + quarter).min(before + rows) - f64::max(begin, before)).max(0.0);
        }
        before += rows;
    }
    masses.map(|mass| -OF * (lookups * (-mass).ln_1p()).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_quarters_by_hand() {
        let samples: [&[u32]; 4] = [&[1, 2], &[1, 9], &[1, 3], &[9]];
        assert_eq!(counted(&samples, &[1, 2, 3, 4], 10), [768.0, 256.0, 256.0, 0.0]);
        assert_eq!(counted(&samples, &[4, 3, 2, 1], 10), [0.0, 256.0, 256.0, 768.0], "the hottest come first");
        // Rows of 4/8, 2/8, 1/8 and 1/8 of the lookups, of which two make a sample.
        let skew = Skew::from_bins([(4, 1), (2, 1), (1, 2)]).unwrap();
        let wanted = [0.5_f64, 0.25, 0.125, 0.125].map(|mass| 1024.0 * (1.0 - (1.0 - mass).powi(2)));
        let near = |found: [f64; 4]| found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-9);
        assert!(near(expected(&skew, &[1.0, 1.0, 2.0], 2.0)) && !near(expected(&skew, &[1.0, 1.0, 2.0], 1.0)));
    }
}
