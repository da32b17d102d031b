//! The naive model of `tests/harness/src/naive.rs`: against numbers computed by hand, against the CPU group, and against
//! CPU groups with one deliberate fault each, which it must reject.

use hotrow::{
    Bags, Counters, CpuGroup, Embedding, Error, GradSlice, GroupConfig, Init, Lookup, MemoryReport, Mode, Optimizer,
    OutOfRange, OutputSlice, Policy, Pooling, Precision, RandomBits, Rounding, ScalerState, StatePrecision,
    internals::Layout,
    state::{Part, Snapshot},
};
use hotrow_harness::{
    lockstep::{Codes, Pair, bits},
    naive, soak,
};
use naive::{Approx, BatchData, Call, Format, Naive, check_run, half_above, half_below, half_nearest, set_of};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rand::SeedableRng as _;
use rand_pcg::Pcg64;

// ---------------------------------------------------------------------------------------------------------------------
// By hand

fn fp32(tables: &[u32], dim: u32, cache_rows: u32) -> GroupConfig {
    GroupConfig::new(tables, dim).with_precision(Precision::Fp32).with_cache_rows(cache_rows)
}

fn values(row: &[Approx]) -> Vec<f64> {
    row.iter().map(|x| x.value).collect()
}

fn near(found: &[Approx], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found.value - wanted).abs() < 1e-6, "wanted {wanted}, found {found:?}");
        assert!(found.radius < 1e-4, "the bound says nothing: {found:?}");
    }
}

#[test]
fn two_rows_by_hand() {
    let mut config = fp32(&[2], 2, 2);
    config.optimizer = Optimizer::sgd(0.5);
    let mut model = Naive::new(&config);
    model.records = bits(&[1.0, 2.0, 3.0, 4.0]);
    let (bags, _) = model.forward(Bags::new(&[0, 1, 0], &[0, 2, 3])).expect("the indices are fine");
    assert_eq!(values(&model.gather(&bags)), [4.0, 6.0, 1.0, 2.0]);
    assert_eq!(values(&model.merge(&bags, &[1.0, 10.0, 100.0, 1000.0])[&0]), [101.0, 1010.0]);
    let effect = model.backward(&bags, &[1.0, 10.0, 100.0, 1000.0]);
    assert_eq!(values(&effect.slots[&0]), [-49.5, -503.0]);
    assert_eq!(values(&effect.slots[&1]), [2.5, -1.0]);
    assert!(effect.records.is_empty());
    assert_eq!(model.flush().records.len(), 2);
    assert!(model.flush().records.is_empty());
    let counters = Counters {
        accesses: 3,
        unique: 2,
        unique_misses: 2,
        admitted: 2,
        write_backs: 2,
        bytes_read: 16,
        bytes_written: 16,
        ..Counters::default()
    };
    assert_eq!((model.t, model.counters[0]), (1, counters));
}

#[test]
fn without_cache_by_hand() {
    // INT2, scale 0.5, bias -1, codes 0, 3, 1: the row -1, 0.5, -0.5.
    let config = GroupConfig::new(&[1, 1], 3).with_precision(Precision::Int2).with_pooling(Pooling::Mean);
    let config = config.with_out_of_range(OutOfRange::Skip);
    let mut model = Naive::new(&config);
    assert_eq!(model.format.words(), 3);
    model.records = vec![0.5f32.to_bits(), (-1.0f32).to_bits(), 0b01_11_00, 0, 0, 0];
    // (1/2) (2x + 4x). The bad index changes only its own counter, and an empty bag gives zeros.
    let (bags, _) = model
        .forward(Bags::new(&[0, 7, 0], &[0, 3, 3]).with_weights(Some(&[2.0, 9.0, 4.0])))
        .expect("bad indices are skipped");
    near(&model.gather(&bags), &[-3.0, 1.5, -1.5, 0.0, 0.0, 0.0]);
    near(&model.merge(&bags, &[1.0, 2.0, 3.0, 9.0, 9.0, 9.0])[&0], &[3.0, 6.0, 9.0]);
    let effect = model.backward(&bags, &[0.0; 6]);
    near(&effect.records[&0], &[-1.0, 0.5, -0.5]);
    assert!(effect.slots.is_empty());
    let counters = Counters {
        accesses: 2,
        unique: 1,
        unique_misses: 1,
        conflicts: 1,
        bypass_reads: 1,
        bypass_writes: 1,
        bytes_read: 12,
        bytes_written: 12,
        out_of_range: 1,
        ..Counters::default()
    };
    assert_eq!(model.counters, [counters, Counters::default()]);
}

#[test]
fn full_states_by_hand() {
    let config = GroupConfig::new(&[1], 3).with_precision(Precision::Int4).with_optimizer(Optimizer::adagrad(0.1));
    let config = config.with_state(Some(StatePrecision::Fp32));
    let format = Format::new(&config);
    // Scale and bias, three sums in FP32, a word of codes: one bit more than FP16 has stays.
    assert_eq!((format.payload(), format.words()), (160, 6));
    let values = [0.0f32, 15.0, 7.0, 1.0 + f32::EPSILON, 70_000.0, 0.1];
    let bits = |at: usize| values[at].to_bits();
    let record = [1.0f32.to_bits(), 0, bits(3), bits(4), bits(5), 0x7f0];
    let layout = Layout::new(&config, u64::MAX).unwrap().row;
    let mut floats = [0.0; 6];
    hotrow::internals::codec::unpack(&layout, &record, &mut floats);
    assert_eq!(floats, values);
    let row = values.map(|value| Approx { value: value.into(), radius: 0.0 });
    for rounding in Rounding::ALL {
        let (random_bits, stripe) = (RandomBits::Eight, Default::default());
        let noise = hotrow::internals::codec::Noise { rounding, random_bits, seed: 1, step: 2, purpose: 0, stripe };
        let mut packed = [0; 6];
        assert!(hotrow::internals::codec::pack(&layout, &noise, 0, &values[..3], &values[3..], &mut packed));
        assert_eq!(packed, record);
        format.check(rounding, &record, &row).unwrap();
        for at in 2..5 {
            let mut wrong = record;
            wrong[at] ^= 1;
            format.check(rounding, &wrong, &row).unwrap_err();
        }
    }
}

