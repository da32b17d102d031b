//! The options that choose a task and its data.

use super::cardinalities::Cardinalities;
use anyhow::{Context as _, ensure};
use hotrow_cli::trace::{self, Source, TraceError};
use serde::{Deserialize, Serialize};
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// The tasks.
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
#[serde(deny_unknown_fields, default)]
pub(crate) struct TaskArgs {
    name: Option<TaskName>,
    /// Author: learn from sentences instead of paragraphs.
    pub(crate) sentences: bool,
    /// Dlrm: Criteo's click log.
    pub(crate) criteo: Option<PathBuf>,
    /// Dlrm: the rows of the tables.
    pub(crate) cardinalities: Option<Cardinalities>,
    dim: Option<NonZero<u32>>,
    limit: Option<NonZero<u32>>,
}

impl TaskArgs {
    /// The task, as named, or by the available data.
    pub(crate) fn name(&self, data: Option<&Path>) -> TaskName {
        let of_clicks = self.criteo.is_some() || self.cardinalities.is_some();
        let by_data = if data.is_some() && !of_clicks { TaskName::Author } else { TaskName::Dlrm };
        self.name.unwrap_or(by_data)
    }

    pub(crate) const fn is_named(&self) -> bool {
        self.name.is_some()
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit.map(|limit| limit.get() as usize)
    }

    pub(super) fn dim(&self) -> Option<u32> {
        self.dim.map(NonZero::get)
    }

    /// Refuses a key that has no effect for the task.
    pub(crate) fn check(&self, data: Option<&Path>) -> anyhow::Result<()> {
        let (task, clicks) = (self.name(data), self.criteo.is_some() || self.cardinalities.is_some());
        ensure!(!self.sentences || task == TaskName::Author, "sentences: wanted task author, found {}", task.text());
        let key = if self.criteo.is_some() { "criteo" } else { "cardinalities" };
        ensure!(!clicks || task == TaskName::Dlrm, "{key}: wanted task dlrm, found {}", task.text());
        Ok(())
    }
}

impl TaskName {
    const fn text(self) -> &'static str {
        match self {
            Self::Author => "author",
            Self::Words => "words",
            Self::Readmission => "readmission",
            Self::Dlrm => "dlrm",
        }
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
