//! Any range of a group's state can be read and written, on both backends.

use hotrow::internals::Pieces as _;
use hotrow::{
    Bags, Context, CounterBits, Embedding, Error, Group, GroupConfig, Init, Mode, Optimizer, Policy, Precision,
    internals::Layout,
    state::{Part, Snapshot},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use hotrow_harness::{
    device::{both, placements},
    gpu_test,
    lockstep::counts,
    sample, seed_for,
};

/// Two tables in many pieces, and slots with padding.
fn config() -> GroupConfig {
    GroupConfig::new(&[150, 50], 20)
        .with_precision(Precision::Int4)
        .with_policy(Policy::Lfu)
        .with_cache_rows(100)
        .with_optimizer(Optimizer::row_wise_adagrad(0.1))
        .with_piece_bytes(Some(500))
}

fn step(group: &mut dyn Embedding, seed: u32) {
    let indices: Vec<u32> = (0..40).map(|i| (i * i + seed) % 50).collect();
    let outputs = group.forward(Bags::new(&indices, &[0, 10, 20, 30, 40]), Mode::Train).unwrap();
    group.backward(&outputs.iter().map(|x| x + 0.5).collect::<Vec<_>>()).unwrap();
}

fn read(group: &mut dyn Embedding, part: Part) -> Vec<u32> {
    let mut words = vec![0; part.words(group.config(), group.layout()) as usize];
    group.read_part(part, 0, &mut words).unwrap();
    words
}

/// The words of a part of a snapshot.
fn of(snapshot: &Snapshot, part: Part) -> Vec<u32> {
    match part {
        Part::Clock => vec![snapshot.t],
        Part::Counters => {
            snapshot.counters.iter().flat_map(counts).flat_map(|count| [count as u32, (count >> 32) as u32]).collect()
        }
        Part::Ways => snapshot.ways.clone(),
        Part::Cache => snapshot.cache.iter().map(|x| x.to_bits()).collect(),
        Part::Records => snapshot.records.clone(),
        Part::Frequencies => snapshot.freqs.clone(),
        Part::Since => snapshot.since.iter().flat_map(|&since| [since as u32, (since >> 32) as u32]).collect(),
    }
}

/// Counters of 32 and 16 bits, and of 4, with which come the accesses since they were halved: of all tables, or of each.
fn counting() -> [GroupConfig; 4] {
    let window = config().with_policy(Policy::Window);
    let shares = window.clone().with_cache_shares(vec![0.5, 0.5]);
    [config(), config().with_counter_bits(CounterBits::Sixteen), window, shares]
}

#[gpu_test]
fn every_range_of_every_part_is_what_the_snapshot_says(context: &Context) {
    let layout = Layout::new(&config(), u64::MAX).unwrap();
    assert!(layout.pieces > 5 && layout.slot_words() > layout.row.row_words);
    for mut group in counting().iter().flat_map(|config| both(context, config)) {
        (0..5).for_each(|seed| step(&mut *group, seed));
        let snapshot = group.snapshot().unwrap();
        assert!(snapshot.t == 5 && snapshot.freqs.iter().any(|&freq| freq > 1));
        let mut rng = StdRng::seed_from_u64(seed_for("ranges read"));
        for part in Part::ALL {
            let whole = of(&snapshot, part);
            assert_eq!(read(&mut *group, part), whole, "{part:?}");
            for _ in 0..30 {
                let (a, b) = (rng.random_range(0..=whole.len()), rng.random_range(0..=whole.len()));
                let range = a.min(b)..a.max(b);
                let mut words = vec![7; range.len()];
                group.read_part(part, range.start as u64, &mut words).unwrap();
                assert_eq!(words, whole[range.clone()], "{part:?} {range:?}");
            }
        }
    }
}

#[gpu_test]
fn a_range_written_changes_nothing_else(context: &Context) {
    for mut group in counting().iter().flat_map(|config| both(context, config)) {
        (0..5).for_each(|seed| step(&mut *group, seed));
        let mut rng = StdRng::seed_from_u64(seed_for("ranges written"));
        let mut wanted = Part::ALL.map(|part| read(&mut *group, part));
        for part in [Part::Counters, Part::Cache, Part::Records, Part::Frequencies, Part::Since] {
            let most = match (part, group.config().policy, group.config().counter_bits) {
                (Part::Since, ..) => 1 << 5,
                (Part::Frequencies, Policy::Window, _) => 1 << 4,
                (Part::Frequencies, _, CounterBits::Sixteen) => 1 << 16,
                _ => 1 << 20,
            };
            let at = Part::ALL.iter().position(|&each| each == part).unwrap();
            for _ in 0..15 {
                let length = wanted[at].len();
                let (a, b) = (rng.random_range(0..=length), rng.random_range(0..=length));
                let range = a.min(b)..a.max(b);
                wanted[at][range.clone()].iter_mut().for_each(|word| *word = rng.random_range(0..most));
                group.write_part(part, range.start as u64, &wanted[at][range.clone()]).unwrap();
                assert_eq!(Part::ALL.map(|part| read(&mut *group, part)), wanted, "{part:?} {range:?}");
            }
        }
        // Write an empty set.
        let ways = &mut wanted[2][128..256];
        ways[..32].fill(u32::MAX);
        ways[32..].fill(0);
        ways[96..].iter_mut().zip(0..).for_each(|(flags, way)| *flags = group.layout().empty_flags(1, way));
        group.write_part(Part::Ways, 128, ways).unwrap();
        assert_eq!(Part::ALL.map(|part| read(&mut *group, part)), wanted);
        // The tables still know their numbers of rows.
        step(&mut *group, 9);
        refuses!(
            group.forward(Bags::new(&[150, 0], &[0, 1, 2]), Mode::Train),
            Error::IndexOutOfRange { table: 0, rows: 150, .. }
        );
    }
}

#[gpu_test]
fn ranges_longer_than_the_buffer_they_go_through(context: &Context) {
    let rows = 300_000;
    let config = config()
        .with_tables(vec![rows])
        .with_precision(Precision::Fp32)
        .with_cache_rows(250_000)
        .with_piece_bytes(None);
    for mut group in both(context, &config) {
        for part in [Part::Cache, Part::Records] {
            let length = part.words(group.config(), group.layout()) as usize;
            assert!(length > 5 << 20, "longer than 16 MiB");
            let words: Vec<u32> = (0..length as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
            group.write_part(part, 0, &words[..length - 3]).unwrap();
            group.write_part(part, length as u64 - 3, &words[length - 3..]).unwrap();
            assert!(read(&mut *group, part) == words, "{part:?}");
            let mut some = vec![0; length - 1001];
            group.read_part(part, 1000, &mut some).unwrap();
            assert!(some == words[1000..length - 1], "{part:?}");
        }
    }
}

#[gpu_test]
fn ranges_and_ways_that_cannot_be_are_refused(context: &Context) {
    for mut group in both(context, &config()) {
        step(&mut *group, 0);
        let before = group.snapshot().unwrap();
        for part in Part::ALL {
            let length = part.words(group.config(), group.layout());
            for (first, words) in [(length, 1), (0, length as usize + 1), (u64::MAX, 2)] {
                let result = group.read_part(part, first, &mut vec![0; words]);
                assert!(matches!(result, Err(Error::Length { wanted, .. }) if wanted == length), "{result:?}");
                let result = group.write_part(part, first, &vec![0; words]);
                assert!(matches!(result, Err(Error::Length { wanted, .. }) if wanted == length), "{result:?}");
            }
        }
        let ways = before.ways.clone();
        for (first, words) in [(1, 128), (0, 127), (64, 64)] {
            refuses!(group.write_part(Part::Ways, first, &ways[first as usize..][..words]), Error::Length { .. });
        }
        // The ways of one set, written into another set: the tags hash elsewhere.
        let full = (0..4).position(|set| ways[set * 128..][..32].iter().any(|&tag| tag != u32::MAX)).unwrap();
        let refused = group.write_part(Part::Ways, (full as u64 + 1) % 4 * 128, &ways[full * 128..][..128]);
        refuses!(refused, Error::Snapshot { what: "tag", .. });
        // A stamp of a step that has not taken place yet.
        let mut late = ways[full * 128..][..128].to_vec();
        let way = late.iter().position(|&tag| tag != u32::MAX).unwrap();
        late[32 + way] = 2;
        let refused = group.write_part(Part::Ways, full as u64 * 128, &late);
        refuses!(refused, Error::Snapshot { what: "stamp", found: 2, .. });
        assert_eq!(group.snapshot().unwrap(), before);
        group.write_part(Part::Clock, 0, &[2]).unwrap();
        group.write_part(Part::Ways, full as u64 * 128, &late).unwrap();
    }
}

#[gpu_test]
fn a_backward_waits_through_what_changes_nothing(context: &Context) {
    for mut group in both(context, &config()) {
        let forward = |group: &mut dyn Embedding| {
            group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
            assert!(group.pending());
        };
        assert!(!group.pending());
        forward(&mut *group);
        let (clock, ways) = (read(&mut *group, Part::Clock), read(&mut *group, Part::Ways));
        group.write_part(Part::Clock, 0, &clock).unwrap();
        group.write_part(Part::Ways, 0, &ways).unwrap();
        assert!(group.pending());
        group.backward(&[1.0; 40]).unwrap();
        assert!(!group.pending());

        forward(&mut *group);
        group.write_part(Part::Clock, 0, &[clock[0] + 2]).unwrap();
        assert!(!group.pending() && group.backward(&[1.0; 40]).is_err());

        forward(&mut *group);
        group.write_part(Part::Ways, 0, &ways).unwrap();
        assert!(!group.pending() && group.backward(&[1.0; 40]).is_err());
    }
}

/// When a test changes the records of all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoil {
    Never,
    BeforeForward,
    BeforeBackward,
}

/// The records of all rows before and after the backward of the third step.
fn records_of_a_step(group: &mut dyn Embedding, spoil: Spoil) -> [Vec<u32>; 2] {
    (0..2).for_each(|seed| step(group, seed));
    let change = |group: &mut dyn Embedding| {
        // The low bits of floats, and codes: every value stays finite.
        let records: Vec<u32> = read(group, Part::Records).iter().map(|word| word ^ 0x0003_1111).collect();
        group.write_part(Part::Records, 0, &records).unwrap();
    };
    if spoil == Spoil::BeforeForward {
        change(group);
    }
    let indices: Vec<u32> = (0..120).map(|i| (i * 7 + i / 50) % 150).collect();
    let outputs = group.forward(Bags::new(&indices, &[0, 60, 120, 120, 120]), Mode::Train).unwrap();
    if spoil == Spoil::BeforeBackward {
        change(group);
    }
    let before = read(group, Part::Records);
    assert!(group.pending());
    group.backward(&vec![0.5; outputs.len()]).unwrap();
    [before, read(group, Part::Records)]
}

/// Forward reads the record of a bypassed row, and leaves the row in scratch; backward does not read the record again (SPEC 3, step 5).
#[gpu_test]
fn backward_reads_no_record(context: &Context) {
    let mut cases = Vec::new();
    for placement in placements(context) {
        for (cache_rows, precision) in
            [(0, Precision::Fp32), (0, Precision::Int8), (32, Precision::Int4), (64, Precision::Fp16)]
        {
            let optimizers = [Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1), Optimizer::sgd(0.1)];
            let mut case = config()
                .with_placement(placement)
                .with_precision(precision)
                .with_init(Init::Uniform { low: -1.0, high: 1.0 })
                .with_cache_rows(cache_rows)
                .with_optimizer(optimizers[cases.len() % 3]);
            if cache_rows == 64 && context.caps().choose_windows() > 1 {
                let layout = Layout::new(&case, u64::MAX).unwrap();
                case.set_window_bytes(Some(32 * layout.slot_bytes()));
            }
            cases.push(case);
        }
    }
    for case in sample(3, cases) {
        let run = |spoil| records_of_a_step(&mut Group::new(context, case.clone()).unwrap(), spoil);
        let [before, right] = run(Spoil::Never);
        let [spoiled, found] = run(Spoil::BeforeBackward);
        let [_, wrong] = run(Spoil::BeforeForward);
        let stride = Layout::new(&case, u64::MAX).unwrap().row.record_words as usize;
        let (mut moved, mut other) = (0, 0);
        for row in (0..before.len()).step_by(stride).map(|at| at..at + stride) {
            if right[row.clone()] == before[row.clone()] {
                assert_eq!(found[row.clone()], spoiled[row], "{case:?}");
                continue;
            }
            moved += 1;
            other += usize::from(wrong[row.clone()] != right[row.clone()]);
            assert_eq!(found[row.clone()], right[row], "{case:?}");
        }
        // Changed before forward, the records do decide.
        assert!(moved > 20 && other > moved / 2, "{case:?}: {moved} moved, {other} other");
    }
}
