use rayon::prelude::*;

use super::{
    record::MODE_TRAIN,
    tables::{
        count,
        counter::{ACCESSES, HITS, UNIQUE, UNIQUE_MISSES},
        table_of,
    },
};
use crate::{
    hash::fmix32,
    layout::{Field, NONE, Params, Step, Unique, count as counts, way_at},
};

/// Distinct rows below which one thread looks them up.
const PAYS: usize = 1 << 12;

/// Looks each distinct row up in its set. Mirror of `shaders/probe.wgsl`.
pub fn probe(
    params: &Params,
    step: &Step,
    keys: &[u32],
    starts: &[u32],
    unique: &mut [Unique],
    rows: &mut [u32],
    set_keys: &mut [u32],
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let n = step.counts[counts::UNIQUE] as usize;
    let look_up = |u: usize| {
        let row = keys[starts[u] as usize];
        let (home, slot) = find(params, ways, row);
        let end = if u + 1 < n { starts[u + 1] } else { step.counts[counts::VALID] };
        let occurrences = end - starts[u];
        (Unique { row, count: occurrences, key: occurrences, slot }, home)
    };
    let write = |u: usize, one: &mut Unique, row: &mut u32, set_key: &mut u32| {
        let (found, home) = look_up(u);
        (*one, *row) = (found, found.row);
        *set_key = if found.slot == NONE { home } else { NONE };
    };
    let (unique, rows, set_keys) = (&mut unique[..n], &mut rows[..n], &mut set_keys[..n]);
    if n < PAYS {
        for (u, ((one, row), set_key)) in unique.iter_mut().zip(rows).zip(set_keys).enumerate() {
            write(u, one, row, set_key);
        }
    } else {
        let outputs = unique.par_iter_mut().zip(rows).zip(set_keys);
        outputs.enumerate().for_each(|(u, ((one, row), set_key))| write(u, one, row, set_key));
    }
    if params.mode != MODE_TRAIN {
        return;
    }
    for one in unique {
        let table = table_of(params, tables, one.row);
        count(tables, table, ACCESSES, one.count);
        count(tables, table, UNIQUE, 1);
        if one.slot == NONE {
            count(tables, table, UNIQUE_MISSES, 1);
        } else {
            ways[way_at(one.slot, Field::Stamp)] = step.t;
            count(tables, table, HITS, one.count);
        }
    }
}

/// A row's set, and its slot or NONE.
fn find(params: &Params, ways: &[u32], row: u32) -> (u32, u32) {
    if params.sets == 0 {
        return (0, NONE);
    }
    let home = fmix32(row) % params.sets;
    let tags = way_at(home * 32, Field::Tag);
    let way = ways[tags..tags + 32].iter().position(|&tag| tag == row);
    (home, way.map_or(NONE, |way| home * 32 + way as u32))
}
