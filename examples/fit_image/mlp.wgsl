// The perceptron of `mlp.rs` on the device: 32 features, two hidden layers of 64 rectified neurons, one output, no biases.
// A workgroup has a lane for each neuron of a layer and takes 16 samples at once.

const WIDE = 64u;
const INPUTS = 32u; // 16 levels of 2 features
const TILE = 16u;
const SECOND = INPUTS * WIDE; // where the weights of the second and third layer begin
const THIRD = SECOND + WIDE * WIDE;
const WEIGHTS = THIRD + WIDE;

struct Step {
    samples: u32,
    chunk: u32, // samples of a workgroup, a multiple of TILE
    groups: u32,
    lr: f32,
    decays: vec2<f32>, // Adam's beta1, beta2
    corrections: vec2<f32>, // 1 - beta^t
    eps: f32,
}

@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read> features: array<vec2<f32>>; // [levels, samples]
@group(0) @binding(2) var<storage, read> targets: array<f32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>; // layer by layer, [inputs, outputs]
@group(0) @binding(4) var<storage, read_write> moments: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> grads: array<vec2<f32>>; // like features
@group(0) @binding(6) var<storage, read_write> parts: array<f32>; // [groups, WEIGHTS + 1], the loss last
@group(0) @binding(7) var<storage, read_write> outputs: array<f32>; // of each sample; after a training step the loss

var<workgroup> x: array<f32, TILE * INPUTS>; // [samples, inputs]
var<workgroup> one: array<f32, TILE * WIDE>; // the hidden layers, [samples, neurons]; in the backward their gradients
var<workgroup> two: array<f32, TILE * WIDE>;
var<workgroup> out: array<f32, TILE>; // outputs; in the backward their errors

fn known(sample: u32) -> bool {
    return sample < step.samples;
}

// The outputs of the samples from `first` on.
fn forward(first: u32, lane: u32) {
    for (var k = lane; k < TILE * INPUTS / 2u; k += WIDE) {
        let s = k % TILE;
        let level = k / TILE;
        var pair = vec2<f32>(0.0);
        if (known(first + s)) { pair = features[level * step.samples + first + s]; }
        x[s * INPUTS + 2u * level] = pair.x;
        x[s * INPUTS + 2u * level + 1u] = pair.y;
    }
    workgroupBarrier();
    var sums = array<f32, TILE>();
    for (var i = 0u; i < INPUTS; i++) {
        let weight = weights[i * WIDE + lane];
        for (var s = 0u; s < TILE; s++) { sums[s] += x[s * INPUTS + i] * weight; }
    }
    for (var s = 0u; s < TILE; s++) { one[s * WIDE + lane] = max(sums[s], 0.0); }
    workgroupBarrier();
    sums = array<f32, TILE>();
    for (var i = 0u; i < WIDE; i++) {
        let weight = weights[SECOND + i * WIDE + lane];
        for (var s = 0u; s < TILE; s++) { sums[s] += one[s * WIDE + i] * weight; }
    }
    for (var s = 0u; s < TILE; s++) { two[s * WIDE + lane] = max(sums[s], 0.0); }
    workgroupBarrier();
    if (lane < TILE) {
        var sum = 0.0;
        for (var j = 0u; j < WIDE; j++) { sum += two[lane * WIDE + j] * weights[THIRD + j]; }
        out[lane] = sum;
    }
    workgroupBarrier();
}

// Writes the output of each sample.
@compute @workgroup_size(WIDE)
fn predict(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begin = group.x * step.chunk;
    for (var first = begin; first < begin + step.chunk; first += TILE) {
        forward(first, lane);
        if (lane < TILE && known(first + lane)) { outputs[first + lane] = out[lane]; }
    }
}

// The gradient of the mean squared error: that of the weights, summed over a workgroup's samples, into `parts`; that of the
// features, times the number of samples, into `grads`.
@compute @workgroup_size(WIDE)
fn learn(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begin = group.x * step.chunk;
    let scale = 2.0 / f32(step.samples);
    var due_first = array<f32, INPUTS>(); // of the weights that lead to this lane's neuron
    var due_second = array<f32, WIDE>();
    var due_third = 0.0;
    var loss = 0.0;
    for (var first = begin; first < begin + step.chunk; first += TILE) {
        forward(first, lane);
        if (lane < TILE) {
            var off = 0.0;
            if (known(first + lane)) { off = out[lane] - targets[first + lane]; }
            loss += off * off;
            out[lane] = off;
        }
        workgroupBarrier();
        for (var s = 0u; s < TILE; s++) {
            let value = two[s * WIDE + lane];
            let due = scale * out[s];
            due_third += due * value;
            two[s * WIDE + lane] = select(0.0, due * weights[THIRD + lane], value > 0.0);
        }
        workgroupBarrier();
        for (var i = 0u; i < WIDE; i++) {
            for (var s = 0u; s < TILE; s++) { due_second[i] += one[s * WIDE + i] * two[s * WIDE + lane]; }
        }
        var sums = array<f32, TILE>();
        for (var j = 0u; j < WIDE; j++) {
            let weight = weights[SECOND + lane * WIDE + j];
            for (var s = 0u; s < TILE; s++) { sums[s] += two[s * WIDE + j] * weight; }
        }
        workgroupBarrier();
        for (var s = 0u; s < TILE; s++) {
            one[s * WIDE + lane] = select(0.0, sums[s], one[s * WIDE + lane] > 0.0);
        }
        workgroupBarrier();
        for (var i = 0u; i < INPUTS; i++) {
            for (var s = 0u; s < TILE; s++) { due_first[i] += x[s * INPUTS + i] * one[s * WIDE + lane]; }
        }
        for (var k = lane; k < TILE * INPUTS / 2u; k += WIDE) {
            let s = k % TILE;
            let level = k / TILE;
            var due = vec2<f32>(0.0);
            for (var j = 0u; j < WIDE; j++) {
                let pair = vec2<f32>(weights[2u * level * WIDE + j], weights[(2u * level + 1u) * WIDE + j]);
                due += one[s * WIDE + j] * pair;
            }
            if (known(first + s)) { grads[level * step.samples + first + s] = f32(step.samples) * due; }
        }
        workgroupBarrier();
    }
    let part = group.x * (WEIGHTS + 1u);
    for (var i = 0u; i < INPUTS; i++) { parts[part + i * WIDE + lane] = due_first[i]; }
    for (var i = 0u; i < WIDE; i++) { parts[part + SECOND + i * WIDE + lane] = due_second[i]; }
    parts[part + THIRD + lane] = due_third;
    if (lane < TILE) { out[lane] = loss; }
    workgroupBarrier();
    if (lane == 0u) {
        var sum = 0.0;
        for (var s = 0u; s < TILE; s++) { sum += out[s]; }
        parts[part + WEIGHTS] = sum;
    }
}

// Moves each weight by Adam. The last invocation writes the loss.
@compute @workgroup_size(WIDE)
fn adam(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = id.x;
    if (at > WEIGHTS) { return; }
    var sum = 0.0;
    for (var group = 0u; group < step.groups; group++) { sum += parts[group * (WEIGHTS + 1u) + at]; }
    if (at == WEIGHTS) {
        outputs[0] = sum / f32(step.samples);
        return;
    }
    let moved = moments[at] + (1.0 - step.decays) * (vec2<f32>(sum, sum * sum) - moments[at]);
    moments[at] = moved;
    let corrected = moved / step.corrections;
    weights[at] -= step.lr * corrected.x / (sqrt(corrected.y) + step.eps);
}
