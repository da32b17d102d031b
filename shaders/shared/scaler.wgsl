// What a loss scaler is (constant) and what it keeps. `LossScale` and `ScalerState` on the host explain the numbers (P5).
const BACKOFF: u32 = 1u;
const LOG_NORMAL: u32 = 2u;

struct ScaleRule {
    kind: u32,         // 0 static, BACKOFF, LOG_NORMAL
    min: f32,          // of the scale
    max: f32,
    grow: f32,         // Backoff: the factor, and 1 over it
    shrink: f32,
    window: u32,       // steps without overflow before the scale grows
    target_log: f32,   // LogNormal: log2 of what the greatest gradient shall stay below
    overflow_log: f32, // what counts as log2 of the greatest gradient where it overflowed
    beta: f32,         // of the mean, and 1 less it
    beta_rest: f32,
    slow_beta: f32,    // of the variance, and 1 less it
    slow_rest: f32,
    deviations: f32,
    original: u32,     // 1: a step whose gradients are all zero sends the mean to minus infinity, for ever
    zero: u32,         // 0: shared/exact.wgsl
    pad0: u32,
}

struct ScalerState {
    scale: f32,         // of the next step's loss
    inverse: f32,       // 1 over the scale of the last step decided
    overflow: u32,      // 1: that step's gradients overflowed, and it updates nothing
    iteration: u32,     // steps decided
    last_overflow: u32, // the step that overflowed last, counted from 1; 0: none yet
    overflows: u32,     // steps that overflowed
    largest: u32,       // bits of the last step's greatest |gradient|, unscaled; beyond every finite one where it overflowed
    mean: f32,          // LogNormal: of x = log2 of that, the moving average
    slow_mean: f32,     // the same with slow_beta
    variance: f32,      // around it
    decay: f32,         // beta to the power of the steps averaged
    slow_decay: f32,
}
