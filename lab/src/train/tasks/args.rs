//! The options that choose a task and its data.

use super::cardinalities::Cardinalities;
use hotrow_cli::options::{Options, whole};
use hotrow_cli::trace::{self, Source, TraceError};
use anyhow::Context as _;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskName {
    /// Find the author of a paragraph among 8
    Author,
    /// Find the word between its neighbours
    Words,
    /// Predict whether a patient returns to hospital
    Readmission,
    /// Predict clicks: Criteo's file, or generated ones
    Dlrm,
}

/// The task and its data.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskArgs {
    /// Task to learn [default: author with a data folder, else dlrm on generated data]
    #[arg(long, value_enum)]
    pub(crate) task: Option<TaskName>,
    /// Author: learn from sentences instead of paragraphs
    #[arg(long)]
    pub(crate) sentences: bool,
    /// Dlrm: Criteo's click log (label, 13 counts, 26 categories, tab separated), plain, .gz or .zst; its last seventh is the
    /// test set [default: generated clicks]
    #[arg(long, value_name = "FILE")]
    pub(crate) criteo: Option<PathBuf>,
    /// Dlrm: rows of the 26 tables: a cap or a scale (1/100) for Table 1 of Yang 2020, or 26 numbers [default: 1/100]
    #[arg(long, value_name = "N|1/N|N,N,..")]
    pub(crate) cardinalities: Option<Cardinalities>,
    /// Floats in a row [default: the task's own]
    #[arg(long, value_name = "D", value_parser = whole(1u32..=4096))]
    pub(crate) dim: Option<u32>,
    /// Train on the first N samples; a generated click log gets at least N
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    limit: Option<u32>,
}

impl TaskArgs {
    /// The task, by its option or by the available data.
    pub(crate) fn name(&self, options: &Options) -> TaskName {
        let of_clicks = self.criteo.is_some() || self.cardinalities.is_some();
        let by_data = if options.data().is_some() && !of_clicks { TaskName::Author } else { TaskName::Dlrm };
        self.task.unwrap_or(by_data)
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit.map(|limit| limit as usize)
    }
}

/// The data folder, for a task that needs one.
pub(super) fn folder<'a>(source: &Source<'a>, task: &str) -> anyhow::Result<&'a Path> {
    source.data.with_context(|| {
        format!(
            "task {task}: wanted the data folder, found none; give --data DIR or set HOTROW_DATA, or take --task dlrm, which \
             generates its data"
        )
    })
}

/// The labels of a data set's bags, each below `classes`.
pub(super) fn labels(folder: &Path, name: &str, bags: usize, classes: u8) -> Result<Vec<u8>, TraceError> {
    trace::read_labels(&trace::companion(folder, &format!("{name}.labels.u8"))?, bags, classes)
}
