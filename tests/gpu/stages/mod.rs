//! Stages alone, on random valid inputs: integer stages of a cached table against `hotrow_harness::oracle`, those of a shared array and of a grid
//! against their mirrors in `src/cpu/stages/`. The other stages run in whole runs beside the CPU ([`IN_WHOLE_RUNS`]).
//!
//! A test draws pairwise settings from the run's seed ([`each`]) and lays out the bindings of one dispatch as words. [`check`] runs the kernel on one
//! copy and the mirror on another, and compares every binding, read-only ones included. Arrays end in guard words that neither side may touch.

mod admission;
mod backward;
pub(crate) mod exchange;
mod grid;
mod lookup;
mod robe_stages;
mod sort;
pub(crate) use std::{cell::Cell, fmt};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
pub(crate) use hotrow::internals::params;
use hotrow::{
    Context, GradSlice, GroupConfig, Optimizer,
    internals::{
        self, Layout, RankBody,
        hash::Spread,
        layout::{CLOCK_WORDS, COMING, Field, NONE, Params, Piece, Step, TABLE_WORDS, Target, WAYS, way_at},
        shader::{self, Access, Kernel},
    },
};
use hotrow_harness::{
    device::{again, options, with_gpu},
    pairwise::pairwise,
    seed_for,
};
use rand::{
    RngExt, SeedableRng,
    seq::{IndexedRandom as _, SliceRandom as _},
};
use rand_pcg::Pcg64;

use crate::{bad_input, dedup, low_precision, ranks};

macro_rules! named {
    ($($stage:ident::$test:ident),* $(,)?) => { &[$((concat!(stringify!($stage), "::", stringify!($test)), $stage::$test)),*] };
}

/// Every test of a stage by its name, for devices other than the one of all tests.
pub(crate) const ALL: &[(&str, fn())] = named![
    admission::admit,
    backward::arrange,
    backward::merge_and_combine,
    exchange::exchange,
    exchange::lists_of_several_blocks,
    exchange::states_by_their_facts,
    grid::grid_and_grid_gradient,
    lookup::wanted,
    bad_input::the_first_of_many_bad_indices_is_named,
    dedup::shapes,
    low_precision::recorded_outputs_in_halves,
    ranks::messages_are_those_of_the_cpu,
    robe_stages::robe_hash,
    robe_stages::robe_keys,
    robe_stages::robe_merge_to_robe_gradient,
    robe_stages::robe_blocks_by_facts,
    sort::scan,
];

/// Fills the guard words behind every array. As an index it is far out of range, as a float it is close to 0.
const GUARD: u32 = 0xa5a5_a5a5;

pub(crate) const TRAIN: u32 = 0;
pub(crate) const FROZEN: u32 = 1;
pub(crate) const ROWS: u32 = 2;

/// Dims with every number of lanes that share a row, and those beside them.
pub(crate) const DIMS: [&[u32]; 5] = [&[1, 2, 3], &[4, 5, 31], &[63, 64, 65], &[100, 128, 130], &[200, 260]];

/// The comparison of a binding's words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Like {
    /// Bit for bit; the default.
    Bits,
    /// Floats that differ by at most this share of the larger of 1 and the values, or are equal bit for bit.
    Within(f32),
    /// The test compares the binding itself.
    Elsewhere,
}

fn close(a: u32, b: u32, bound: f32) -> bool {
    let (x, y) = (f64::from(f32::from_bits(a)), f64::from(f32::from_bits(b)));
    // The comparison would take infinities as close to any number. NaN compares as close to nothing.
    let finite = x.is_finite() && y.is_finite();
    a == b || finite && (x - y).abs() <= f64::from(bound) * x.abs().max(y.abs()).max(1.0)
}

/// Returns the first difference as an error.
pub(crate) fn same(what: &str, found: &[u32], wanted: &[u32], like: Like) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} words on the GPU, {} in the mirror", found.len(), wanted.len()));
    }
    let differ = |i: usize| {
        let (a, b) = (found[i], wanted[i]);
        match like {
            Like::Bits => a != b,
            Like::Within(bound) => !close(a, b, bound),
            Like::Elsewhere => false,
        }
    };
    match (0..found.len()).find(|&i| differ(i)) {
        None => Ok(()),
        Some(i) => {
            let (a, b) = (found[i], wanted[i]);
            let floats = (f32::from_bits(a), f32::from_bits(b));
            Err(format!("{what}[{i}]: {a} on the GPU, {b} in the mirror (as floats {:e} and {:e})", floats.0, floats.1))
        }
    }
}

