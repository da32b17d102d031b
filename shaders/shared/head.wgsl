// Bit r says whether key `first + 256 r` of the sorted `keys` is the first among equal keys. NONE, which sorts last,
// never counts as a first key.
fn heads_of(first: u32, n: u32) -> u32 {
    return head4(first, n) | (head4(first + 1024u, n) << 4u);
}

fn head4(first: u32, n: u32) -> u32 {
    let at = first + vec4<u32>(0u, 256u, 512u, 768u);
    let near = min(at, vec4<u32>(n - 1u));
    let here = vec4<u32>(keys[near.x], keys[near.y], keys[near.z], keys[near.w]);
    let last = max(near, vec4<u32>(1u)) - 1u;
    let before = vec4<u32>(keys[last.x], keys[last.y], keys[last.z], keys[last.w]);
    let head = (at < vec4<u32>(n)) & (here != vec4<u32>(NONE)) & ((at == vec4<u32>(0u)) | (here != before));
    let bits = select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), head);
    return bits.x | bits.y | bits.z | bits.w;
}
