//! The tasks by name.

mod author;
mod bags;
mod dlrm;
mod readmission;
mod words;

pub(crate) use dlrm::Cardinalities;

use crate::trace::{self, TraceError};
use crate::train::task::Task;
use anyhow::bail;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskName {
    /// Which of 8 authors wrote a paragraph
    Author,
    /// Which word stands between its neighbours
    Words,
    /// Whether a patient comes back to hospital
    Readmission,
    /// Clicks: Criteo's file, or generated ones
    Dlrm,
}

/// What a task is made from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    pub(crate) data: Option<PathBuf>,
    /// Floats in a row, where it shall not be the task's own.
    pub(crate) dim: Option<u32>,
    pub(crate) sentences: bool,
    /// Criteo's click log; without one, clicks are generated.
    pub(crate) criteo: Option<PathBuf>,
    /// Rows of the tables of clicks, where they shall not be the task's own.
    pub(crate) cardinalities: Option<Cardinalities>,
    /// Samples to train on; more need not be read, fewer than that not be generated.
    pub(crate) limit: Option<usize>,
    /// Seed of what is generated.
    pub(crate) seed: u64,
}

impl Choices {
    /// The data folder, for a task that needs one.
    fn folder(&self, task: &str) -> anyhow::Result<&Path> {
        match &self.data {
            Some(folder) => Ok(folder),
            None => bail!(
                "task {task}: wanted the data folder, found none; give --data DIR or set HOTROW_DATA, or take --task dlrm, which generates its data"
            ),
        }
    }
}

/// The labels of a data set's bags, each below `classes`.
fn labels(folder: &Path, name: &str, bags: usize, classes: u8) -> Result<Vec<u8>, TraceError> {
    trace::read_labels(&trace::companion(folder, &format!("{name}.labels.u8"))?, bags, classes)
}

/// Loads or generates what the task needs.
pub(crate) fn open(name: TaskName, choices: &Choices) -> anyhow::Result<Box<dyn Task>> {
    Ok(match name {
        TaskName::Author => Box::new(author::open(choices)?),
        TaskName::Words => Box::new(words::Words::open(choices)?),
        TaskName::Readmission => Box::new(readmission::open(choices)?),
        TaskName::Dlrm => Box::new(dlrm::Dlrm::open(choices)?),
    })
}
