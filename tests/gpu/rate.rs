//! A learning rate that changes in every step. The cache of uniforms and bind groups creates nothing new, and each step uses its own rate
//! although several steps are encoded before one submission.

use hotrow::{
    Bags, Batch, Context, CpuGroup, CpuSharedGroup, Error, Group, GroupConfig, Init, Lookup, Mode, Optimizer,
    Precision, SharedGroup,
    internals::held_bindings,
    robe::{Backward, Config},
    wgpu,
};

use crate::caller::{self, storage};
use hotrow_harness::{device::options, gpu_test};

const INDICES: [u32; 8] = [0, 3, 1, 3, 7, 0, 5, 9];
const OFFSETS: [u32; 5] = [0, 2, 4, 6, 8];
const DIM: u32 = 4;
/// Number of steps that are encoded before a submission.
const TOGETHER: usize = 8;

/// The encoded step of both kinds of groups on a device.
trait Encoded: Lookup {
    fn encode(&mut self, encoder: &mut wgpu::CommandEncoder, batch: &Buffers, lr: f32) -> Result<(), Error>;
}

macro_rules! encoded {
    ($($group:ty),*) => {$(
        impl Encoded for $group {
            fn encode(&mut self, encoder: &mut wgpu::CommandEncoder, batch: &Buffers, lr: f32) -> Result<(), Error> {
                let [indices, offsets, grads, outputs] = batch.each_ref().map(|buffer| buffer.slice(..));
                self.encode_forward(encoder, &Batch { indices: Some(indices), offsets, weights: None }, outputs, Mode::Train)?;
                self.set_learning_rate(lr)?;
                self.encode_backward(encoder, grads)
            }
        }
    )*};
}
encoded!(Group, SharedGroup);

/// Buffers of indices, offsets, gradients and outputs.
type Buffers = [wgpu::Buffer; 4];

fn grads() -> Vec<f32> {
    (0..OFFSETS.len() as u32 * DIM - DIM).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect()
}

fn buffers(context: &Context) -> Buffers {
    let floats = grads();
    let zeros = vec![0f32; floats.len()];
    let [indices, offsets] = [&INDICES[..], &OFFSETS].map(|words| storage(context, words));
    [indices, offsets, storage(context, &floats), storage(context, &zeros)]
}

/// The learning rate of a step. Every weight stays a multiple of 2^-10 that FP32 represents exactly, so the order of sums does not matter.
fn rate(step: usize) -> f32 {
    (1 + step) as f32 / 1024.0
}

/// Runs `steps` on both backends. Returns the number of uniforms and bind groups that the cache created after the first few steps.
fn made(context: &Context, group: &mut dyn Encoded, cpu: &mut dyn Lookup, steps: usize) -> u64 {
    let batch = buffers(context);
    let mut before = None;
    for first in (0..steps).step_by(TOGETHER) {
        let mut encoder = caller::encoder(context);
        for step in first..(first + TOGETHER).min(steps) {
            group.encode(&mut encoder, &batch, rate(step)).unwrap();
            cpu.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
            cpu.set_learning_rate(rate(step)).unwrap();
            cpu.backward(&grads()).unwrap();
        }
        context.queue().submit([encoder.finish()]);
        before.get_or_insert_with(|| held_bindings(context));
    }
    let (before, after) = (before.unwrap(), held_bindings(context));
    assert_eq!((before.uniforms, before.bind_groups), (after.uniforms, after.bind_groups), "held");
    let rows: Vec<u32> = (0..10).collect();
    let [found, wanted] = [group.read_rows(&rows).unwrap(), cpu.read_rows(&rows).unwrap()]
        .map(|rows| rows.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    assert_eq!(found, wanted);
    assert!(wanted.iter().any(|&bits| bits != 0), "weights have moved");
    after.made - before.made
}

/// A context that no other test shares, so that its counts belong to this test.
fn own(context: &Context) -> Context {
    Context::with_options(context.device(), context.queue(), &options()).unwrap()
}

#[gpu_test]
fn a_changing_rate_makes_no_bind_group(context: &Context) {
    let context = &own(context);
    let mut config = GroupConfig::new(&[10], DIM);
    (config.optimizer, config.init, config.cache_rows) = (Optimizer::sgd(0.5), Init::Constant(0.0), 10);
    let mut cpu = CpuGroup::new(config.clone()).unwrap();
    assert_eq!(made(context, &mut Group::new(context, config).unwrap(), &mut cpu, 1000), 0);

    // These groups run robe_update, robe_step and robe_blocks.
    let shared = |backward, precision| {
        let (optimizer, init) = (Optimizer::sgd(0.5), Init::Constant(0.0));
        Config::new(&[10], DIM, 64, 2)
            .with_optimizer(optimizer)
            .with_init(init)
            .with_backward(backward)
            .with_precision(precision)
    };
    let kinds =
        [(Backward::Auto, Precision::Fp32), (Backward::Atomic, Precision::Fp32), (Backward::Auto, Precision::Fp16)];
    for (steps, (backward, precision)) in [1000, 200, 200].into_iter().zip(kinds) {
        let config = shared(backward, precision);
        let mut cpu = CpuSharedGroup::new(config.clone()).unwrap();
        assert_eq!(made(context, &mut SharedGroup::new(context, config).unwrap(), &mut cpu, steps), 0, "{backward:?}");
    }
}

/// The count that stays 0 in the test above grows if steps need new uniforms and bind groups.
#[gpu_test]
fn what_changes_is_counted(context: &Context) {
    let context = &own(context);
    let config = GroupConfig::new(&[10], DIM).with_cache_rows(10);
    let mut group = Group::new(context, config).unwrap();
    let mut steps = |n: usize| {
        let indices = &INDICES[..n];
        group.forward(Bags::new(indices, &[0, n as u32]), Mode::Train).unwrap();
        group.backward(&[1.0; DIM as usize]).unwrap();
        held_bindings(context).made
    };
    let [first, again, other] = [8, 8, 3].map(&mut steps);
    assert_eq!(first, again, "a step of a known shape");
    assert!(other > again, "a step of another shape");
}
