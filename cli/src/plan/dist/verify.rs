//! Compares a bill with the bytes that a real run counted.

use super::bill::Bill;
use super::wire::Phase;
use crate::object::{Field, Object};
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The bytes that the messages of a run had, by phase and pair, over all its steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) steps: u64,
    ranks: usize,
    bytes: [Vec<u64>; 5],
}

/// A file of counted bytes: the steps, and for each pair of ranks the bytes of each phase over all of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    steps: u64,
    pairs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    from: usize,
    to: usize,
    #[serde(flatten)]
    bytes: BTreeMap<String, u64>,
}

impl Sent {
    /// No byte yet, of a run of so many steps.
    pub(super) fn new(steps: u64, ranks: usize) -> Self {
        Self { steps, ranks, bytes: std::array::from_fn(|_| vec![0; ranks * ranks]) }
    }

    /// Adds bytes of a phase that one rank sent to another.
    pub(super) fn add(&mut self, phase: Phase, from: usize, to: usize, bytes: u64) {
        self.bytes[phase as usize][from * self.ranks + to] += bytes;
    }

    /// Reads a file.
    pub(super) fn read(path: &Path, ranks: usize) -> anyhow::Result<Self> {
        let name = || format!("{}: wanted the bytes that a run counted", path.display());
        let text = fs::read_to_string(path).with_context(name)?;
        let file: File = serde_json::from_str(&text).with_context(name)?;
        let mut sent = Self::new(file.steps, ranks);
        for Pair { from, to, bytes } in file.pairs {
            anyhow::ensure!(
                from < ranks && to < ranks,
                "{}: wanted ranks below {ranks}, found bytes from {from} to {to}; give the run's --ranks",
                path.display()
            );
            for (name, bytes) in bytes {
                let Some(phase) = Phase::ALL.into_iter().find(|phase| phase.name() == name) else {
                    anyhow::bail!(
                        "{}: wanted counts, requests, sizes, rows or gradients, found {name}; name a phase of the exchange",
                        path.display()
                    );
                };
                sent.add(phase, from, to, bytes);
            }
        }
        Ok(sent)
    }
}

/// Compares the bytes of each phase of a step, over all ranks and of each pair. Those of all ranks may differ by `allowed_percent`. The bytes of a
/// pair may differ by as much times the square root of the number of pairs, as if they fell independently of each other. An object for each phase, and
/// whether all are within.
pub(super) fn compare(bill: &Bill, sent: &Sent, allowed_percent: f64) -> (Vec<Object>, bool) {
    let ranks = bill.ranks();
    let allowed_of_pair = allowed_percent * ((ranks * ranks - ranks) as f64).sqrt();
    let mut all_within = true;
    let deviation = |planned: f64, counted: f64| {
        if planned == counted { 0.0 } else { 100.0 * (counted - planned) / planned.max(f64::MIN_POSITIVE) }
    };
    let lines = Phase::ALL.map(|phase| {
        let counted = |pair: usize| sent.bytes[phase as usize][pair] as f64 / sent.steps.max(1) as f64;
        let planned = |pair: usize| bill.bytes[phase as usize][pair];
        let (all_planned, all_counted) =
            (0..ranks * ranks).fold((0.0, 0.0), |sums, pair| (sums.0 + planned(pair), sums.1 + counted(pair)));
        let worst = (0..ranks * ranks)
            .map(|pair| (pair, deviation(planned(pair), counted(pair)).abs()))
            .reduce(|worst, one| if one.1 > worst.1 { one } else { worst });
        let (pair, worst) = worst.unwrap_or_default();
        // Sums of means carry a rounding of their own.
        let within =
            deviation(all_planned, all_counted).abs() <= allowed_percent + 1e-9 && worst <= allowed_of_pair + 1e-9;
        all_within &= within;
        Object::default()
            .with("phase", phase.name())
            .with("planned", all_planned)
            .with("counted", all_counted)
            .with("deviation_percent", deviation(all_planned, all_counted))
            .with("allowed_percent", allowed_percent)
            .with("worst_from", pair / ranks)
            .with("worst_to", pair % ranks)
            .with("worst_percent", worst)
            .with("worst_allowed_percent", allowed_of_pair)
            .with("within", within)
    });
    (lines.to_vec(), all_within)
}

