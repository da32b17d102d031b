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
    layout::{Field, Move, NONE, Params, Step, Unique, WAYS, count as counts, way_at},
};

/// Admission, set by set: the l-th candidate takes the l-th victim. Mirror of `shaders/admit.wgsl`.
pub fn admit(
    params: &Params,
    step: &Step,
    unique: &mut [Unique],
    moves: &mut [Move],
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let n = step.counts[counts::MOVES] as usize;
    let lfu = params.policy == LFU;
    let mut rest = 0..n;
    while !rest.is_empty() {
        let home = fmix32(unique[rest.start].row) % params.sets;
        let length = unique[rest.clone()].iter().position(|one| fmix32(one.row) % params.sets != home);
        let set = rest.start..length.map_or(n, |length| rest.start + length);
        rest.start = set.end;
        let (best, found) = best_candidates(unique, set);
        let victims = victims(ways, home, if lfu { Field::Freq } else { Field::Stamp });
        for (&u, &(value, way)) in best[..found].iter().zip(&victims) {
            let candidate = unique[u];
            let slot = home * WAYS + way;
            let mut leaving = Move { place: slot, row: candidate.row, victim: NONE, flags: 0 };
            if value != 0 {
                let value = value - 1;
                if if lfu { value >= candidate.key } else { value == step.t } {
                    break;
                }
                leaving.victim = ways[way_at(slot, Field::Tag)];
                leaving.flags = Move::WRITE;
                count(tables, table_of(params, tables, leaving.victim), EVICTIONS, 1);
                if ways[way_at(slot, Field::Stamp)] == step.t {
                    leaving.flags |= Move::KEEP; // LFU: this batch has hit it, and still wants it
                }
            }
            count(tables, table_of(params, tables, candidate.row), ADMITTED, 1);
            ways[way_at(slot, Field::Tag)] = candidate.row;
            ways[way_at(slot, Field::Stamp)] = step.t;
            ways[way_at(slot, Field::Freq)] = if lfu { candidate.key } else { 0 };
            unique[u].slot = slot;
            moves[u] = leaving;
        }
    }
}

/// The first 32 candidates by (key descending, row ascending), and how many there are.
fn best_candidates(unique: &[Unique], places: std::ops::Range<usize>) -> ([usize; 32], usize) {
    let rank = |u: usize| (std::cmp::Reverse(unique[u].key), unique[u].row);
    let mut best = [0; 32];
    let mut found = 0;
    for u in places {
        let place = best[..found].partition_point(|&other| rank(other) < rank(u));
        if place < 32 {
            found = (found + 1).min(32);
            best[place..found].rotate_right(1);
            best[place] = u;
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
