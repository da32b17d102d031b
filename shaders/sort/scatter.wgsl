// Radix sort, last of three stages: moves each pair to its place, and counts the digits of the next pass where the keys
// arrive. Stable.
//
// A block is first ordered in shared memory, so that it is written in runs of neighbours, one run for each digit.
// Behind the last key a block is filled with keys of the highest digit: they rank last and are not written.
#include "shared/common.wgsl"
#include "shared/sort.wgsl"
#include "shared/lanes_{rank}.wgsl"

@group(0) @binding(0) var<uniform> pass_info: Pass;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys_in: array<u32>;
@group(0) @binding(3) var<storage, read> values_in: array<u32>;
@group(0) @binding(4) var<storage, read> digits: array<u32>; // prefix sums
@group(0) @binding(5) var<storage, read> totals: array<u32>; // keys of each digit
@group(0) @binding(6) var<storage, read_write> keys_out: array<u32>;
@group(0) @binding(7) var<storage, read_write> values_out: array<u32>;
@group(0) @binding(8) var<storage, read_write> next_digits: array<atomic<u32>>; // zero before the pass, unless it is the last

var<workgroup> block_words: array<atomic<u32>, SORT_BLOCK>; // counters while ranking; then the block's keys, then its values
var<workgroup> digit_words: array<u32, 256>;                // counters while ranking; then the first position of each digit in the block
var<workgroup> digit_to: array<u32, 256>;                   // distance from that position to the digit's place in the output, modulo 2^32
var<workgroup> live: u32;

#include "shared/rank_{rank}.wgsl"

fn digit_of(key: u32) -> u32 { return (key >> pass_info.shift) & pass_info.mask; }

// The input positions of this invocation's keys in four rounds.
fn at4(first: u32, round: u32, lane: Lane) -> vec4<u32> {
    return first + vec4<u32>(rank_at(round, lane), rank_at(round + 1u, lane), rank_at(round + 2u, lane), rank_at(round + 3u, lane));
}

fn load4(at: vec4<u32>, n: u32) -> vec4<u32> {
    let near = min(at, vec4<u32>(n - 1u));
    let keys = vec4<u32>(keys_in[near.x], keys_in[near.y], keys_in[near.z], keys_in[near.w]);
    return select(vec4<u32>(NONE), keys, at < vec4<u32>(n));
}

fn values4(at: vec4<u32>, n: u32) -> vec4<u32> {
    if (pass_info.positions == 1u) { return at; }
    let near = min(at, vec4<u32>(n - 1u));
    return vec4<u32>(values_in[near.x], values_in[near.y], values_in[near.z], values_in[near.w]);
}

// The rank of a key, and above it the digit: from here on the digit comes from there, so that no second word is held for each key.
fn ranked(key: u32, lane: Lane) -> u32 {
    let digit = digit_of(key);
    return rank(digit, lane) | (digit << 16u);
}

fn rank4(keys: vec4<u32>, lane: Lane) -> vec4<u32> {
    let x = ranked(keys.x, lane);
    let y = ranked(keys.y, lane);
    let z = ranked(keys.z, lane);
    let w = ranked(keys.w, lane);
    return vec4<u32>(x, y, z, w);
}

fn place(ranked: u32, lane: Lane) -> u32 {
    let digit = ranked >> 16u;
    return (ranked & 0xffffu) + digit_words[digit] + rank_base(digit, lane);
}

fn place4(ranked: vec4<u32>, lane: Lane) -> vec4<u32> {
    return vec4<u32>(place(ranked.x, lane), place(ranked.y, lane), place(ranked.z, lane), place(ranked.w, lane));
}

fn put4(places: vec4<u32>, words: vec4<u32>) {
    atomicStore(&block_words[places.x], words.x);
    atomicStore(&block_words[places.y], words.y);
    atomicStore(&block_words[places.z], words.z);
    atomicStore(&block_words[places.w], words.w);
}

fn take4(j: u32) -> vec4<u32> {
    return vec4<u32>(atomicLoad(&block_words[j]), atomicLoad(&block_words[j + 256u]),
                     atomicLoad(&block_words[j + 512u]), atomicLoad(&block_words[j + 768u]));
}

