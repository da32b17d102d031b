//! Goals: a bound on a figure, and whether the records of a run reach it. They are listed in `data/goals.csv`.

use crate::records::{Measurement, Select, Unit};
use serde::{Deserialize, Serialize};

/// A line of `data/goals.csv`.
#[derive(Clone, Debug, Deserialize)]
pub struct Goal {
    command: String,
    id: String,
    goal: String,
    /// `>= 0.85`, `<= 0.1`, or `reported`.
    bound: String,
    /// The quantity. If several records have it, the worst one counts.
    what: String,
    /// The shape; empty accepts all.
    shape: String,
    /// The condition on the setting: `kernel=gather; phase=forward`.
    setting: String,
    /// `yes` for a goal that is a count and no time: it is judged on every machine and at every size. No goal is judged by a figure whose setting has
    /// `scaled`, since the machine had to shrink the shape.
    anywhere: String,
}

/// A goal with the figure of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub id: String,
    goal: String,
    bound: String,
    /// The deciding figure.
    pub reached: Option<f64>,
    unit: Option<Unit>,
    /// Whether the goal is reached; `None` if it was not measured, or figures are not judged.
    pub met: Option<bool>,
    /// The reached share of the bound; from 1 on the goal is met.
    pub progress: Option<f64>,
    /// Shape and setting of the deciding record.
    of: String,
    /// Why there is no figure, or why it decides nothing.
    why: Option<String>,
    /// Whether the goal could be judged here.
    #[serde(skip)]
    here: bool,
}

pub fn goals(command: &str) -> Vec<Goal> {
    let table = include_bytes!("../data/goals.csv");
    let all = csv::Reader::from_reader(&table[..]).into_deserialize().flatten();
    all.filter(|goal: &Goal| goal.command == command).collect()
}

impl Goal {
    fn matches(&self, record: &Measurement) -> bool {
        let Self { what, shape, setting, .. } = self;
        record.value.is_finite() && Select { what, shape, setting }.has(record)
    }

    /// The bound as a number, and whether a figure must be at most that.
    fn limit(&self) -> Option<(f64, bool)> {
        let (sign, limit) = self.bound.split_once(' ')?;
        Some((limit.parse().ok()?, sign == "<="))
    }

    fn progress(&self, value: f64) -> Option<f64> {
        self.limit().map(|(limit, at_most)| if at_most { limit / value } else { value / limit })
    }

    /// Why no record decides: what the command line or the device lacks, what was left out under the goal's shape, or not asked for.
    fn missing(&self, records: &[Measurement], left_out: &[(&str, &str)]) -> String {
        let Self { what, shape, setting, .. } = self;
        let named = |name: &str| !shape.is_empty() && (name.starts_with(shape) || shape.starts_with(name));
        let has = |setting| records.iter().any(|record| Select { what: "", shape, setting }.has(record));
        let mapped = self.command == "bench" || setting.contains("placement=mapped");
        let left = left_out.iter().find(|(name, _)| named(name) || self.command == "bench");
        let why = match left {
            _ if what == "against cub" || what == "against lampshade" => "wants figures of this machine: --beside FILE",
            Some((_, why)) => why,
            None if !has("") => "its part was not asked for: name it with --only",
            None if setting.contains("kernel=") => "the device has no time stamps (TIMESTAMP_QUERY)",
            None if mapped && !has("placement=mapped") => "no device here maps host memory (MAPPABLE_PRIMARY_BUFFERS)",
            None => "a figure that it is worked out from was left out",
        };
        why.to_owned()
    }

    /// Judges the goal by `records` if `judged`, or if the goal holds anywhere; never by a record whose setting has `scaled`.
    /// `left_out` has the names and reasons of what was not measured.
    pub fn judge(&self, records: &[Measurement], judged: bool, left_out: &[(&str, &str)]) -> Judged {
        let worst = |record: &Measurement| self.progress(record.value).unwrap_or(record.value);
        let found = records.iter().filter(|record| self.matches(record));
        let decided = found.min_by(|a, b| worst(a).total_cmp(&worst(b)));
        let progress = decided.and_then(|record| self.progress(record.value));
        let here = judged || !self.anywhere.is_empty();
        // The place of a shape that had to shrink says so.
        let judged = here && decided.is_some_and(|record| record.key("scaled").is_none());
        let idle = (!here).then(|| "a software driver, the CPU or other sizes decide nothing".to_owned());
        let unit = decided.map(|record| record.unit);
        let bound =
            self.limit().zip(unit).map(|((limit, _), unit)| format!("{} {}", &self.bound[..2], unit.show(limit)));
        Judged {
            id: self.id.clone(),
            goal: self.goal.clone(),
            bound: bound.unwrap_or_else(|| self.bound.clone()),
            reached: decided.map(|record| record.value),
            unit,
            met: progress.filter(|_| judged).map(|progress| progress >= 1.0),
            progress,
            of: decided.map(Measurement::place).unwrap_or_default(),
            why: if decided.is_some() { idle } else { Some(self.missing(records, left_out)) },
            here,
        }
    }
}

