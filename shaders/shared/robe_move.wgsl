// The optimiser of a shared weight: SGD or AdaGrad. A weight whose sum or new value is not finite stays and is counted.
// Needs `params`, `rate`, `robe`, `memory`, `states`, `tables`, shared/tables.wgsl.

// Moves weight w by the sum of its gradients. `memory` and `states` are one window of the array.
fn move_weight(w: u32, sum: f32) {
    let at = w - robe.first;
    let before = memory[at];
    let g = sum + params.weight_decay * before;
    var by = rate.lr * g;
    var squares = 0.0;
    if (params.optimizer == ADAGRAD) {
        squares = states[at] + g * g;
        by = by / (sqrt(squares) + params.eps);
    }
    let after = before - by;
    if (!is_finite(bits_of(g)) || !is_finite(bits_of(after)) || !is_finite(bits_of(squares))) {
        count(0u, SKIPPED_ROWS, 1u);
        return;
    }
    memory[at] = after;
    if (params.optimizer == ADAGRAD) { states[at] = squares; }
}
