//! The forward: reads the rows of each bag where they lie, and pools them.

use std::{
    cell::Cell,
    marker::PhantomData,
    ops::Range,
    sync::atomic::{Ordering::SeqCst, compiler_fence},
};

use crate::{
    config::Precision,
    cpu::{
        cached::{
            batch::Batch,
            lookup::{find, find_in},
        },
        share::keyed,
    },
    host::trusted::{self, AHEAD, Widener, prefetch, prefetch_lines},
    record::rows::{
        self,
        payload::{Columns, Fp16, Packed, Payload, WidenedFp16, by_format},
        sum::{Rows, add, prefetch_row, sum_rows},
    },
    table::{
        abi::{NONE, POOL_NONE},
        row::RowLayout,
        shares::Sets,
    },
};

/// Where rows lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) layout: &'a RowLayout,
    pub(crate) sets: Sets<'a>,
    pub(crate) records: &'a [u32],
    pub(crate) ways: &'a [u32],
    pub(crate) cache: &'a [f32],
    /// The slot of each access, or NONE; empty if they are to be looked up.
    pub(crate) slots: &'a [u32],
}

/// What a forward writes: some output rows, and in training lists of their accesses, which are empty otherwise.
#[derive(Debug, Default)]
pub(crate) struct Written<'a> {
    pub(crate) outputs: &'a mut [f32],
    /// The accesses, to be sorted.
    pub(crate) sort: &'a mut [u64],
    /// The output row and the factor of each access; empty without factors.
    pub(crate) factors: &'a mut [[u32; 2]],
    /// With a cache, the output row of each access. The sort carries numbers of accesses; output rows if this and `factors` are empty.
    pub(crate) slots: &'a mut [u32],
}

impl<'a> Written<'a> {
    fn split(self, floats: usize, accesses: usize) -> (Self, Self) {
        fn cut<T>(list: &mut [T], at: usize) -> (&mut [T], &mut [T]) {
            let at = at.min(list.len());
            list.split_at_mut(at)
        }
        let (outputs, more_outputs) = cut(self.outputs, floats);
        let (sort, more_sort) = cut(self.sort, accesses);
        let (factors, more_factors) = cut(self.factors, accesses);
        let (slots, more_slots) = cut(self.slots, accesses);
        let more = Self { outputs: more_outputs, sort: more_sort, factors: more_factors, slots: more_slots };
        (Self { outputs, sort, factors, slots }, more)
    }
}

/// Pools all bags (SPEC 3, step 6), and lists their accesses if asked.
pub(crate) fn pool(batch: &Batch<'_>, source: &Source<'_>, written: Written<'_>) {
    divide(batch, written, 0..batch.outputs(), batch.parts(), &|outputs, mut written| {
        list(batch, &outputs, &mut written);
        pool_part(batch, source, written.outputs, outputs);
    });
}

/// Lists the accesses of all bags.
pub(crate) fn list_all(batch: &Batch<'_>, sort: &mut [u64], factors: &mut [[u32; 2]], slots: &mut [u32]) {
    let written = Written { sort, factors, slots, ..Written::default() };
    divide(batch, written, 0..batch.outputs(), batch.parts(), &|outputs, mut written| {
        list(batch, &outputs, &mut written);
    });
}