#[test]
fn coded_states_by_hand() {
    let mut config = GroupConfig::new(&[1], 3).with_precision(Precision::Fp16).with_optimizer(Optimizer::adam(0.1));
    config.state = Some(StatePrecision::Int8);
    let format = Format::new(&config);
    // A word of bases, six codes in three halves, three halves of weights.
    assert_eq!((format.payload(), format.words()), (80, 4));
    // The largest first moment is -3, 2^1 (1 + 4/8), so 1028 in exponent and fraction. 1028 - 127 = 901, and 904 is a multiple of 8. The
    // largest second one is 2, so 1024.
    let (first, second) = (903, 1024 - 255);
    let codes = [128 + 1028 - first, 0, 1, 255, 247, 0];
    let word = |codes: &[u32]| codes.iter().rev().fold(0, |word, code| word << 8 | code);
    let record = [first << 16 | second, word(&codes[..4]), word(&codes[4..]) | 0x3c00 << 16, 0x3c00 << 16 | 0x3c00];
    let smallest = 2f64.powi(904 / 8 - 127);
    let values = [1.0, 1.0, 1.0, -3.0, 0.0, smallest, 2.0, 1.0, 0.0];
    let row: Vec<Approx> = values.iter().map(|&value| Approx { value, radius: 0.0 }).collect();
    assert_eq!(format.decode(&record).iter().map(|x| x.value).collect::<Vec<_>>(), values);
    let layout = Layout::new(&config, u64::MAX).unwrap().row;
    let mut floats = vec![0.0; 9];
    hotrow::internals::codec::unpack(&layout, &record, &mut floats);
    assert_eq!(floats, values.map(|value| value as f32));
    let check = |record: [u32; 4], row: &[Approx]| format.check(Rounding::Nearest, &record, row);
    check(record, &row).unwrap();
    // Between two codes either is right.
    let mut between = row.clone();
    between[7].value = 1.03;
    check(record, &between).unwrap();
    check([record[0], record[1], record[2] + 1, record[3]], &between).unwrap();
    between[7].value = 1.13;
    check(record, &between).unwrap_err();
    // A neighbour of a stored value; a second moment above 0 that became 0; other bases.
    check([record[0], record[1] + 1, record[2], record[3]], &row).unwrap_err();
    check([record[0], record[1], record[2] + 1, record[3]], &row).unwrap_err();
    between[7].value = 1.03;
    between[8].value = 1e-30;
    check(record, &between).unwrap_err();
    check([record[0], record[1], record[2] | 0x100, record[3]], &between).unwrap();
    check([record[0] + 8, record[1], record[2], record[3]], &row).unwrap_err();
    check([record[0] + (8 << 16), record[1], record[2], record[3]], &row).unwrap_err();
}

#[test]
fn rules_by_hand() {
    let mut config = fp32(&[1], 2, 1);
    config.optimizer = Optimizer::adagrad(0.1).with_eps(0.5);
    let mut model = Naive::new(&config);
    model.records = bits(&[16.0, 0.0, 1.0, 2.0]); // the state precedes the weights
    let (bags, _) = model.forward(Bags::new(&[0], &[0, 1])).expect("the index is fine");
    // AdaGrad: 16 + 9 = 25 and 1 - 0.3 / 5.5; 0 + 1 = 1 and 2 - 0.1 / 1.5.
    let effect = model.backward(&bags, &[3.0, 1.0]);
    near(&effect.slots[&0], &[1.0 - 0.3 / 5.5, 2.0 - 0.1 / 1.5, 25.0, 1.0]);

    config.optimizer = Optimizer::row_wise_adagrad(0.1).with_weight_decay(0.25);
    let mut model = Naive::new(&config);
    model.records = bits(&[0.0, 4.0, 8.0]);
    let (bags, _) = model.forward(Bags::new(&[0], &[0, 1])).expect("the index is fine");
    // With decay 1 + 0.25*4 = 2 and 12 + 0.25*8 = 14: the state is (4 + 196) / 2, its root 10.
    let effect = model.backward(&bags, &[1.0, 12.0]);
    near(&effect.slots[&0], &[4.0 - 0.02, 8.0 - 0.14, 100.0]);
    // A value that is not finite leaves the whole row as it was, and clean.
    let effect = model.backward(&bags, &[f32::NAN, 0.0]);
    assert!(effect.slots.is_empty() && model.counters[0].skipped_rows == 1);

    // Adam in its first step, with betas of 1/2 and 3/4: 2 + (1/2)(4 - 2) = 3, 8 + (1/4)(16 - 8) = 10; over 1/2 and 1/4: 6 and 40.
    config.optimizer = Optimizer::adam(0.1).with_beta1(0.5).with_beta2(0.75).with_eps(0.5);
    let mut model = Naive::new(&config);
    model.records = bits(&[2.0, 0.0, 8.0, 0.0, 1.0, 7.0]);
    let (bags, _) = model.forward(Bags::new(&[0], &[0, 1])).expect("the index is fine");
    let effect = model.backward(&bags, &[4.0, 0.0]);
    near(&effect.slots[&0], &[1.0 - 0.1 * 6.0 / (40f64.sqrt() + 0.5), 7.0, 3.0, 0.0, 10.0, 0.0]);
    // Row-wise, in the row's second update, with a norm of 5 scaled to 1, and decoupled decay: a record has v and the count first.
    config.optimizer = Optimizer::row_wise_adam(0.1).with_beta1(0.5).with_beta2(0.75).with_eps(0.5);
    config.optimizer = config.optimizer.with_own_count(true).with_clip_norm(Some(1.0));
    config.optimizer = config.optimizer.with_decoupled(true).with_weight_decay(0.25);
    let mut model = Naive::new(&config);
    model.records = bits(&[0.5, 1.0, 0.0, 0.0, 4.0, 8.0]);
    let (bags, _) = model.forward(Bags::new(&[0], &[0, 1])).expect("the index is fine");
    let effect = model.backward(&bags, &[3.0, 4.0]);
    // v: 0.5 + (1/4)(0.5 - 0.5); over 1 - 9/16. The first moments over 1 - 1/4.
    let by = |m: f64| 0.1 * (m / 0.75) / ((0.5f64 / 0.4375).sqrt() + 0.5);
    near(&effect.slots[&0], &[4.0 - by(0.3) - 0.1, 8.0 - by(0.4) - 0.2, 0.3, 0.4, 0.5, 2.0]);
    // A bound does not let an infinite gradient in.
    let effect = model.backward(&bags, &[f32::INFINITY, 0.0]);
    assert!(effect.slots.is_empty() && model.counters[0].skipped_rows == 1);
}

