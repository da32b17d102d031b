//! What each stage of a cached table's forward and backward asks of a device, for sum pooling without weights and LRU, the setting of the
//! suite. The formulas follow the shaders line by line; `tests.rs` compares them with what the lane executor counts.

use super::super::bytes::{SMALL, sort_bytes};
use super::access::{LANES, Touched, distinct, one, run, scattered, span, stream, strided, subgroups};
use super::{Counts, Phase, Stage, Work};
use hotrow::LookupBody;

/// Keys of a block of the sort and of dedup, and elements of a row that a workgroup scans at once.
const SORT_BLOCK: f64 = 3072.0;
/// The most keys of which scatter counts the digits of the next pass.
const COUNTED_AHEAD: f64 = 2_097_152.0;
const DEDUP_BLOCK: f64 = 2048.0;
const SCAN_TILE: f64 = 2048.0;
/// Blocks up to which one invocation scans a row.
const SCAN_SHORT: f64 = 16.0;
/// Accesses of a chunk of a heavy row.
const CHUNK: f64 = 128.0;
/// Entries of the list from which a workgroup picks the rows of one of several shards.
const LISTED: f64 = 2048.0;

/// A sort of the misses in forward, or of all accesses in backward.
#[derive(Clone, Copy)]
struct Keys {
    /// The most keys, which the host knows.
    capacity: f64,
    live: f64,
    distinct: f64,
    /// The most equal keys.
    top: f64,
    key_bits: u32,
    /// Number of different keys that there can be.
    reach: f64,
    /// Whether values are read; else they are positions.
    values: bool,
}

/// The stages of forward in their order.
pub(in super::super) fn forward(work: &Work) -> Vec<Stage> {
    let facts = &work.facts;
    let mut all = vec![linearize(work), begin()];
    if facts.accesses > 0.0 {
        all.push(probe(work));
        if facts.sets > 0.0 {
            all.push(touch(work));
        }
        let reach = if facts.sets > 0.0 { 4_294_967_296.0 } else { f64::from(work.layout.total_rows) };
        let missed = Keys {
            capacity: facts.accesses,
            live: facts.missed(),
            distinct: facts.missing,
            top: 1.0 + facts.missed() / facts.missing.max(1.0),
            key_bits: work.layout.miss_key_bits(),
            reach,
            values: true,
        };
        all.extend(dedup(work, &missed));
        all.push(claim(work));
        if facts.sets > 0.0 {
            all.push(admit(work));
        }
        all.extend([locate(work), exchange(work)]);
    }
    all.push(gather(work));
    finish(work, Phase::Forward, all)
}

/// The stages of backward in their order.
pub(in super::super) fn backward(work: &Work) -> Vec<Stage> {
    let (facts, layout) = (&work.facts, &work.layout);
    let (by_row, by_place) = (layout.row_bits(), layout.place_bits(facts.accesses as u32));
    let places = f64::from(layout.slots()) + facts.distinct;
    let (key_bits, reach) = match by_place.div_ceil(8) < by_row.div_ceil(8) {
        true => (by_place, places),
        false => (by_row, f64::from(layout.total_rows)),
    };
    let (capacity, live, distinct) = (facts.accesses, facts.accesses, facts.distinct);
    let mut all =
        dedup(work, &Keys { capacity, live, distinct, top: facts.pattern.top, key_bits, reach, values: false });
    all.push(arrange(work));
    if facts.accesses > CHUNK {
        all.extend([merge(work), combine(work)]);
    }
    all.push(update(work));
    finish(work, Phase::Backward, all)
}

/// Adds up the dispatches of one name, and puts their must-move bytes beside their counts.
fn finish(work: &Work, phase: Phase, all: Vec<(&'static str, Counts)>) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for (name, counts) in all {
        match stages.iter_mut().find(|known| known.name == name) {
            Some(known) => known.dispatches.push(counts),
            None => stages.push(Stage { name, phase, bytes: 0.0, dispatches: vec![counts] }),
        }
    }
    for stage in &mut stages {
        stage.bytes = work.facts.stage_bytes(stage.name, phase == Phase::Backward).unwrap_or(0.0);
        let waits = work.waits(stage.name);
        stage.dispatches.iter_mut().for_each(|counts| counts.waits = waits * counts.turns);
    }
    stages
}

/// A dispatch of this many workgroups.
fn groups(workgroups: f64) -> Counts {
    Counts { dispatches: 1.0, workgroups, ..Counts::default() }
}

/// Loads of a turn that wait one for another. Gather and update add those of their bags and accesses.
const WAITS: &[(&str, f64)] = &[
    ("linearize", 7.0),
    ("begin", 4.0),
    ("probe", 10.0),
    ("touch", 3.0),
    ("sort_small", 2.0),
    ("histogram", 1.0),
    ("scan", 1.0),
    ("scatter", 2.0),
    ("heads", 1.0),
    ("segments", 2.0),
    ("claim", 4.0),
    ("admit", 10.0),
    ("locate", 3.0),
    ("exchange", 5.0),
    ("gather", 1.0),
    ("arrange", 3.0),
    ("merge", 3.0),
    ("combine", 3.0),
    ("update", 2.0),
];

