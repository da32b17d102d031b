// Constants and structs that all stages share. The host's structs are in src/table/abi.rs; tests/shaders.rs compares
// them.

const NONE: u32 = 0xffffffffu; // no row, no slot, no key; sorts after every real one
const TABLE_WORDS: u32 = 28u;  // words of one table in `tables`: base, rows, then 12 counters of two words, and
const SINCE: u32 = 26u;        // two words: the accesses since the counters of rows were halved (AGES); the group's are the first table's
const CLOCK_WORDS: u32 = 4u;   // words before the first table: the step number t, those of a staged table's transfers, padding

// Counters of SPEC 6, in the order of `Counters` on the host.
const ACCESSES: u32 = 0u;
const HITS: u32 = 1u;
const UNIQUE: u32 = 2u;
const UNIQUE_MISSES: u32 = 3u;
const ADMITTED: u32 = 4u;
const EVICTIONS: u32 = 5u;
const WRITE_BACKS: u32 = 6u;
const BYPASS_READS: u32 = 7u;
const BYPASS_WRITES: u32 = 8u;
const SKIPPED_ROWS: u32 = 9u;
const OUT_OF_RANGE: u32 = 10u;
const PADDING: u32 = 11u;
const SINCE_HALVING: u32 = 12u; // at SINCE of a table

// Counts that stay on the device: their positions in `Step.counts`, which begins at word STEP_COUNTS.
const STEP_COUNTS: u32 = 8u;
const COUNT_INDICES: u32 = 0u; // indices of a step that takes place, else 0
const COUNT_UNIQUE: u32 = 1u;  // distinct rows, in backward
const COUNT_VALID: u32 = 2u;   // accesses, that is, indices that are not left out
const COUNT_MISSED: u32 = 3u;  // accesses that missed
const COUNT_SWAPS: u32 = 4u;   // length of the list of swaps; in forward, the number of distinct missing rows
const COUNT_CHUNKS: u32 = 5u;  // chunks of the batch (backward of a parameter-shared table)
const COUNT_HALVINGS: u32 = 6u; // how often the step halves the counters of rows (AGES)

const MODE_TRAIN: u32 = 0u;
const MODE_FROZEN: u32 = 1u;
const MODE_ROWS: u32 = 2u; // frozen, and the indices are linear rows

// Bits of `Params.policy`: `PolicyFacts` in src/config.rs.
const ADMITS: u32 = 1u;    // steps admit rows
const COUNTS: u32 = 2u;    // each row has a counter of its uses
const AGES: u32 = 4u;      // the counters are halved as accesses pass
const RECENTS: u32 = 8u;   // some ways of a set are for recent rows
const OWN_LEAVE: u32 = 16u; // a row that the batch uses may leave
const CLAMP: u32 = 1u;
const SKIP: u32 = 2u;
const MEAN: u32 = 1u;
const POOL_NONE: u32 = 2u;

struct Params {
    indices: u32,          // indices in the batch
    bags: u32,             // bags in the batch
    bags_per_feature: u32,
    tables: u32,
    mode: u32,             // MODE_*
    out_of_range: u32,     // 0 error, CLAMP, SKIP
    pooling: u32,          // 0 sum, MEAN, POOL_NONE
    weighted: u32,         // 1: a weight an index
    sets: u32,
    slots: u32,            // 32 * sets
    policy: u32,           // ADMITS and the bits behind it
    seed: u32,
    dim: u32,
    bits: u32,             // 32, 16, 8, 4, 2
    format: u32,           // the number of the precision; the text has its file of shaders/formats
    stochastic: u32,
    state: u32,            // floats of optimiser state a row: 0 to 2 a weight, then `scalars`
    state_bits: u32,       // bits of a float of the state in the record, its scalars left out: 32, 16 or 8
    facts: u32,            // of an element's states: STATE_* of the first, and 2 bits higher of the second, or of the only one again
    state_word: u32,       // first word of the state in a record
    payload_half: u32,     // first 16-bit half of the payload in a record
    record_words: u32,     // stride of a record
    row_quads: u32,        // stride of a slot, and of a scratch row, in Quads: weights, then state, each from a Quad on
    optimizer: u32,        // the number of the rule in the list of src/config.rs
    each: u32,             // states of an element: 0 to 2
    corrects: u32,         // 1: the rule corrects moments for their start at zero
    begins: u32,           // 1: the second state follows from a weight that is given
    purpose: u32,          // first of the two purposes of this call's random numbers: weight, then state
    total_rows: u32,
    hyper0: f32,           // the rule's hyperparameters, in the order of its file (shaders/rules)
    hyper1: f32,
    hyper2: f32,
    hyper3: f32,
    weight_decay: f32,
    lanes: u32,            // invocations that move a row: a power of two, 4 to 32
    partials: u32,         // first Quad of the partial rows in scratch (backward)
    window_slots: u32,     // slots of a window of the cache; the last may hold fewer
    half_grads: u32,       // 1: the gradients of the outputs are FP16 (backward)
    random_bits: u32,      // random bits an element, where rounding is stochastic: 24, 16 or 8
    freq_max: u32,         // the greatest counter of a row: 255, 65535 or 2^31 or, with AGES, 15
    zero: u32,             // always 0, which no compiler knows; see `bits_of` in shared/quad1.wgsl
    scalars: u32,          // floats of the state that the row has as a whole; last in a slot, first and in FP32 in a record
    shrink: f32,           // decoupled weight decay; then weight_decay is 0
    own_count: u32,        // 1: the row's last scalar counts its updates
    clip_value: f32,       // largest magnitude of a gradient's element; 0: no bound
    clip_norm: f32,        // largest norm of a row's gradient; 0: no bound
    row_shift: u32,        // the group has every 2^row_shift-th row of a whole one,
    row_first: u32,        // from this one on (SPEC 11); both are 0 if it has all rows
    padded: u32,           // number of features, if a table has a padding id, else 0
    parts: u32,            // where all tables share the sets: `sets`, `fold`, `multiplier` and `spare` of `Share` in
    fold: u32,             // shared/sets.wgsl
    multiplier: u32,
    spare: u32,
    gap: u32,              // products above it have the key below
    freq_bits: u32,        // bits of the counter of a row: 8, 16, 32 or, with AGES, 4; 0 without COUNTS
    window_ways: u32,      // ways of a set for recent rows (RECENTS)
    shares: u32,           // number of tables, if each has a share of the cache (shared/sets.wgsl), else 0
    row_mask: u32,         // lowest digit of a row, if linearize counts these digits for backward's sort, else 0
    miss_mask: u32,        // lowest digit of the key of a missing row, if probe counts these digits, else 0
    miss_values: u32,      // first word of the indices of missed accesses in `misses`; their keys come first
}

// Results of one call that stay on the device; zero before the call.
struct Step {
    t: u32,                       // step number
    error: u32,                   // 0 none, 1 index out of range, 2 bad offsets
    error_position: u32,
    error_value: u32,
    error_table: u32,
    bad_index: atomic<u32>,       // NONE - position of the first bad index, 0 if there is none
    bad_offset: atomic<u32>,      // NONE - position of the first bad offset, 0 if there is none
    accesses: atomic<u32>,
    counts: array<u32, 7>,        // COUNT_*
    done: atomic<u32>,            // workgroups of the first stage that have ended
    number: u32,                  // of the forward that decided the lists of this step; 0 if no later call continues it
    wanted: u32,                  // of the forward that carries them out
    carried: u32,                 // of the forward that has carried them out
    continued: u32,               // of the forward that a backward continues; no list is of use to a call with another number
}

fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.y * groups.x;
}