#[test]
fn policies_by_hand() {
    let all: Vec<u32> = (0..32).collect();
    let way = |model: &Naive, way: u32| model.ways[&(0, way)].row;
    let config = fp32(&[40], 1, 32);
    let mut model = Naive::new(&config);
    model.forward(Bags::new(&all, &[0, 32])).expect("the indices are fine");
    // Row 0 is touched, so way 1 is the oldest. Of the two new rows, the more frequent one gets way 1.
    model.forward(Bags::new(&[32, 33, 0, 33], &[0, 4])).expect("the indices are fine");
    assert_eq!([way(&model, 0), way(&model, 1), way(&model, 2)], [0, 33, 32]);
    // Rows of the running batch are protected: 31 rows more than the 32 ways give 31 conflicts.
    let mut config = config.with_tables(vec![63]);
    let mut model = Naive::new(&config);
    model.forward(Bags::new(&(0..63).collect::<Vec<u32>>(), &[0, 63])).expect("the indices are fine");
    assert_eq!((model.counters[0].conflicts, model.counters[0].bypass_reads, way(&model, 31)), (31, 31, 31));

    config.policy = Policy::Lfu;
    let mut model = Naive::new(&config);
    model.forward(Bags::new(&all, &[0, 32])).expect("the indices are fine");
    model.forward(Bags::new(&[32], &[0, 1])).expect("the index is fine");
    assert_eq!((way(&model, 0), model.counters[0].conflicts), (0, 1), "1 is not more than 1");
    model.forward(Bags::new(&[32; 3], &[0, 3])).expect("the index is fine");
    assert_eq!((way(&model, 0), model.counters[0].evictions), (32, 1), "4 is");
    // Row 33 occurs three times and beats rows 1 to 31 with frequency 2. Row 1 leaves, though this batch hit it.
    let mut batch: Vec<u32> = (1..32).collect();
    batch.extend([33, 33, 33]);
    let (bags, _) = model.forward(Bags::new(&batch, &[0, 34])).expect("the indices are fine");
    assert_eq!(way(&model, 1), 33);
    assert_eq!((model.counters[0].hits, model.counters[0].bypass_reads, model.counters[0].evictions), (31, 2, 2));
    model.backward(&bags, &[0.0]);
    assert_eq!(model.counters[0].bypass_writes, 1);
}

#[test]
fn ways_by_hand() {
    let row_of = |model: &Naive, set: u32, way: u32| model.ways.get(&(set, way)).map(|held| held.row);
    // Direct-mapped: each set has one slot, and a row of the running batch keeps its slot.
    let mut config = fp32(&[40], 1, 2).with_ways(1);
    let mut model = Naive::new(&config);
    let [even, odd]: [Vec<u32>; 2] = [0, 1].map(|set| (0..40).filter(|&row| set_of(40, 2, 1, row) == set).collect());
    model.forward(Bags::new(&[even[0], odd[0]], &[0, 2])).expect("the indices are fine");
    model.forward(Bags::new(&[even[0], even[1], odd[1], odd[1], odd[2]], &[0, 5])).expect("the indices are fine");
    assert_eq!([row_of(&model, 0, 0), row_of(&model, 1, 0)], [Some(even[0]), Some(odd[1])]);
    assert_eq!((model.counters[0].conflicts, model.counters[0].evictions), (2, 1));
    // A cache of two rows with 3 ways has one set of 3 ways.
    config = fp32(&[40], 1, 2).with_ways(3);
    let mut model = Naive::new(&config);
    model.forward(Bags::new(&[8, 5, 5, 9, 7], &[0, 5])).expect("the indices are fine");
    assert_eq!([0, 1, 2].map(|way| row_of(&model, 0, way)), [Some(5), Some(7), Some(8)]);
}

