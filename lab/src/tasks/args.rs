//! The options that choose a task and its data.

use super::cardinalities::Cardinalities;
use super::dlrm::model::Above;
use anyhow::{Context as _, ensure};
use hotrow_report::trace::{self, Source, TraceError};
use serde::{Deserialize, Serialize};
use std::num::NonZero;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskName {
    /// Find the author of a paragraph among 8.
    Author,
    /// Find the word between its neighbours.
    Words,
    /// Predict whether a patient returns to hospital.
    Readmission,
    /// Predict clicks: Criteo's file, or generated ones.
    Dlrm,
}

/// The task and its data.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct TaskArgs {
    name: Option<TaskName>,
    /// Author: learn from sentences instead of paragraphs.
    pub(crate) sentences: bool,
    /// Dlrm: Criteo's click log.
    pub(crate) criteo: Option<PathBuf>,
    /// Dlrm: the log's packed form.
    pub(crate) packed: Option<PathBuf>,
    /// Dlrm: the rows of the tables.
    pub(crate) cardinalities: Option<Cardinalities>,
    /// Dlrm: generated samples after which other rows are popular.
    pub(crate) drift: Option<NonZero<u32>>,
    /// Dlrm: the share of the generated logit's variance that is of large tables.
    large_share: Option<f64>,
    /// Dlrm: what is above the tables.
    pub(crate) model: Above,
    /// Test on a tenth of the training samples, which are not trained on.
    pub(crate) validation: bool,
    small_table: Option<u32>,
    limit: Option<NonZero<u32>>,
}

impl TaskArgs {
    /// The task, as named, or by the available data.
    pub(crate) fn name(&self, data: Option<&Path>) -> TaskName {
        let of_clicks =
            self.criteo.is_some() || self.cardinalities.is_some() || self.drift.is_some() || self.large_share.is_some();
        let by_data = if data.is_some() && !of_clicks { TaskName::Author } else { TaskName::Dlrm };
        self.name.unwrap_or(by_data)
    }

    /// Tables of at most this many rows stay in FP32, since there is little to save: 1,000 in Yang 2020 (4.3), 1,000,000 in Zhang 2018 (4).
    pub(crate) fn small_table(&self) -> u32 {
        self.small_table.unwrap_or(1000)
    }

    pub(crate) fn large_share(&self) -> anyhow::Result<f64> {
        let share = self.large_share.unwrap_or(0.5);
        ensure!((0.0..=1.0).contains(&share), "large-share: wanted a part of 1, such as 0.5, found {share}");
        Ok(share)
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit.map(|limit| limit.get() as usize)
    }

    /// Refuses a key that has no effect for the task.
    pub(crate) fn check(&self, data: Option<&Path>) -> anyhow::Result<()> {
        let task = self.name(data);
        for (key, given, wanted) in [
            ("sentences", self.sentences, TaskName::Author),
            ("model", self.model != Above::default(), TaskName::Dlrm),
            ("criteo", self.criteo.is_some(), TaskName::Dlrm),
            ("packed", self.packed.is_some(), TaskName::Dlrm),
            ("cardinalities", self.cardinalities.is_some(), TaskName::Dlrm),
            ("drift", self.drift.is_some(), TaskName::Dlrm),
            ("large-share", self.large_share.is_some(), TaskName::Dlrm),
        ] {
            ensure!(!given || task == wanted, format!("{key}: wanted task {wanted:?}, found {task:?}").to_lowercase());
        }
        ensure!(
            self.drift.is_none() || self.criteo.is_none(),
            "drift: wanted generated clicks, found criteo; leave one out"
        );
        ensure!(
            self.large_share.is_none() || self.criteo.is_none(),
            "large-share: wanted generated clicks, found criteo; leave one out"
        );
        self.large_share()?;
        ensure!(
            self.packed.is_none() || self.criteo.is_some(),
            "packed: wanted criteo beside it, found none; give that"
        );
        Ok(())
    }
}

/// The data folder, for a task that needs one.
pub(super) fn folder<'a>(source: &Source<'a>, task: &str) -> anyhow::Result<&'a Path> {
    source.data.with_context(|| {
        format!(
            "task {task}: wanted the data folder, found none; give --data DIR or set HOTROW_DATA, or take task dlrm, which \
             generates its data"
        )
    })
}

/// The labels of a data set's bags, each below `classes`.
pub(super) fn labels(folder: &Path, name: &str, bags: usize, classes: u8) -> Result<Vec<u8>, TraceError> {
    trace::read_labels(&trace::companion(folder, &format!("{name}.labels.u8"))?, bags, classes)
}
