//! A group of cached tables on the CPU: it reads and moves rows where they lie, on all cores.
//!
//! ```text
//! forward    pool      each bag's rows, straight from slots and records
//!            settle    with a cache: sort, touch, admit, exchange
//! backward   settle    without a cache: sort, and counters of distinct rows
//!            update    each distinct row, in its slot or record
//! between    weight_gradient   each access's row again, for the gradients of the per-index weights
//! ```

pub(crate) mod batch;
pub(crate) mod counts;
pub(crate) mod freqs;
pub(crate) mod group;
pub(crate) mod lookup;
pub(crate) mod parts;
pub(crate) mod pins;
pub(crate) mod pool;
pub(crate) mod resize;
pub(crate) mod rows;
pub(crate) mod settle;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub(crate) mod shard;
pub(crate) mod space;
pub(crate) mod steps;
pub(crate) mod tables;
pub(crate) mod update;
pub(crate) mod weight_gradient;