#[test]
fn numbers_by_hand() {
    // 40 rows have 6 bits, whose odd multiplier is 39; row 9 is folded to 9 ^ 1, and 8 * 39 = 312 is 56 of 64.
    assert_eq!([(4, 9), (4, 1), (40, 9)].map(|(sets, row)| set_of(40, sets, 1, row)), [3, 2, 9]);
    assert_eq!(half_nearest(0.1), 0.099_975_585_937_5);
    assert_eq!((half_below(0.1), half_above(0.1)), (0.099_975_585_937_5, 0.100_036_621_093_75));
    assert_eq!((half_below(-0.1), half_above(-0.1)), (-0.100_036_621_093_75, -0.099_975_585_937_5));
    assert_eq!(half_nearest(2f64.powi(-25)), 0.0, "a tie goes to even");
    assert_eq!(half_nearest(3.0 * 2f64.powi(-25)), 2f64.powi(-23), "and so does the next");
    assert_eq!((half_nearest(65520.0), half_above(1e9), half_below(1e9)), (65504.0, 65504.0, 65504.0));
    assert_eq!((half_below(1.0), half_above(1.0), half_nearest(1.0)), (1.0, 1.0, 1.0));
    // Every binary16 against the crate `half`.
    for bits in 0..=0x7bffu16 {
        assert_eq!(naive::half_value(bits), half::f16::from_bits(bits).to_f64());
    }
}

#[test]
fn records_by_hand() {
    let row: Vec<Approx> = [10.0, 10.5, 265.0, 11.0].map(Approx::exact).to_vec();
    let format = Format::new(&GroupConfig::new(&[1], 4));
    // 10 + q for q = 0, 1/2, 255 and 1. The scale is 255 * fl(1/255), which is 1 within an ULP.
    let record = |codes: [u32; 4]| {
        let word = codes.iter().rev().fold(0, |word, code| word << 8 | code);
        vec![1.0f32.to_bits(), 10.0f32.to_bits(), word]
    };
    for rounding in [Rounding::Nearest, Rounding::Stochastic] {
        let check = |codes| format.check(rounding, &record(codes), &row);
        check([0, 0, 255, 1]).expect("the lower neighbour");
        check([0, 1, 255, 1]).expect("the upper neighbour");
        for wrong in [[1, 0, 255, 1], [0, 2, 255, 1], [0, 0, 254, 1], [0, 0, 255, 0], [0, 0, 255, 2]] {
            assert!(check(wrong).is_err(), "{wrong:?} has a code that is no neighbour, {rounding:?}");
        }
    }
    let mut moved = record([0, 0, 255, 1]);
    moved[1] += 1;
    format.check(Rounding::Nearest, &moved, &row).expect_err("the bias is the least element, exactly");
    moved = record([0, 0, 255, 1]);
    moved[0] += 8;
    format.check(Rounding::Nearest, &moved, &row).expect_err("the scale is right within an ULP or two");
    let constant = vec![Approx::exact(3.0); 4];
    format.check(Rounding::Nearest, &[0, 3.0f32.to_bits(), 0], &constant).expect("a constant row");
    format.check(Rounding::Nearest, &[0, 3.0f32.to_bits(), 1], &constant).expect_err("has codes 0");
}

// ---------------------------------------------------------------------------------------------------------------------
// Groups with one fault

/// Changes a snapshot, given the snapshot before. Returns whether it changed something.
type Change = fn(&mut Snapshot, &Snapshot, &Layout) -> bool;

/// The rule of SPEC 1 to 8 that a faulty group breaks.
#[derive(Clone, Copy)]
enum Bend {
    /// No fault: the run itself must be accepted.
    None,
    /// One snapshot is changed.
    Snapshot(Change),
    /// `counters()` differs from the snapshot.
    Counters,
    Output,
    PrefetchedOutput,
    FrozenOutput,
    WeightGradient,
    ReadRow,
    /// One of two equal indices' gradients is lost (pooling none).
    LostDuplicate,
    /// A gradient that is not finite counts as 0.
    ZeroForNan,
    NoFlush,
    NoBackward,
    /// LRU replaces LFU, but the wrapper keeps the frequencies.
    LruForLfu,
    /// The inner group gets another configuration.
    Config(fn(&mut GroupConfig)),
    /// A bad index is reported at the neighbouring position.
    ErrorElsewhere,
    /// A refused batch counts as a step.
    RefusedSteps,
    /// Calls that lose an update are accepted.
    NoOrder,
    /// The first of two writes of a row stays.
    FirstWriteWins,
    /// A frozen forward counts as a step.
    FrozenSteps,
    /// The list of rows to pin is reversed.
    ColdestPinned,
    /// The rows are loaded but not marked as pinned.
    PinsForgotten,
    /// The last row's batch weight is dropped.
    NoWeights,
}

/// A CPU group with one fault.
struct Bent {
    inner: CpuGroup,
    bend: Bend,
    config: GroupConfig,
    before: Option<Snapshot>,
    /// Whether the fault has happened. It happens once.
    done: bool,
    indices: Vec<u32>,
    freqs: Vec<u32>,
}

impl Bent {
    fn new(config: GroupConfig, bend: Bend) -> Self {
        let mut inner = config.clone();
        match bend {
            Bend::Config(bend) => bend(&mut inner),
            Bend::LruForLfu => inner.policy = Policy::Lru,
            _ => {}
        }
        let freqs = vec![0; config.total_rows() as usize];
        let inner = CpuGroup::new(inner).expect("the configuration is fine");
        Self { inner, bend, config, before: None, done: false, indices: Vec::new(), freqs }
    }

