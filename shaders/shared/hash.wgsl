// murmur3's 32-bit finaliser; known answers in src/hash.rs.
fn fmix32(x: u32) -> u32 {
    var h = x;
    h ^= h >> 16u;
    h *= 0x85ebca6bu;
    h ^= h >> 13u;
    h *= 0xc2b2ae35u;
    h ^= h >> 16u;
    return h;
}

// Distinct for distinct rows and ascending by set, in 32 bits: of the hashes of a set the q-th, counted on from those of the
// sets before it, NONE's hash left out: no key is NONE. Without sets, the row itself. Proofs in src/hash.rs.
fn miss_key(row: u32, sets: u32) -> u32 {
    if (sets == 0u) { return row; }
    let key = nth_hash(fmix32(row), sets);
    return key - select(0u, 1u, key > nth_hash(fmix32(0xffffffffu), sets));
}

// How many hashes come before `h` when they are listed set by set.
fn nth_hash(h: u32, sets: u32) -> u32 {
    let home = h % sets;
    // 2^32 = each * sets + more, `each` without its highest bit where there is one set, whose home is 0.
    let more = (0xffffffffu % sets + 1u) % sets;
    let each = 0xffffffffu / sets + select(0u, 1u, more == 0u);
    return home * each + min(home, more) + h / sets;
}