pub(crate) fn kernel(name: &str) -> &'static Kernel {
    internals::kernels().iter().find(|kernel| kernel.name == name).unwrap_or_else(|| panic!("no stage {name}"))
}

/// One case of a test.
pub(crate) struct Case<'a> {
    pub(crate) context: &'a Context,
    pub(crate) seed: u64,
    test: &'a str,
    setting: &'a [usize],
    /// How the device gets the cache and the records, if the stage binds them: whole, in two or three windows, in three pieces.
    pieces: usize,
    /// Number of words that kernels have changed.
    changed: Cell<usize>,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, seed {}, setting {:?}, pieces {}", self.test, self.seed, self.setting, self.pieces)
    }
}

/// Runs `case` with pairwise settings of factors with so many values each, on the device of all tests or with at most three workgroups in x, so that
/// small inputs fill a second dimension.
pub(crate) fn each<const N: usize>(test: &str, sizes: [usize; N], mut case: impl FnMut(&Case<'_>, Pcg64, [usize; N])) {
    with_gpu(|context| {
        let contexts = [context.clone(), again(&options().rank(RankBody::Portable).max_groups(3))];
        let first = seed_for(test);
        let mut changed = 0;
        let settings = pairwise(&mut rng(first), &[&sizes[..], &[4, 2]].concat());
        for (seed, setting) in (first..).zip(&settings) {
            let (mine, device) = setting.split_at(N);
            let (pieces, context) = (device[0], &contexts[device[1]]);
            let one = Case { context, seed, test, setting: mine, pieces, changed: Cell::new(0) };
            case(&one, rng(seed), mine.try_into().expect("N factors"));
            changed += one.changed.get();
        }
        assert!(changed > 0, "{test}: no kernel changed a word");
    });
}

/// The bindings after the kernel (`found`) and after the mirror (`wanted`).
pub(crate) struct Run {
    pub(crate) found: Vec<Vec<u32>>,
    pub(crate) wanted: Vec<Vec<u32>>,
}

/// The same bindings with the records in `pieces` pieces. `None` if the stage binds no records.
fn in_pieces(kernel: &Kernel, bindings: &[Vec<u32>], pieces: u32) -> Option<Vec<Vec<u32>>> {
    let mut bindings = shader::has_pieces(kernel).then(|| bindings.to_vec())?;
    let piece: &mut Piece = of(&mut bindings[1]);
    piece.rows_each = piece.rows.div_ceil(pieces);
    (piece.swaps == 0 && piece.rows > piece.rows_each).then_some(bindings)
}

/// The same bindings with the cache in `windows` windows. `None` if it has fewer, or if the stage does not bind it.
fn windowed(kernel: &Kernel, bindings: &[Vec<u32>], windows: u32) -> Option<Vec<Vec<u32>>> {
    let mut bindings = shader::has_windows(kernel).then(|| bindings.to_vec())?;
    let params: &mut Params = of(&mut bindings[0]);
    params.window_slots = params.slots.div_ceil(windows);
    (params.slots.checked_div(params.window_slots)? > 1).then_some(bindings)
}

/// Runs stage `name` on the device and `mirror` on the host, and compares all bindings. `rules` lists the bindings that are not compared
/// bit for bit.
pub(crate) fn check<const N: usize>(
    case: &Case<'_>,
    name: &str,
    bindings: &[Vec<u32>; N],
    groups: u32,
    rules: &[(&str, Like)],
    mirror: impl FnOnce(&mut [Vec<u32>; N]),
) -> Run {
    let kernel = kernel(name);
    assert_eq!(N, kernel.bindings.len(), "{name}");
    assert!(rules.iter().all(|(rule, _)| kernel.bindings.iter().any(|(_, binding)| binding == rule)), "{name}");
    let windows = case.context.caps().choose_windows();
    let cut = match case.pieces as u32 {
        pieces @ 1..=2 if pieces < windows => windowed(kernel, bindings, pieces + 1),
        3 if windows >= 3 => in_pieces(kernel, bindings, 3),
        _ => None,
    };
    let run = case.context.run_stage(kernel, cut.as_deref().unwrap_or(bindings), groups);
    let found = run.unwrap_or_else(|error| panic!("{case}, {name}: {error}"));
    let mut wanted = bindings.clone();
    mirror(&mut wanted);
    for (i, (access, binding)) in kernel.bindings.iter().enumerate() {
        if cut.is_some() && *access == Access::Uniform {
            continue;
        }
        let like = rules.iter().find(|(rule, _)| rule == binding).map_or(Like::Bits, |&(_, like)| like);
        same(binding, &found[i], &wanted[i], like).unwrap_or_else(|error| panic!("{case}, {name}: {error}"));
        if *access == Access::ReadWrite {
            let differ = found[i].iter().zip(&bindings[i]).filter(|(a, b)| a != b).count();
            case.changed.set(case.changed.get() + differ);
            if !matches!(like, Like::Elsewhere) {
                spoiled(&found[i], &wanted[i], like);
            }
        }
    }
    Run { found, wanted: wanted.to_vec() }
}

/// Checks that the comparison notices a wrong first, middle or last word of the mirror's result.
fn spoiled(found: &[u32], wanted: &[u32], like: Like) {
    for at in [0, wanted.len() / 2, wanted.len() - 1] {
        let mut wrong = wanted.to_vec();
        wrong[at] ^= if matches!(like, Like::Within(_)) { 1 << 30 } else { 1 };
        assert!(same("", found, &wrong, like).is_err(), "word {at}: {:#x} for {:#x}", wrong[at], wanted[at]);
    }
}

/// One of `values`, drawn at random.
pub(crate) fn one_of<T: Copy>(source: &mut Pcg64, values: &[T]) -> T {
    *values.choose(source).expect("some values")
}

pub(crate) fn rng(seed: u64) -> Pcg64 {
    Pcg64::seed_from_u64(seed)
}

/// The words of an array, and guard words.
pub(crate) fn guarded<T: Pod>(values: &[T]) -> Vec<u32> {
    let mut words = cast_slice(values).to_vec();
    words.extend([GUARD; 4]);
    words
}

/// The words of the gradients that a backward gets, FP32 or FP16, and guard words.
pub(crate) fn gradients(values: &[f32], half: bool) -> Vec<u32> {
    if !half {
        return guarded(values);
    }
    let mut halves: Vec<u16> = values.iter().map(|&x| half::f16::from_f32(x).to_bits()).collect();
    halves.resize(halves.len().next_multiple_of(8), 0);
    // A list without gradients may lie at any address, so it is copied and not cast.
    guarded(&bytemuck::pod_collect_to_vec::<u16, u32>(&halves))
}

/// Reads the words of [`gradients`] for a mirror.
pub(crate) fn gradients_of<'a>(words: &'a [u32], params: &Params) -> GradSlice<'a> {
    if params.half_grads == 1 { GradSlice::F16(cast_slice(words)) } else { GradSlice::F32(cast_slice(words)) }
}

