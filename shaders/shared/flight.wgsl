// Where a row's record is: in its shard; or, for a staged table, in the flight that Move j is part of. What leaves in a step lies densely, in
// any order: of each Move 0 or 1 + the place of its record, then the row of each record, then the records. Needs `records`, `tables`,
// `params`, `shard` and shared/tables.wgsl.

fn own_record(row: u32) -> u32 {
    return (row - shard.first_row) * params.record_words;
}

// Record `place` - 1 among those of a step.
fn departed(step_words: u32, place: u32) -> u32 {
    return step_words + 2u * shard.capacity + (place - 1u) * params.record_words;
}

// A place for the record of `row`, which leaves with Move j: the same for all that leaves with it. One invocation a row.
fn departure(row: u32, j: u32) -> u32 {
    var place = records[shard.leaving + j];
    if (place == 0u) {
        place = atomicAdd(&tables[shard.counter], 1u) + 1u;
        records[shard.leaving + j] = place;
        records[shard.leaving + shard.capacity + place - 1u] = row;
    }
    return place;
}

// The record of the row that comes with Move j. It left a step ago and the host has not seen it yet: then it is here.
fn arrival(row: u32, j: u32) -> u32 {
    if (shard.moves == 0u) { return own_record(row); }
    let before = records[shard.forwards + j];
    if (before != 0u) {
        let place = records[shard.left + before - 1u];
        if (place != 0u) { return departed(shard.left, place); }
    }
    return shard.arrivals + j * params.record_words;
}

// The record of the victim that Move j keeps: as it has just been packed, or as the table had it.
fn kept_record(row: u32, j: u32) -> u32 {
    if (shard.moves == 0u) { return own_record(row); }
    let place = records[shard.leaving + j];
    if (place != 0u) { return departed(shard.leaving, place); }
    return shard.arrivals + records[shard.kept + j] * params.record_words;
}
