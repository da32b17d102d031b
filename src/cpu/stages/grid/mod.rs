//! CPU mirrors of the stages of a hash grid.

#[allow(clippy::module_inception, reason = "the stage has the name of its folder")]
pub(crate) mod grid;
pub(crate) mod grid_gradient;

pub(crate) use grid::grid;
pub(crate) use grid_gradient::grid_gradient;
