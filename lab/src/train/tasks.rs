//! The tasks by name.

mod args;
mod bags;
mod cardinalities;
mod dlrm;
mod words;

pub(crate) use args::{TaskArgs, TaskName};

use hotrow_cli::trace::Source;
use crate::train::task::{Hyper, Task};

/// Loads or generates the data of a task. `needed` gives the training samples that this process needs, of so many, by the task's own options; a
/// task may have all.
pub(crate) fn open(
    name: TaskName,
    args: &TaskArgs,
    source: &Source<'_>,
    needed: &dyn Fn(usize, &Hyper) -> Option<Vec<u32>>,
) -> anyhow::Result<Box<dyn Task>> {
    Ok(match name {
        TaskName::Author => Box::new(bags::author(args, source)?),
        TaskName::Words => Box::new(words::Words::open(args, source)?),
        TaskName::Readmission => Box::new(bags::readmission(args, source)?),
        TaskName::Dlrm => Box::new(dlrm::Dlrm::open(args, source.seed, needed)?),
    })
}