/// The words of a struct.
pub(crate) fn words<T: Pod>(value: &T) -> Vec<u32> {
    cast_slice(std::slice::from_ref(value)).to_vec()
}

/// Reads a struct from its words.
pub(crate) fn read<T: Pod>(words: &[u32]) -> T {
    cast_slice::<u32, T>(words)[0]
}

/// Borrows words as a struct that can be changed.
pub(crate) fn of<T: Pod>(words: &mut [u32]) -> &mut T {
    &mut cast_slice_mut::<u32, T>(words)[0]
}

/// Random words, which no stage writes by chance.
pub(crate) fn junk(source: &mut Pcg64, n: usize) -> Vec<u32> {
    (0..n).map(|_| source.random()).collect()
}

/// Floats in `[-size, size)`.
pub(crate) fn floats(source: &mut Pcg64, n: usize, size: f32) -> Vec<f32> {
    (0..n).map(|_| source.random_range(-size..size)).collect()
}

/// The facts of the states of rule `number` of 20, one state an element (the first four) or two, and an optimiser with as many.
pub(crate) fn facts_of(number: usize) -> (Optimizer, u32) {
    match number as u32 {
        one @ 0..4 => (Optimizer::adagrad(0.1), one | one << 2),
        two => (Optimizer::adam(0.1), two - 4),
    }
}