impl Work {
    fn waits(&self, stage: &str) -> f64 {
        let facts = &self.facts;
        // Four rows or gradients are under way at a time, behind their places.
        let fours = |all: f64, each: f64| 2.0 * (all / each.max(1.0) / 4.0).ceil();
        let more = match stage {
            "gather" => fours(facts.accesses, facts.outputs),
            "update" => fours(facts.accesses - facts.heavy_accesses, facts.distinct),
            _ => 0.0,
        };
        WAITS.iter().find(|(name, _)| *name == stage).map_or(0.0, |(_, waits)| waits + more)
    }

    /// Workgroups of a stage that loops over at most `most` items.
    fn capped(&self, most: f64, each: f64) -> f64 {
        (most / each).ceil().min(self.device.grid)
    }

    /// Steps of a search among the tables.
    fn table_steps(&self) -> f64 {
        self.tables.log2().ceil()
    }

    /// The first lane of each of `n` workgroups finds its table: `tally_begin`.
    fn tally_begin(&self, n: f64) -> Touched {
        one(n * (self.table_steps() + 2.0))
    }

    /// Invocations of a row, rows of a subgroup, Quads of weights and of state, bytes of a Quad.
    fn row(&self) -> Row {
        let row = &self.layout.row;
        let width = f64::from(row.width());
        let weights = f64::from(row.dim) / width;
        let lanes = f64::from(row.lanes);
        Row {
            lanes,
            rows: LANES / lanes,
            weights,
            state: f64::from(row.row_quads) - weights,
            quad: 4.0 * width,
            slot: 4.0 * f64::from(row.slot_words()),
            record: 4.0 * f64::from(row.record_words),
        }
    }
}

/// How a row is moved.
#[derive(Clone, Copy)]
struct Row {
    lanes: f64,
    rows: f64,
    weights: f64,
    state: f64,
    quad: f64,
    /// Bytes of a slot and of a record.
    slot: f64,
    record: f64,
}

impl Row {
    /// `quads` Quads of a row whose stride is `stride` bytes, in turns of the row's invocations.
    fn quads(&self, quads: f64, stride: f64) -> Touched {
        self.words(quads, self.quad, stride)
    }

    /// `items` items of `bytes` bytes each, an item an invocation and turn.
    fn words(&self, items: f64, bytes: f64, stride: f64) -> Touched {
        let whole = (items / self.lanes).floor();
        let rest = items - whole * self.lanes;
        span(self.lanes * bytes, stride) * whole + span(rest * bytes, stride)
    }

    /// Weights and state of a row in its slot or in scratch.
    fn weights(&self) -> Touched {
        self.quads(self.weights, self.slot)
    }

    fn state(&self) -> Touched {
        self.quads(self.state, self.slot)
    }
}

fn linearize(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let (n, bags) = (facts.accesses, facts.outputs);
    let mut counts = groups((n.max(bags + 1.0) / 256.0).ceil());
    // The offsets are checked: each against the number of indices, and each against the next.
    counts.touch(stream(bags + 1.0, 4.0) + stream(bags, 4.0) + one(2.0));
    counts.touch(run(subgroups(bags), LANES.min(bags)));
    let active = (n / 256.0).ceil();
    // The bags of the first and the last index: the whole workgroup searches both, 256 offsets a round. As long as both are in one range, one
    // load serves both: in the first round, and later if the workgroup's indices have few bags.
    let mut size = bags;
    let mut rounds = 0.0;
    while size > 1.0 {
        let stride = (size / 256.0).ceil();
        let apart = (256.0 * bags / n / size).min(1.0);
        counts.touch(strided((size / stride).ceil(), 4.0 * stride) * ((1.0 + apart) * active));
        size = stride;
        rounds += 1.0;
    }
    // Each lane searches between them.
    let (all, mine) = (256.0 * bags / n + 1.0, LANES * bags / n + 1.0);
    let mut met = 1.0;
    for _ in 0..all.log2().ceil() as u32 {
        let near = span(4.0 * mine.min(bags), 4.0);
        counts.touch(Touched { sectors: near.sectors.min(met), lines: near.lines.min(met) } * subgroups(n));
        met *= 2.0;
    }
    counts.touch(stream(n, 8.0) + stream(n, 4.0) * 2.0 + one(subgroups(n)));
    counts.atomics(active, active);
    counts.touch(one(active));
    counts.barriers = active * (2.0 + 3.0 * rounds);
    counts.turns = active;
    ("linearize", counts)
}

fn begin() -> (&'static str, Counts) {
    let mut counts = groups(1.0);
    counts.touch(one(7.0));
    counts.turns = 1.0;
    ("begin", counts)
}