    fn step(&mut self, bags: Bags<'_>, outputs: &mut [f32]) -> Result<(), Error> {
        let indices = bags.indices;
        self.indices = indices.to_vec();
        if let Bend::LruForLfu = self.bend {
            // Every scenario of this bend has one table.
            indices.iter().for_each(|&row| self.freqs[row as usize] += 1);
        }
        let bags = if let Bend::NoWeights = self.bend { bags.with_weights(None) } else { bags };
        let mut done = self.inner.forward_into(bags, Mode::Train, OutputSlice::F32(outputs));
        match (&mut done, self.bend) {
            (Ok(()), Bend::Output) => outputs.iter_mut().rev().take(1).for_each(|x| *x *= 1.001),
            (Err(Error::IndexOutOfRange { position, .. }), Bend::ErrorElsewhere) => *position += 1,
            (Err(_), Bend::RefusedSteps) => {
                let zeros = Bags { indices: &vec![0; indices.len()], ..bags };
                self.inner.forward_into(zeros, Mode::Train, OutputSlice::F32(outputs))?;
            }
            _ => {}
        }
        done
    }
}

impl Lookup for Bent {
    goes_on! { inner;
        fn pending(self: &Self) -> bool;
        fn discard_pending(self: &mut Self) -> ();
        fn output_len(self: &Self, indices: usize, bags: usize) -> usize;
        fn backward_scaled(self: &mut Self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error>;
        fn set_learning_rate(self: &mut Self, lr: f32) -> Result<(), Error>;
        fn memory(self: &Self) -> MemoryReport;
    }

    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error> {
        outputs.with_floats(|outputs| match mode {
            Mode::Train => self.step(bags, outputs),
            Mode::Frozen if matches!(self.bend, Bend::FrozenSteps) => {
                self.inner.forward_into(bags, Mode::Train, OutputSlice::F32(outputs))
            }
            Mode::Frozen => {
                self.inner.forward_into(bags, Mode::Frozen, OutputSlice::F32(outputs))?;
                if let Bend::FrozenOutput = self.bend {
                    outputs[0] *= 1.001;
                }
                Ok(())
            }
        })
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        let mut gradient = grad_outputs.to_vec();
        match self.bend {
            Bend::LostDuplicate => {
                let twice = (0..self.indices.len()).rev().find(|&i| self.indices[..i].contains(&self.indices[i]));
                if let Some(i) = twice {
                    let dim = self.config.dim as usize;
                    gradient[i * dim..(i + 1) * dim].fill(0.0);
                }
            }
            Bend::ZeroForNan => gradient.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0),
            Bend::NoBackward => gradient.fill(0.0),
            _ => {}
        }
        self.inner.backward(&gradient)
    }

    fn weight_gradient(&mut self, bags: Bags<'_>, grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        let mut found = self.inner.weight_gradient(bags, grad_outputs)?;
        if let Bend::WeightGradient = self.bend {
            found.iter_mut().filter(|x| x.abs() > 0.01).for_each(|x| *x *= 1.001);
        }
        Ok(found)
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        let mut values = self.inner.read_rows(rows)?;
        if let Bend::ReadRow = self.bend {
            values[0] *= 1.001;
        }
        Ok(values)
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        let mut counters = self.inner.counters()?;
        if let Bend::Counters = self.bend {
            counters[0].accesses += 1;
        }
        Ok(counters)
    }

    fn as_embedding(&mut self) -> Option<&mut dyn Embedding> {
        Some(self)
    }
}

impl Embedding for Bent {
    goes_on! { inner;
        fn config(self: &Self) -> &GroupConfig;
        fn layout(self: &Self) -> &Layout;
        fn prefetch(self: &mut Self, bags: Bags<'_>) -> Result<(), Error>;
        fn reset_discarding(self: &mut Self) -> Result<(), Error>;
        fn pinned(self: &mut Self) -> Result<Vec<u32>, Error>;
        fn read_part(self: &mut Self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error>;
        fn write_part(self: &mut Self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error>;
    }

    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        let mut outputs = self.inner.forward_prefetched()?;
        if let (Bend::PrefetchedOutput, Some(x)) = (self.bend, outputs.last_mut()) {
            *x *= 1.001;
        }
        Ok(outputs)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if let Bend::NoFlush = self.bend { Ok(()) } else { self.inner.flush() }
    }

    fn reset(&mut self) -> Result<(), Error> {
        let result = self.inner.reset();
        if let Bend::NoOrder = self.bend { Ok(()) } else { result }
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        if let Bend::FirstWriteWins = self.bend {
            let dim = self.config.dim as usize;
            let rows: Vec<u32> = rows.iter().rev().copied().collect();
            let values: Vec<f32> = values.chunks(dim).rev().flatten().copied().collect();
            return self.inner.write_rows(&rows, &values);
        }
        self.inner.write_rows(rows, values)
    }

    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
        match self.bend {
            Bend::ColdestPinned => {
                let rows: Vec<u32> = rows.iter().rev().copied().collect();
                self.inner.pin(&rows, ways)
            }
            Bend::PinsForgotten => {
                let left_out = self.inner.pin(rows, ways)?;
                self.inner.pin(&[], ways)?;
                Ok(left_out)
            }
            _ => self.inner.pin(rows, ways),
        }
    }

    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        match self.bend {
            Bend::PinsForgotten => {
                let pinned = self.inner.pinned()?;
                self.inner.pin(&[], 1)?;
                self.inner.resize_cache(cache_rows)?;
                Ok(pinned)
            }
            _ => self.inner.resize_cache(cache_rows),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let mut snapshot = self.inner.snapshot()?;
        if let (Bend::Snapshot(bend), false, Some(before)) = (self.bend, self.done, &self.before) {
            self.done = bend(&mut snapshot, before, self.inner.layout());
        }
        if let Bend::LruForLfu = self.bend {
            snapshot.freqs.clone_from(&self.freqs);
            let each = self.config.ways as usize;
            for set in snapshot.ways.chunks_mut(4 * each) {
                for way in 0..each {
                    if set[way] != u32::MAX {
                        set[2 * each + way] = self.freqs[set[way] as usize];
                    }
                }
            }
        }
        self.before = Some(snapshot.clone());
        Ok(snapshot)
    }
}

/// Changes a field (0 tag, 1 stamp, 2 freq, 3 flags) of the first occupied way.
fn bend_way(snapshot: &mut Snapshot, layout: &Layout, field: usize) -> bool {
    let each = layout.ways as usize;
    let tag = |at: usize| at % (4 * each) < each && snapshot.ways[at] != u32::MAX;
    let Some(at) = (0..snapshot.ways.len()).find(|&at| tag(at)) else { return false };
    snapshot.ways[at + each * field] ^= 1;
    true
}

/// The first index at which two slices of one length differ, or agree if `same`.
fn first<T: PartialEq>(a: &[T], b: &[T], same: bool) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| (a == b) == same)
}

