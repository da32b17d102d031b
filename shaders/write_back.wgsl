// FP32 row -> record: down-converts rows of one shard from their slots or from scratch (SPEC 2). One workgroup a row.
#include "shared/common.wgsl"
#include "shared/shard.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> shard: Shard;
@group(0) @binding(2) var<storage, read> range: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> rows: array<u32>;    // linear rows, NONE for nothing
@group(0) @binding(4) var<storage, read> sources: array<u32>; // slot, or slots + u for scratch, NONE for nothing
@group(0) @binding(5) var<storage, read_write> records: array<u32>;
@group(0) @binding(6) var<storage, read> cache: array<u32>;
@group(0) @binding(7) var<storage, read> scratch: array<u32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/half.wgsl"
#include "shared/rng.wgsl"

var<workgroup> lows: array<u32, 64>; // as `ordered`
var<workgroup> highs: array<u32, 64>;
var<workgroup> bad: array<u32, 64>;

struct Source {
    row: u32,    // linear row
    base: u32,   // its first float
    bypass: bool,
}

fn source_bits(src: Source, element: u32) -> u32 {
    if (src.bypass) { return scratch[src.base + element]; }
    return cache[src.base + element];
}

fn is_finite(bits: u32) -> bool {
    return (bits & 0x7f800000u) != 0x7f800000u;
}

// Finite floats as integers of the same order: a device may flush a subnormal in `min`, but not here.
fn ordered(bits: u32) -> u32 {
    return bits ^ select(0x80000000u, 0xffffffffu, (bits & 0x80000000u) != 0u);
}

fn unordered(key: u32) -> u32 {
    return key ^ select(0xffffffffu, 0x80000000u, (key & 0x80000000u) != 0u);
}

fn noise(src: Source, element: u32, purpose: u32) -> u32 {
    return random(params.seed, atomicLoad(&tables[0]), src.row, element, params.purpose + purpose);
}

// A value v = (x - bias) / scale to its code.
fn code(src: Source, element: u32, scale: f32, bias: f32) -> u32 {
    if (scale == 0.0) { return 0u; }
    let top = f32((1u << params.bits) - 1u);
    let v = (bitcast<f32>(source_bits(src, element)) - bias) / scale;
    let near = round(v);
    if (params.stochastic == 0u || abs(v - near) <= (top + 1.0 + abs(bias) / scale) * 2.384185791015625e-7) {
        return u32(clamp(near, 0.0, top));
    }
    let below = floor(v);
    let up = f32(noise(src, element, 0u) >> 8u) * 5.9604644775390625e-8 < v - below;
    return u32(clamp(below + select(0.0, 1.0, up), 0.0, top));
}

// One 16-bit half of the record behind its FP32 words: state in FP16, or payload.
fn record_half_of(src: Source, h: u32, scale: f32, bias: f32) -> u32 {
    let stochastic = params.stochastic == 1u;
    if (h < params.payload_half) {
        let e = h - 2u * params.state_word;
        return half_from_bits(source_bits(src, params.dim + e), stochastic, noise(src, e, 1u));
    }
    let per_half = 16u / params.bits;
    let first = (h - params.payload_half) * per_half;
    if (params.bits == 16u) {
        if (first >= params.dim) { return 0u; }
        return half_from_bits(source_bits(src, first), stochastic, noise(src, first, 0u));
    }
    var bits = 0u;
    for (var k = 0u; k < per_half; k++) {
        if (first + k < params.dim) { bits |= code(src, first + k, scale, bias) << (k * params.bits); }
    }
    return bits;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = range[shard.index].x + flat_group(group, groups);
    if (i >= range[shard.index].y) { return; }
    if (rows[i] == NONE || sources[i] == NONE) { return; }
    let bypass = sources[i] >= params.slots;
    let src = Source(rows[i], select(sources[i], sources[i] - params.slots, bypass) * params.row_words, bypass);

    var low = NONE;
    var high = 0u;
    var wrong = 0u;
    for (var e = lane; e < params.row_words; e += 64u) {
        let bits = source_bits(src, e);
        if (!is_finite(bits)) {
            wrong = 1u;
        } else if (e < params.dim) {
            low = min(low, ordered(bits));
            high = max(high, ordered(bits));
        }
    }
    lows[lane] = low;
    highs[lane] = high;
    bad[lane] = wrong;
    for (var reach = 32u; reach > 0u; reach /= 2u) {
        workgroupBarrier();
        if (lane < reach) {
            lows[lane] = min(lows[lane], lows[lane + reach]);
            highs[lane] = max(highs[lane], highs[lane + reach]);
            bad[lane] |= bad[lane + reach];
        }
    }
    workgroupBarrier();
    var scale = 0.0;
    var bias = 0u; // its bits
    var refused = bad[0] != 0u;
    if (params.bits <= 8u) {
        // fl(1 / (2^k - 1)), rounded here once for both sides.
        var inverse = 0.0039215688593685627;
        if (params.bits == 4u) { inverse = 0.06666667014360428; }
        if (params.bits == 2u) { inverse = 0.3333333432674408; }
        bias = unordered(lows[0]);
        if (bias == 0x80000000u) { bias = 0u; } // -0 and +0 are equal; one of them is stored
        let span = bitcast<f32>(unordered(highs[0])) - bitcast<f32>(bias);
        refused = refused || !is_finite(bitcast<u32>(span));
        scale = span * inverse;
        if (scale < 1.1754943508222875e-38) { scale = 0.0; }
    }
    let table = table_of(src.row);
    if (refused) {
        if (lane == 0u) { count(table, SKIPPED_ROWS, 1u); }
        return;
    }

    let base = (src.row - shard.first_row) * params.record_words;
    for (var w = lane; w < params.record_words; w += 64u) {
        var word: u32;
        if (w < params.state_word) {
            word = select(bias, bitcast<u32>(scale), w == 0u);
        } else if (params.state_half == 0u && w < params.state_word + params.state) {
            word = source_bits(src, params.dim + w - params.state_word);
        } else if (params.bits == 32u) {
            word = source_bits(src, w - params.payload_half / 2u);
        } else {
            word = record_half_of(src, 2u * w, scale, bitcast<f32>(bias)) |
                (record_half_of(src, 2u * w + 1u, scale, bitcast<f32>(bias)) << 16u);
        }
        records[base + w] = word;
    }
    if (lane == 0u && params.mode == MODE_TRAIN) { count(table, select(WRITE_BACKS, BYPASS_WRITES, bypass), 1u); }
}