fn probe(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let n = facts.accesses;
    let all = (n / 256.0).ceil();
    let mut counts = groups(all);
    counts.touch(one(subgroups(n)) + stream(n, 4.0) * 2.0 + work.tally_begin(all));
    let sets = distinct(facts.sets.max(1.0), facts.pattern.together);
    match work.device.lookup {
        LookupBody::Lanes32 => counts.touch(span(128.0, 512.0) * (256.0 * all)),
        LookupBody::Lanes8 => {
            // Four sets an access; lanes without a row ask for set 0.
            let four = distinct(facts.sets.max(1.0), facts.pattern.together.min(4.0));
            let idle = 256.0 * all - n;
            counts.touch(span(128.0, 512.0) * (0.25 * four * n + 0.25 * idle));
        }
        LookupBody::Lane1 if facts.sets > 0.0 => {
            let part = subgroups(n) * sets * (n / subgroups(n)).min(LANES) / LANES;
            counts.touch(Touched { sectors: part, lines: part } * 8.0);
        }
        LookupBody::Lane1 => {}
    }
    // Accesses, hits, misses.
    let tallied = all * if facts.hits > 0.0 { 2.0 } else { 1.0 };
    counts.atomics(tallied + all, all);
    counts.touch(Touched { sectors: tallied, lines: all } + one(all));
    for rows in [facts.pattern.strangers, facts.pattern.strangers * facts.hits / n] {
        foreign(work, &mut counts, rows, 1.0);
    }
    // A subgroup lists its misses side by side.
    let missed = facts.missed();
    let listing = subgroups(n) * (1.0 - (1.0 - missed / n).powf(LANES.min(n)));
    if missed > 0.0 {
        counts.touch(run(listing, missed / listing) * 2.0);
    }
    counts.barriers = all * if work.device.lookup == LookupBody::Lanes8 { 6.0 } else { 4.0 };
    counts.turns = all;
    ("probe", counts)
}

/// `rows` rows that are not of their workgroup's first table are counted in memory, with `counters` counters each.
fn foreign(work: &Work, counts: &mut Counts, rows: f64, counters: f64) {
    if rows == 0.0 || work.tables < 2.0 {
        return;
    }
    let tables = work.tables.min(LANES);
    let looks = subgroups(rows) * counters;
    // Table t has its words 112 bytes behind those of table t - 1.
    counts.touch(Touched { sectors: looks * tables.min(LANES / 2.0), lines: looks * (tables * 112.0 / 128.0) });
    counts.touch(one(looks * work.table_steps()));
    counts.atomics(rows * counters, rows / work.tables);
}

fn touch(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let n = facts.accesses;
    let all = (n / 256.0).ceil();
    let mut counts = groups(all);
    counts.touch(stream(n, 4.0) * 2.0 + work.tally_begin(all));
    // The first access of a workgroup to a slot looks at its stamp; the first of all stamps it.
    let new = facts.distinct - facts.missing;
    if facts.hits > 0.0 {
        // A missed row seldom comes twice.
        let looks = (facts.pattern.looks - 0.5 * (facts.missed() + facts.missing)).clamp(new, facts.hits);
        let stamps = |rows: f64| {
            let each = rows / subgroups(n);
            let of = |places: f64| distinct(places, each) * subgroups(n);
            Touched { sectors: of(4.0 * facts.sets), lines: of(facts.sets) }
        };
        let busy = subgroups(n) * (1.0 - (1.0 - new / n).powf(LANES));
        counts.touch(stamps(looks) + one(subgroups(n)) + stamps(new) + one(2.0 * busy));
        let tallied = some_of(all, new);
        counts.atomics(new + tallied, tallied);
        counts.touch(one(tallied));
        foreign(work, &mut counts, facts.pattern.strangers * new / n, 1.0);
    }
    counts.barriers = 2.0 * all;
    counts.turns = all;
    ("touch", counts)
}

/// Sort, then runs of equal keys.
fn dedup(work: &Work, keys: &Keys) -> Vec<(&'static str, Counts)> {
    if keys.capacity <= SMALL {
        return vec![sort_small(keys)];
    }
    let mut all = sort(work, keys);
    all.extend([heads(work, keys), segments(work, keys)]);
    all
}

/// The radix sort alone.
fn sort(work: &Work, keys: &Keys) -> Vec<(&'static str, Counts)> {
    let passes = keys.key_bits.div_ceil(8);
    let mut all = Vec::new();
    for pass in 0..passes {
        let counts_next = keys.capacity <= COUNTED_AHEAD && pass + 1 < passes;
        if pass == 0 || keys.capacity > COUNTED_AHEAD {
            all.push(histogram(work, keys));
        }
        all.push(scan(keys, counts_next));
        all.push(scatter(work, keys, pass, counts_next));
    }
    all
}

