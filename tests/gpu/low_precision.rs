//! Low precision on a device: the need for stochastic rounding (Zhang 2018, section 2.1), FP16 gradients, and FP16 outputs.

use hotrow::{
    Bags, Batch, Calls, Context, CpuGroup, CpuSharedGroup, Error, FloatBuffer, GradSlice, Group, GroupConfig, Init,
    Lookup, MemoryReport, Mode, Optimizer, OutputSlice, Placement, Pooling, Precision, ScalerState, SharedGroup, robe,
};
use hotrow::{prelude::*, wgpu};

use crate::caller::{self, storage, submit};
use hotrow_harness::{closed_form, device::with_gpu, gpu_test, sample};

#[gpu_test]
fn small_updates_add_up_at_random_and_are_lost_to_the_nearest(context: &Context) {
    closed_form::check(96, |config| Box::new(Group::new(context, config).unwrap_or_else(|error| panic!("{error}"))));
}

/// A batch with rows that repeat, and halves as gradients, one of them subnormal.
const INDICES: [u32; 6] = [3, 7, 3, 9, 3, 7];
const OFFSETS: [u32; 4] = [0, 3, 5, 6];
const HALVES: [u16; 9] = [0x3c00, 0xb555, 0x0001, 0x3555, 0x4900, 0xc100, 0x2e66, 0x3800, 0xbc00];

fn half_backward(table: &mut dyn Lookup, halves: &[u16]) -> Result<(), Error> {
    table.backward_scaled(GradSlice::F16(bytemuck::cast_slice(halves)), &ScalerState::unscaled_decision())
}

/// The bits of a forward's FP16 outputs.
fn half_forward(table: &mut dyn Lookup, bags: Bags<'_>, mode: Mode) -> Result<Vec<u16>, Error> {
    let mut halves = vec![0; table.output_len(bags.indices.len(), bags.offsets.len().saturating_sub(1))];
    table.forward_into(bags, mode, OutputSlice::F16(bytemuck::cast_slice_mut(&mut halves))).map(|()| halves)
}

/// The rows after a step: with the halves, or with the floats that they stand for.
fn rows_after(table: &mut dyn Lookup, halves: Option<&[u16]>) -> Vec<u32> {
    table.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
    match halves {
        Some(halves) => half_backward(table, halves).unwrap(),
        None => table.backward(&HALVES.map(|half| half::f16::from_bits(half).to_f32())).unwrap(),
    }
    table.read_rows(&[3, 7, 9, 4]).unwrap().iter().map(|x| x.to_bits()).collect()
}

#[gpu_test]
fn halves_are_summed_as_the_floats_that_they_stand_for(context: &Context) {
    // A small gradient counts as much as a large one, and the rows are cached.
    let optimizer = Optimizer::adagrad(0.1);
    let (rows, array) = (rows(3, Pooling::Sum), array(3, Pooling::Sum));
    let (rows, array) = (rows.with_optimizer(optimizer), array.with_optimizer(optimizer));
    for make in kinds(context, rows.clone(), array) {
        let wanted = rows_after(&mut *make(), None);
        assert_eq!(rows_after(&mut *make(), Some(&HALVES)), wanted);
        let mut others = HALVES;
        others[4] ^= 0x8000;
        assert_ne!(rows_after(&mut *make(), Some(&others)), wanted, "the comparison can fail");
        let mut short = make();
        short.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
        assert!(half_backward(&mut *short, &HALVES[1..]).is_err());
    }

    // Encoded. The buffer is rounded up to 16 bytes; NaN behind the gradients is not read.
    let group = || Group::new(context, rows.clone()).unwrap();
    let mut encoded = group();
    encoded.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
    let mut padded = HALVES.to_vec();
    padded.resize(16, 0x7e00);
    let grads = storage(context, &padded);
    submit(context, |encoder| encoded.encode_backward(encoder, FloatBuffer::F16(grads.slice(..))).unwrap());
    let found: Vec<u32> = encoded.read_rows(&[3, 7, 9, 4]).unwrap().iter().map(|x| x.to_bits()).collect();
    assert_eq!(found, rows_after(&mut group(), None));
}

/// Floats whose halves are known: their bits, and those of the half.
const KNOWN: [(u32, u16); 22] = [
    (0x0000_0000, 0x0000),
    (0x8000_0000, 0x8000),
    (0x3f80_0000, 0x3c00),
    (0x3f80_1000, 0x3c00), // half way between two halves: to the even one below
    (0x3f80_3000, 0x3c02), // half way: to the even one above
    (0x3f80_1001, 0x3c01),
    (0xbf80_0fff, 0xbc00),
    (0x3880_0000, 0x0400), // 2^-14, the smallest normal half
    (0x387f_ffff, 0x0400),
    (0x3380_0000, 0x0001), // 2^-24, the smallest half
    (0x3300_0000, 0x0000), // half of it
    (0x3300_0001, 0x0001),
    (0xb340_0000, 0x8001),
    (0x0000_0001, 0x0000), // subnormal as a float
    (0x477f_e000, 0x7bff), // 65504
    (0x477f_f000, 0x7bff), // 65520 saturates
    (0xff7f_ffff, 0xfbff), // the largest float
    (0x7f80_0000, 0x7c00), // infinity
    (0xff80_0000, 0xfc00),
    (0x7f80_0001, 0x7e00), // NaN
    (0xffc0_1234, 0x7e00),
    (0x7fff_ffff, 0x7e00),
];

