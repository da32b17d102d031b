// Writes the records of a shard of integer rows: legal scales, biases and states, and random codes, each by a hash of its row and word.

struct Fill {
    first_row: u32,
    rows: u32,
    record_words: u32,
    payload_word: u32,
    seed: u32,
    reach: f32,
    inverse_steps: f32,
}

@group(0) @binding(0) var<uniform> fill: Fill;
@group(0) @binding(1) var<storage, read_write> records: array<u32>;

// The finaliser of MurmurHash3, a bijection.
fn mixed(word: u32) -> u32 {
    var h = word;
    h = (h ^ (h >> 16u)) * 0x85ebca6bu;
    h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
    return h ^ (h >> 16u);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let words = fill.rows * fill.record_words;
    for (var i = id.x; i < words; i += groups.x * 256u) {
        let word = i % fill.record_words;
        let of_row = mixed((fill.first_row + i / fill.record_words) ^ fill.seed);
        let random = mixed(of_row + word * 0x9e3779b9u);
        // A row spans half of the reach on either side of 0, or up to all of it: half < 1.
        let half = fill.reach * (0.5 + f32(of_row >> 9u) * 0x1p-24);
        var value = random;
        if word == 0u {
            value = bitcast<u32>(2.0 * half * fill.inverse_steps);
        } else if word == 1u {
            value = bitcast<u32>(-half);
        } else if word < fill.payload_word {
            value = bitcast<u32>(f32(random >> 8u) * 0x1p-24);
        }
        records[i] = value;
    }
}