const SNAPSHOTS: &[(&str, Change)] = &[
    ("t:", |snapshot, _, _| {
        snapshot.t += 1;
        true
    }),
    ("tag of", |snapshot, _, layout| bend_way(snapshot, layout, 0)),
    ("stamp of", |snapshot, _, layout| bend_way(snapshot, layout, 1)),
    ("freq of set", |snapshot, _, layout| bend_way(snapshot, layout, 2)),
    ("flags of", |snapshot, _, layout| bend_way(snapshot, layout, 3)),
    ("freq of row", |snapshot, _, _| {
        snapshot.freqs[3] += 1;
        true
    }),
    // The code of a written record, changed by two.
    ("record of row", |snapshot, before, layout| {
        let Some(at) = first(&snapshot.records, &before.records, false) else { return false };
        let words = layout.row.record_words as usize;
        let byte = &mut snapshot.records[at / words * words + layout.row.payload_half as usize / 2];
        *byte = if *byte & 0xff > 128 { *byte - 2 } else { *byte + 2 };
        true
    }),
    // The scale of a written record, changed by more than the rounding of its row explains.
    ("scale: ", |snapshot, before, layout| {
        let Some(at) = first(&snapshot.records, &before.records, false) else { return false };
        let words = layout.row.record_words as usize;
        snapshot.records[at / words * words] += 64;
        true
    }),
    // An unwritten record, changed by one bit.
    ("moved: was", |snapshot, _, _| {
        *snapshot.records.last_mut().expect("a table has records") ^= 1;
        true
    }),
    // The weight of a changed slot, changed by 1e-3 more.
    ("slot of row", |snapshot, before, _| {
        let Some(at) = first(&snapshot.cache, &before.cache, false) else { return false };
        snapshot.cache[at] *= 1.001;
        true
    }),
    // An untouched slot, changed by one bit.
    ("slot of row", |snapshot, before, layout| {
        let (each, width) = (layout.ways as usize, layout.row.row_words as usize);
        let tag = |slot: usize| slot / each * 4 * each + slot % each;
        let floats = |snapshot: &Snapshot, slot: usize| snapshot.cache[slot * width..(slot + 1) * width].to_vec();
        let stays = |slot: usize| {
            snapshot.ways[tag(slot)] != u32::MAX
                && snapshot.ways[tag(slot)] == before.ways[tag(slot)]
                && floats(snapshot, slot) == floats(before, slot)
        };
        let Some(slot) = (0..layout.slots() as usize).find(|&slot| stays(slot)) else { return false };
        let x = &mut snapshot.cache[slot * width];
        *x = f32::from_bits(x.to_bits() ^ 1);
        true
    }),
];

/// One table, one set, LFU, INT8, two rows in three missing, each batch with duplicates, every call once.
fn scenario() -> (GroupConfig, Vec<BatchData>) {
    let config = GroupConfig::new(&[80], 4).with_rounding(Rounding::Nearest).with_policy(Policy::Lfu);
    let config = config.with_pooling(Pooling::None).with_cache_rows(32);
    let config = config.with_optimizer(Optimizer::row_wise_adagrad(0.1).with_weight_decay(0.01));
    let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let mut state = 1u32;
    let mut next = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut run: Vec<BatchData> = (0..6)
        .map(|_| {
            let mut indices: Vec<u32> = (0..50).map(|_| next(79)).collect();
            indices.push(indices[0]);
            let count = indices.len();
            BatchData {
                offsets: vec![0, 1, 1, count as u32],
                weights: Some((0..count).map(|_| 0.5 + next(100) as f32 / 100.0).collect()),
                gradient: Some((0..count * 4).map(|_| next(2000) as f32 / 1000.0 - 1.0).collect()),
                indices,
                ..BatchData::default()
            }
        })
        .collect();
    run[1].between = vec![Call::Frozen, Call::Reset];
    run[2].after = vec![Call::Frozen, Call::ReadRows(vec![5, 79, 5]), Call::Flush];
    // Rows in slots and others.
    let others = (0..20u8).flat_map(|i| [0.0, 1.0, 0.3 + 0.013 * f32::from(i), 0.7 - 0.011 * f32::from(i)]);
    let writes = [1.0, 2.0, 3.0, 4.5, -1.0, 0.25, 0.0, 7.0].into_iter().chain(others).collect();
    run[3].after = vec![Call::WriteRows([7, 7].into_iter().chain(60..80).collect(), writes), Call::Reset];
    if let Some(gradient) = &mut run[4].gradient {
        gradient[9] = f32::NAN;
    }
    let mut bad = run[0].clone();
    bad.indices[3] = 80;
    run.insert(5, bad);
    // More rows than fit, one of them twice; then a batch that needs their ways.
    run[6].after = vec![Call::Pin((0..40).chain([3]).collect(), 7)];
    run.push(BatchData { after: Vec::new(), ..run[6].clone() });
    (config, run)
}