/// Cuts output rows in two of about as many accesses each, until there are enough parts.
fn divide(
    batch: &Batch<'_>,
    written: Written<'_>,
    outputs: Range<usize>,
    parts: usize,
    work: &(impl Fn(Range<usize>, Written<'_>) + Sync),
) {
    if parts <= 1 || outputs.len() <= 1 {
        return work(outputs, written);
    }
    let (first, end) = (batch.first(outputs.start), batch.first(outputs.end));
    let (left, right) = (parts / 2, parts - parts / 2);
    let wanted = first + (end - first) * left / parts;
    let middle = if batch.params.pooling == POOL_NONE {
        wanted
    } else {
        outputs.start + batch.offsets[outputs.clone()].partition_point(|&offset| (offset as usize) < wanted)
    };
    let dim = batch.params.dim as usize;
    let (one, two) = written.split((middle - outputs.start) * dim, batch.first(middle) - first);
    rayon::join(
        || divide(batch, one, outputs.start..middle, left, work),
        || divide(batch, two, middle..outputs.end, right, work),
    );
}

fn pool_part(batch: &Batch<'_>, source: &Source<'_>, out: &mut [f32], outputs: Range<usize>) {
    if batch.params.pooling == POOL_NONE {
        return copy(batch, source, outputs, out);
    }
    if source.layout.precision == Precision::Fp16 {
        if Widener::<true>::here().is_some() {
            return pool_widened::<WidenedFp16<true>>(batch, source, out, outputs);
        }
        if Widener::<false>::here().is_some() {
            return pool_widened::<WidenedFp16<false>>(batch, source, out, outputs);
        }
    }
    by_format!(source.layout.precision, F => pool_format::<F>(batch, source, outputs, out));
}

/// Pools FP16 rows that the processor widens. It takes the largest exponent for infinity and NaN, which [`Fp16`] takes for one more exponent. A
/// finite sum has no such half in it; any other sum is computed again by [`Fp16`].
fn pool_widened<F: Payload>(batch: &Batch<'_>, source: &Source<'_>, out: &mut [f32], outputs: Range<usize>) {
    pool_format::<F>(batch, source, outputs.clone(), out);
    for (output, sums) in outputs.zip(out.chunks_exact_mut(batch.params.dim as usize)) {
        if sums.iter().fold(0, |largest, sum| (sum.to_bits() & !(1 << 31)).max(largest)) >= f32::INFINITY.to_bits() {
            pool_format::<Fp16>(batch, source, output..output + 1, sums);
        }
    }
}

fn pool_format<F: Payload>(batch: &Batch<'_>, source: &Source<'_>, outputs: Range<usize>, out: &mut [f32]) {
    if batch.params.sets == 0 {
        pool_places::<F, _>(batch, source, Named::<false>, outputs, out);
    } else if source.slots.is_empty() {
        pool_places::<F, _>(batch, source, LookedUp::new(source), outputs, out);
    } else {
        pool_places::<F, _>(batch, source, Named::<true>, outputs, out);
    }
}

fn pool_places<F: Payload, P: Places>(
    batch: &Batch<'_>,
    source: &Source<'_>,
    places: P,
    bags: Range<usize>,
    out: &mut [f32],
) {
    if batch.params.weighted == 1 {
        pool_bags(batch, &mut Stored::<F, P, true>::new(batch, source, places), bags, out);
    } else {
        pool_bags(batch, &mut Stored::<F, P, false>::new(batch, source, places), bags, out);
    }
}

fn pool_bags<F: Payload, P: Places, const FACTORS: bool>(
    batch: &Batch<'_>,
    stored: &mut Stored<'_, F, P, FACTORS>,
    bags: Range<usize>,
    out: &mut [f32],
) {
    for (bag, sums) in bags.zip(out.chunks_exact_mut(batch.params.dim as usize)) {
        stored.base = batch.base(bag);
        sum_rows(&*stored, batch.offsets[bag] as usize..batch.offsets[bag + 1] as usize, sums);
        if batch.params.averages() {
            let scale = scale(batch, bag);
            sums.iter_mut().for_each(|sum| *sum *= scale);
        }
    }
}

/// Lists the accesses of some output rows for the sort, and their output rows and factors.
fn list(batch: &Batch<'_>, outputs: &Range<usize>, Written { sort, factors, slots, .. }: &mut Written<'_>) {
    if sort.is_empty() {
        return;
    }
    let start = batch.first(outputs.start);
    let none = batch.params.pooling == POOL_NONE;
    let mut bag = if none { bag_of(batch, start) } else { outputs.start };
    for output in outputs.clone() {
        let range = batch.first(output)..batch.first(output + 1);
        bag = if none { next_bag(batch, bag, range.start) } else { output };
        let (base, scale) = (batch.base(bag), if factors.is_empty() { 1.0 } else { scale(batch, bag) });
        let (rows, at) = (&batch.rows[range.clone()], range.start - start);
        let sort = &mut sort[at..][..rows.len()];
        if factors.is_empty() && slots.is_empty() {
            sort.iter_mut().zip(rows).for_each(|(entry, row)| *entry = keyed(row.wrapping_add(base), output as u32));
            continue;
        }
        for ((entry, row), number) in sort.iter_mut().zip(rows).zip(range.start as u32..) {
            *entry = keyed(row.wrapping_add(base), number);
        }
        if let Some(slots) = slots.get_mut(at..at + rows.len()) {
            // An access that does not count has no slot, now and later.
            slots.iter_mut().zip(rows).for_each(|(slot, &row)| *slot = if row == NONE { NONE } else { output as u32 });
        }
        let Some(factors) = factors.get_mut(at..at + rows.len()) else { continue };
        factors.fill([output as u32, scale.to_bits()]);
        for ([_, factor], weight) in factors.iter_mut().zip(batch.weights.get(range).unwrap_or_default()) {
            *factor = (scale * weight).to_bits();
        }
    }
}

/// The bag of an access.
pub(crate) fn bag_of(batch: &Batch<'_>, access: usize) -> usize {
    batch.offsets.partition_point(|&offset| offset as usize <= access).max(1) - 1
}

/// The bag of an access that does not come before `bag`.
pub(crate) fn next_bag(batch: &Batch<'_>, mut bag: usize, access: usize) -> usize {
    while batch.offsets[bag + 1] as usize <= access {
        bag += 1;
    }
    bag
}

/// The factor of a bag's sum.
pub(crate) fn scale(batch: &Batch<'_>, bag: usize) -> f32 {
    if !batch.params.averages() {
        return 1.0;
    }
    let rows = &batch.rows[batch.offsets[bag] as usize..batch.offsets[bag + 1] as usize];
    let valid = if batch.plain { rows.len() } else { rows.iter().filter(|&&row| row != NONE).count() };
    1.0 / valid.max(1) as f32
}

/// Copies single rows: adding one to 0 would turn its negative zeros positive.
pub(crate) fn copy(batch: &Batch<'_>, source: &Source<'_>, outputs: Range<usize>, out: &mut [f32]) {
    let layout = source.layout;
    let mut bag = bag_of(batch, outputs.start);
    for (i, to) in outputs.zip(out.chunks_exact_mut(layout.dim as usize)) {
        bag = next_bag(batch, bag, i);
        let base = batch.base(bag);
        if let Some(next) = batch.rows.get(i + AHEAD).and_then(|row| source.record(row.wrapping_add(base))) {
            prefetch(next);
        }
        let row = batch.rows[i].wrapping_add(base);
        let slot = match source.slots.get(i) {
            Some(&slot) => slot,
            None if batch.params.sets > 0 && row != NONE => find(&source.sets, source.ways, row).1,
            None => NONE,
        };
        match source.record(row) {
            None => to.fill(0.0),
            Some(_) if slot != NONE => to.copy_from_slice(source.slot(slot)),
            Some(record) => rows::unpack(layout, record, to, &mut []),
        }
        if batch.params.weighted == 1 && row != NONE {
            to.iter_mut().for_each(|value| *value *= batch.weights[i]);
        }
    }
}

impl Source<'_> {
    /// The record of a row; `None` for NONE.
    #[inline(always)]
    fn record(&self, row: u32) -> Option<&[u32]> {
        let words = self.layout.record_words as usize;
        if row == NONE { None } else { self.records.get(row as usize * words..row as usize * words + words) }
    }

    /// The weights in a slot.
    #[inline(always)]
    fn slot(&self, slot: u32) -> &[f32] {
        &self.cache[slot as usize * self.layout.slot_words() as usize..][..self.layout.dim as usize]
    }
}

/// Where the rows of accesses lie in the cache.
trait Places {
    /// Whether any row may lie in the cache.
    const ANY: bool;
    /// Whether accesses are named by their slots, and not by their rows.
    const KNOWN: bool = false;
    /// The slot of access `k`, or NONE.
    fn slot(&self, k: usize, name: u32, base: u32) -> u32;
    /// The same for a later access `k`. `row` gives the row of an access.
    fn later(&self, k: usize, name: u32, row: impl Fn(usize) -> Option<u32>) -> u32;
}

/// Accesses that are named by their slots, or NONE: a hit reads no second list. Without a cache by their rows.
struct Named<const CACHE: bool>;

impl<const CACHE: bool> Places for Named<CACHE> {
    const ANY: bool = CACHE;
    const KNOWN: bool = CACHE;

    #[inline(always)]
    fn slot(&self, _: usize, name: u32, _: u32) -> u32 {
        if CACHE { name } else { NONE }
    }

    #[inline(always)]
    fn later(&self, k: usize, name: u32, _: impl Fn(usize) -> Option<u32>) -> u32 {
        self.slot(k, name, 0)
    }
}

/// Number of accesses whose places are remembered: more than are looked up ahead.
const REMEMBERED: usize = 4 * AHEAD;

/// Slots that are looked up.
struct LookedUp<'a> {
    at: Sets<'a>,
    ways: &'a [u32],
    /// The sets of rows whose tags are prefetched, then their slots once they are looked up; each with its row.
    sets: [Cell<(u32, u32)>; REMEMBERED],
    slots: [Cell<(u32, u32)>; REMEMBERED],
}

