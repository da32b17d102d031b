#include "shared/whole_row.wgsl"

// murmur3's 32-bit finaliser. Known answers are in src/table/hash.rs.
fn fmix32(x: u32) -> u32 {
    var h = x;
    h ^= h >> 16u;
    h *= 0x85ebca6bu;
    h ^= h >> 13u;
    h *= 0xc2b2ae35u;
    h ^= h >> 16u;
    return h;
}

// The set of a row.
fn home_of(row: u32) -> u32 { return fmix32(whole_row(row)) % params.sets; }

// The sort key of a missing row: distinct for distinct rows, ascending by set, never NONE. It is the position of the
// row's hash in the list of all hashes ordered by (set, hash), without the hash of NONE. Without sets the key is the
// row itself. Tests are in src/table/hash.rs.
fn miss_key(row: u32, sets: u32) -> u32 {
    if (sets == 0u) { return row; }
    let key = nth_hash(fmix32(whole_row(row)), sets);
    return key - select(0u, 1u, key > nth_hash(fmix32(0xffffffffu), sets));
}

// Counts how many hashes come before `h` in the list of all hashes ordered by (set, hash).
fn nth_hash(h: u32, sets: u32) -> u32 {
    let home = h % sets;
    // 2^32 = each * sets + more. With one set `each` overflows to 0, which is harmless: it is multiplied with set 0.
    let more = (0xffffffffu % sets + 1u) % sets;
    let each = 0xffffffffu / sets + select(0u, 1u, more == 0u);
    return home * each + min(home, more) + h / sets;
}
