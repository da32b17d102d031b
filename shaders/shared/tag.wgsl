// The tag of a slot. Needs `ways: array<u32>` and shared/meta.wgsl.
fn tag_of(slot: u32) -> u32 {
    return ways[way_at(slot, TAG)];
}
