//! CPU mirror of `shaders/cached/probe.wgsl`: finds the slot of each access, and lists the misses.

use rayon::prelude::*;

use crate::{
    cpu::stages::cached::tables::{
        Tally,
        counter::{ACCESSES, HITS},
    },
    record::of_params::MODE_TRAIN,
    table::layout::{Field, NONE, Params, Step, count as counts, way_at},
};

/// Number of accesses below which one thread does all.
const PAYS: usize = 1 << 12;

/// Looks up the row of each access in its set, and lists the misses (SPEC 3, step 2). Mirror of
/// `shaders/cached/probe.wgsl`.
pub fn probe(
    params: &Params,
    step: &mut Step,
    keys: &[u32],
    ways: &[u32],
    places: &mut [u32],
    miss_keys: &mut [u32],
    miss_index: &mut [u32],
    tables: &mut [u32],
) {
    let n = params.indices as usize;
    if step.counts[counts::INDICES] == 0 {
        places[..n].fill(NONE); // a refused step has no rows
        return;
    }
    let (keys, places) = (&keys[..n], &mut places[..n]);
    let look_up = |(place, &row): (&mut u32, &u32)| *place = find(params, ways, row);
    if n < PAYS {
        places.iter_mut().zip(keys).for_each(look_up);
    } else {
        places.par_iter_mut().zip(keys).for_each(look_up);
    }
    let mut missed = step.counts[counts::MISSED] as usize;
    let mut tally = Tally::default();
    for (i, (&row, &place)) in keys.iter().zip(&*places).enumerate() {
        if row == NONE {
            continue;
        }
        if params.mode == MODE_TRAIN {
            tally.count(params, tables, row, ACCESSES);
        }
        if place == NONE {
            miss_keys[missed] = params.miss_key(row);
            miss_index[missed] = i as u32;
            missed += 1;
        } else if params.mode == MODE_TRAIN {
            tally.count(params, tables, row, HITS);
        }
    }
    tally.end(tables);
    step.counts[counts::MISSED] = missed as u32;
}

/// The slot of a row, or NONE.
fn find(params: &Params, ways: &[u32], row: u32) -> u32 {
    if params.sets == 0 || row == NONE {
        return NONE;
    }
    let width = params.ways();
    let first = params.set_of(row) * width;
    let tags = &ways[way_at(width, first, Field::Tag)..][..width as usize];
    // Compares all tags without a branch, as vector code. At most one is the row's.
    let way = (1..).zip(tags).fold(0, |found, (way, &tag)| found | if tag == row { way } else { 0 });
    if way == 0 { NONE } else { first + way - 1 }
}