impl<'a> LookedUp<'a> {
    fn new(source: &Source<'a>) -> Self {
        let nothing = [const { Cell::new((NONE, NONE)) }; REMEMBERED];
        Self { at: source.sets, ways: source.ways, sets: nothing.clone(), slots: nothing }
    }
}

impl Places for LookedUp<'_> {
    const ANY: bool = true;

    #[inline(always)]
    fn slot(&self, k: usize, name: u32, base: u32) -> u32 {
        let row = name.wrapping_add(base);
        let (known, slot) = self.slots[k % REMEMBERED].get();
        match row {
            NONE => NONE,
            _ if known == row => slot,
            _ => find(&self.at, self.ways, row).1,
        }
    }

    #[inline(always)]
    fn later(&self, k: usize, _: u32, row: impl Fn(usize) -> Option<u32>) -> u32 {
        let width = self.at.ways;
        if let Some(row) = row(k + AHEAD) {
            let set = self.at.set_of(row);
            self.sets[(k + AHEAD) % REMEMBERED].set((row, set));
            // A row beyond all rows has any set (`tags`).
            let tags = if set < self.at.whole.sets { 4 * set as usize * width as usize } else { 0 };
            if width == 32 {
                prefetch_lines::<2, u32>(self.ways, tags, 32);
            } else {
                prefetch_lines::<0, u32>(self.ways, tags, width as usize);
            }
        }
        let Some(row) = row(k) else { return NONE };
        let (known, set) = self.sets[k % REMEMBERED].get();
        let set = if known == row { set } else { self.at.set_of(row) };
        let slot = find_in(width, self.ways, set, row);
        self.slots[k % REMEMBERED].set((row, slot));
        slot
    }
}

