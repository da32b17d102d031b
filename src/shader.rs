//! The WGSL files, composed: the one place that knows where shader text comes from.
//!
//! A stage is `shaders/<stage>.wgsl` with one entry point `main`. A line `#include "shared/x.wgsl"` is replaced by that file.
//! Where there is no `shared/x.wgsl`, it stands for `shared/x_<body>.wgsl`, the body that [`Caps`](crate::Caps) chose, or for
//! `shared/x<width>.wgsl`, of the width that a group's dim allows ([`quad_width`](crate::layout::quad_width)).

use crate::{RankBody, gpu};

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
    "arrange.wgsl",
    "assign.wgsl",
    "begin.wgsl",
    "claim.wgsl",
    "collect.wgsl",
    "combine.wgsl",
    "exchange.wgsl",
    "gather.wgsl",
    "heads.wgsl",
    "histogram.wgsl",
    "linearize.wgsl",
    "locate.wgsl",
    "merge.wgsl",
    "probe.wgsl",
    "reset.wgsl",
    "scan.wgsl",
    "scatter.wgsl",
    "segments.wgsl",
    "sort_small.wgsl",
    "touch.wgsl",
    "update.wgsl",
    "shared/bag.wgsl",
    "shared/common.wgsl",
    "shared/dedup.wgsl",
    "shared/half.wgsl",
    "shared/hash.wgsl",
    "shared/head.wgsl",
    "shared/lanes_portable.wgsl",
    "shared/lanes_subgroup32.wgsl",
    "shared/merge.wgsl",
    "shared/meta.wgsl",
    "shared/move.wgsl",
    "shared/pack.wgsl",
    "shared/quad1.wgsl",
    "shared/quad4.wgsl",
    "shared/rank_portable.wgsl",
    "shared/rank_subgroup32.wgsl",
    "shared/rng.wgsl",
    "shared/scan.wgsl",
    "shared/shard.wgsl",
    "shared/slots.wgsl",
    "shared/sort.wgsl",
    "shared/sort_small.wgsl",
    "shared/store.wgsl",
    "shared/sum.wgsl",
    "shared/tables.wgsl",
    "shared/tally.wgsl",
    "shared/target.wgsl",
    "shared/unpack1.wgsl",
    "shared/unpack4.wgsl",
];

/// Which bodies a shader is composed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bodies {
    /// How a sort ranks keys.
    pub rank: RankBody,
    /// Floats of a Quad: 4 or 1.
    pub width: u32,
}

/// True if `kernel` moves rows, so that there is one of it for each width.
#[must_use]
pub fn moves_rows(kernel: &Kernel) -> bool {
    file(&format!("{}.wgsl", kernel.name)).is_some_and(|text| text.contains("#include \"shared/quad.wgsl\""))
}

fn include(path: &str, bodies: Bodies, out: &mut String) {
    let stem = path.trim_end_matches(".wgsl");
    let ranked = || file(&format!("{stem}_{}.wgsl", bodies.rank.name()));
    let wide = || file(&format!("{stem}{}.wgsl", bodies.width));
    let Some(text) = file(path).or_else(ranked).or_else(wide) else {
        // Left in the text, so that the shader compiler names it; `tests/shaders.rs` compiles every stage.
        out.push_str(&format!("missing include {path}\n"));
        return;
    };
    for line in text.lines() {
        match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => include(inner, bodies, out),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}

/// The text of `kernel` with the chosen bodies.
#[must_use]
pub fn compose(kernel: &Kernel, bodies: Bodies) -> String {
    let mut out = String::new();
    include(&format!("{}.wgsl", kernel.name), bodies, &mut out);
    out
}

/// Every stage in every variant.
#[must_use]
pub fn sources() -> Vec<Source> {
    let source = |kernel: &Kernel, variant, rank: RankBody, width| Source {
        name: kernel.name,
        variant,
        wgsl: compose(kernel, Bodies { rank, width }),
        subgroups: rank == RankBody::Subgroup32,
        constants: Vec::new(),
    };
    let mut all = Vec::new();
    for kernel in gpu::KERNELS {
        let [portable, subgroup32] =
            [RankBody::Portable, RankBody::Subgroup32].map(|rank| source(kernel, rank.name(), rank, 1));
        if moves_rows(kernel) {
            all.extend(
                [("quad1", 1), ("quad4", 4)].map(|(name, width)| source(kernel, name, RankBody::Portable, width)),
            );
        } else if portable.wgsl == subgroup32.wgsl {
            all.push(source(kernel, "", RankBody::Portable, 1));
        } else {
            all.extend([portable, subgroup32]);
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
            row_quads,
            optimizer,
            purpose,
            total_rows,
            lr,
            eps,
            weight_decay,
            lanes,
            partials,
            pad0,
            pad1,
            pad2,
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
        host_struct!(Pass { shift, mask, count, capacity, positions }),
        host_struct!(ScanInfo { count, capacity, per_block, rows }),
        host_struct!(SmallInfo { capacity, count, mask, positions, dedup, segments, valid, pad0 }),
        host_struct!(DedupInfo { capacity, count, segments, valid }),
        host_struct!(Move { place, row, victim, flags }),
        host_struct!(Target { row, place, start, end }),
        host_struct!(Shard { first_row, rows, phases, pad0 }),
    ]
}

/// Every stage's host table.
#[must_use]
pub fn kernels() -> &'static [&'static Kernel] {
    gpu::KERNELS
}
