//! Three stages of a cached table, written as plainly as they can be: what the tests of single stages compare the kernels with. Floats are packed
//! and unpacked by `hotrow::internals::codec`, which defines the record.

use std::ops::Range;

use hotrow::{
    GradSlice, RandomBits, Rounding,
    internals::layout::{
        CLOCK_WORDS, COMING, DIRTY, Field, NONE, PINNED, Params, Piece, RECENT, Step, Swap, TABLE_WORDS, Target,
        count as counts, way_at,
    },
    internals::{Layout, codec},
    ranks::Stripe,
};

const TRAIN: u32 = 0;
const LFU: u32 = 1;
const WINDOW: u32 = 3;
const MEAN: u32 = 1;

/// Positions of counters, as in `shaders/shared/common.wgsl`.
const ADMITTED: usize = 4;
const EVICTIONS: usize = 5;
const WRITE_BACKS: usize = 6;
const BYPASS_READS: usize = 7;
const BYPASS_WRITES: usize = 8;
const SKIPPED_ROWS: usize = 9;

/// Adds one to a counter of the table that has `row`.
fn count(tables: &mut [u32], row: u32, counter: usize) {
    let table = tables[CLOCK_WORDS..]
        .chunks_exact_mut(TABLE_WORDS)
        .find(|table| (table[0]..table[0] + table[1]).contains(&row));
    let table = table.unwrap_or_else(|| panic!("no table has row {row}"));
    let at = 2 + 2 * counter;
    let (low, carry) = table[at].overflowing_add(1);
    (table[at], table[at + 1]) = (low, table[at + 1].wrapping_add(u32::from(carry)));
}

/// Admits missing rows, set by set: the l-th candidate takes the l-th victim (SPEC 3, step 4). Each swap has the row's key in place of a victim.
pub fn admit(params: &Params, step: &Step, swaps: &mut [Swap], ways: &mut [u32], tables: &mut [u32]) {
    let n = step.counts[counts::SWAPS] as usize;
    let (lfu, width) = (params.policy == LFU, params.slots.checked_div(params.sets).unwrap_or(0));
    let spread = hotrow::internals::hash::Spread::new(params.total_rows, params.sets, width);
    let set_of = |row: u32| spread.set_of(row);
    let mut all: Vec<usize> = (0..n).collect();
    all.sort_by_key(|&u| (set_of(swaps[u].row), !swaps[u].victim, swaps[u].row));
    let sets: Vec<u32> = all.iter().map(|&u| set_of(swaps[u].row)).collect();
    for set in sets.chunk_by(u32::eq) {
        let home = set[0] * width;
        let first = sets.partition_point(|&other| other < set[0]);
        if params.policy == WINDOW {
            for &u in all[first..][..set.len()].iter().take(width as usize) {
                admit_windowed(params, step, &mut swaps[u], home..home + width, ways, tables);
            }
            continue;
        }
        let value = |slot: u32| {
            let word = |field| ways[way_at(width, slot, field)];
            match (word(Field::Tag), word(Field::Flags) & PINNED) {
                (NONE, _) => 0,
                (_, 0) => word(if lfu { Field::Freq } else { Field::Stamp }).wrapping_add(1),
                _ => NONE,
            }
        };
        let mut victims: Vec<(u32, u32)> = (home..home + width).map(|slot| (value(slot), slot)).collect();
        victims.sort_unstable();
        for (&u, &(value, slot)) in all[first..][..set.len()].iter().zip(&victims) {
            let Swap { row, victim: key, .. } = swaps[u];
            let mut leaving = Swap { place: slot, row, victim: NONE, flags: 0 };
            if value == NONE || value != 0 && if lfu { value > key } else { value - 1 == step.t } {
                break; // pinned, as often used, or used by this batch; and so are all victims after it
            }
            if value != 0 {
                leaving.victim = ways[way_at(width, slot, Field::Tag)];
                leaving.flags = Swap::WRITE;
                count(tables, leaving.victim, EVICTIONS);
                if ways[way_at(width, slot, Field::Stamp)] == step.t {
                    leaving.flags |= Swap::KEEP; // LFU: this batch uses the victim, so its row is kept in scratch
                }
            }
            count(tables, row, ADMITTED);
            ways[way_at(width, slot, Field::Stamp)] = row;
            ways[way_at(width, slot, Field::Flags)] |= COMING;
            ways[way_at(width, slot, Field::Freq)] = if lfu { key } else { 0 };
            swaps[u] = leaving;
        }
    }
}