/// The rows of accesses, read from their slots or their records. The loop over accesses needs no pointer but these.
struct Stored<'a, F, P, const FACTORS: bool> {
    rows: &'a [u32],
    names: &'a [u32],
    weights: &'a [f32],
    records: Packed<'a>,
    cache: &'a [f32],
    slots: usize,
    slot_words: usize,
    /// Added to the rows of the batch.
    base: u32,
    places: P,
    format: PhantomData<F>,
}

impl<'a, F: Payload, P: Places, const FACTORS: bool> Stored<'a, F, P, FACTORS> {
    fn new(batch: &'a Batch<'a>, source: &'a Source<'a>, places: P) -> Self {
        let Batch { params, rows, weights, .. } = *batch;
        Self {
            rows,
            names: if P::KNOWN { source.slots } else { rows },
            weights,
            records: Packed::new(source.layout, source.records),
            cache: source.cache,
            slots: params.slots as usize,
            slot_words: source.layout.slot_words() as usize,
            base: 0,
            places,
            format: PhantomData,
        }
    }

    /// The row at `k`; NONE, or no row of any table, if it does not count.
    #[inline(always)]
    fn linear(&self, k: usize) -> Option<u32> {
        self.rows.get(k).map(|row| row.wrapping_add(self.base))
    }

    /// The same for the access `name` at `k`; NONE if it does not count.
    #[inline(always)]
    fn row(&self, k: usize, name: u32) -> u32 {
        if P::KNOWN { self.linear(k).unwrap_or(NONE) } else { name.wrapping_add(self.base) }
    }
}

impl<'a, F: Payload, P: Places, const FACTORS: bool> Rows for Stored<'a, F, P, FACTORS> {
    type Name = u32;
    /// Columns of the rows in slots, if there are any, and of the rows in records.
    type Columns = (Option<trusted::Columns<'a, f32>>, F::Columns<'a>);
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn names(&self) -> &[u32] {
        self.names
    }

    #[inline(always)]
    fn columns(&self, at: usize, n: usize) -> Self::Columns {
        let slots = P::ANY.then(|| trusted::Columns::new(self.cache, self.slots, self.slot_words, at, n));
        (slots, F::columns(self.records, at, n))
    }

    #[inline(always)]
    fn add<const N: usize>(&self, (slots, records): Self::Columns, k: usize, name: u32, total: &mut [f32; N]) {
        let slot = self.places.slot(k, name, self.base);
        if let Some(slots) = slots
            && slot != NONE
        {
            let Some(values) = Columns::of(&slots, slot) else { panic!("a slot beyond the cache") };
            return add(self, k, name, values, total);
        }
        // No table has a row NONE.
        if let Some(values) = records.of(self.row(k, name)) {
            add(self, k, name, values, total);
            if P::ANY {
                // Without it the compiler lets the additions of both branches meet, and their values in memory.
                compiler_fence(SeqCst);
            }
        }
    }

    #[inline(always)]
    fn factor(&self, k: usize, _: u32) -> f32 {
        self.weights[k]
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, k: usize, name: u32) {
        if P::ANY {
            let slot = self.places.later(k, name, |k| self.linear(k).filter(|&row| row != NONE));
            if slot != NONE {
                let dim = self.records.layout.dim as usize;
                return prefetch_row(self.cache, slot as usize * self.slot_words, dim, N * size_of::<f32>());
            }
        }
        let words = self.records.layout.record_words as usize;
        let at = (self.row(k, name) as usize).wrapping_mul(words);
        prefetch_row(self.records.words, at, words, N * F::BITS / 8);
    }
}
