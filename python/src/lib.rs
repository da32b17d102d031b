//! The Python package of hotrow: groups whose arguments and results are numpy's arrays. Every rule is the library's; `python/hotrow` has the
//! Python side.

#![allow(clippy::doc_markdown, reason = "Python shows these texts as they are")]

mod arrays;
mod device;
mod errors;
mod plan;
mod rule;
mod settings;
mod table;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        arrays::as_array,
        plan::{plan_memory, simulate},
        rule::OwnRule,
        table::{Table, saved_settings},
    };
}