/// Admits one row by the rule of Window, if it gets a slot. A slot with a row on its way counts as used by this batch.
fn admit_windowed(
    params: &Params,
    step: &Step,
    one: &mut Swap,
    slots: Range<u32>,
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let width = params.slots / params.sets;
    let uses = (one.victim / 16).min(15);
    let at = |slot, field| way_at(width, slot, field);
    // Of each kind of way, the next one: an empty one, else by (counter, stamp, row).
    let next = |ways: &[u32], recent| {
        let word = |slot, field| ways[at(slot, field)];
        let free = slots.clone().filter(|&slot| word(slot, Field::Flags) & (PINNED | COMING | RECENT) == recent);
        let free = free.filter(|&slot| word(slot, Field::Tag) == NONE || word(slot, Field::Stamp) != step.t);
        free.min_by_key(|&slot| match word(slot, Field::Tag) {
            NONE => None,
            row => Some((if recent == 0 { word(slot, Field::Freq) } else { 0 }, word(slot, Field::Stamp), row)),
        })
    };
    let (counted, recent) = (next(ways, 0), next(ways, RECENT));
    let held = |slot: u32| ways[at(slot, Field::Tag)] != NONE;
    let freq = |slot: u32| ways[at(slot, Field::Freq)];
    let slot = match (counted, recent) {
        (Some(main), _) if !held(main) || uses > freq(main) => main,
        (Some(main), Some(old)) if held(old) && freq(old) > freq(main) => {
            ways[at(old, Field::Flags)] &= !RECENT;
            ways[at(main, Field::Flags)] |= RECENT;
            main
        }
        (_, Some(old)) => old,
        (_, None) => return,
    };
    let victim = ways[at(slot, Field::Tag)];
    if victim != NONE {
        count(tables, victim, EVICTIONS);
    }
    count(tables, one.row, ADMITTED);
    ways[at(slot, Field::Stamp)] = one.row;
    ways[at(slot, Field::Flags)] |= COMING;
    ways[at(slot, Field::Freq)] = uses;
    *one = Swap { place: slot, row: one.row, victim, flags: if victim == NONE { 0 } else { Swap::WRITE } };
}

