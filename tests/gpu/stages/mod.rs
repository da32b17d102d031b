//! Stages alone, where no whole run brings them: more candidates of a set and more swaps than batches of the other tests have, states with facts that no rule
//! has today, the bits of a grid's rows and weights. Whole runs compare every stage: cached tables in `lockstep.rs` and `feedback.rs`, shared arrays in `robe.rs`
//! and `robe_atomic.rs`, sorts in `dedup.rs`, scalers in `scaler.rs`, grids in `grid.rs`.

mod admission;
mod exchange;
mod facts;
mod grid;

use bytemuck::{Pod, cast_slice};
pub(crate) use hotrow::internals::params;
use hotrow::{
    Context, GroupConfig,
    internals::{
        self, Layout,
        layout::{CLOCK_WORDS, Step, TABLE_WORDS},
    },
};
use rand::SeedableRng as _;
use rand_pcg::Pcg64;

use crate::{bad_input, dedup, feedback, low_precision, ranks};

macro_rules! named {
    ($($stage:ident::$test:ident),* $(,)?) => { &[$((concat!(stringify!($stage), "::", stringify!($test)), $stage::$test)),*] };
}

/// Tests for devices other than the one of all tests, by the names of stages that whole runs of `hotrow_harness::lanes::runs` do not meet, or not in every way.
pub(crate) const ALL: &[(&str, fn())] = named![
    admission::the_best_of_large_sets_are_admitted,
    exchange::lists_of_several_blocks,
    facts::states_by_their_facts,
    facts::robe_blocks_by_facts,
    grid::grid_and_grid_gradient,
    bad_input::the_first_of_many_bad_indices_is_named,
    dedup::shapes,
    feedback::a_frame_is_a_step_of_each_wanted_row,
    low_precision::recorded_outputs_in_halves,
    ranks::messages_are_those_of_the_cpu,
];

pub(crate) const TRAIN: u32 = 0;

/// Runs a stage on these bindings, and returns them as they are afterwards.
pub(crate) fn run(context: &Context, stage: &str, bindings: &[Vec<u32>], groups: u32) -> Vec<Vec<u32>> {
    let kernel = internals::kernels().iter().find(|kernel| kernel.name == stage).unwrap();
    context.run_stage(kernel, bindings, groups).unwrap_or_else(|error| panic!("{stage}: {error}"))
}

pub(crate) fn rng(seed: u64) -> Pcg64 {
    Pcg64::seed_from_u64(seed)
}

/// The words of a struct.
pub(crate) fn words<T: Pod>(value: &T) -> Vec<u32> {
    cast_slice(std::slice::from_ref(value)).to_vec()
}

/// The facts of the states of rule `number` of 20: of one state an element (the first four), or of two.
pub(crate) fn facts_of(number: u32) -> u32 {
    if number < 4 { number | number << 2 } else { number - 4 }
}

/// Rows in the layout of slots, each padded with zeros.
pub(crate) fn slot_rows(layout: &Layout, rows: &[Vec<f32>]) -> Vec<u32> {
    let mut words = Vec::new();
    for (at, row) in (1..).zip(rows) {
        words.extend(row.iter().map(|x| x.to_bits()));
        words.resize(at * layout.slot_words() as usize, 0);
    }
    words
}

/// A step with this count.
pub(crate) fn step(t: u32, which: usize, n: u32) -> Vec<u32> {
    let mut step = Step { t, ..Step::default() };
    step.counts[which] = n;
    words(&step)
}

/// The layout of a group in one piece.
pub(crate) fn layout_of(config: &GroupConfig) -> Layout {
    Layout::new(config, u64::MAX).unwrap()
}

/// A `tables` buffer of one table at step `t`.
pub(crate) fn tables(rows: u32, t: u32) -> Vec<u32> {
    let mut words = vec![0; CLOCK_WORDS + TABLE_WORDS];
    (words[0], words[CLOCK_WORDS + 1]) = (t, rows);
    words
}
