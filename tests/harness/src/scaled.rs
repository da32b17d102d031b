//! Whole runs with a scaled loss against the same runs without scaling. The scale is a power of two, and FP16 represents the gradients,
//! scaled or not. So every bit must be equal, and a step with an overflow must equal a step without a backward.

use half::f16;
use hotrow::{Bags, CpuScaler, Embedding, GradSlice, GroupConfig, LossScale, Mode, OutOfRange};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::lockstep::{self, Batch, bits, random_batch};

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bend {
    Nothing,
    /// The gradients stay scaled.
    NotUnscaled,
    /// A step with an overflow updates the rows.
    OverflowTaken,
    /// A step without overflow is skipped.
    SkippedForNothing,
}

/// The cases that the runs have met.
#[derive(Debug, Default)]
pub struct Seen {
    pub overflows: u32,
    pub halves: u32,
    pub scales: std::collections::BTreeSet<u32>,
}

/// As in lockstep runs; no batch is refused.
pub fn random_config(source: &mut Pcg64) -> GroupConfig {
    lockstep::random_config(source).with_out_of_range(OutOfRange::Skip)
}

/// A half between 2^-8 and 4 in magnitude, or zero. Times 64 it is still a half.
fn random_half(source: &mut Pcg64) -> f32 {
    let exponent = source.random_range(0..10u16);
    let bits = (7 + exponent) << 10 | source.random_range(0..1024) | source.random_range(0..2) << 15;
    if source.random_bool(0.1) { 0.0 } else { f16::from_bits(bits).to_f32() }
}

/// The whole state of a group, with floats as bits.
fn kept(group: &mut dyn Embedding) -> (hotrow::state::Snapshot, Vec<u32>) {
    let snapshot = group.snapshot().unwrap();
    let cache = bits(&snapshot.cache);
    (snapshot, cache)
}

/// Compares two groups over random steps. `scaled` gets the gradients of a scaled loss in FP16 or FP32, and prefetches if `ahead`. `plain`
/// gets the same gradients unscaled in FP32, and no backward after an overflow. The first difference is the error.
pub fn run(
    scaled: &mut dyn Embedding,
    plain: &mut dyn Embedding,
    seed: u64,
    ahead: bool,
    bend: Bend,
    seen: &mut Seen,
) -> Result<(), String> {
    let mut source = Pcg64::seed_from_u64(seed);
    let config = plain.config().clone();
    let config_of_scale = LossScale::Backoff { min: 1.0, max: 64.0, factor: 2.0, window: 3 };
    let mut scaler = CpuScaler::new(config_of_scale).unwrap();
    let batches: Vec<Batch> = (0..12).map(|_| random_batch(&config, &mut source)).collect();
    let mut fetched = false;
    for (step, Batch { indices, offsets, weights }) in batches.iter().enumerate() {
        let weights = weights.as_deref();
        let outputs = if fetched {
            scaled.forward_prefetched().unwrap()
        } else {
            scaled.forward(Bags::new(indices, offsets).with_weights(weights), Mode::Train).unwrap()
        };
        let wanted = plain.forward(Bags::new(indices, offsets).with_weights(weights), Mode::Train).unwrap();
        if bits(&outputs) != bits(&wanted) {
            return Err(format!("step {step}: outputs differ"));
        }
        let grads: Vec<f32> = outputs.iter().map(|_| random_half(&mut source)).collect();
        let mut scaled_grads: Vec<f32> = grads.iter().map(|g| g * scaler.scale()).collect();
        let overflow = !grads.is_empty() && source.random_bool(0.3);
        if overflow {
            // One element of the last bag overflows.
            let (n, dim) = (grads.len(), config.dim as usize);
            let at = source.random_range(n - dim..n);
            scaled_grads[at] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN][source.random_range(0..3)];
        }
        let halves: Vec<f16> = scaled_grads.iter().map(|&x| f16::from_f32(x)).collect();
        let half = source.random_bool(0.6);
        let slice = if half { GradSlice::F16(&halves) } else { GradSlice::F32(&scaled_grads) };
        scaler.inspect(slice);
        let mut state = scaler.decide().unwrap();
        assert_eq!(state.overflowed(), overflow, "step {step}");
        seen.overflows += u32::from(overflow);
        seen.halves += u32::from(half);
        seen.scales.insert(state.scale as u32);
        match bend {
            Bend::Nothing => {}
            Bend::NotUnscaled => state.inverse = 1.0,
            Bend::OverflowTaken => state.overflow = 0,
            Bend::SkippedForNothing => state.overflow = u32::from(step == 4 || overflow),
        }
        fetched = ahead && step + 1 < batches.len();
        let before = (!fetched).then(|| kept(scaled));
        if fetched {
            let Batch { indices, offsets, weights } = &batches[step + 1];
            scaled.prefetch(Bags::new(indices, offsets).with_weights(weights.as_deref())).unwrap();
        }
        scaled.backward_scaled(slice, &state).unwrap();
        assert!(!scaled.pending());
        if overflow {
            plain.discard_pending();
        } else {
            plain.backward(&grads).unwrap();
        }
        if !fetched {
            let after = kept(scaled);
            if overflow && before != Some(after.clone()) {
                return Err(format!("step {step}: an overflow moved something"));
            }
            if after != kept(plain) {
                return Err(format!("step {step}: scaled and plain differ"));
            }
        }
    }
    scaled.flush().unwrap();
    plain.flush().unwrap();
    if kept(scaled) == kept(plain) { Ok(()) } else { Err("after the flush: scaled and plain differ".into()) }
}