fn rejected(bend: Bend, change: impl Fn(&mut GroupConfig), reason: &str) {
    let (mut config, mut run) = scenario();
    change(&mut config);
    if config.pooling != Pooling::None {
        // A row of gradients for each of three bags.
        run.iter_mut().filter_map(|batch| batch.gradient.as_mut()).for_each(|gradient| gradient.truncate(12));
    }
    check_run(&mut cpu, &config, &run).expect("nothing is bent");
    let bent = &mut |config| -> Box<dyn Embedding> { Box::new(Bent::new(config, bend)) };
    match check_run(bent, &config, &run) {
        Ok(()) => panic!("accepted, wanted: {reason}"),
        Err(difference) => assert!(difference.contains(reason), "wanted {reason:?}, found {difference:?}"),
    }
}

#[test]
fn accepts_the_scenario() {
    let (config, run) = scenario();
    let bent = &mut |config| -> Box<dyn Embedding> { Box::new(Bent::new(config, Bend::None)) };
    check_run(bent, &config, &run).expect("nothing is bent");
}

#[test]
fn rejects_a_changed_snapshot() {
    for &(reason, bend) in SNAPSHOTS {
        rejected(Bend::Snapshot(bend), |_| {}, reason);
        // Differences in ways also appear with other numbers of ways.
        if ["tag of", "stamp of", "freq of set", "flags of", "slot of row"].contains(&reason) {
            rejected(Bend::Snapshot(bend), |config| config.ways = 1, reason);
            rejected(Bend::Snapshot(bend), |config| config.ways = 3, reason);
        }
    }
}

#[test]
fn rejects_each_wrong_counter() {
    macro_rules! rejected_one_more {
        ($($counter:ident)*) => {$(
            let change: Change = |snapshot, _, _| {
                snapshot.counters[0].$counter += 1;
                true
            };
            rejected(Bend::Snapshot(change), |_| {}, "counters of table 0");
        )*};
    }
    rejected_one_more!(accesses hits unique unique_misses admitted conflicts evictions write_backs);
    rejected_one_more!(bypass_reads bypass_writes bytes_read bytes_written skipped_rows out_of_range padding);
    rejected(Bend::Counters, |_| {}, "counters()");
}

#[test]
fn rejects_wrong_outputs() {
    rejected(Bend::Output, |_| {}, "forward: output");
    rejected(Bend::NoWeights, |_| {}, "forward: output");
    rejected(Bend::FrozenOutput, |_| {}, "frozen: output");
    rejected(Bend::WeightGradient, |_| {}, "weight gradient of index");
    rejected(Bend::ReadRow, |_| {}, "ReadRows");
    rejected(
        Bend::Config(|config| config.pooling = Pooling::Sum),
        |config| config.pooling = Pooling::Mean,
        "forward: output",
    );
}

#[test]
fn rejects_wrong_updates() {
    rejected(Bend::LostDuplicate, |_| {}, "backward");
    rejected(Bend::NoBackward, |_| {}, "backward");
    rejected(Bend::ZeroForNan, |_| {}, "backward");
    rejected(Bend::Config(|config| config.optimizer.weight_decay = 0.0), |_| {}, "backward");
    rejected(Bend::Config(|config| config.optimizer.eps = 1e-3), |_| {}, "backward");
    rejected(Bend::Config(|config| config.rounding = Rounding::Stochastic), |_| {}, "record of row");
    rejected(Bend::FirstWriteWins, |_| {}, "WriteRows");
    let at_random = Bend::Config(|config| config.write_rounding = Rounding::Stochastic);
    rejected(at_random, |_| {}, "record of row");
    let adam: fn(&mut GroupConfig) =
        |config| config.optimizer = Optimizer::adam(0.1).with_weight_decay(0.01).with_clip_norm(Some(0.5));
    rejected(Bend::Config(|config| config.optimizer.beta1 = 0.91), adam, "backward");
    rejected(Bend::Config(|config| config.optimizer.beta2 = 0.9991), adam, "backward");
    rejected(Bend::Config(|config| config.optimizer.clip_norm = None), adam, "backward");
    rejected(Bend::Config(|config| config.optimizer.decoupled = true), adam, "backward");
    let counting: fn(&mut GroupConfig) = |config| config.optimizer = Optimizer::row_wise_adam(0.1).with_own_count(true);
    rejected(Bend::Config(|config| config.optimizer.clip_value = Some(0.5)), counting, "backward");
    rejected(Bend::Config(|config| config.optimizer.own_count = false), counting, "layout");
}

