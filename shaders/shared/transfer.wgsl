// The transfer of a staged table: the records that come and go. The records that leave in a step lie densely, in any order:
// first, for each swap, 0 or 1 + the position of its record, then the row of each record, then the records. Needs
// `records: array<u32>`, `tables`, `params`, `piece` and shared/tables.wgsl.

// The record at `place` - 1 of the departures at `step_words`.
fn departed(step_words: u32, place: u32) -> Record {
    return Record(0u, step_words + 2u * piece.capacity + (place - 1u) * params.record_words);
}

// The position for the record of `row`, which leaves with swap j. Every call for the same swap returns the same one.
// Called by one invocation for each row.
fn departure(row: u32, j: u32) -> u32 {
    var place = records[piece.leaving + j];
    if (place == 0u) {
        place = atomicAdd(&tables[piece.counter], 1u) + 1u;
        records[piece.leaving + j] = place;
        records[piece.leaving + piece.capacity + place - 1u] = row;
    }
    return place;
}

// The record of the row that comes with swap j, in the transfer. If the row left a step ago and the host does not have it
// yet, its record is among the departures of that step.
fn arrived(j: u32) -> Record {
    let before = records[piece.forwards + j];
    if (before != 0u) {
        let place = records[piece.left + before - 1u];
        if (place != 0u) { return departed(piece.left, place); }
    }
    return Record(0u, piece.arrivals + j * params.record_words);
}

// The record of the victim that swap j keeps, in the transfer: as packed in this step, or as the table had it.
fn kept_in_transfer(j: u32) -> Record {
    let place = records[piece.leaving + j];
    if (place != 0u) { return departed(piece.leaving, place); }
    return Record(0u, piece.arrivals + records[piece.kept + j] * params.record_words);
}
