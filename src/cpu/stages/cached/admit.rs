//! CPU mirror of `shaders/cached/admit.wgsl`: admits missing rows, set by set.

use std::ops::Range;

use crate::{
    cpu::stages::cached::tables::{
        count,
        counter::{ADMITTED, EVICTIONS},
        table_of,
    },
    record::of_params::LFU,
    table::layout::{COMING, Field, Move, NONE, PINNED, Params, Step, Unique, count as counts, way_at},
};

/// Admits set by set: the l-th candidate takes the l-th victim (SPEC 3, step 4). Mirror of `shaders/cached/admit.wgsl`.
pub fn admit(
    params: &Params,
    step: &Step,
    unique: &mut [Unique],
    moves: &mut [Move],
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let n = step.counts[counts::MOVES] as usize;
    let (lfu, width) = (params.policy == LFU, params.ways());
    let (mut best, mut victims) = (Vec::new(), Vec::new());
    let mut rest = 0..n;
    while !rest.is_empty() {
        let home = params.set_of(unique[rest.start].row);
        let length = unique[rest.clone()].iter().position(|one| params.set_of(one.row) != home);
        let set = rest.start..length.map_or(n, |length| rest.start + length);
        rest.start = set.end;
        best_candidates(unique, set, width as usize, &mut best);
        list_victims(
            ways,
            home * width..(home + 1) * width,
            width,
            if lfu { Field::Freq } else { Field::Stamp },
            &mut victims,
        );
        for (&(_, u), &(value, slot)) in best.iter().zip(&victims) {
            let candidate = unique[u];
            let mut leaving = Move { place: slot, row: candidate.row, victim: NONE, flags: 0 };
            if value == NONE {
                break; // pinned, and so are all victims after it
            }
            if value != 0 {
                let value = value - 1;
                if if lfu { value >= candidate.key } else { value == step.t } {
                    break;
                }
                leaving.victim = ways[way_at(width, slot, Field::Tag)];
                leaving.flags = Move::WRITE;
                count(tables, table_of(params, tables, leaving.victim), EVICTIONS, 1);
                if ways[way_at(width, slot, Field::Stamp)] == step.t {
                    leaving.flags |= Move::KEEP; // LFU: this batch uses the victim, so its row is kept in scratch
                }
            }
            count(tables, table_of(params, tables, candidate.row), ADMITTED, 1);
            ways[way_at(width, slot, Field::Stamp)] = candidate.row;
            ways[way_at(width, slot, Field::Flags)] |= COMING;
            ways[way_at(width, slot, Field::Freq)] = if lfu { candidate.key } else { 0 };
            unique[u].slot = slot;
            moves[u] = leaving;
        }
    }
}

/// The best candidates by (key descending, row ascending), at most as many as a set has ways. Each comes with that
/// order as a number.
fn best_candidates(unique: &[Unique], places: Range<usize>, width: usize, best: &mut Vec<(u64, usize)>) {
    best.clear();
    for u in places {
        let rank = u64::from(!unique[u].key) << 32 | u64::from(unique[u].row);
        if best.len() == width {
            if best[width - 1].0 < rank {
                continue;
            }
            best.pop();
        }
        best.insert(best.partition_point(|&(other, _)| other < rank), (rank, u));
    }
}

/// Lists the set's slots in the order in which they are evicted, as (value, slot). The value is 0 for an empty slot,
/// NONE for a pinned one, else stamp or frequency + 1.
fn list_victims(ways: &[u32], slots: Range<u32>, width: u32, field: Field, victims: &mut Vec<(u32, u32)>) {
    victims.clear();
    victims.extend(slots.map(|slot| {
        let word = |field| ways[way_at(width, slot, field)];
        let value = match (word(Field::Tag), word(Field::Flags) & PINNED) {
            (NONE, _) => 0,
            (_, 0) => word(field).wrapping_add(1),
            _ => NONE,
        };
        (value, slot)
    }));
    victims.sort_unstable();
}
