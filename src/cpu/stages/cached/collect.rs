//! CPU mirror of `shaders/cached/collect.wgsl`: lists the dirty slots.

use crate::table::layout::{DIRTY, Field, Move, NONE, Params, Step, count, way_at};

/// Lists a Move for every dirty slot and marks the slot clean. Mirror of `shaders/cached/collect.wgsl`; here the Moves
/// come in slot order.
pub fn collect(params: &Params, step: &mut Step, ways: &[u32], moves: &mut [Move], tables: &[u32]) {
    step.t = tables[0];
    let width = params.ways();
    for slot in 0..params.slots {
        if ways[way_at(width, slot, Field::Flags)] & DIRTY != 0 {
            let length = &mut step.counts[count::MOVES];
            let victim = ways[way_at(width, slot, Field::Tag)];
            moves[*length as usize] = Move { place: slot, row: NONE, victim, flags: Move::WRITE };
            *length += 1;
        }
    }
}
