//! Tries a rule of the caller's own on both backends.

use std::sync::Arc;

use crate::{
    config::{GroupConfig, Init, Precision},
    cpu::cached::group::CpuGroup,
    error::Error,
    gpu::{cached::group::Group, engine::context::Context},
    lookup::Embedding,
    rules::{Device, Difference, Element, Rule},
    table::{batch::Bags, params::Mode, rng},
};

/// Rows of a trial.
const ROWS: u32 = 64;

impl Device for Context {
    fn try_rule(&self, rule: &Arc<dyn Rule>) -> Result<Vec<Difference>, Error> {
        let mut all = Vec::new();
        // Both widths of a Quad.
        for dim in [32, 5] {
            let mut config = GroupConfig::new(&[ROWS], dim).with_precision(Precision::Fp32).with_rule(rule.clone());
            (config.optimizer.lr, config.init) = (0.1, Init::Uniform { low: -1.0, high: 1.0 });
            let (mut gpu, mut cpu) = (Group::new(self, config.clone())?, CpuGroup::new(config)?);
            for step in 0..4 {
                try_step(&mut gpu, &mut cpu, dim as usize, step, &mut all)?;
            }
        }
        all.sort_by_key(|difference| std::cmp::Reverse(difference.ulp));
        Ok(all)
    }
}

/// Runs a step from the same state on both backends, and lists where their results differ.
fn try_step(
    gpu: &mut Group,
    cpu: &mut CpuGroup,
    dim: usize,
    step: u32,
    all: &mut Vec<Difference>,
) -> Result<(), Error> {
    let before = gpu.snapshot()?;
    cpu.restore(&before)?;
    let rows: Vec<u32> = (0..ROWS).collect();
    let offsets: Vec<u32> = (0..=ROWS).collect();
    // Of both signs and of many sizes; every ninth is 0.
    let grads: Vec<f32> = (0..ROWS as usize * dim)
        .map(|i| {
            let bits = rng::random(1, step, i as u32, 0, 0);
            let size = 2f32.powi((bits & 15) as i32 - 12);
            if i % 9 == 0 { 0.0 } else { ((bits >> 8) as f32 * 2f32.powi(-23) - 1.0) * size }
        })
        .collect();
    for group in [&mut *gpu as &mut dyn Embedding, cpu] {
        group.forward(Bags::new(&rows, &offsets), Mode::Train)?;
        group.backward(&grads)?;
    }
    let after = [gpu.snapshot()?.records, cpu.snapshot()?.records];
    let words = before.records.len() / ROWS as usize;
    let each = words / dim - 1; // states of an element, which come first in a record
    for (i, &g) in grads.iter().enumerate() {
        let at = |number: usize| i / dim * words + if number == 0 { each } else { number - 1 } * dim + i % dim;
        let float = |records: &[u32], number: usize| {
            if number <= each { f32::from_bits(records[at(number)]) } else { 0.0 }
        };
        for number in 0..=each {
            let [gpu, cpu] = [0, 1].map(|of| float(&after[of], number));
            if gpu.to_bits() != cpu.to_bits() {
                let states = [1, 2].map(|number| float(&before.records, number));
                let before = Element { g, w: float(&before.records, 0), states };
                all.push(Difference { number, before, gpu, cpu, ulp: apart(gpu, cpu) });
            }
        }
    }
    Ok(())
}

/// Floats from one to the other; the largest number if one is NaN.
fn apart(a: f32, b: f32) -> u32 {
    let place =
        |x: f32| if x.is_sign_negative() { -i64::from(x.to_bits() & 0x7fff_ffff) } else { i64::from(x.to_bits()) };
    if a.is_nan() || b.is_nan() { u32::MAX } else { (place(a) - place(b)).unsigned_abs() as u32 }
}
