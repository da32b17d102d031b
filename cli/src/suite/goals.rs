//! What is to be reached on an H200, and what was.

use serde::Serialize;

use crate::output;

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) id: Id,
    pub(crate) what: &'static str,
    pub(crate) goal: &'static str,
    /// The goal as a number; `None` where the figure is only to be reported.
    pub(crate) threshold: Option<f64>,
    pub(crate) at_most: bool,
    pub(crate) unit: Unit,
    /// `None`: unmeasured.
    pub(crate) reached: Option<f64>,
    /// `None` where it was not measured, or on a software adapter.
    pub(crate) met: Option<bool>,
    pub(crate) remark: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Id {
    Gather,
    Forward,
    Backward,
    SortCub,
    SortLampshade,
    MappedBound,
    MappedUvm,
    Link,
    PackedBytes,
    PackedTime,
    Prefetched,
    Alone,
    Hidden,
    BusBytes,
    PinnedFlat,
    PinnedStep,
    Windows,
    NvidiaStep,
    NvidiaElementWise,
    Scaling,
    Skew,
    ElementWise,
    Trusted,
    RobeForward,
    RobeDense,
    RobeDenseGradient,
    RobeSparse,
    RobeSparseGradient,
    RobeCrossover,
    RobeCrossoverGradient,
    RobeFlat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Share,
    Times,
    Seconds,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.1} %", 100.0 * value),
            Self::Times => format!("{value:.2} x"),
            Self::Seconds => super::report::seconds(Some(value)),
        }
    }
}

impl Goal {
    fn new(id: Id, what: &'static str, goal: &'static str, threshold: Option<f64>, at_most: bool, unit: Unit) -> Self {
        Self { id, what, goal, threshold, at_most, unit, reached: None, met: None, remark: String::new() }
    }

    /// The share of the goal that was reached: 1 and above is met.
    pub(crate) fn progress(&self) -> Option<f64> {
        let (reached, threshold) = (self.reached?, self.threshold?);
        Some(if self.at_most { threshold / reached } else { reached / threshold })
    }
}

/// Those of `bench --robe`, unmeasured.
pub(crate) fn robe() -> Vec<Goal> {
    use Id::*;
    use Unit::*;
    let goal = |id, what, goal, threshold, unit| Goal::new(id, what, goal, Some(threshold), true, unit);
    vec![
        goal(RobeForward, "forward of every array (Z = 32, medians)", "<= 0.05 ms", 5e-5, Seconds),
        goal(RobeDense, "dense update at 1,000x and above (Z = 32, medians)", "<= 0.10 ms", 1e-4, Seconds),
        goal(RobeDenseGradient, "dense gradient at 1,000x and above (Z = 32, medians)", "<= 0.10 ms", 1e-4, Seconds),
        goal(
            RobeSparse,
            "sparse against dense update, no more weights than the batch touches (Z = 32, lowest times)",
            "<= 1.5 x",
            1.5,
            Times,
        ),
        goal(
            RobeSparseGradient,
            "sparse against dense gradient, no more weights than the batch touches (Z = 32, lowest times)",
            "<= 1.5 x",
            1.5,
            Times,
        ),
        goal(
            RobeCrossover,
            "sparse against dense update above the crossover (Z = 32, lowest times)",
            "<= 1 x",
            1.0,
            Times,
        ),
        goal(
            RobeCrossoverGradient,
            "sparse against dense gradient above the crossover (Z = 32, lowest times)",
            "<= 1 x",
            1.0,
            Times,
        ),
        goal(
            RobeFlat,
            "slowest against fastest number of rows in one array (Z = 32, lowest times)",
            "<= 1.1 x",
            1.1,
            Times,
        ),
    ]
}