/// `n` rows in the layout of slots: the results of `row`, each padded with zeros.
pub(crate) fn slot_rows(layout: &Layout, n: usize, mut row: impl FnMut() -> Vec<f32>) -> Vec<f32> {
    let mut rows = Vec::with_capacity(n * layout.slot_words() as usize);
    for at in 1..=n {
        rows.extend(row());
        rows.resize(at * layout.slot_words() as usize, 0.0);
    }
    rows
}

/// A step with the given counts. The other counts are random, and no stage may read or change them.
pub(crate) fn step(source: &mut Pcg64, t: u32, counts: &[(usize, u32)]) -> Step {
    let mut step = Step { t, ..Step::default() };
    step.counts = std::array::from_fn(|_| source.random());
    for &(which, n) in counts {
        step.counts[which] = n;
    }
    step
}

/// The layout of a group in one piece. Stages that bind pieces get theirs from the test.
pub(crate) fn layout_of(config: &GroupConfig) -> Layout {
    Layout::new(config, u64::MAX).unwrap_or_else(|error| panic!("{error}"))
}

/// A `tables` buffer: clock, bases and rows of tables, and counters. Some counters are about to carry into their high word.
pub(crate) fn tables(source: &mut Pcg64, rows: &[u32], t: u32) -> Vec<u32> {
    let mut words = vec![t, 0, 0, 0];
    let mut base = 0;
    for &rows in rows {
        words.extend([base, rows]);
        base += rows;
        for counter in 0..TABLE_WORDS - 2 {
            let carries = counter % 2 == 0 && source.random_bool(0.5);
            words.push(if carries { u32::MAX - source.random_range(0..3) } else { source.random() });
        }
    }
    assert_eq!(words.len(), CLOCK_WORDS + rows.len() * TABLE_WORDS);
    words
}

/// `n` distinct rows below `total`, in any order.
pub(crate) fn distinct_rows(source: &mut Pcg64, n: usize, total: u32) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..total).collect();
    rows.shuffle(source);
    rows.truncate(n);
    rows
}

/// Metadata of a cache in which rows below `total` lie in their sets, in about `fill` of the ways.
pub(crate) fn ways(source: &mut Pcg64, sets: u32, total: u32, t: u32, fill: f64) -> Vec<u32> {
    let mut ways = vec![0; sets as usize * 128];
    ways.chunks_exact_mut(128).for_each(|set| set[..32].fill(NONE));
    if sets == 0 {
        return ways;
    }
    for row in distinct_rows(source, total as usize, total) {
        let slot = home(total, sets, row) * 32 + source.random_range(0..32);
        if ways[way_at(WAYS, slot, Field::Tag)] == NONE && source.random_bool(fill) {
            ways[way_at(WAYS, slot, Field::Tag)] = row;
            ways[way_at(WAYS, slot, Field::Stamp)] = source.random_range(1..=t);
            ways[way_at(WAYS, slot, Field::Freq)] = source.random_range(1..7);
            ways[way_at(WAYS, slot, Field::Flags)] = source.random_range(0..4);
        }
    }
    ways
}

/// The set of a row below `total`.
pub(crate) fn home(total: u32, sets: u32, row: u32) -> u32 {
    Spread::new(total, sets, WAYS).set_of(row)
}

/// The tag of a slot once exchange has brought the row that is admitted to it, if there is one.
pub(crate) fn next_tag(ways: &[u32], slot: u32) -> u32 {
    let coming = ways[way_at(WAYS, slot, Field::Flags)] & COMING != 0;
    ways[way_at(WAYS, slot, if coming { Field::Stamp } else { Field::Tag })]
}

/// The slot of a row; NONE if it is not resident.
pub(crate) fn slot_of(ways: &[u32], [sets, total]: [u32; 2], row: u32) -> u32 {
    if sets == 0 {
        return NONE;
    }
    let home = home(total, sets, row);
    (home * 32..home * 32 + 32).find(|&slot| ways[way_at(WAYS, slot, Field::Tag)] == row).unwrap_or(NONE)
}

/// Sorted accesses of `n` indices, in long and short segments: the segment of each access, and the start of each segment.
pub(crate) fn runs(source: &mut Pcg64, n: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut segment, mut starts) = (Vec::new(), Vec::new());
    while (segment.len() as u32) < n {
        let longest = [1, 4, 33, 200][source.random_range(0..4)];
        let length = source.random_range(1..=longest).min(n - segment.len() as u32);
        starts.push(segment.len() as u32);
        segment.extend(vec![starts.len() as u32 - 1; length as usize]);
    }
    (segment, starts)
}