/// An output as FP16, by the crate `half`, and saturated.
fn half_of(output: f32) -> u16 {
    match output {
        x if x.is_nan() => 0x7e00,
        x if x.is_infinite() => half::f16::from_f32(x).to_bits(),
        x => half::f16::from_f32(x.clamp(-65504.0, 65504.0)).to_bits(),
    }
}

/// Rows of an FP32 table that are known floats, and the same times an infinite weight.
#[test]
fn known_outputs_have_known_halves() {
    for (bits, half) in KNOWN {
        assert_eq!(half_of(f32::from_bits(bits)), half, "{bits:#x}");
    }
    let finite: Vec<_> = KNOWN.into_iter().filter(|&(bits, _)| f32::from_bits(bits).is_finite()).collect();
    let values: Vec<f32> = finite.iter().map(|&(bits, _)| f32::from_bits(bits)).collect();
    let mut wanted: Vec<u16> = finite.iter().map(|&(_, half)| half).collect();
    wanted.extend(values.iter().map(|x| half_of(x * f32::INFINITY)));
    with_gpu(|context| {
        // More outputs than a workgroup rounds.
        let config = GroupConfig::new(&[200], values.len() as u32).with_precision(Precision::Fp32);
        let config = config.with_cache_rows(32).with_pooling(Pooling::None);
        let mut group = Group::new(context, config).unwrap();
        group.write_rows(&[7], &values).unwrap();
        let rows: Vec<u32> = (0..200).map(|i| if i < 2 { 7 } else { i }).collect();
        let weights: Vec<f32> = (0..200).map(|i| if i == 1 { f32::INFINITY } else { 0.0 }).collect();
        let weights = [&[1.0], &weights[1..]].concat();
        let found = half_forward(
            &mut group,
            Bags::new(&rows, &(0..=200).collect::<Vec<_>>()).with_weights(Some(&weights)),
            Mode::Train,
        )
        .unwrap();
        assert_eq!(found[..wanted.len()], wanted);
    });
}

/// The first output that is not the float rounded.
fn unlike(found: &[u16], floats: &[f32]) -> Option<String> {
    if found.len() != floats.len() {
        return Some(format!("{} outputs, wanted {}", found.len(), floats.len()));
    }
    let at = (0..found.len()).find(|&i| found[i] != half_of(floats[i]))?;
    Some(format!("output {at}: {:#x}, wanted {:#x} for {}", found[at], half_of(floats[at]), floats[at]))
}

const INIT: Init = Init::Uniform { low: -2.0, high: 2.0 };

fn rows(dim: u32, pooling: Pooling) -> GroupConfig {
    let config = GroupConfig::new(&[10], dim).with_init(INIT).with_pooling(pooling);
    config.with_precision(Precision::Fp16).with_cache_rows(5)
}

fn array(dim: u32, pooling: Pooling) -> robe::Config {
    robe::Config::new(&[10], dim, 64, dim).with_init(INIT).with_pooling(pooling)
}

/// A cached and a staged table, a shared array, and the same on the CPU.
fn kinds(context: &Context, rows: GroupConfig, array: robe::Config) -> Vec<Box<dyn Fn() -> Box<dyn Lookup>>> {
    let staged = rows.clone().with_placement(Placement::Staged);
    let [one, two, three] = [context.clone(), context.clone(), context.clone()];
    let (cpu_rows, cpu_array) = (rows.clone(), array.clone());
    vec![
        Box::new(move || Box::new(Group::new(&one, rows.clone()).unwrap())),
        Box::new(move || Box::new(CpuGroup::new(cpu_rows.clone()).unwrap())),
        Box::new(move || Box::new(SharedGroup::new(&two, array.clone()).unwrap())),
        Box::new(move || Box::new(CpuSharedGroup::new(cpu_array.clone()).unwrap())),
        Box::new(move || Box::new(Group::new(&three, staged.clone()).unwrap())),
    ]
}

