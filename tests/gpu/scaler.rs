//! Loss scaling on a device: the scaler's state against the CPU's, bit for bit, and whole runs with a scaled loss.

use hotrow::{
    Bags, Batch, Context, CpuScaler, Error, FloatBuffer, GradSlice, Group, GroupConfig, LossScale, Mode, Placement,
    Scaler, ScalerState, prelude::*, wgpu,
};
use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_pcg::Pcg64;

use crate::{
    caller::{self, READ, Shader, UNIFORM, WRITE, storage},
    encoded::Encoded,
};
use hotrow_harness::{
    device::with_gpu,
    gpu_test, sample_seeds,
    scaled::{self, Bend, Seen, random_config},
    seed_for,
};

fn buffer(context: &Context, bytes: &[u8], padding: usize) -> wgpu::Buffer {
    let mut contents = bytes.to_vec();
    contents.resize(bytes.len().next_multiple_of(padding).max(16), 0xff); // NaN, in case a kernel reads it
    storage(context, &contents)
}

#[gpu_test]
fn whole_runs(context: &Context) {
    let run = |seed: u64, bend, seen: &mut Seen| {
        let mut config = random_config(&mut Pcg64::seed_from_u64(seed));
        config.placement = [Placement::Device, Placement::Mapped, Placement::Staged][seed as usize % 3];
        let group = || Group::new(context, config.clone()).unwrap();
        let ahead = seed / 3 % 2 == 1;
        let outcome = if bend == Bend::Nothing && seed / 6 % 2 == 1 {
            // The device decides about the overflow itself.
            scaled::run(&mut Encoded::new(context, &config), &mut group(), seed, ahead, bend, seen)
        } else {
            scaled::run(&mut group(), &mut group(), seed, ahead, bend, seen)
        };
        outcome.map_err(|difference| format!("seed {seed}, ahead {ahead}, {config:?}: {difference}"))
    };
    // Those that are held meet overflows and several scales for certain.
    let mut seen = Seen::default();
    for seed in sample_seeds(4, "scaler", 20) {
        assert_eq!(run(seed, Bend::Nothing, &mut seen), Ok(()));
    }
    assert!(seen.overflows > 4 && seen.halves > 10 && seen.scales.len() > 2, "{seen:?}");
    for bend in [Bend::NotUnscaled, Bend::OverflowTaken, Bend::SkippedForNothing] {
        let rejected = (0..4).filter(|&seed| run(seed, bend, &mut Seen::default()).is_err()).count();
        assert!(rejected > 0, "{bend:?} passes");
    }
}

/// Four steps in each encoder, two buffers of any length in each step: the state is the CPU's, bit for bit.
#[test]
fn the_state_is_the_cpus() {
    let (min, max) = (2f32.powi(-40), 2f32.powi(30));
    let log_normal = LossScale::LogNormal { min, max, log_max: 6.0, beta1: 0.9, beta2: 0.99, deviations: 3.09 };
    let backoff = LossScale::Backoff { min: 1.0, max: 16384.0, factor: 2.0, window: 3 };
    with_gpu(|context| {
        for config in [backoff, LossScale::Static { scale: 0.25 }, log_normal] {
            let (mut overflows, mut scales) = (0, std::collections::BTreeSet::new());
            // The first seed meets every case for certain.
            for seed in [4, seed_for("state of a scaler")] {
                let mut source = Pcg64::seed_from_u64(seed);
                let mut ours = CpuScaler::new(config).unwrap();
                let mut theirs = Scaler::new(context, config).unwrap();
                for round in 0..8 {
                    let mut encoder = caller::encoder(context);
                    for _ in 0..4 {
                        // Now and then so small that it counts as zero, or far from the rest.
                        let size = match source.random_range(0..8) {
                            0 => 2f32.powi(-126),
                            1 => ours.scale() * 2f32.powf(source.random_range(-30.0..18.0)),
                            _ => ours.scale() * 2f32.powf(source.random_range(-12.0..-6.0)),
                        };
                        let n = *[1usize, 2, 3, 7, 255, 256, 257, 1000, 2049, 5001].choose(&mut source).unwrap();
                        let mut value = || size * source.random_range(-1.0..1.0f32);
                        let mut halves: Vec<u16> = (0..n).map(|_| half::f16::from_f32(value()).to_bits()).collect();
                        let mut floats: Vec<f32> = (0..n).map(|_| value()).collect();
                        let at = source.random_range(0..n);
                        match source.random_range(0..6) {
                            0 => halves[at] = *[0x7c00, 0xfc00, 0x7e00, 0xfe01].choose(&mut source).unwrap(),
                            1 => {
                                floats[at] = *[f32::INFINITY, f32::NEG_INFINITY, f32::NAN].choose(&mut source).unwrap();
                            }
                            _ => {}
                        }
                        let (first, second) = (
                            buffer(context, bytemuck::cast_slice(&halves), 16),
                            buffer(context, bytemuck::cast_slice(&floats), 4),
                        );
                        theirs.encode_inspect(&mut encoder, FloatBuffer::F16(first.slice(..)), n as u64).unwrap();
                        theirs.encode_inspect(&mut encoder, FloatBuffer::F32(second.slice(..)), n as u64).unwrap();
                        theirs.encode_decide(&mut encoder).unwrap();
                        ours.inspect(GradSlice::F16(bytemuck::cast_slice(&halves)));
                        ours.inspect(GradSlice::F32(&floats));
                        ours.decide().unwrap();
                        scales.insert(ours.scale().to_bits());
                    }
                    context.queue().submit([encoder.finish()]);
                    let found = theirs.state().unwrap();
                    let bits = |state: &ScalerState| ScalerState { largest: 0, ..*state }.to_words();
                    assert_eq!(
                        bits(&found),
                        bits(ours.state()),
                        "seed {seed}, round {round}, {config:?}\n{found:?}\n{:?}",
                        ours.state()
                    );
                    // Two NaN may differ in their bits.
                    assert!(
                        found.largest == ours.state().largest
                            || found.largest().is_nan() && ours.state().largest().is_nan()
                    );
                    if round == 3 {
                        // Save the state here and continue from it in another scaler.
                        let words = found.to_words();
                        theirs =
                            Scaler::with_state(context, config, &ScalerState::from_words(&words, &config).unwrap())
                                .unwrap();
                    }
                }
                overflows += ours.state().overflows;
            }
            assert!(overflows > 0);
            assert!(scales.len() > 3 || matches!(config, LossScale::Static { .. }), "{config:?}: {}", scales.len());
        }
    });
}