/// Moves rows between the records of one piece and FP32 (SPEC 3, step 5).
pub fn exchange(
    layout: &Layout,
    (params, piece, step): (&Params, &Piece, &Step),
    swaps: &[Swap],
    records: &mut [u32],
    [cache, scratch]: [&mut [f32]; 2],
    ways: &mut [u32],
    tables: &mut [u32],
) {
    let swaps = &swaps[..step.counts[counts::SWAPS] as usize];
    let (width, words, layout) = (layout.ways, layout.slot_words() as usize, &layout.row);
    let (dim, floats) = (layout.dim as usize, layout.row_words as usize);
    let record_at = |row: u32| (row - piece.first_row) as usize * layout.record_words as usize..;
    let random_bits = RandomBits::ALL.into_iter().find(|bits| bits.bits() == params.random_bits);
    let noise = codec::Noise {
        rounding: if params.stochastic == 1 { Rounding::Stochastic } else { Rounding::Nearest },
        random_bits: random_bits.expect("a number of bits"),
        seed: params.seed,
        step: step.t,
        purpose: params.purpose,
        stripe: Stripe::ALL,
    };
    if piece.phases & Piece::PACK != 0 {
        for one in
            swaps.iter().filter(|one| one.place != NONE && one.flags & Swap::WRITE != 0 && piece.holds(one.victim))
        {
            let slot = (one.place < params.slots).then(|| way_at(width, one.place, Field::Flags));
            if slot.is_some_and(|flags| ways[flags] & DIRTY == 0) {
                continue;
            }
            let row = match slot {
                Some(_) => &cache[one.place as usize * words..][..floats],
                None => &scratch[(one.place - params.slots) as usize * words..][..floats],
            };
            let record = &mut records[record_at(one.victim)][..layout.record_words as usize];
            if !codec::pack(layout, &noise, one.victim, &row[..dim], &row[dim..], record) {
                count(tables, one.victim, SKIPPED_ROWS);
            } else if params.mode == TRAIN {
                count(tables, one.victim, if slot.is_some() { WRITE_BACKS } else { BYPASS_WRITES });
            }
            slot.into_iter().for_each(|flags| ways[flags] &= !DIRTY);
        }
    }
    if piece.phases & Piece::UNPACK != 0 {
        let unpack = |row: u32, to: &mut [f32]| {
            codec::unpack(layout, &records[record_at(row)][..layout.record_words as usize], &mut to[..floats]);
            to[floats..].fill(0.0);
        };
        for (i, one) in swaps.iter().enumerate().filter(|(_, one)| one.place != NONE) {
            let kept = one.flags & Swap::KEEP != 0 && piece.holds(one.victim);
            if piece.holds(one.row) && one.place < params.slots {
                unpack(one.row, &mut cache[one.place as usize * words..][..words]);
                let slot = |field| way_at(width, one.place, field);
                if ways[slot(Field::Flags)] & COMING != 0 {
                    (ways[slot(Field::Tag)], ways[slot(Field::Stamp)]) = (one.row, step.t);
                    ways[slot(Field::Flags)] &= !COMING;
                }
            }
            // A bypassed row goes to its place in scratch; a row that lost its slot and is used by this batch to that of its own swap.
            let (row, at) = match one.place.checked_sub(params.slots) {
                _ if kept => (one.victim, i),
                Some(at) if piece.holds(one.row) => (one.row, at as usize),
                _ => continue,
            };
            unpack(row, &mut scratch[at * words..][..words]);
            if params.mode == TRAIN {
                count(tables, row, BYPASS_READS);
            }
        }
    }
}

/// Sums each chunk of the heavy rows' gradients (SPEC 3).
pub fn merge(
    (params, layout): (&Params, &Layout),
    targets: &[Target],
    segment: &[u32],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &mut [f32],
) {
    const CHUNK: usize = 128;
    let (dim, valid, inverse) = (params.dim as usize, targets[0].place as usize, f32::from_bits(targets[0].end));
    let partials = &mut scratch[(params.partials * layout.width()) as usize..];
    let factors = params.weighted == 1 || params.pooling == MEAN;
    for (tile, sums) in partials.chunks_exact_mut(2 * dim).take(valid.div_ceil(CHUNK)).enumerate() {
        let (first, end) = (tile * CHUNK, (tile * CHUNK + CHUNK).min(valid));
        // The row that the tile begins with has begun before it; the row that it ends with begins in it.
        for (at, begins) in [(first, false), (end - 1, true)] {
            let one = targets[segment[at] as usize + 1];
            let (start, end) = (one.start as usize, one.end as usize);
            if end - start <= CHUNK || (start >= first) != begins {
                continue;
            }
            let chunk: Range<usize> =
                if begins { start..end } else { start + (first - start).next_multiple_of(CHUNK)..end };
            let sums = &mut sums[usize::from(begins) * dim..][..dim];
            if !chunk.is_empty() {
                sums.fill(0.0);
            }
            for &[output, factor] in &accesses[chunk.start.min(end)..(chunk.start + CHUNK).min(end)] {
                for (e, sum) in sums.iter_mut().enumerate() {
                    let at = output as usize * dim + e;
                    let gradient = match grad_outputs {
                        GradSlice::F32(gradients) => gradients[at],
                        GradSlice::F16(halves) => halves[at].to_f32(),
                    };
                    let gradient = gradient * inverse;
                    *sum += if factors { f32::from_bits(factor) * gradient } else { gradient };
                }
            }
        }
    }
}