/// The stages of a sort of `pairs` pairs by the low `key_bits` bits, with values.
pub(in super::super) fn sort_alone(work: &Work, pairs: f64, key_bits: u32) -> Vec<Stage> {
    let reach = f64::from(key_bits).exp2();
    let keys = Keys { capacity: pairs, live: pairs, distinct: pairs, top: 1.0, key_bits, reach, values: true };
    let all = if pairs <= SMALL { vec![sort_small(&keys)] } else { sort(work, &keys) };
    let mut stages = finish(work, Phase::Sort, all);
    for stage in &mut stages {
        stage.bytes = sort_bytes(stage.name, f64::from(key_bits.div_ceil(8)), pairs, pairs, true).unwrap_or(0.0);
    }
    stages
}

fn sort_small(keys: &Keys) -> (&'static str, Counts) {
    let mut counts = groups((keys.capacity / SMALL).ceil());
    let n = keys.live;
    counts.touch(one(1.0) + stream(n, 4.0) * 3.0);
    if keys.values {
        counts.touch(scattered(n, n, 4.0));
    }
    let steps = n.max(1.0).log2().ceil();
    counts.barriers = 2.0 + 1.0 + steps * (steps + 1.0) / 2.0 + 2.0;
    // An invocation writes the segments of four neighbours, one after another.
    let heads = LANES * 4.0 * keys.distinct / n.max(1.0);
    let quarter = (n / 4.0).ceil();
    counts.touch(stream(quarter, 16.0) * 4.0);
    if n > 0.0 {
        let all = 4.0 * subgroups(quarter);
        counts.touch(run(all, heads).min(one(all * heads / 4.0)));
    }
    counts.touch(one(2.0));
    counts.turns = 1.0;
    ("sort_small", counts)
}

/// A column of 256 counts of a block: neighbouring lanes are `blocks` words apart.
fn column(blocks: f64) -> Touched {
    strided(256.0, 4.0 * blocks)
}

/// Loads of `n` items in whole blocks, an item a lane; lanes behind the last item all read that one.
fn clamped(n: f64, block: f64, blocks: f64) -> Touched {
    let beyond = subgroups(blocks * block) - subgroups(n);
    stream(n, 4.0) + one(beyond)
}

fn histogram(work: &Work, keys: &Keys) -> (&'static str, Counts) {
    let mut counts = groups(work.capped(keys.capacity, SORT_BLOCK));
    let blocks = (keys.live / SORT_BLOCK).ceil();
    counts.touch(one(counts.workgroups) + clamped(keys.live, SORT_BLOCK, blocks) + column(blocks) * blocks);
    counts.barriers = 2.0 * counts.workgroups + 3.0 * blocks;
    counts.turns = blocks;
    ("histogram", counts)
}

fn scan(keys: &Keys, clears: bool) -> (&'static str, Counts) {
    let short = (keys.capacity / SORT_BLOCK).ceil() <= SCAN_SHORT;
    let mut counts = groups(if short { 1.0 } else { 256.0 });
    let length = (keys.live / SORT_BLOCK).ceil();
    let clear = f64::from(u8::from(clears));
    counts.touch(one(counts.workgroups));
    counts.barriers = 2.0 * counts.workgroups;
    if length <= SCAN_SHORT {
        // A row an invocation: four loads a turn, of which those behind the end repeat the last word.
        let each = strided(256.0, 4.0 * length);
        counts.touch(each * (4.0 * (length / 4.0).ceil() + (1.0 + clear) * length) + stream(256.0, 4.0));
    } else {
        // A row a workgroup, eight neighbours an invocation: eight loads 32 bytes apart, and stores of the words that there are.
        let apart = |lanes: f64| {
            let whole = (lanes / LANES).floor();
            let part = |lanes: f64| Touched {
                sectors: lanes,
                lines: if lanes > 0.0 { (lanes - 1.0) / 4.0 + 1.0 } else { 0.0 },
            };
            part(LANES) * whole + part(lanes - whole * LANES)
        };
        let stores = apart(length / 8.0) * (8.0 * (1.0 + clear));
        counts.touch((apart((length / 8.0).ceil()) * 8.0 + stores + one(1.0)) * 256.0);
        counts.barriers += 256.0 * 2.0 * (length / SCAN_TILE).ceil();
    }
    counts.turns = if length <= SCAN_SHORT { 1.0 } else { 256.0 };
    ("scan", counts)
}

