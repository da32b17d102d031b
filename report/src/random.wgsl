// Rows of a table in random order, each once a pass, without a list of indices to read. The command and the web page measure with it.

struct Job {
    // A row has 2^lane_bits lanes of 16 bytes, the table 2^row_bits rows.
    lane_bits: u32,
    row_bits: u32,
    // Passes of one dispatch, and the number of the first one. Each has an order of its own.
    passes: u32,
    first: u32,
    // How often `update_rows` has gone over the table.
    added: u32,
}

// One buffer under two names: loads of one that is only read may take a shorter way.
@group(0) @binding(0) var<storage, read> rows: array<vec4<u32>>;
@group(0) @binding(0) var<storage, read_write> table: array<vec4<u32>>;
// The sum of all words that were read, and the number of words that `count` found wrong.
@group(0) @binding(1) var<storage, read_write> results: array<atomic<u32>, 2>;
@group(0) @binding(2) var<storage, read> job: Job;

var<workgroup> together: atomic<u32>;

// Xors, products with odd numbers and shifts that are xored back are bijections of row_bits bits, so no row comes twice in a pass.
fn row_of(turn: u32, number: u32) -> u32 {
    let mask = (1u << job.row_bits) - 1u;
    let shift = max(job.row_bits / 2u, 1u);
    var row = (turn ^ (number * 0x9E3779B9u)) & mask;
    row = (row * 0x85EBCA6Bu) & mask;
    row ^= row >> shift;
    row = (row * 0xC2B2AE35u) & mask;
    row ^= row >> shift;
    row = (row * 0x9E3779B1u) & mask;
    return row ^ (row >> shift);
}

// Neighbours take neighbouring lanes of a row.
fn place(lane: u32) -> u32 {
    let turn = lane >> job.lane_bits;
    let row = row_of(turn & ((1u << job.row_bits) - 1u), job.first + (turn >> job.row_bits));
    return (row << job.lane_bits) | (lane & ((1u << job.lane_bits) - 1u));
}

// Random words: murmur3's finaliser of their numbers.
fn filled(lane: u32) -> vec4<u32> {
    var x = 4u * lane + vec4(0u, 1u, 2u, 3u);
    x = (x ^ (x >> vec4(16u))) * 0x85EBCA6Bu;
    x = (x ^ (x >> vec4(13u))) * 0xC2B2AE35u;
    return x ^ (x >> vec4(16u));
}

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var lane = id.x; lane < arrayLength(&table); lane += groups.x * 256u) {
        table[lane] = filled(lane);
    }
}

// Sums rows. Eight lanes that do not depend on one another, so that their loads are on the way together. A loop would not be unrolled everywhere.
@compute @workgroup_size(256)
fn read_rows(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let far = groups.x * 256u;
    var sum = vec4<u32>();
    for (var at = id.x; at < job.passes << (job.lane_bits + job.row_bits); at += 8u * far) {
        sum += rows[place(at)] + rows[place(at + far)] + rows[place(at + 2u * far)] + rows[place(at + 3u * far)]
            + rows[place(at + 4u * far)] + rows[place(at + 5u * far)] + rows[place(at + 6u * far)] + rows[place(at + 7u * far)];
    }
    atomicAdd(&together, sum.x + sum.y + sum.z + sum.w);
    workgroupBarrier();
    if (id.x % 256u == 0u) {
        atomicAdd(&results[0], atomicLoad(&together));
    }
}

@compute @workgroup_size(256)
fn update_rows(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let far = groups.x * 256u;
    for (var at = id.x; at < job.passes << (job.lane_bits + job.row_bits); at += 8u * far) {
        let i = array(place(at), place(at + far), place(at + 2u * far), place(at + 3u * far));
        let j = array(place(at + 4u * far), place(at + 5u * far), place(at + 6u * far), place(at + 7u * far));
        let a = array(table[i[0]], table[i[1]], table[i[2]], table[i[3]]);
        let b = array(table[j[0]], table[j[1]], table[j[2]], table[j[3]]);
        table[i[0]] = a[0] + 1u; table[i[1]] = a[1] + 1u; table[i[2]] = a[2] + 1u; table[i[3]] = a[3] + 1u;
        table[j[0]] = b[0] + 1u; table[j[1]] = b[1] + 1u; table[j[2]] = b[2] + 1u; table[j[3]] = b[3] + 1u;
    }
}

// Counts words that are not what `fill` and `update_rows` made them.
@compute @workgroup_size(256)
fn count(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var lane = id.x; lane < arrayLength(&table); lane += groups.x * 256u) {
        let wrong = vec4<u32>(table[lane] != filled(lane) + job.added);
        atomicAdd(&results[1], wrong.x + wrong.y + wrong.z + wrong.w);
    }
}

// Writes down the rows of the first 65,536 turns of a pass.
@compute @workgroup_size(256)
fn order(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var turn = id.x; turn < min(1u << 16u, 1u << job.row_bits); turn += groups.x * 256u) {
        table[turn] = vec4(row_of(turn, job.first));
    }
}
