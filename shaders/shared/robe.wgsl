// A parameter-shared table (ROBE, section 3): chunk j of linear row g begins at ((g R3 + j R2 + R1) mod P) mod starts
// of the shared array; addressed directly, row g has one chunk, which begins at g dim; addressed by rows, at that of
// the array's row ((g R3 + R1) mod P) mod rows.
struct Robe {
    dim: u32,     // floats in a row
    chunk: u32,   // Z: neighbouring values of a row that lie together
    chunks: u32,  // chunks of a row; the last may be shorter
    starts: u32,  // places where a chunk may begin: weights - chunk + 1
    weights: u32, // of the shared array
    reach: u32,   // weights of the longest chunk: chunk, or dim
    tail: u32,    // weights of a row's last chunk
    dense_from: u32, // number of distinct starts from which a backward goes over all weights
    block: u32,   // weights of a block, a power of two; random bits take the block's number as the row; a block's integers share scale and bias
    block_words: u32,  // words of a block
    window: u32,       // weights of a window of the array, in whole blocks; the last window may hold fewer
    window_words: u32, // words of a window
    first: u32,        // first weight of the window that an update writes
    stride: u32,       // from row to row, if rows lie as a whole; 0 if their chunks are hashed
    state_bits: u32,   // bits of a state: 8, 16 or 32; 0 without states
    state_words: u32,  // words of a block's states
    marks: u32,        // 1: a weight that chunks cover moves even if its gradient is 0
    rows: u32,         // rows of the array, if a hash chooses one for each row; else 0
    given: u32,        // 1: `grad_outputs` has the caller's gradient of each weight
}

const UNCOVERED: u32 = 0x80000000u; // -0.0: the gradient of a weight that no chunk covers

const ROBE_PRIME: u32 = 2038074743u;
const ROBE_R1: u32 = 634329019u;
const ROBE_R2: u32 = 1825252241u;
const ROBE_R3: u32 = 871205356u;
const ROBE_RECIPROCAL: u32 = 2262765894u; // 2^62 / P, rounded down by 0.27

// The upper half of a product, from 16-bit halves, whose products and carries fit into 32 bits.
fn upper_product(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let across = a0 * b1;
    let middle = a1 * b0 + ((a0 * b0) >> 16u) + (across & 0xffffu);
    return a1 * b1 + (across >> 16u) + (middle >> 16u);
}

// a * b mod P for a, b < P, exactly. With x = a * b < 2^62 the quotient q = floor(floor(x / 2^30) * RECIPROCAL / 2^32)
// is at most x / P, and below it by less than 1 (the last floor) + 2^30 / P (the first floor) + 0.27 x / 2^62 (the
// rounding of RECIPROCAL) < 1.78. So the remainder is below 2 P < 2^32, and the lower 32 bits hold all of it.
fn product_mod(a: u32, b: u32) -> u32 {
    let lower = a * b;
    let q = upper_product((upper_product(a, b) << 2u) | (lower >> 30u), ROBE_RECIPROCAL);
    return reduced(lower - q * ROBE_PRIME);
}

// x mod P for x < 2 P.
fn reduced(x: u32) -> u32 {
    return select(x, x - ROBE_PRIME, x >= ROBE_PRIME);
}

// The part of the hash that all chunks of a row share.
fn row_hash(row: u32) -> u32 {
    return reduced(product_mod(row % ROBE_PRIME, ROBE_R3) + ROBE_R1);
}

// Where the chunks of a row are counted from: its hash or, if it lies as a whole, its first weight. `stride` and `rows` are
// those of robe.
fn row_place(row: u32, stride: u32, rows: u32) -> u32 {
    if (stride == 0u) { return row_hash(row); }
    if (rows == 0u) { return row * stride; }
    return (row_hash(row) % rows) * stride;
}

// The part of the hash that chunk j < 2^24 of all rows share.
fn chunk_hash(j: u32) -> u32 {
    return product_mod(j, ROBE_R2);
}

// The weight at which a chunk begins, from the hash of its row and that of its number. `starts` is robe.starts.
fn start_of(row: u32, chunk: u32, starts: u32) -> u32 {
    return reduced(row + chunk) % starts;
}