fn scatter(work: &Work, keys: &Keys, pass: u32, next: bool) -> (&'static str, Counts) {
    let mut counts = groups(work.capped(keys.capacity, SORT_BLOCK));
    let (n, blocks) = (keys.live, (keys.live / SORT_BLOCK).ceil());
    let all = counts.workgroups;
    counts.touch(one(all) + stream(256.0, 4.0) * all);
    counts.touch(clamped(n, SORT_BLOCK, blocks) + column(blocks) * blocks);
    if keys.values || pass > 0 {
        counts.touch(clamped(n, SORT_BLOCK, blocks));
    }
    counts.barriers = (2.0 + 2.0) * all + 10.0 * blocks;
    counts.turns = blocks;
    if n > 0.0 {
        // 32 keys of an ordered block go to as many runs as they have digits.
        let digits = |pass: u32| (keys.reach / f64::from(8 * pass).exp2()).ceil().min(256.0);
        let here = distinct(digits(pass), n.min(SORT_BLOCK));
        let pieces = if blocks > 1.0 { 1.0 + (LANES - 1.0) * here / n.min(SORT_BLOCK) } else { 1.0 };
        let out = run(1.0, LANES / pieces) * pieces;
        let near = span(4.0 * LANES * blocks, 4.0);
        let out = if blocks > 1.0 { out.min(near) } else { span(4.0 * LANES, 128.0) };
        counts.touch(out * (2.0 * n / LANES));
        if next {
            let to = digits(pass + 1);
            // A digit's counts of all blocks lie side by side.
            let lie = |bytes: f64| distinct((to * blocks * 4.0 / bytes).max(1.0).min(to * pieces.min(blocks)), LANES);
            counts.touch(Touched { sectors: lie(32.0), lines: lie(128.0) } * (n / LANES));
            // Equal keys lie side by side.
            let each = n.min(SORT_BLOCK) / to;
            counts.atomics(n, (each + 3.0 * each.sqrt()).max(each + keys.top.min(SORT_BLOCK)));
        }
    }
    ("scatter", counts)
}

/// Whether each of a block's keys is the first of its run: the key and the one before.
fn head_reads(n: f64, blocks: f64) -> Touched {
    clamped(n, DEDUP_BLOCK, blocks) + clamped(n, DEDUP_BLOCK, blocks) + one(subgroups(n))
}

fn heads(work: &Work, keys: &Keys) -> (&'static str, Counts) {
    let mut counts = groups(work.capped(keys.capacity, DEDUP_BLOCK));
    let blocks = (keys.live / DEDUP_BLOCK).ceil();
    counts.touch(one(counts.workgroups) + head_reads(keys.live, blocks) + one(blocks));
    counts.barriers = 2.0 * counts.workgroups + 2.0 * blocks;
    counts.turns = blocks;
    ("heads", counts)
}

fn segments(work: &Work, keys: &Keys) -> (&'static str, Counts) {
    let mut counts = groups(work.capped(keys.capacity, DEDUP_BLOCK));
    let (n, blocks) = (keys.live, (keys.live / DEDUP_BLOCK).ceil());
    let all = counts.workgroups;
    counts.touch(one(all) + one(if n > 0.0 { 1.0 } else { 2.0 }));
    // Each workgroup reads the heads of all blocks before its own, once.
    let before = all.min(blocks) * (blocks - 1.0).max(0.0) / 2.0;
    counts.touch(Touched { sectors: before / 8.0, lines: before / LANES } + one(all.min(blocks)));
    counts.touch(head_reads(n, blocks) + stream(n, 4.0) * 3.0 + one(subgroups(n)));
    if n > 0.0 {
        let begun = LANES * keys.distinct / n;
        let starts = if keys.distinct < n { run(subgroups(n), begun) } else { stream(n, 4.0) };
        counts.touch(starts + one(3.0));
    }
    counts.barriers = 2.0 * all + 7.0 * blocks;
    counts.turns = blocks;
    ("segments", counts)
}

fn claim(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let mut counts = groups(work.capped(work.most_distinct(), 256.0));
    let n = facts.missing;
    let turns = (n / 256.0).ceil();
    counts.touch(one(counts.workgroups));
    counts.barriers = 2.0 * counts.workgroups + 3.0 * turns;
    counts.turns = turns;
    if n > 0.0 {
        counts.touch(stream(n, 4.0) * 2.0 + run(subgroups(n), LANES.min(n)));
        // The first access of each row, in the order of the sets.
        let apart = facts.missed() / n;
        counts.touch(strided(n, 4.0 * apart) + scattered(n, facts.accesses, 4.0) + one(subgroups(n)));
        counts.touch(stream(n, 16.0) * 2.0 + work.tally_begin(turns));
        counts.atomics(2.0 * turns, turns);
        counts.touch(one(turns));
        foreign(work, &mut counts, n * (1.0 - 1.0 / work.tables), 2.0);
    }
    ("claim", counts)
}

