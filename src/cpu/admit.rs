use super::{
    record::LFU,
    tables::{
        count,
        counter::{ADMITTED, EVICTIONS},
        table_of,
    },
};
use crate::{
    hash::fmix32,
    layout::{Field, NONE, Params, Step, Unique, WAYS, count as counts, way_at},
};

/// Admission, set by set: the l-th candidate takes the l-th victim. Mirror of `shaders/admit.wgsl`.
pub fn admit(
    params: &Params,
    step: &Step,
    unique: &mut [Unique],
    order: &[u32],
    starts: &[u32],
    ways: &mut [u32],
    victim_rows: &mut [u32],
    victim_slots: &mut [u32],
    tables: &mut [u32],
) {
    let sets = step.counts[counts::SETS] as usize;
    let lfu = params.policy == LFU;
    for s in 0..sets {
        let end = if s + 1 < sets { starts[s + 1] } else { step.counts[counts::MISSES] } as usize;
        let first = starts[s] as usize;
        let home = fmix32(unique[order[first] as usize].row) % params.sets;
        victim_rows[first..end].fill(NONE);
        victim_slots[first..end].fill(NONE);
        let (best, found) = best_candidates(unique, order, first..end);
        let victims = victims(ways, home, if lfu { Field::Freq } else { Field::Stamp });
        for (&at, &(value, way)) in best[..found].iter().zip(&victims) {
            let candidate = unique[order[at] as usize];
            let slot = home * WAYS + way;
            if value != 0 {
                let value = value - 1;
                if if lfu { value >= candidate.key } else { value == step.t } {
                    break;
                }
                let victim = ways[way_at(slot, Field::Tag)];
                count(tables, table_of(params, tables, victim), EVICTIONS, 1);
                if ways[way_at(slot, Field::Dirty)] == 1 {
                    victim_rows[at] = victim;
                    victim_slots[at] = slot;
                }
            }
            count(tables, table_of(params, tables, candidate.row), ADMITTED, 1);
            ways[way_at(slot, Field::Tag)] = candidate.row;
            ways[way_at(slot, Field::Stamp)] = step.t;
            ways[way_at(slot, Field::Freq)] = if lfu { candidate.key } else { 0 };
            ways[way_at(slot, Field::Dirty)] = 0;
            unique[order[at] as usize].slot = slot;
        }
    }
}

/// The places in `order` of the first 32 candidates by (key descending, row ascending), and how many there are.
fn best_candidates(unique: &[Unique], order: &[u32], places: std::ops::Range<usize>) -> ([usize; 32], usize) {
    let rank = |at: usize| {
        let one = &unique[order[at] as usize];
        (std::cmp::Reverse(one.key), one.row)
    };
    let mut best = [0; 32];
    let mut found = 0;
    for at in places {
        let place = best[..found].partition_point(|&other| rank(other) < rank(at));
        if place < 32 {
            found = (found + 1).min(32);
            best[place..found].rotate_right(1);
            best[place] = at;
        }
    }
    (best, found)
}

/// The set's ways in the order they leave: (0 for an empty way, else the value + 1; way), as they stand now.
fn victims(ways: &[u32], home: u32, field: Field) -> [(u32, u32); 32] {
    let mut victims = std::array::from_fn(|way| {
        let slot = home * WAYS + way as u32;
        let empty = ways[way_at(slot, Field::Tag)] == NONE;
        (if empty { 0 } else { ways[way_at(slot, field)].wrapping_add(1) }, way as u32)
    });
    victims.sort_unstable();
    victims
}