/// Forward, a loss whose shader reads the scale, inspection, decision and backward in one encoder, without waiting.
#[test]
fn a_step_in_one_encoder() {
    const LOSS: &str = "
        @group(0) @binding(0) var<uniform> scale: vec4<f32>;
        @group(0) @binding(1) var<storage, read> outputs: array<f32>;
        @group(0) @binding(2) var<storage, read_write> grads: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&grads)) { grads[id.x] = scale.x * (outputs[id.x] - 1.0); }
        }";
    with_gpu(|context| {
        let loss = Shader::new(context, LOSS.into(), &[UNIFORM, READ, WRITE], None);
        let config = GroupConfig::new(&[100], 5).with_cache_rows(32);
        let (mut theirs, mut ours) =
            (Group::new(context, config.clone()).unwrap(), Group::new(context, config).unwrap());
        let scale = LossScale::Backoff { min: 1.0, max: 1024.0, factor: 2.0, window: 2 };
        let mut scaler = Scaler::new(context, scale).unwrap();
        let indices: Vec<u32> = (0..60).map(|i| i * i % 100).collect();
        let offsets: Vec<u32> = (0..=60).collect();
        let (index, offset) =
            (buffer(context, bytemuck::cast_slice(&indices), 4), buffer(context, bytemuck::cast_slice(&offsets), 4));
        let mut encoder = caller::encoder(context);
        for _ in 0..3 {
            let (outputs, grads) = (buffer(context, &[0; 1200], 4), buffer(context, &[0; 1200], 4));
            let batch = Batch { indices: Some(index.slice(..)), offsets: offset.slice(..), weights: None };
            theirs.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
            loss.dispatch(&mut encoder, &[scaler.buffer(), &outputs, &grads], None, 5);
            scaler.encode_inspect(&mut encoder, FloatBuffer::F32(grads.slice(..)), 300).unwrap();
            scaler.encode_decide(&mut encoder).unwrap();
            theirs.encode_backward_scaled(&mut encoder, FloatBuffer::F32(grads.slice(..)), &scaler).unwrap();
        }
        context.queue().submit([encoder.finish()]);
        for _ in 0..3 {
            let outputs = ours.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
            ours.backward(&outputs.iter().map(|x| x - 1.0).collect::<Vec<_>>()).unwrap();
        }
        assert_eq!(theirs.snapshot().unwrap(), ours.snapshot().unwrap());
        let state = scaler.state().unwrap();
        assert_eq!((state.iteration, state.overflows, state.inverse), (3, 0, 1.0 / 1024.0));
        ours.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        ours.backward(&[0.5; 300]).unwrap();
        assert_ne!(theirs.snapshot().unwrap(), ours.snapshot().unwrap(), "the comparison can fail");
    });
}

#[gpu_test]
fn what_cannot_be_is_named(context: &Context) {
    refuses!(Scaler::new(context, LossScale::Static { scale: 0.0 }), Error::Scaler { what: "scale", .. });
    let mut scaler = Scaler::new(context, LossScale::BACKOFF).unwrap();
    let mut group = Group::new(context, GroupConfig::new(&[10], 4)).unwrap();
    let mut encoder = caller::encoder(context);
    refuses!(scaler.encode_decide(&mut encoder), Error::Order { call: "decide", .. });
    let grads = buffer(context, &[0; 32], 4);
    let late = |group: &mut Group, encoder: &mut wgpu::CommandEncoder, scaler: &Scaler| {
        group.encode_backward_scaled(encoder, FloatBuffer::F16(grads.slice(..)), scaler)
    };
    refuses!(late(&mut group, &mut encoder, &scaler), Error::Order { .. });
    let refused = scaler.encode_inspect(&mut encoder, FloatBuffer::F32(grads.slice(..)), 9);
    refuses!(refused, Error::Buffer { what: "gradients", .. });
    let odd = scaler.encode_inspect(&mut encoder, FloatBuffer::F16(grads.slice(..24)), 12);
    assert!(matches!(&odd, Err(Error::Buffer { wanted, .. }) if wanted == "32 bytes"), "{odd:?}");
    scaler.encode_inspect(&mut encoder, FloatBuffer::F16(grads.slice(..)), 9).unwrap();
    refuses!(late(&mut group, &mut encoder, &scaler), Error::Order { .. }, "inspected, not decided");
    scaler.encode_decide(&mut encoder).unwrap();
    assert!(
        matches!(late(&mut group, &mut encoder, &scaler), Err(Error::Order { call: "backward", .. })),
        "no forward"
    );
    group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
    late(&mut group, &mut encoder, &scaler).unwrap();
}
