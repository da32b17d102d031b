//! The CPU group alone: policies, reading, flushing, bad input. `naive.rs` checks each call against the FP64 model, `threads.rs` with 1, 2 and 5 threads.

use hotrow::{
    Bags, Calls, CounterBits, Counters, CpuGroup, Error, GroupConfig, Init, MemoryReport, Mode, Policy, Precision,
    internals::layout::{Field, way_at},
    prelude::*,
    state::Part,
};
use hotrow_plan::simulate::Simulator;
use rand::{RngExt, SeedableRng, rngs::StdRng};

const ROWS: u32 = 700;
const DIM: u32 = 5;

fn config() -> GroupConfig {
    GroupConfig::new(&[ROWS], DIM)
        .with_precision(Precision::Fp32)
        .with_init(Init::Uniform { low: -1.0, high: 1.0 })
        .with_seed(3)
}

/// A batch of skewed indices in bags of 0 to 6.
fn batch(rng: &mut StdRng, bags: usize) -> (Vec<u32>, Vec<u32>) {
    let mut indices = Vec::new();
    let mut offsets = vec![0];
    for _ in 0..bags {
        for _ in 0..rng.random_range(0..7) {
            let x: f32 = rng.random();
            indices.push((x * x * x * ROWS as f32) as u32);
        }
        offsets.push(indices.len() as u32);
    }
    (indices, offsets)
}

fn total(group: &mut CpuGroup) -> Counters {
    group.counters().unwrap().into_iter().sum()
}

/// What differs in the group's counters and residents from the simulator's.
pub(crate) fn unlike(group: &mut CpuGroup, simulator: &Simulator) -> Option<String> {
    let (c, s) = (total(group), simulator.counters());
    let found = [c.accesses, c.hits, c.unique, c.unique_misses, c.admitted, c.conflicts, c.evictions];
    let wanted = [s.accesses, s.hits, s.unique, s.unique_misses, s.admitted, s.conflicts, s.evictions];
    let (ways, tags) = (group.layout().ways, group.snapshot().unwrap().ways);
    let tag = |slot: u32| tags[way_at(ways, slot, Field::Tag)];
    let resident = |slot: u32| simulator.resident(slot / ways, slot % ways).unwrap_or(u32::MAX);
    let other = (0..group.layout().slots()).find(|&slot| tag(slot) != resident(slot));
    (found != wanted || other.is_some())
        .then(|| format!("counters {found:?}, wanted {wanted:?}; a slot with another row: {other:?}"))
}

/// The first step after which the group's residents or counters differ from the simulator's.
fn first_difference(
    config: &GroupConfig,
    simulator: &mut Simulator,
    steps: usize,
    batch: impl Fn(&mut StdRng, usize) -> (Vec<u32>, Vec<u32>),
) -> Option<usize> {
    let mut group = CpuGroup::new(config.clone().with_forward_only(true)).unwrap();
    let mut rng = StdRng::seed_from_u64(u64::from(config.ways));
    (0..steps).find(|&step| {
        let (indices, offsets) = batch(&mut rng, step);
        group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        simulator.step(&indices);
        unlike(&mut group, simulator).is_some()
    })
}

#[test]
fn residents_are_those_of_the_simulator_whatever_the_ways() {
    let mut unlike = 0;
    for ways in [1, 2, 3, 5, 8, 16, 32, 64] {
        let others = [(Policy::Lru, Policy::Lfu), (Policy::Lfu, Policy::Lru), (Policy::Window, Policy::Lfu)];
        for (policy, other) in others {
            for cache_rows in [1, 90, 256] {
                let config = config().with_cache_rows(cache_rows).with_policy(policy).with_ways(ways);
                let config = config.with_window_ways(4.min(ways - 1));
                let simulator = |policy, ways| {
                    let other = config.clone().with_policy(policy).with_ways(ways);
                    let mut simulator = Simulator::new(&other).unwrap();
                    first_difference(&config, &mut simulator, 60, |rng, step| {
                        batch(rng, if step % 5 == 0 { 150 } else { 20 })
                    })
                };
                assert_eq!(simulator(policy, ways), None, "{policy:?}, {cache_rows} rows, {ways} ways");
                unlike +=
                    u32::from(simulator(other, ways).is_some()) + u32::from(simulator(policy, ways + 1).is_some());
            }
        }
    }
    assert!(unlike >= 135, "of 144 wrong simulators {unlike} were noticed");
}

/// A batch whose hot rows change every eight steps, so that rows overtake others.
fn drifting(rng: &mut StdRng, step: usize) -> (Vec<u32>, Vec<u32>) {
    let (indices, offsets) = batch(rng, 100);
    (indices.iter().map(|row| (row + step as u32 / 8) % ROWS).collect(), offsets)
}

