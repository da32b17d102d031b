// Moves a weight of an FP32 array, a word, with its states, words side by side. A weight whose sum or new value is not
// finite stays and is counted. Needs `robe`, `memory`, `states`, `tables`, shared/tables.wgsl, shared/robe_move.wgsl.

// Moves weight w by the sum of its gradients. `memory` and `states` are one window of the array.
fn move_weight(w: u32, sum: f32) {
    let at = w - robe.first;
    var first = 0.0;
    var second = 0.0;
    if (params.each > 0u) { first = states[params.each * at]; }
    if (params.each > 1u) { second = states[2u * at + 1u]; }
    let next = moved_by(sum, memory[at], first, second);
    if (!next.finite) {
        count(0u, SKIPPED_ROWS, 1u);
        return;
    }
    memory[at] = next.e.w;
    if (params.each > 0u) { states[params.each * at] = next.e.first; }
    if (params.each > 1u) { states[2u * at + 1u] = next.e.second; }
}
