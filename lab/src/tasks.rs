//! The tasks by name, and the options that choose a task and its data.

mod args;
mod bags;
mod cardinalities;
mod dlrm;
mod validation;
mod words;

#[cfg(test)]
pub(crate) use dlrm::small;

pub(crate) use args::{TaskArgs, TaskName};

use crate::hyper::Hyper;
use crate::task::Task;
use hotrow_report::trace::Source;

/// The epochs and the training of a task where an experiment names no others. They were found with FP32.
pub(crate) const fn defaults(name: TaskName) -> (u32, Hyper) {
    match name {
        TaskName::Author => (2, bags::AUTHOR),
        TaskName::Words => (1, words::HYPER),
        TaskName::Readmission => (3, bags::READMISSION),
        TaskName::Dlrm => (1, dlrm::HYPER),
    }
}

/// Loads or generates the data of a task.
pub(crate) fn open(args: &TaskArgs, source: &Source<'_>) -> anyhow::Result<Box<dyn Task>> {
    let task: Box<dyn Task> = match args.name(source.data) {
        TaskName::Author => Box::new(bags::author(args, source)?),
        TaskName::Words => Box::new(words::Words::open(source)?),
        TaskName::Readmission => Box::new(bags::readmission(source)?),
        TaskName::Dlrm => Box::new(dlrm::Dlrm::open(args, source.seed)?),
    };
    Ok(if args.validation { Box::new(validation::Validation::of(task)) } else { task })
}