/// Every goal of the suite, unmeasured.
pub(crate) fn all() -> Vec<Goal> {
    use Id::*;
    use Unit::*;
    let goal = Goal::new;
    vec![
        goal(
            Gather,
            "gather, 100 % hits, FP32 x 128, 2^20 indices uniform, 4 GiB",
            ">= 85 % of copy",
            Some(0.85),
            false,
            Share,
        ),
        goal(Forward, "forward, the same", ">= 70 % of copy", Some(0.70), false, Share),
        goal(Backward, "backward with AdaGrad, 100 % hits, Zipf 1.05", ">= 40 % of copy", Some(0.40), false, Share),
        goal(SortCub, "sort, 2^24 pairs of 32 bits, against CUB", ">= 50 %", Some(0.50), false, Share),
        goal(SortLampshade, "the same against lampshade", ">= 1 x", Some(1.0), false, Times),
        goal(MappedBound, "forward, 95 % hits, INT8 mapped, of the bound", ">= 60 %", Some(0.60), false, Share),
        goal(MappedUvm, "the same against the UVM model's pages, copied", ">= 25.8 x", Some(25.8), false, Times),
        goal(
            Link,
            "forward, no cache, FP32 x 128 mapped, bus against copy",
            ">= 85 % of copy",
            Some(0.85),
            false,
            Share,
        ),
        goal(PackedBytes, "the same, INT8 against FP32: bytes counted", "<= 27 %", Some(0.27), true, Share),
        goal(PackedTime, "the same, INT8 against FP32: time", "<= 40 %", Some(0.40), true, Share),
        goal(
            Prefetched,
            "step, 95 % hits, INT8 staged, prefetched, against mapped",
            ">= 80 %",
            Some(0.80),
            false,
            Share,
        ),
        goal(Alone, "the same, staged without prefetch", "reported", None, false, Share),
        goal(Hidden, "the same, host's part hidden by prefetch", ">= 50 %", Some(0.50), false, Share),
        // On any machine.
        goal(BusBytes, "the same, bytes counted and bytes copied", "equal", Some(1.0), false, Share),
        goal(
            PinnedFlat,
            "forward, 95 % of the accesses pinned, 128 to 1024 MB: slowest against fastest",
            "<= 1.1 x",
            Some(1.1),
            true,
            Times,
        ),
        goal(PinnedStep, "step, the same, no cache against 1024 MB", ">= 6 x", Some(6.0), false, Times),
        goal(Windows, "gather, 100 % hits, cache cut in windows, against one", "reported", None, true, Times),
        goal(
            NvidiaStep,
            "step, NVIDIA's shape, INT8 mapped, row-wise AdaGrad",
            "<= 2.4 ms",
            Some(2.4e-3),
            true,
            Seconds,
        ),
        goal(NvidiaElementWise, "the same, element-wise AdaGrad", "reported", None, true, Seconds),
        goal(Scaling, "time against work above 10^5 rows, off a straight line", "<= 20 %", Some(0.20), true, Share),
        goal(Skew, "backward, one row takes a tenth, against an even batch", "<= 1.2 x", Some(1.2), true, Times),
        goal(ElementWise, "step, element-wise AdaGrad against SGD, 100 % hits", "<= 1.5 x", Some(1.5), true, Times),
        goal(Trusted, "step, checked shaders against trusted, 100 % hits", "reported", None, true, Times),
    ]
}

/// Takes down what was reached. Figures of a software adapter, or of other sizes than the goal's, are shown but meet or miss nothing.
pub(crate) fn reach(goals: &mut [Goal], id: Id, reached: Option<f64>, judged: bool, remark: impl Into<String>) {
    if let Some(goal) = goals.iter_mut().find(|goal| goal.id == id) {
        goal.reached = reached.filter(|value| value.is_finite());
        goal.remark = remark.into();
        goal.met = goal.progress().filter(|_| judged).map(|share| share >= 1.0);
    }
}

/// Goal against reached.
pub(crate) fn table(goals: &[Goal]) -> String {
    let mut table = output::table(["what", "goal", "reached", "met", "remark"], 1);
    for goal in goals {
        let met = match goal.met {
            None => "-",
            Some(true) => "yes",
            Some(false) => "no",
        };
        let reached = goal.reached.map_or_else(|| "unmeasured".to_owned(), |reached| goal.unit.show(reached));
        table.add_row([goal.what, goal.goal, &reached, met, &goal.remark]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_from_either_side() {
        let mut goals = all();
        let met = |goals: &[Goal], id| goals.iter().find(|goal| goal.id == id).and_then(|goal| goal.met);
        for (id, value, wanted) in [
            (Id::Gather, 0.86, Some(true)),
            (Id::Gather, 0.84, Some(false)),
            (Id::NvidiaStep, 2.3e-3, Some(true)),
            (Id::NvidiaStep, 2.5e-3, Some(false)),
            (Id::NvidiaElementWise, 9.0, None),
            (Id::Gather, f64::NAN, None),
        ] {
            reach(&mut goals, id, Some(value), true, "");
            assert_eq!(met(&goals, id), wanted, "{id:?} {value}");
        }
        reach(&mut goals, Id::Gather, Some(0.9), false, "software");
        assert_eq!(met(&goals, Id::Gather), None);
    }
}
