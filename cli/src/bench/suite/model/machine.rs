//! The machine of a prediction: numbers of `data/machines.csv`, and the seconds that follow from counts.

use super::{Counts, Device, Stage};
use hotrow::LookupBody;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A number of a machine.
#[derive(Deserialize)]
struct Line {
    machine: String,
    name: String,
    value: f64,
}

/// A machine by the numbers of `data/machines.csv`, where each number has its unit and its source.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Machine {
    pub(in super::super) name: String,
    numbers: BTreeMap<String, f64>,
}

/// The numbers that every machine has.
const NUMBERS: [&str; 17] = [
    "copy",
    "l2",
    "processors",
    "clock",
    "lines",
    "launch",
    "atomics",
    "same_word",
    "barrier",
    "resident",
    "link",
    "sort_share",
    "binding",
    "windows",
    "grid",
    "wide",
    "latency",
];

/// What a dispatch waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) struct Limit {
    pub(in super::super) name: &'static str,
    pub(in super::super) seconds: f64,
}

fn lines() -> Vec<Line> {
    let table = include_bytes!("../../../../data/machines.csv");
    csv::Reader::from_reader(&table[..]).into_deserialize().flatten().collect()
}

/// The names of the machines.
pub(in super::super) fn names() -> Vec<String> {
    let mut names: Vec<String> = lines().into_iter().map(|line| line.machine).collect();
    names.dedup();
    names
}

impl Machine {
    /// The machine of this name, if it has all numbers.
    pub(in super::super) fn named(name: &str) -> Option<Self> {
        let mine = lines().into_iter().filter(|line| line.machine == name);
        let numbers: BTreeMap<String, f64> = mine.map(|line| (line.name, line.value)).collect();
        NUMBERS.iter().all(|name| numbers.contains_key(*name)).then(|| Self { name: name.to_owned(), numbers })
    }

    /// One of its numbers.
    pub(in super::super) fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(f64::NAN)
    }

    pub(in super::super) fn device(&self) -> Device {
        Device {
            lookup: LookupBody::Lanes32,
            grid: self.number("grid"),
            wide: self.number("wide"),
            windows: self.number("windows"),
        }
    }

    /// What a dispatch that must move `bytes` bytes waits for longest.
    pub(in super::super) fn limit(&self, counts: &Counts, bytes: f64) -> Limit {
        let number = |name| self.number(name);
        let all = number("processors");
        let atomics = (counts.atomics / number("atomics")).max(counts.hottest / number("same_word"));
        [
            ("bytes", bytes / number("copy")),
            ("sectors", 32.0 * counts.sectors / number("l2")),
            ("lines", counts.lines / (all * number("clock") * number("lines"))),
            ("atomics", atomics),
            ("barriers", counts.barriers * number("barrier") / (all * number("resident"))),
            ("latency", counts.waits * number("latency") / (all * number("resident"))),
            ("link", counts.link_in.max(counts.link_out) / number("link")),
        ]
        .map(|(name, seconds)| Limit { name, seconds })
        .into_iter()
        .fold(Limit { name: "launch", seconds: 0.0 }, |most, one| if one.seconds > most.seconds { one } else { most })
    }

    /// The predicted seconds of a stage: for each dispatch a launch, and what it waits for longest. The limit that takes most of the time
    /// gives the name; launches do if they take more than that.
    pub(in super::super) fn time(&self, stage: &Stage) -> Limit {
        let sectors: f64 = stage.dispatches.iter().map(|counts| counts.sectors).sum();
        let launches: f64 = stage.dispatches.iter().map(|counts| counts.dispatches * self.number("launch")).sum();
        let mut named: Vec<Limit> = vec![Limit { name: "launch", seconds: launches }];
        for counts in &stage.dispatches {
            let one = self.limit(counts, stage.bytes * counts.sectors / sectors.max(1.0));
            match named.iter_mut().find(|known| known.name == one.name) {
                Some(known) => known.seconds += one.seconds,
                None => named.push(one),
            }
        }
        let seconds = named.iter().map(|limit| limit.seconds).sum();
        let most = named.into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or_default();
        Limit { name: most.name, seconds }
    }
}