#[test]
fn narrow_counters_are_those_of_the_simulator() {
    let mut unlike = 0;
    for ways in [1, 8, 16] {
        for (bits, other) in
            [(CounterBits::Eight, CounterBits::ThirtyTwo), (CounterBits::ThirtyTwo, CounterBits::Eight)]
        {
            let config = config().with_cache_rows(16).with_policy(Policy::Lfu).with_ways(ways).with_counter_bits(bits);
            let simulator = |bits| {
                let mut simulator = Simulator::new(&config.clone().with_counter_bits(bits)).unwrap();
                first_difference(&config, &mut simulator, 300, drifting)
            };
            assert_eq!(simulator(bits), None, "{bits} bits, {ways} ways");
            unlike += u32::from(simulator(other).is_some());
        }
    }
    assert_eq!(unlike, 6, "of 6 simulators with other counters");
}

#[test]
fn memory_counts_the_bytes_of_narrow_counters() {
    let rows = u64::from(ROWS);
    for (bits, bytes) in [(CounterBits::Eight, 1), (CounterBits::Sixteen, 2), (CounterBits::ThirtyTwo, 4)] {
        // Window has a byte on the CPU, and 4 bits on a GPU.
        for (policy, bytes, planned) in
            [(Policy::Lfu, bytes, rows * bytes), (Policy::Lru, 0, 0), (Policy::Window, 1, rows.div_ceil(2))]
        {
            let config = config().with_cache_rows(64).with_policy(policy).with_counter_bits(bits);
            let group = CpuGroup::new(config.clone()).unwrap();
            let report = group.memory();
            assert_eq!((report.frequencies, report.tables[0].frequencies), (rows * bytes, rows * bytes), "{bits} bits");
            assert_eq!(report.allocations.iter().map(|(_, bytes)| bytes).sum::<u64>(), report.total());
            let plan = MemoryReport::planned(&config, group.layout(), Calls::default());
            assert_eq!(plan.frequencies, planned, "a plan is that of a GPU");
        }
    }
}

/// A frequency that the counters cannot hold is refused, of a row and of a slot, and changes nothing.
#[test]
fn frequencies_above_the_greatest_one_are_refused() {
    for bits in CounterBits::ALL {
        let most = bits.most();
        let config = config().with_cache_rows(64).with_policy(Policy::Lfu).with_counter_bits(bits);
        let mut group = CpuGroup::new(config).unwrap();
        group.forward(Bags::new(&[5], &[0, 1]), Mode::Train).unwrap();
        group.write_part(Part::Frequencies, 698, &[most, 7]).unwrap();
        let right = group.snapshot().unwrap();
        assert_eq!(right.freqs[696..], [0, 0, most, 7]);
        let refused = group.write_part(Part::Frequencies, 698, &[3, most + 1]).expect_err("too great").to_string();
        let wanted = format!("counter_bits: wanted frequencies of at most {most}, found {} for row 699;", most + 1);
        assert!(refused.starts_with(&wanted), "{refused}");
        let slot = (0..group.layout().slots()).find(|&slot| right.ways[way_at(32, slot, Field::Tag)] == 5).unwrap();
        for above in [0, 1] {
            let mut other = right.clone();
            other.ways[way_at(32, slot, Field::Freq)] = most + above;
            let found = group.restore(&other);
            match above {
                0 => assert_eq!((found, &group.snapshot().unwrap()), (Ok(()), &other)),
                _ => assert!(matches!(found, Err(Error::Snapshot { what: "frequency", .. })), "{found:?}"),
            }
            let mut other = right.clone();
            other.freqs[3] = most + above;
            assert_eq!(group.restore(&other).is_ok(), above == 0);
            group.restore(&right).unwrap();
        }
    }
}

#[test]
fn numbers_of_ways_that_cannot_be() {
    for ways in [0, 1025, u32::MAX] {
        let refused = CpuGroup::new(config().with_ways(ways).with_cache_rows(64));
        let error = refused.expect_err("no cache has so many").to_string();
        assert!(error.contains("ways: wanted 1 to 1024") && error.contains(&format!("found {ways};")), "{error}");
    }
    let most = CpuGroup::new(config().with_ways(1024).with_cache_rows(1)).unwrap();
    assert_eq!((most.layout().sets, most.layout().slots()), (1, 1024));
}