#[test]
fn outputs_in_halves_are_the_floats_rounded() {
    const WEIGHTS: [f32; 6] = [1.0, -3e5, 1e-6, f32::NAN, f32::INFINITY, 0.25];
    with_gpu(|context| {
        let poolings = [Pooling::Sum, Pooling::Mean, Pooling::None];
        for (dim, pooling) in sample(3, [4, 1, 3, 5, 8].into_iter().flat_map(|dim| poolings.map(|one| (dim, one)))) {
            let mut all = Vec::new();
            for make in kinds(context, rows(dim, pooling), array(dim, pooling)) {
                for weights in [None, Some(&WEIGHTS[..])] {
                    let (mut floats, mut halves) = (make(), make());
                    let wanted =
                        floats.forward(Bags::new(&INDICES, &OFFSETS).with_weights(weights), Mode::Train).unwrap();
                    let frozen =
                        half_forward(&mut *halves, Bags::new(&INDICES, &OFFSETS).with_weights(weights), Mode::Frozen)
                            .unwrap();
                    assert!(!halves.pending(), "a frozen forward waits for no backward");
                    let mut found =
                        half_forward(&mut *halves, Bags::new(&INDICES, &OFFSETS).with_weights(weights), Mode::Train)
                            .unwrap();
                    assert_eq!((unlike(&found, &wanted), &frozen), (None, &found), "{dim}, {pooling:?}");
                    all.push((wanted.clone(), found.clone()));
                    // The companion: another bit is noticed, and so is an output less.
                    found[1] ^= 1;
                    assert!(unlike(&found, &wanted).is_some() && unlike(&found[1..], &wanted).is_some());
                    // The step goes on as after a forward with FP32 outputs.
                    let grads = vec![0.5; wanted.len()];
                    if weights.is_none() {
                        floats.backward(&grads).unwrap();
                        halves.backward(&grads).unwrap();
                    }
                    floats.discard_pending();
                    halves.discard_pending();
                    let rows = |table: &mut dyn Lookup| table.read_rows(&[3, 7, 9, 4]).unwrap();
                    assert_eq!(rows(&mut *floats), rows(&mut *halves));
                }
                // An empty batch, and one that is refused.
                let mut table = make();
                let bags = half_forward(&mut *table, Bags::new(&[], &[0, 0, 0]), Mode::Train).unwrap();
                table.discard_pending();
                assert_eq!(bags, vec![0; if pooling == Pooling::None { 0 } else { 2 * dim as usize }]);
                assert_eq!(half_forward(&mut *table, Bags::new(&[], &[0]), Mode::Train), Ok(Vec::new()));
                table.discard_pending();
                refuses!(
                    half_forward(&mut *table, Bags::new(&[3, 99], &[0, 2]), Mode::Train),
                    Error::IndexOutOfRange { value: 99, .. }
                );
                refuses!(half_forward(&mut *table, Bags::new(&[3], &[]), Mode::Train), Error::Length { .. });
            }
            // Where device and host have the same sums, they have the same halves. Without weights a row is copied, or rows are added in
            // the same order, so that only a mean may differ.
            let same = |one: &(Vec<f32>, Vec<u16>), two: &(Vec<f32>, Vec<u16>)| {
                let equal = |i: &usize| one.0[*i].to_bits() == two.0[*i].to_bits();
                let equal: Vec<usize> = (0..one.0.len()).filter(equal).collect();
                assert!(equal.iter().all(|&i| one.1[i] == two.1[i]));
                equal.len()
            };
            for (gpu, cpu) in [(0, 2), (4, 6), (8, 2)] {
                let equal = same(&all[gpu], &all[cpu]);
                assert!(pooling == Pooling::Mean || equal == all[gpu].0.len(), "{dim}, {pooling:?}: {equal}");
                same(&all[gpu + 1], &all[cpu + 1]);
            }
        }
    });
}