fn admit(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let mut counts = groups(work.capped(work.most_distinct(), 256.0));
    let n = facts.missing;
    let turns = (n / 256.0).ceil();
    counts.touch(one(counts.workgroups));
    counts.barriers = 2.0 * counts.workgroups;
    counts.turns = turns;
    if n == 0.0 {
        return ("admit", counts);
    }
    let sets = distinct(facts.sets, n);
    let each = n / sets;
    // Where a set begins: each row and the one before.
    counts.touch(one(8.0 * turns) + work.tally_begin(turns) + stream(n, 16.0) + stream(n, 16.0) + one(subgroups(n)));
    // Eight sets at a time; a set of more than 32 candidates takes a turn for each further 32. The longest of eight decides.
    let eights = turns * (sets / turns / 8.0 + 0.44).max(1.0);
    let longest = each + 1.42 * each.sqrt();
    counts.barriers += turns * 5.0 + eights * (22.0 + 3.0 * ((longest - LANES).max(0.0) / LANES).ceil());
    // The end of the set, its candidates, its tags, stamps and flags.
    counts.touch(one(sets * (3.0 + 2.0 * (each.log2() + 1.0))));
    counts.touch(span(16.0 * each, 16.0) * (2.0 * sets) + span(128.0, 128.0) * (3.0 * sets) + one(sets));
    // Admitted rows: the stamps and flags of their places, then stamps, frequencies, flags and Moves. Empty ways are taken side by side.
    let taken = (facts.admitted / sets).max(1.0);
    let evicting = facts.evictions / facts.admitted.max(1.0);
    let ways = evicting * distinct(4.0, taken) + (1.0 - evicting) * span(4.0 * taken, 4.0).sectors;
    let line = Touched { sectors: ways, lines: 1.0 } * sets;
    let near = span(16.0 * each, 16.0);
    let moves = Touched { sectors: distinct(near.sectors, taken), lines: near.lines.min(taken) };
    counts.touch(line * 5.0 + one(sets) + moves * (2.0 * sets));
    if facts.evictions > 0.0 {
        counts.touch((line + one(2.0 * sets)) * evicting);
    }
    for rows in [facts.admitted, facts.evictions] {
        let tallied = some_of(turns, rows / work.tables);
        counts.atomics(tallied, tallied);
        counts.touch(one(tallied));
        foreign(work, &mut counts, rows * (1.0 - 1.0 / work.tables), 1.0);
    }
    ("admit", counts)
}

fn locate(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let mut counts = groups(work.capped(facts.accesses, 256.0));
    counts.touch(one(8.0 * counts.workgroups));
    let n = facts.missed();
    counts.turns = (n / 256.0).ceil();
    if n > 0.0 {
        counts.touch(stream(n, 4.0) * 2.0);
        counts.touch(span(16.0 * LANES * facts.missing / n, 16.0) * subgroups(n));
        counts.touch(scattered(n, facts.accesses, 4.0));
    }
    ("locate", counts)
}

/// The workgroups of a stage that moves rows, and its dispatches: one for each group of shards that are bound together.
fn row_groups(work: &Work, most: f64, cap: f64) -> (f64, f64) {
    // A storage buffer for each shard or window beyond the first.
    let most_bound = (work.device.windows + 1.0 - f64::from(work.layout.windows())).max(1.0);
    let dispatches = (f64::from(work.layout.shards) / most_bound).ceil();
    let block = if dispatches > 1.0 { LISTED } else { f64::from(work.layout.at_once()) };
    ((most / block).ceil().min(cap), dispatches)
}

/// Packs `rows` rows into their records: extents, then words.
fn pack(work: &Work, rows: f64) -> Touched {
    let row = work.row();
    let layout = &work.layout.row;
    let bits = layout.precision.bits();
    let extents = row.weights() + row.state();
    let floats = f64::from(layout.dim) + if layout.state_bits < 32 { f64::from(layout.state) } else { 0.0 };
    if layout.item() == 4 {
        // Four words an invocation, of one Quad or, as halves, of two.
        let loads = if bits == 16 { strided(floats / 8.0, 32.0) * 2.0 } else { row.weights() + row.state() };
        return (extents + loads + span(row.record, row.record)) * rows;
    }
    // Scale, bias and FP32 state by themselves, then weights and FP16 state, two words an invocation in FP16.
    let payload = f64::from(layout.payload_half / 2);
    let begin = if layout.state_bits < 32 { 0.0 } else { payload };
    let words = f64::from(layout.record_words) - begin;
    let state = if begin > 0.0 { row.state() } else { Touched::default() };
    let turns = if bits == 16 { 2.0 } else { 1.0 };
    let loads = if bits == 32 { 1.0 } else { 2.0 * turns };
    let stores = row.words(begin, 4.0, row.record) + row.words(words, 4.0, row.record) * turns;
    (extents + state + stores + span(4.0 * floats, row.slot) * loads) * rows
}

