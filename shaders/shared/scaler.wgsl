// The rule of a loss scaler, constant, and its state. `LossScale` and `ScalerState` on the host explain the numbers
// (SPEC 8; OpenSeq2Seq).
const BACKOFF: u32 = 1u;
const LOG_NORMAL: u32 = 2u;

struct ScaleRule {
    kind: u32,         // 0 static, BACKOFF, LOG_NORMAL
    min: f32,          // smallest scale
    max: f32,
    grow: f32,         // Backoff: the factor by which the scale grows, followed by 1 / factor
    shrink: f32,
    window: u32,       // steps without overflow before the scale grows
    log_max: f32,      // LogNormal: log2 of the bound below which the largest gradient should stay, and x of an overflow
    beta: f32,         // decay of the mean, followed by 1 - beta
    beta_rest: f32,
    slow_beta: f32,    // decay of the variance, followed by 1 - slow_beta
    slow_rest: f32,
    deviations: f32,
    zero: u32,         // always 0; see shared/exact.wgsl
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

struct ScalerState {
    scale: f32,         // scale of the next step's loss
    inverse: f32,       // 1 / scale of the last decided step
    overflow: u32,      // 1: the gradients of that step overflowed, so it updates nothing
    iteration: u32,     // number of steps decided
    last_overflow: u32, // the last step that overflowed, counted from 1; 0: none yet
    overflows: u32,     // number of steps that overflowed
    largest: u32,       // the bits of the last step's largest |gradient|, unscaled; above all finite values after an overflow
    mean: f32,          // LogNormal: moving average of x = log2 of the largest |gradient|
    slow_mean: f32,     // the same average with slow_beta
    variance: f32,      // variance about slow_mean
    decay: f32,         // beta to the power of the number of steps averaged
    slow_decay: f32,
}