/// In a forward of either mode and in a prefetch, and the group stays as it was.
#[test]
fn bad_offsets_are_named() {
    let mut group = CpuGroup::new(config().with_cache_rows(32)).unwrap();
    let before = group.snapshot().unwrap();
    for (offsets, position) in [(&[1, 2, 3][..], 0), (&[0, 2, 4], 2), (&[0, 2, 2], 2), (&[0, 9, 3], 1)] {
        let bags = Bags::new(&[1, 2, 3], offsets);
        let wanted = Error::BadOffsets { indices: 3, position, value: offsets[position as usize] };
        for mode in [Mode::Train, Mode::Frozen] {
            assert_eq!(group.forward(bags, mode).as_ref(), Err(&wanted));
        }
        assert_eq!(group.prefetch(bags), Err(wanted));
        assert!(!group.pending());
    }
    assert_eq!(group.snapshot().unwrap(), before);
}

#[test]
fn a_table_beyond_memory_is_a_named_error() {
    let rows = u32::MAX - 1;
    let of_dim = |dim| GroupConfig::new(&[rows], dim).with_precision(Precision::Fp32);
    let huge = of_dim(1 << 16);
    refuses!(CpuGroup::new(huge.clone()), Error::OutOfMemory { what: "records", .. });
    // A plan has an entry for each piece.
    refuses!(CpuGroup::new(of_dim(1 << 24)), Error::Config { field: "piece_bytes", .. });
    refuses!(CpuGroup::new(huge.with_cache_rows(rows)), Error::Config { field: "cache_rows", .. });
}

/// The environment variable that tells the child process which pool to use.
const CHILD: &str = "HOTROW_TEST_POOL";

/// Rayon's global pool is created at its first use and only once, so a child process checks whether its steps used it.
#[test]
fn a_step_takes_the_pool_it_is_called_in() {
    let Ok(place) = std::env::var(CHILD) else {
        let exit = |place| {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let test = ["--exact", "cpu::a_step_takes_the_pool_it_is_called_in"];
            child.args(test).env(CHILD, place).status().unwrap().code()
        };
        assert_eq!(exit("inside a pool"), Some(10), "the global pool was used");
        assert_eq!(exit("outside"), Some(11), "the test can tell");
        return;
    };
    let steps = || {
        let cached = config().with_cache_rows(4096).with_dim(48).with_tables(vec![9000]);
        let mut group = CpuGroup::new(cached).unwrap();
        for step in 0..3 {
            let indices: Vec<u32> = (0..12_000).map(|i| i * 7 * (step + 1) % 9000).collect();
            let offsets: Vec<u32> = (0..=2000).map(|bag| bag * 6).collect();
            let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
            group.backward(&outputs).unwrap();
        }
        group.flush().unwrap();
    };
    match place.as_str() {
        "outside" => steps(),
        _ => rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(steps),
    }
    let unused = rayon::ThreadPoolBuilder::new().build_global().is_ok();
    std::process::exit(if unused { 10 } else { 11 });
}

#[test]
fn outputs_fill_the_callers_slice_and_counters_never_wait() {
    hotrow_harness::face::calls(|| CpuGroup::new(config().with_cache_rows(32)).unwrap());
    let shared = hotrow::robe::Config::new(&[ROWS], DIM, 64, 4).with_init(config().init);
    hotrow_harness::face::calls(|| hotrow::CpuSharedGroup::new(shared.clone()).unwrap());
}

#[test]
fn rows_that_do_not_change_keep_their_bytes() {
    hotrow_harness::face::frozen(|config| CpuGroup::new(config).unwrap());
}

#[test]
fn padding_is_no_access() {
    hotrow_harness::face::padding(|config| CpuGroup::new(config).unwrap());
    // Clamp brings an index to padding: it is out of range, and no access either.
    let clamped = config().with_padding(vec![Some(ROWS - 1)]).with_out_of_range(hotrow::OutOfRange::Clamp);
    let mut group = CpuGroup::new(clamped.with_cache_rows(32)).unwrap();
    let before = group.read_rows(&[ROWS - 1, 4]).unwrap();
    let outputs = group.forward(Bags::new(&[ROWS + 9, 4], &[0, 2]), Mode::Train).unwrap();
    group.backward(&outputs).unwrap();
    let (after, counters) = (group.read_rows(&[ROWS - 1, 4]).unwrap(), total(&mut group));
    assert_eq!((counters.accesses, counters.out_of_range, counters.padding), (1, 1, 0));
    assert!(after[..5] == before[..5] && after[5..] != before[5..], "row 4 alone has moved");
    let refused = CpuGroup::new(config().with_padding(vec![None; 2])).expect_err("one table").to_string();
    assert!(
        refused.contains("padding: wanted none, one for all tables, or one for each of 1") && refused.contains("2 ids"),
        "{refused}"
    );
}

#[test]
fn a_group_that_only_looks_up_has_no_backward() {
    hotrow_harness::face::forward_only(|config| CpuGroup::new(config).unwrap());
}
