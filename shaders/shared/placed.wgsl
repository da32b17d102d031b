// Where rows lie. Of an access that missed, `places` has slots + u, where u numbers the missing rows; admission may have
// given the row a slot, which its swap has. Where own rows may leave, locate has replaced these places. Needs `params`, `places` and
// `swaps: array<Swap>`.

// Whether missing rows may have slots.
fn any_admitted() -> bool {
    return params.mode == MODE_TRAIN && params.sets > 0u && (params.policy & (ADMITS | OWN_LEAVE)) == ADMITS;
}

// A slot, or slots + u for row u of scratch; NONE for NONE.
fn placed(place: u32) -> u32 {
    if (place < params.slots || place == NONE || !any_admitted()) { return place; }
    return swaps[place - params.slots].place;
}

// The same for four places. All swaps are read at once.
fn placed_four(given: vec4<u32>) -> vec4<u32> {
    let missed = (given >= vec4<u32>(params.slots)) & (given != vec4<u32>(NONE));
    if (!any(missed) || !any_admitted()) { return given; }
    let u = select(vec4<u32>(0u), given - params.slots, missed);
    let now = vec4<u32>(swaps[u.x].place, swaps[u.y].place, swaps[u.z].place, swaps[u.w].place);
    return select(given, now, missed);
}