/// Unpacks `rows` records into FP32 rows.
fn unpack(work: &Work, rows: f64) -> Touched {
    let row = work.row();
    let layout = &work.layout.row;
    // A Quad takes as many loads as it has words in the record, or one of four words.
    let loads = |bits: u32| if layout.width() == 4 && layout.item() == 1 { f64::from(bits / 8).max(1.0) } else { 1.0 };
    let field = |floats: u32, bits: u32| span(f64::from(floats) * f64::from(bits) / 8.0, row.record) * loads(bits);
    let mut all = field(layout.dim, layout.precision.bits()) + row.weights();
    if layout.precision.is_integer() {
        all = all + one(2.0 * (row.weights / row.lanes).ceil());
    }
    all = match layout.state {
        0 => all,
        1 => all + one(1.0) + row.state(),
        state => all + field(state, layout.state_bits) + row.state(),
    };
    all * rows
}

/// Sectors of a record, which are what crosses the bus for it.
fn record_bytes(work: &Work) -> f64 {
    let bytes = work.row().record;
    32.0 * span(bytes, bytes).sectors
}

/// `busy` workgroups add their numbers of `rows` rows to a counter of each table.
fn row_counts(work: &Work, counts: &mut Counts, busy: f64, rows: f64) {
    let all = some_of(busy * work.tables, rows);
    counts.atomics(all, all / work.tables);
    counts.touch(one(all.min(some_of(busy, rows) * 8.0)));
}

fn exchange(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let row = work.row();
    let (workgroups, record_groups) = row_groups(work, work.most_distinct(), work.device.grid);
    // With one group of records one dispatch packs and unpacks.
    let dispatches =
        if record_groups == 1.0 { 1.0 } else { (1.0 + f64::from(u8::from(facts.sets > 0.0))) * record_groups };
    let at_once = f64::from(work.layout.at_once());
    let cut = record_groups > 1.0;
    let mut counts = groups(workgroups * dispatches);
    counts.dispatches = dispatches;
    let n = facts.missing;
    // The length and the step, by every workgroup.
    counts.touch(one(9.0 * counts.workgroups));
    counts.barriers = 2.0 * counts.workgroups;
    let turns = (n / at_once).ceil();
    counts.turns = turns;
    if n > 0.0 {
        let busy = (if cut { n / LISTED } else { turns }).ceil().min(workgroups) * dispatches;
        counts.touch(strided(work.tables.min(64.0), 112.0) * busy);
        counts.barriers += 2.0 * busy;
        if cut {
            let blocks = (n / LISTED).ceil() * dispatches;
            counts.barriers += 5.0 * blocks;
            counts.touch(stream(n, 16.0) * dispatches);
        }
        let moves = if row.rows > 1.0 { stream(n, 16.0) } else { one(n) };
        counts.touch(moves);
        if facts.sets > 0.0 {
            let left = facts.evictions;
            // A list of some shards has only the Moves with which a row of them leaves.
            let lists = (n / LISTED).ceil() * record_groups;
            counts.barriers += 3.0 * if cut { (left / lists / at_once).ceil() * lists } else { turns };
            // Of a row that leaves, flags are read, and cleared: read and written; of one that comes, read and written, and tag and stamp written. The rows of a subgroup come set by set.
            let sets = (1.0 + (row.rows - 1.0) * distinct(facts.sets, n) / n).min(row.rows);
            let flags = Touched { sectors: distinct(4.0 * sets, row.rows), lines: sets };
            counts.touch(flags * ((3.0 * left + 4.0 * facts.admitted) / row.rows) + pack(work, facts.write_backs));
        }
        counts.touch(unpack(work, n));
        for rows in [facts.write_backs, facts.bypassed] {
            row_counts(work, &mut counts, busy, rows);
        }
        if work.mapped {
            counts.link_in = n * record_bytes(work);
            counts.link_out = facts.write_backs * record_bytes(work);
        }
    }
    ("exchange", counts)
}

fn gather(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let row = work.row();
    let bags = facts.outputs;
    let mut counts = groups((bags / f64::from(work.layout.at_once())).ceil());
    let trips = (row.weights / row.lanes).ceil();
    let subs = (bags / row.rows).ceil();
    counts.touch(run(2.0 * subs, row.rows.min(bags)));
    // An access of a subgroup reads the places of its bags, and their rows.
    let bag = facts.accesses / bags;
    let places = strided(row.rows, 4.0 * bag);
    counts.touch(places * (facts.accesses / row.rows * trips));
    counts.touch(row.weights() * facts.accesses);
    let stored = if row.rows > 1.0 {
        stream(bags * row.weights, row.quad)
    } else {
        row.quads(row.weights, row.weights * row.quad) * bags
    };
    counts.touch(stored);
    counts.turns = counts.workgroups;
    ("gather", counts)
}

fn arrange(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let n = facts.accesses;
    let mut counts = groups((n / 256.0).ceil());
    counts.touch(one(16.0 * counts.workgroups + 3.0));
    counts.touch(stream(n, 4.0) * 3.0 + one(subgroups(n)) + stream(n, 8.0) + scattered(n, n, 8.0));
    // The first access of each distinct row writes its entry.
    let heads = facts.distinct / subgroups(n);
    counts.touch(span(16.0 * heads, 16.0) * (4.0 * subgroups(n)));
    counts.touch(scattered(facts.distinct, n, 4.0) * 2.0);
    counts.turns = counts.workgroups;
    ("arrange", counts)
}