// The output positions of the keys at `j`, `j + 256` ... of the ordered block.
fn to4(keys: vec4<u32>, j: u32) -> vec4<u32> {
    return vec4<u32>(digit_to[digit_of(keys.x)] + j, digit_to[digit_of(keys.y)] + j + 256u,
                     digit_to[digit_of(keys.z)] + j + 512u, digit_to[digit_of(keys.w)] + j + 768u);
}

fn send_key(to: u32, key: u32) {
    keys_out[to] = key;
    if (pass_info.next_mask != 0u) {
        let digit = (key >> (pass_info.shift + 8u)) & pass_info.next_mask;
        atomicAdd(&next_digits[digit * digit_stride(pass_info.capacity) + to / SORT_BLOCK], 1u);
    }
}

fn send_keys(to: vec4<u32>, keys: vec4<u32>, j: u32, end: u32) {
    if (j < end) { send_key(to.x, keys.x); }
    if (j + 256u < end) { send_key(to.y, keys.y); }
    if (j + 512u < end) { send_key(to.z, keys.z); }
    if (j + 768u < end) { send_key(to.w, keys.w); }
}

// Sends the keys at `j`, `j + 256` ... of the ordered block; returns their output positions.
fn take_and_send(j: u32, end: u32) -> vec4<u32> {
    let keys = take4(j);
    let to = to4(keys, j);
    send_keys(to, keys, j, end);
    return to;
}

fn send_values(to: vec4<u32>, values: vec4<u32>, j: u32, end: u32) {
    if (j < end) { values_out[to.x] = values.x; }
    if (j + 256u < end) { values_out[to.y] = values.y; }
    if (j + 512u < end) { values_out[to.z] = values.z; }
    if (j + 768u < end) { values_out[to.w] = values.w; }
}

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { live = min(step.counts[pass_info.count], pass_info.capacity); }
    let n = workgroupUniformLoad(&live);
    let blocks = (n + SORT_BLOCK - 1u) / SORT_BLOCK;
    let digit_first = scan_lanes(totals[me], lane).before; // first output position of digit `me`
    for (var block = flat_group(group, groups); block < blocks; block += groups.x * groups.y) {
        let first = block * SORT_BLOCK;
        let at_a = at4(first, 0u, lane);
        let at_b = at4(first, 4u, lane);
        let at_c = at4(first, 8u, lane);
        let a = load4(at_a, n);
        let b = load4(at_b, n);
        let c = load4(at_c, n);
        let column = digits[me * digit_stride(pass_info.capacity) + block];
        rank_clear(lane);
        var place_a = rank4(a, lane);
        var place_b = rank4(b, lane);
        var place_c = rank4(c, lane);
        workgroupBarrier();
        let begin = scan_lanes(rank_count(lane), lane).before;
        digit_words[me] = begin;
        digit_to[me] = digit_first + column - begin;
        workgroupBarrier();
        place_a = place4(place_a, lane);
        place_b = place4(place_b, lane);
        place_c = place4(place_c, lane);
        workgroupBarrier();
        put4(place_a, a);
        put4(place_b, b);
        put4(place_c, c);
        workgroupBarrier();
        let end = min(n - first, SORT_BLOCK);
        let to_a = take_and_send(me, end);
        let to_b = take_and_send(me + 1024u, end);
        let to_c = take_and_send(me + 2048u, end);
        // Counted again, so that a compiler does not hold the positions of the keys in 24 registers till here. It does not know
        // that this adds 0.
        let again = first + (pass_info.positions >> 1u);
        let values_a = values4(at4(again, 0u, lane), n);
        let values_b = values4(at4(again, 4u, lane), n);
        let values_c = values4(at4(again, 8u, lane), n);
        workgroupBarrier();
        put4(place_a, values_a);
        put4(place_b, values_b);
        put4(place_c, values_c);
        workgroupBarrier();
        send_values(to_a, take4(me), me, end);
        send_values(to_b, take4(me + 1024u), me + 1024u, end);
        send_values(to_c, take4(me + 2048u), me + 2048u, end);
        workgroupBarrier();
    }
}