impl Judged {
    pub fn line(&self) -> [String; 5] {
        let verdict = match (self.reached, self.met) {
            (None, _) => "unmeasured",
            (_, Some(true)) => "reached",
            (_, Some(false)) => "missed",
            // Only a card at the goal's size can decide.
            (Some(_), None) if !self.here => "unmeasured",
            (Some(_), None) => "not judged",
        };
        let reached = self.reached.zip(self.unit).map_or_else(|| "-".to_owned(), |(value, unit)| unit.show(value));
        let of = format!("{}; {}", self.of, self.why.as_deref().unwrap_or_default());
        [&self.goal, &self.bound, &reached, verdict, of.trim_matches([';', ' '])].map(|text: &str| text.to_owned())
    }
}

pub const HEAD: [&str; 5] = ["goal", "bound", "figure", "verdict", "of, or why not"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Setting;

    /// A goal of the table with another bound and another condition.
    fn goal(bound: &str, setting: &str) -> Goal {
        let gather = goals("suite").into_iter().find(|goal| goal.id == "gather").unwrap();
        Goal { bound: bound.to_owned(), setting: setting.to_owned(), ..gather }
    }

    /// The line of a goal after figures of these values, which are judged.
    fn line(goal: &Goal, values: &[f64], scaled: bool) -> [String; 5] {
        let setting = Setting::default().with("kernel", "gather");
        let setting = if scaled { setting.with("scaled", "half") } else { setting };
        let record = |&value: &f64| Measurement::new("of copy", "hits-uniform", &setting, value, Unit::Share);
        let left_out = [("sort", "x"), ("hits", "out of time")];
        goal.judge(&values.iter().map(record).collect::<Vec<_>>(), true, &left_out[..2 * usize::from(scaled)]).line()
    }

    #[test]
    fn the_table_is_whole() {
        let lines = include_str!("../data/goals.csv").lines().count() - 1;
        let all: Vec<Goal> = ["bench", "suite", "robe"].into_iter().flat_map(goals).collect();
        assert_eq!(all.len(), lines, "a row that cannot be read is left out");
        assert!(all.iter().all(|goal| goal.limit().is_some() || goal.bound == "reported"));
        let ids: std::collections::BTreeSet<_> = all.iter().map(|goal| (&goal.command, &goal.id)).collect();
        assert_eq!(ids.len(), lines);
    }

    #[test]
    fn goals_are_reached_from_either_side_by_figures_of_their_own_size() {
        for (bound, values, wanted) in [
            (">= 0.85", &[0.86][..], "reached"),
            // The worst one counts.
            (">= 0.85", &[0.86, 0.84], "missed"),
            ("<= 0.0024", &[2.3e-3], "reached"),
            ("<= 0.0024", &[2.3e-3, 2.5e-3], "missed"),
            ("reported", &[9.0], "not judged"),
            (">= 0.85", &[f64::NAN], "unmeasured"),
        ] {
            assert_eq!(line(&goal(bound, "kernel=gather"), values, false)[3], wanted, "{bound}, {values:?}");
        }
        let gather = goal(">= 0.85", "kernel=gather");
        assert_eq!(line(&gather, &[0.9], true)[3], "not judged");
        assert_eq!(line(&gather, &[], true)[4], "out of time");
        assert_eq!(line(&gather, &[], false)[4], "its part was not asked for: name it with --only");
        assert_eq!(line(&goal(">= 0.85", "kernel=sort"), &[0.9], false)[3], "unmeasured");
        assert_eq!(line(&Goal { shape: "other".into(), ..gather.clone() }, &[0.9], false)[3], "unmeasured");
        let setting = Setting::default().with("kernel", "gather");
        let records = [Measurement::new("of copy", "hits-uniform", &setting, 0.9, Unit::Share)];
        let elsewhere = |goal: &Goal| goal.judge(&records, false, &[]).line()[3].clone();
        assert_eq!(elsewhere(&gather), "unmeasured");
        assert_eq!(elsewhere(&Goal { anywhere: "yes".into(), ..gather }), "reached");
    }
}