/// The rows of 128 accesses or more: their chunks, and how many rows there are.
fn chunks(work: &Work) -> f64 {
    let facts = &work.facts;
    facts.heavy_accesses / CHUNK + 0.5 * facts.pattern.heavy
}

fn merge(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let row = work.row();
    let tiles = (facts.accesses / CHUNK).ceil();
    let mut counts = groups(work.capped(2.0 * tiles, f64::from(work.layout.at_once())));
    counts.touch(one(16.0 * counts.workgroups) + one(4.0 * tiles));
    let grad = row.quads(row.weights, row.weights * row.quad);
    let trips = (row.weights / row.lanes).ceil();
    counts.touch(one(facts.heavy_accesses * trips) + grad * (facts.heavy_accesses + chunks(work)));
    counts.turns = (2.0 * tiles / f64::from(work.layout.at_once())).ceil();
    ("merge", counts)
}

fn combine(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let row = work.row();
    let tiles = (facts.accesses / CHUNK).ceil();
    let mut counts = groups(work.capped(tiles, 1.0));
    counts.touch(one(counts.workgroups) + one(3.0 * tiles));
    counts.barriers = 2.0 * counts.workgroups + 2.0 * tiles + 2.0 * facts.pattern.heavy * (row.weights / LANES).ceil();
    counts.touch(row.quads(row.weights, row.weights * row.quad) * (chunks(work) + facts.pattern.heavy));
    counts.turns = tiles;
    ("combine", counts)
}

fn update(work: &Work) -> (&'static str, Counts) {
    let facts = &work.facts;
    let row = work.row();
    let (workgroups, dispatches) = row_groups(work, work.most_distinct(), work.device.wide);
    let at_once = f64::from(work.layout.at_once());
    let mut counts = groups(workgroups * dispatches);
    counts.dispatches = dispatches;
    let n = facts.distinct;
    counts.touch(one((1.0 + 16.0) * counts.workgroups));
    let turns = (n / at_once).ceil();
    counts.turns = turns;
    let cut = dispatches > 1.0;
    let busy = (if cut { n / LISTED } else { turns }).ceil().min(workgroups) * dispatches;
    counts.touch(strided(work.tables.min(64.0), 112.0) * busy);
    counts.barriers = 2.0 * counts.workgroups + 2.0 * busy;
    if cut {
        counts.barriers += 5.0 * (n / LISTED).ceil() * dispatches;
        counts.touch(stream(n, 16.0) * dispatches);
    }
    let targets = if row.rows > 1.0 { stream(n, 16.0) } else { one(n) };
    counts.touch(targets);
    // Gradients: each access of a light row, the total of a heavy one.
    let trips = (row.weights / row.lanes).ceil();
    let row_wise = work.layout.row.state == 1 && work.layout.row.dim > 1;
    // A row of more Quads than invocations is summed again in each pass.
    let passes = if trips > 1.0 { 1.0 + (2.0 + f64::from(u8::from(row_wise))) * (trips - 1.0) / trips } else { 1.0 };
    let light = facts.accesses - facts.heavy_accesses;
    let grad = row.quads(row.weights, row.weights * row.quad);
    let listed = strided(row.rows, 8.0 * facts.accesses / n.max(1.0)) * (light / row.rows);
    counts.touch(listed * (trips * passes) + grad * ((light + facts.pattern.heavy) * passes));
    // The row itself.
    let mut moved = row.weights() * 2.0;
    if row_wise {
        moved = moved + row.weights() + one(2.0);
    } else if row.state > 0.0 {
        moved = moved + row.state() * 2.0;
    }
    counts.touch(moved * n + one(2.0 * (n - facts.bypassed)));
    let packing = mixed_turns(turns, facts.bypassed, n, at_once);
    counts.barriers += turns * if row_wise { 5.0 } else { 4.0 } + 2.0 * packing;
    if facts.bypassed > 0.0 {
        counts.touch(pack(work, facts.bypassed));
        row_counts(work, &mut counts, busy, facts.bypassed);
        if work.mapped {
            counts.link_out = facts.bypassed * record_bytes(work);
        }
    }
    ("update", counts)
}

/// The number of `places` that have at least one of `events` events, each at a random place.
fn some_of(places: f64, events: f64) -> f64 {
    if places > 0.0 { -places * (-events / places).exp_m1() } else { 0.0 }
}

/// The turns that have one of `some` among `n` rows. Admission prefers low rows, so the others lie together in part: the mean of rows that
/// are spread at random and of rows side by side.
fn mixed_turns(turns: f64, some: f64, n: f64, at_once: f64) -> f64 {
    let share = some / n.max(1.0);
    turns * (share + 1.0 - (1.0 - share).powf(at_once)) / 2.0
}