/// The lines of a comparison as a field of the report; an empty list if there was none.
pub(super) fn field(lines: &[Object]) -> Field {
    lines.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Asked, Wire};
    use super::*;
    use hotrow::dist::WireOptions;
    use hotrow::{Pooling, Precision};

    fn bill() -> Bill {
        let wire = Wire {
            dim: 8,
            precision: Precision::Int8,
            form: WireOptions::default(),
            pooling: Pooling::Sum,
            weighted: false,
            features: 1,
            ranks: 2,
            shards: 2,
        };
        let mut bill = Bill::new(wire, 0);
        for requester in 0..2 {
            let asked = Asked {
                rows: 10.0,
                dirty: 4.0,
                bit_words: 1.0,
                accesses: 21.0,
                half_words: 11.0,
                bags: 5.0,
                any: 1.0,
                ..Asked::default()
            };
            bill.ask(requester, 1 - requester, &asked);
        }
        bill
    }

    /// What two steps of the bill send, and `more` bytes of a phase from rank 0 to rank 1.
    fn sent(phase: Phase, more: i64) -> Sent {
        let mut sent = Sent::new(2, 2);
        for from in 0..2 {
            for (phase, bytes) in Phase::ALL.into_iter().zip([20, 80, 4, 4 + 6 * 16 + 4 * 32, 4 + 5 * 32 + 44]) {
                sent.add(phase, from, 1 - from, 2 * bytes);
            }
        }
        let bytes = &mut sent.bytes[phase as usize];
        bytes[1] = bytes[1].checked_add_signed(more).unwrap();
        sent
    }

    #[test]
    fn a_wrong_byte_is_found() {
        assert!(compare(&bill(), &sent(Phase::Rows, 0), 0.0).1);
        for phase in Phase::ALL {
            for more in [-1, 1] {
                let (lines, within) = compare(&bill(), &sent(phase, more), 0.0);
                assert!(!within, "{phase:?}");
                let wrong: Vec<&str> = lines
                    .iter()
                    .filter(|line| line.number("worst_percent") > 0.0)
                    .map(|line| line.text("phase"))
                    .collect();
                assert_eq!(wrong, [phase.name()]);
            }
            // 1 % of an expected value may be off, 3 % may not; whole bytes, for the smallest phase has 16.
            let planned = bill().phase(phase);
            let off = |more: f64| compare(&bill(), &sent(phase, more as i64), 1.0).1;
            assert!(off((0.01 * planned).floor()) && !off((0.06 * planned).ceil()), "{phase:?}");
        }
        // Bytes that go the wrong way round have the right sum. Of two pairs, each may be off by 1.41 %.
        let planned = bill().phase(Phase::Rows) / 2.0;
        for (percent, allowed, wanted) in [(0.5, 0.0, false), (1.3, 1.0, true), (1.6, 1.0, false)] {
            let mut swapped = sent(Phase::Rows, 0);
            let bytes = (2.0 * planned * percent / 100.0).round() as u64;
            swapped.bytes[Phase::Rows as usize][1] -= bytes;
            swapped.bytes[Phase::Rows as usize][2] += bytes;
            assert_eq!(compare(&bill(), &swapped, allowed).1, wanted, "{percent} %");
        }
    }

    #[test]
    fn a_file_is_read_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sent.json");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            Sent::read(&path, 2)
        };
        let good = read(r#"{"steps": 2, "pairs": [{"from": 0, "to": 1, "counts": 40, "rows": 5}]}"#).unwrap();
        let mut wanted = Sent::new(2, 2);
        wanted.add(Phase::Counts, 0, 1, 40);
        wanted.add(Phase::Rows, 0, 1, 5);
        assert_eq!(good, wanted);
        for (text, named) in [
            ("{", "wanted the bytes"),
            (r#"{"steps": 2}"#, "pairs"),
            (r#"{"steps": 2, "pairs": [{"from": 0, "to": 2, "rows": 5}]}"#, "ranks below 2"),
            (r#"{"steps": 2, "pairs": [{"from": 0, "to": 1, "row": 5}]}"#, "found row"),
            (r#"{"steps": 2, "pairs": [{"from": 0, "to": 1, "rows": -5}]}"#, "-5"),
        ] {
            let refused = format!("{:#}", read(text).unwrap_err());
            assert!(refused.contains(named), "{text}: {refused}");
        }
    }
}
