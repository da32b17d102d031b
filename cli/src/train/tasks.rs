//! The tasks by name.

mod args;
mod bags;
mod cardinalities;
mod dlrm;
mod words;

pub(crate) use args::{TaskArgs, TaskName};

use crate::trace::Source;
use crate::train::task::Task;

/// Loads or generates the data of a task.
pub(crate) fn open(name: TaskName, args: &TaskArgs, source: &Source<'_>) -> anyhow::Result<Box<dyn Task>> {
    Ok(match name {
        TaskName::Author => Box::new(bags::author(args, source)?),
        TaskName::Words => Box::new(words::Words::open(args, source)?),
        TaskName::Readmission => Box::new(bags::readmission(args, source)?),
        TaskName::Dlrm => Box::new(dlrm::Dlrm::open(args, source.seed)?),
    })
}