/// Sorted accesses as backward reads them, one segment of each length: the segment of each access, and the targets behind their header.
pub(crate) fn targets_of(lengths: &[u32], rows: &[(u32, u32)]) -> (Vec<u32>, Vec<Target>) {
    let mut segment = Vec::new();
    let mut targets = vec![Target { row: lengths.len() as u32, ..Target::default() }];
    for (u, (&length, &(row, place))) in (0..).zip(lengths.iter().zip(rows)) {
        let start = segment.len() as u32;
        segment.extend(vec![u; length as usize]);
        targets.push(Target { row, place, start, end: start + length });
    }
    targets[0].place = segment.len() as u32;
    targets[0].end = 1.0f32.to_bits(); // gradients as they are
    (segment, targets)
}

/// Stages that only whole runs check: the other stages of a sort in `dedup.rs`, of a shared array in `robe.rs` and its like, of a scaler in `scaler.rs`, the rest in
/// `lockstep.rs`.
const IN_WHOLE_RUNS: &str = "
    linearize due age probe histogram scatter heads segments sort_small touch locate gather halves weight_gradient update inspect rescale collect
    reset assign send robe_gather robe_decode robe_weight_gradient robe_update robe_given robe_scatter robe_step
";

/// Every other stage is checked in a file, and every test is in the list for other devices.
#[test]
fn every_stage_is_checked() {
    let files = [
        ("admission", include_str!("admission.rs")),
        ("backward", include_str!("backward.rs")),
        ("exchange", include_str!("exchange.rs")),
        ("grid", include_str!("grid.rs")),
        ("lookup", include_str!("lookup.rs")),
        ("robe_stages", include_str!("robe_stages.rs")),
        ("sort", include_str!("sort.rs")),
    ];
    let checked = |stage: &str| files.iter().any(|(_, text)| text.contains(&format!("\"{stage}\"")));
    let unchecked: Vec<_> =
        internals::kernels().iter().map(|kernel| kernel.name).filter(|name| !checked(name)).collect();
    let in_whole_runs: Vec<_> = IN_WHOLE_RUNS.split_whitespace().collect();
    assert_eq!(unchecked, in_whole_runs, "stages that no test here names");
    let list = include_str!("mod.rs");
    for (file, text) in files {
        for after in text.split("#[test]\npub(crate) fn ").skip(1) {
            let entry = format!("    {file}::{},", after.split('(').next().unwrap());
            assert!(list.contains(&entry), "not in ALL: {entry}");
        }
    }
}

#[test]
fn every_pair_comes_in_few_settings() {
    let sizes = [9, 5, 4, 2, 2, 3];
    let settings = pairwise(&mut rng(seed_for("pairwise")), &sizes);
    assert!((45..=60).contains(&settings.len()), "{} settings", settings.len());
    for b in 1..sizes.len() {
        for a in 0..b {
            let pairs: std::collections::BTreeSet<_> = settings.iter().map(|it| (it[a], it[b])).collect();
            assert_eq!(pairs.len(), sizes[a] * sizes[b], "factors {a} and {b}");
        }
    }
}

#[test]
fn differences_are_noticed() {
    let right = [1, 2, 3, 4.0f32.to_bits()];
    assert_eq!(same("", &right, &right, Like::Bits), Ok(()));
    assert!(same("", &right[1..], &right, Like::Bits).is_err(), "a word too few");
    for at in 0..4 {
        let mut wrong = right;
        wrong[at] ^= 1;
        assert!(same("", &wrong, &right, Like::Bits).is_err(), "word {at}");
    }
    let float = |a: f32, b: f32| same("", &[a.to_bits()], &[b.to_bits()], Like::Within(1e-6)).is_ok();
    assert!(float(1.0, 1.000_000_5) && float(f32::NAN, f32::NAN) && float(f32::INFINITY, f32::INFINITY));
    assert!(!float(1.0, 1.000_01) && !float(0.0, 1e-5) && !float(f32::NAN, 1.0) && !float(1.0, f32::NAN));
    assert!(!float(f32::INFINITY, f32::NEG_INFINITY) && !float(f32::INFINITY, f32::MAX));
}