/// Records forwards with FP16 outputs.
#[test]
pub(crate) fn recorded_outputs_in_halves() {
    with_gpu(|context| {
        let buffer = |words: &[u32]| storage(context, words);
        let (indices, offsets) = (buffer(&INDICES), buffer(&OFFSETS));
        let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
        // 9 outputs in a slice of their own, 6 words at word 64; the last word is not theirs.
        let before: Vec<u32> = (0..70).map(|i| 0xdead_0000 + i).collect();
        let outputs = buffer(&before);
        let theirs = outputs.slice(256..280);
        let submit = |encoder: wgpu::CommandEncoder| context.queue().submit([encoder.finish()]);
        let right = |wanted: &[f32]| {
            let found = caller::download(context, caller::encoder(context), &outputs);
            let halves: &[u16] = bytemuck::cast_slice(&found[64..69]);
            assert_eq!(unlike(&halves[..9], wanted), None);
            assert_eq!((halves[9], found[69], &found[..64]), (0, before[69], &before[..64]));
            context.queue().write_buffer(&outputs, 0, bytemuck::cast_slice(&before));
        };
        let (rows, array) = (rows(3, Pooling::Sum), array(3, Pooling::Sum));
        let make = kinds(context, rows.clone(), array.clone());
        let wanted = [
            make[0]().forward(Bags::new(&INDICES, &OFFSETS), Mode::Train),
            make[2]().forward(Bags::new(&INDICES, &OFFSETS), Mode::Train),
        ];
        let [wanted, wanted_array] = wanted.map(Result::unwrap);
        let new = || caller::encoder(context);
        let mut group = Group::new(context, rows.clone()).unwrap();
        let mut array = SharedGroup::new(context, array).unwrap();

        let (mut encoder, mut second) = (new(), new());
        group.encode_forward(&mut encoder, &batch, FloatBuffer::F16(theirs), Mode::Frozen).unwrap();
        submit(encoder);
        right(&wanted);
        array.encode_forward(&mut second, &batch, FloatBuffer::F16(theirs), Mode::Train).unwrap();
        submit(second);
        right(&wanted_array);

        // Prefetched. After a refused buffer the batch goes on waiting.
        let mut encoder = new();
        group.encode_prefetch(&mut encoder, &batch).unwrap();
        let short = group.encode_forward_prefetched(&mut encoder, FloatBuffer::F16(outputs.slice(256..272)));
        let wrong = Error::Buffer { what: "outputs", wanted: "20 bytes".into(), found: "16 bytes".into() };
        assert_eq!(short, Err(wrong.clone()));
        group.encode_forward_prefetched(&mut encoder, FloatBuffer::F16(theirs)).unwrap();
        submit(encoder);
        right(&wanted);

        // The gradient of the weights takes halves too; one that is short is named.
        let mut padded = HALVES.to_vec();
        padded.resize(16, 0x7e00); // NaN behind the gradients is not read
        let (grads, slopes) = (buffer(bytemuck::cast_slice(&padded)), buffer(&[7; 6]));
        let mut encoder = new();
        let half = FloatBuffer::F16(grads.slice(..));
        group.encode_weight_gradient(&mut encoder, &batch, half, slopes.slice(..)).unwrap();
        let short = FloatBuffer::F16(grads.slice(..16));
        let refused = group.encode_weight_gradient(&mut encoder, &batch, short, slopes.slice(..));
        refuses!(refused, Error::Buffer { what: "grad_outputs", .. });
        let found = caller::download(context, encoder, &slopes);
        let floats = HALVES.map(|half| half::f16::from_bits(half).to_f32());
        let wanted = group.weight_gradient(Bags::new(&INDICES, &OFFSETS), &floats).unwrap();
        assert_eq!(found, wanted.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        assert!(wanted.iter().all(|&slope| slope != 0.0), "each gradient counts");
        let mut encoder = new();
        array.encode_weight_gradient(&mut encoder, &batch, half, slopes.slice(..)).unwrap();
        let found = caller::download(context, encoder, &slopes);
        let wanted = array.weight_gradient(Bags::new(&INDICES, &OFFSETS), &floats).unwrap();
        assert_eq!(found, wanted.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        group.backward(&[0.0; 9]).unwrap();

        // Wrong buffers are named, and nothing is encoded.
        let mut encoder = new();
        let steps = group.counters().unwrap();
        let mut refused =
            |batch: &Batch<'_>, slice| group.encode_forward(&mut encoder, batch, FloatBuffer::F16(slice), Mode::Train);
        assert_eq!(refused(&batch, outputs.slice(256..272)), Err(wrong));
        refuses!(refused(&batch, outputs.slice(256..277)), Error::Buffer { what: "outputs", .. });
        refuses!(refused(&batch, outputs.slice(4..28)), Error::Buffer { what: "outputs", .. });
        let own = Batch { offsets: outputs.slice(..16), ..batch };
        let found = refused(&own, outputs.slice(256..280));
        assert!(
            matches!(&found, Err(Error::Buffer { what: "outputs", wanted, .. }) if wanted == "a buffer of its own")
        );
        submit(encoder);
        assert_eq!(group.counters().unwrap(), steps);

        // A batch without outputs needs no buffer for them, and the plan knows the FP32 sums.
        let mut encoder = new();
        let none = buffer(&[0]);
        let empty = Batch { indices: None, offsets: none.slice(..), weights: None };
        group.encode_forward(&mut encoder, &empty, FloatBuffer::F16(outputs.slice(256..260)), Mode::Train).unwrap();
        submit(encoder);
        let sums =
            |report: &MemoryReport| report.allocations.iter().filter(|(what, _)| *what == "outputs").copied().collect();
        let planned: Vec<_> =
            sums(&MemoryReport::planned(&rows, group.layout(), Calls::from(6).with_half_outputs(Some(9))));
        let found: Vec<_> = sums(&group.memory());
        assert_eq!((found.len(), found), (1, planned.clone()));
        assert_eq!(planned, sums(&array.memory()));
    });
}
