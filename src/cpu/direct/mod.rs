//! The direct path of a group on the CPU. It gives the outputs, the state and the counters of the mirrors in `cpu/stages`, bit for bit, and
//! has stages of its own:
//!
//! ```text
//! forward    pool      each bag's rows, straight from slots and records
//!            settle    with a cache: sort, touch, claim, admit, exchange
//! backward   settle    without a cache: sort, and counters of distinct rows
//!            update    each distinct row, in its slot or record
//! between    weight_gradient   each access's row again, for the gradients of the per-index weights
//! ```

pub(crate) mod batch;
pub(crate) mod counts;
pub(crate) mod lookup;
pub(crate) mod pool;
pub(crate) mod settle;
pub(crate) mod share;
pub(crate) mod sort;
pub(crate) mod space;
pub(crate) mod update;
pub(crate) mod weight_gradient;
