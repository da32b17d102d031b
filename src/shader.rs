//! The WGSL files, composed: the one place that knows where shader text comes from.
//!
//! A stage is `shaders/<stage>.wgsl` with one entry point `main`. A line `#include "shared/x.wgsl"` is replaced by that file.
//! `shared/find_way.wgsl` stands for the body that [`Caps`](crate::Caps) chose.

use crate::{ProbeBody, gpu};

/// How a shader sees a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<uniform>`
    Uniform,
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// What the host knows of a stage: its bindings in order and its workgroup size. `tests/shaders.rs` holds it to the WGSL.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The stage, and the name of its files.
    pub name: &'static str,
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Binding i of group 0.
    pub bindings: &'static [(Access, &'static str)],
}

/// A composed shader.
#[derive(Clone, Debug)]
pub struct Source {
    /// The stage.
    pub name: &'static str,
    /// Empty, or which body was included.
    pub variant: &'static str,
    /// The text, without any `enable` line: browsers want `enable subgroups;` in front where `subgroups` is set.
    pub wgsl: String,
    /// Uses subgroup operations.
    pub subgroups: bool,
    /// Override constants of a representative pipeline.
    pub constants: Vec<(&'static str, f64)>,
}

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        fn file(path: &str) -> Option<&'static str> {
            match path {
                $($path => Some(include_str!(concat!("../shaders/", $path))),)*
                _ => None,
            }
        }
    };
}

files![
    "admit.wgsl",
    "assign.wgsl",
    "begin.wgsl",
    "bounds.wgsl",
    "collect.wgsl",
    "combine.wgsl",
    "fetch.wgsl",
    "gather.wgsl",
    "heads.wgsl",
    "histogram.wgsl",
    "linearize.wgsl",
    "locate.wgsl",
    "merge.wgsl",
    "probe.wgsl",
    "reset.wgsl",
    "resolve.wgsl",
    "scan.wgsl",
    "scan_add.wgsl",
    "scatter.wgsl",
    "segments.wgsl",
    "touch.wgsl",
    "update.wgsl",
    "write_back.wgsl",
    "shared/common.wgsl",
    "shared/dedup.wgsl",
    "shared/find_way_portable.wgsl",
    "shared/find_way_subgroup32.wgsl",
    "shared/half.wgsl",
    "shared/hash.wgsl",
    "shared/merge.wgsl",
    "shared/meta.wgsl",
    "shared/record.wgsl",
    "shared/rng.wgsl",
    "shared/scan.wgsl",
    "shared/shard.wgsl",
    "shared/sort.wgsl",
    "shared/tables.wgsl",
];

fn include(path: &str, probe: ProbeBody, out: &mut String) {
    let chosen = format!("shared/find_way_{}.wgsl", probe.name());
    let path = if path == "shared/find_way.wgsl" { &chosen } else { path };
    let Some(text) = file(path) else {
        // Left in the text, so that the shader compiler names it; `tests/shaders.rs` compiles every stage.
        out.push_str(&format!("missing include {path}\n"));
        return;
    };
    for line in text.lines() {
        match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => include(inner, probe, out),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}

/// The text of `kernel` with the chosen bodies.
#[must_use]
pub fn compose(kernel: &Kernel, probe: ProbeBody) -> String {
    let mut out = String::new();
    include(&format!("{}.wgsl", kernel.name), probe, &mut out);
    out
}

/// Every stage in every variant.
#[must_use]
pub fn sources() -> Vec<Source> {
    let source = |kernel: &Kernel, variant, probe: ProbeBody| Source {
        name: kernel.name,
        variant,
        wgsl: compose(kernel, probe),
        subgroups: probe == ProbeBody::Subgroup32,
        constants: Vec::new(),
    };
    let mut all = Vec::new();
    for kernel in gpu::KERNELS {
        if kernel.name == "probe" {
            all.push(source(kernel, "portable", ProbeBody::Portable));
            all.push(source(kernel, "subgroup32", ProbeBody::Subgroup32));
        } else {
            all.push(source(kernel, "", ProbeBody::Portable));
        }
    }
    all
}

/// A struct the host shares with shaders: its WGSL name, its size, and its members with their byte offsets.
pub type HostStruct = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! host_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        (
            stringify!($name),
            size_of::<crate::layout::$name>(),
            vec![$((stringify!($field), std::mem::offset_of!(crate::layout::$name, $field))),*],
        )
    };
}

/// Every struct the host shares with shaders.
#[must_use]
pub fn structs() -> Vec<HostStruct> {
    vec![
        host_struct!(Params {
            indices,
            bags,
            bags_per_feature,
            tables,
            mode,
            out_of_range,
            pooling,
            weighted,
            sets,
            slots,
            policy,
            seed,
            dim,
            bits,
            stochastic,
            state,
            state_half,
            state_word,
            payload_half,
            record_words,
            row_words,
            optimizer,
            purpose,
            total_rows,
            lr,
            eps,
            weight_decay,
            max_groups,
        }),
        host_struct!(Step {
            t,
            error,
            error_position,
            error_value,
            error_table,
            bad_index,
            bad_offset,
            accesses,
            counts,
        }),
        host_struct!(Unique { row, count, key, slot }),
        host_struct!(Pass { shift, count, blocks, first }),
        host_struct!(ScanInfo { n, pad0, pad1, pad2 }),
        host_struct!(DedupInfo { capacity, count, segments, valid }),
        host_struct!(BoundsInfo { shards, rows_per_shard, count, sorted, per_group, max_groups, pad0, pad1 }),
        host_struct!(Shard { index, first_row, pad0, pad1 }),
    ]
}

/// Every stage's host table.
#[must_use]
pub fn kernels() -> &'static [&'static Kernel] {
    gpu::KERNELS
}
