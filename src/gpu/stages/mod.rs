//! Every stage: its name, which its shader has too, the size of its workgroups, and its bindings in the order of
//! `@binding`. [`Call::run`](crate::gpu::engine::call::Call::run) finds their buffers by name. A stage that decides something has a file of its own.

pub(crate) mod cached;
pub(crate) mod robe;
pub(crate) mod sort;

use crate::{
    error::Error,
    gpu::engine::{context::Context, options::ContextOptions},
    wgsl::{Access, Kernel},
};

macro_rules! stages {
    ($($(#[$doc:meta])+ $stage:ident $name:literal $workgroup:literal $($access:ident: $($binding:ident)+),+;)+) => {
        $($(#[$doc])+ pub(crate) const $stage: Kernel = Kernel {
            name: $name,
            workgroup: $workgroup,
            bindings: &[$($((Access::$access, stringify!($binding))),+),+],
        };)+

        /// Every stage, in the order in which a step runs them.
        pub(crate) const KERNELS: &[&Kernel] = &[$(&$stage),+];
    };
}

stages! {
    /// Turns indices into linear rows, checks indices and offsets, and decides whether the step takes place.
    LINEARIZE "linearize" 256 Uniform: params, Read: indices offsets features, ReadWrite: tables step keys access row_digits;
    /// The rows that a caller's shaders want become the accesses of a step.
    WANTED "wanted" 256 Uniform: params, Read: features, ReadWrite: feedback tables step keys;
    /// Finds how often the counters of each table's rows are halved, where each has a share of the cache.
    DUE "due" 256 Uniform: params, ReadWrite: step tables shares;
    /// Halves the counters of rows.
    AGE "age" 256 Uniform: params piece, ReadWrite: step ways freqs, Read: shares;
    /// Finds the slot of each access, and lists the misses.
    PROBE "probe" 256 Uniform: params, ReadWrite: step, Read: keys ways, ReadWrite: places misses miss_digits tables, Read: shares;
    /// Counts the digits of each block of keys.
    HISTOGRAM "histogram" 256 Uniform: pass_info, ReadWrite: step, Read: keys, ReadWrite: digits;
    /// Exclusive prefix sums of rows.
    SCAN "scan" 256 Uniform: info, ReadWrite: step data totals cleared;
    /// Moves keys and values to their sorted places.
    SCATTER "scatter" 256 Uniform: pass_info, ReadWrite: step, Read: keys_in values_in digits totals, ReadWrite: keys_out values_out next_digits;
    /// Counts the distinct keys that begin in each block.
    HEADS "heads" 256 Uniform: info, ReadWrite: step, Read: keys, ReadWrite: heads;
    /// Numbers runs of equal keys.
    SEGMENTS "segments" 256 Uniform: info, ReadWrite: step, Read: keys heads values, ReadWrite: segment starts;
    /// Sorts, and dedups, few keys in one dispatch.
    SORT_SMALL "sort_small" 256 Uniform: info, ReadWrite: step, Read: keys_in values_in, ReadWrite: keys_out values_out segment starts;
    /// Updates the stamps of hit rows and the frequencies of all rows, and lists the distinct missing rows.
    TOUCH "touch" 256 Uniform: params piece, ReadWrite: step, Read: keys places starts, ReadWrite: ways freqs swaps tables;
    /// Admits missing rows, set by set.
    ADMIT "admit" 256 Uniform: params, ReadWrite: step swaps ways tables, Read: shares;
    /// Moves rows between table and FP32, as many pieces at a time as the device binds.
    EXCHANGE "exchange" 256 Uniform: params piece, ReadWrite: step, Read: swaps, ReadWrite: records cache scratch ways tables;
    /// Finds where rows lie, if the step may have evicted one of its own (LFU).
    LOCATE "locate" 256 Uniform: params, ReadWrite: step, Read: keys swaps ways, ReadWrite: places, Read: shares;
    /// Pools bags; a workgroup writes several output rows.
    GATHER "gather" 256 Uniform: params, Read: offsets places swaps weights cache scratch, ReadWrite: access outputs;
    /// Rounds the outputs of a forward to FP16.
    HALVES "halves" 256 Uniform: halves, Read: sums, ReadWrite: outputs;
    /// The gradient of each index's weight; a workgroup has several indices.
    WEIGHT_GRADIENT "weight_gradient" 256 Uniform: params, Read: offsets access places swaps cache scratch grad_outputs, ReadWrite: grad_weights, Uniform: step;
    /// Turns a dedup of the accesses into the lists that backward reads.
    ARRANGE "arrange" 256 Uniform: params step, Read: order segment keys places swaps access, ReadWrite: accesses targets, Uniform: scaler;
    /// Sums the chunks of heavy rows.
    MERGE "merge" 256 Uniform: params, Read: targets segment accesses grad_outputs, ReadWrite: scratch;
    /// One workgroup for each tile adds up the heavy row that begins there.
    COMBINE "combine" 256 Uniform: params, Read: targets segment, ReadWrite: scratch;
    /// Updates the distinct rows, as many pieces at a time as the device binds.
    UPDATE "update" 256 Uniform: params piece, Read: targets accesses grad_outputs, ReadWrite: records cache scratch ways tables, Uniform: rate;
    /// Finds the greatest magnitude among scaled gradients.
    INSPECT "inspect" 256 Uniform: inspected, Read: gradients, ReadWrite: greatest;
    /// The decision of a loss scaler.
    RESCALE "rescale" 1 Uniform: rule, ReadWrite: greatest state;
    /// Lists the dirty slots.
    COLLECT "collect" 256 Uniform: params, ReadWrite: step, Read: ways, ReadWrite: swaps tables;
    /// Empties the cache.
    RESET "reset" 256 Uniform: params, ReadWrite: ways, Read: shares;
    /// Writes the caller's values to rows.
    ASSIGN "assign" 256 Uniform: params, Read: keys places values, ReadWrite: cache scratch ways swaps tables, Uniform: rate;
    /// Lists rows for another rank.
    SEND "send" 256 Uniform: params piece, Read: keys places records cache scratch ways, ReadWrite: sent;
    /// Hashes the row of each access.
    ROBE_HASH "robe_hash" 256 Uniform: params robe, ReadWrite: step, Read: keys, ReadWrite: hashes tables;
    /// Pools bags; a workgroup writes several output rows.
    ROBE_GATHER "robe_gather" 256 Uniform: params robe, Read: offsets hashes weights window, ReadWrite: access outputs;
    /// `robe_gather` for a packed array.
    ROBE_DECODE "robe_decode" 256 Uniform: params robe, Read: offsets hashes weights window, ReadWrite: access outputs;
    /// The gradient of each index's weight; a workgroup has several indices.
    ROBE_WEIGHT_GRADIENT "robe_weight_gradient" 256 Uniform: params robe, Read: offsets access hashes window grad_outputs, ReadWrite: grad_weights, Uniform: step;
    /// Lists every chunk of a batch.
    ROBE_KEYS "robe_keys" 256 Uniform: params robe, ReadWrite: step, Read: hashes access, ReadWrite: chunk_keys chunk_access;
    /// Sums the chunks of starts with many chunks.
    ROBE_MERGE "robe_merge" 256 Uniform: params robe, Read: targets segment accesses grad_outputs, ReadWrite: scratch;
    /// Updates the weights that chunks cover.
    ROBE_UPDATE "robe_update" 256 Uniform: params robe, Read: targets accesses grad_outputs scratch, ReadWrite: memory states tables, Uniform: rate;
    /// The gradient of all shared weights.
    ROBE_GRADIENT "robe_gradient" 256 Uniform: params robe, Read: targets accesses grad_outputs scratch, ReadWrite: sums;
    /// Begins a step by a gradient of all shared weights that the caller gives.
    ROBE_GIVEN "robe_given" 1 Uniform: step scaler, ReadWrite: tables accesses targets;
    /// Adds every gradient to its weight's sum, atomically.
    ROBE_SCATTER "robe_scatter" 256 Uniform: params robe scaler, Read: hashes access grad_outputs, ReadWrite: sums covered, Uniform: step;
    /// The optimiser on scattered sums.
    ROBE_STEP "robe_step" 256 Uniform: params robe, ReadWrite: sums covered memory states tables, Uniform: rate;
    /// `robe_update` for a packed array.
    ROBE_BLOCKS "robe_blocks" 256 Uniform: params robe, Read: targets accesses grad_outputs scratch, ReadWrite: memory states tables, Uniform: rate;
    /// Batches of weighted indices from points; an invocation writes a bag.
    GRID "grid" 256 Uniform: grid, Read: levels coordinates, ReadWrite: indices weights;
    /// Gradients of coordinates from gradients of the corners' weights; an invocation has a point.
    GRID_GRADIENT "grid_gradient" 256 Uniform: grid, Read: levels coordinates grad_weights, ReadWrite: grad_coordinates;
}

impl Context {
    /// Compiles the crate's shaders on `device`. It installs nothing global on the device, such as an error handler.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was created with less than WebGPU's default limits, or if it refuses a shader.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        Self::with_options(device, queue, &ContextOptions::default())
    }

    /// As [`Context::new`], as a future. In a browser only this one knows whether the device compiles the shaders.
    ///
    /// # Errors
    /// As [`Context::new`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn new_async(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        let context = Self::new(device, queue)?;
        context.check_async().await.map(|()| context)
    }

    /// As [`Context::new`], with the caller's options.
    ///
    /// # Errors
    /// As [`Context::new`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn with_options(device: &wgpu::Device, queue: &wgpu::Queue, options: &ContextOptions) -> Result<Self, Error> {
        Self::with_kernels(device, queue, KERNELS, options)
    }
}