#[test]
fn rejects_wrong_order_of_things() {
    rejected(Bend::LruForLfu, |_| {}, "forward");
    rejected(Bend::LruForLfu, |config| config.ways = 3, "forward");
    rejected(Bend::Config(|config| config.ways = 16), |_| {}, "layout");
    let windowed = |config: &mut GroupConfig| config.policy = Policy::Window;
    rejected(Bend::Config(|config| config.window_ways = 5), windowed, "new group: flags of set 0, way 4");
    rejected(Bend::NoFlush, |_| {}, "Flush");
    rejected(Bend::NoOrder, |_| {}, "Reset");
    rejected(Bend::FrozenSteps, |_| {}, "Frozen");
    for policy in Policy::ALL {
        let change = |config: &mut GroupConfig| config.policy = policy;
        rejected(Bend::ColdestPinned, change, "left out");
        rejected(Bend::PinsForgotten, change, "pinned: ");
    }
    rejected(Bend::ErrorElsewhere, |_| {}, "first index out of range");
    rejected(Bend::RefusedSteps, |_| {}, "refused forward");
    rejected(Bend::Config(|config| config.out_of_range = OutOfRange::Skip), |_| {}, "wanted an error");
    rejected(
        Bend::Config(|config| config.out_of_range = OutOfRange::Skip),
        |config| config.out_of_range = OutOfRange::Clamp,
        "forward",
    );
    let other = |config: &mut GroupConfig| config.init = Init::Constant(2.0);
    rejected(Bend::Config(other), |_| {}, "new row");
}

// ---------------------------------------------------------------------------------------------------------------------
// Random runs

/// The random runs must have met each of these cases.
#[test]
fn random_runs_meet_everything() {
    let counted = |group: &mut CpuGroup| -> Counters { group.counters().expect("no step failed").into_iter().sum() };
    // Fixed, so that each case is met for certain; `cpu_agrees` draws new runs of the same kind.
    let mut runner = TestRunner::deterministic();
    let (mut total, mut runs_evicting, mut pieces) = (Counters::default(), 0, 0);
    let (mut pinned, mut left_out, mut made_way) = (0, 0, 0);
    for _ in 0..128 {
        let (config, run) = naive::runs().new_tree(&mut runner).expect("nothing is filtered out").current();
        let mut group = CpuGroup::new(config).expect("the configuration is fine");
        pieces = pieces.max(group.layout().pieces);
        for batch in &run {
            let accepted = group.forward(batch.bags(), Mode::Train).is_ok();
            if let (true, Some(gradient)) = (accepted, &batch.gradient) {
                group.backward(gradient).expect("a forward came before");
            }
            group.discard_pending();
            for call in &batch.after {
                let Call::Pin(rows, ways) = call else { continue };
                let before = counted(&mut group).evictions;
                left_out += group.pin(rows, *ways).map_or(0, |rows| rows.len());
                made_way += counted(&mut group).evictions - before;
                pinned += group.pinned().expect("pins are known").len();
            }
        }
        let sum = counted(&mut group);
        runs_evicting += u32::from(sum.evictions > 0 && sum.write_backs > 0);
        total = [total, sum].into_iter().sum();
    }
    let fewest = [total.hits, total.conflicts, total.bypass_writes, total.skipped_rows, total.out_of_range];
    assert!(fewest.iter().all(|&count| count >= 50), "{total:?}");
    assert!(pinned > 500 && left_out > 50 && made_way > 50, "{pinned} pinned, {left_out} left out, {made_way} evicted");
    assert!(runs_evicting >= 16 && pieces >= 15, "{runs_evicting} runs evicted, {pieces} pieces at most");
}

/// Direct-mapped, powers of two, other numbers of ways, and more ways than a GPU has.
const WAYS: [u32; 8] = [1, 2, 3, 5, 8, 16, 32, 64];

fn cpu(config: GroupConfig) -> Box<dyn Embedding> {
    Box::new(CpuGroup::new(config).expect("the configuration is fine"))
}

proptest::proptest! {
    #![proptest_config(hotrow_harness::seed::proptest("the model and the CPU", 256))]

    #[test]
    fn cpu_agrees((config, run) in naive::runs()) {
        proptest::prop_assert_eq!(check_run(&mut cpu, &config, &run), Ok(()));
    }

    #[test]
    fn cpu_agrees_whatever_the_ways((config, run) in naive::runs(), ways in proptest::sample::select(&WAYS)) {
        let recent = config.window_ways.min(ways - 1);
        let config = config.with_ways(ways).with_window_ways(recent);
        proptest::prop_assert_eq!(check_run(&mut cpu, &config, &run), Ok(()), "{} ways", ways);
    }
}

#[test]
fn cpu_agrees_on_edge_cases() {
    let mut failed = Vec::new();
    for (name, config, run) in naive::edge_cases() {
        for ways in [32, 1] {
            let config = config.clone().with_ways(ways);
            if let Err(difference) = check_run(&mut cpu, &config, &run) {
                failed.push(format!("{name}, {ways} ways: {difference}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The steps of the soak (`scripts/soak`) end at a wrong output, a prefetched one too, and at a lost backward.
#[test]
fn the_soak_notices_one_fault() {
    let config = fp32(&[200], 64, 64).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    for bend in [Bend::None, Bend::Output, Bend::PrefetchedOutput, Bend::WeightGradient, Bend::NoBackward] {
        let (mut bent, mut good) = (Bent::new(config.clone(), bend), cpu(config.clone()));
        let mut pair = Pair { gpu: &mut bent, cpu: &mut *good, size: 64.0, codes: Codes::default() };
        let mut source = Pcg64::seed_from_u64(1);
        let found = (0..200).try_for_each(|_| soak::steps(&mut pair, &config, &mut source).map(drop));
        let wanted = match bend {
            Bend::None => None,
            Bend::Output => Some("outputs"),
            Bend::PrefetchedOutput => Some("prefetched outputs"),
            Bend::WeightGradient => Some("gradients of weights"),
            _ => Some("after a step"),
        };
        match (&found, wanted) {
            (Ok(()), None) => {}
            (Err(difference), Some(wanted)) => assert!(difference.starts_with(wanted), "{wanted}: {difference}"),
            _ => panic!("wanted {wanted:?}, found {found:?}"),
        }
    }
}
