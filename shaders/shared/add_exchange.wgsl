// Adding to floats to which others add at the same time, in any order: anywhere. Needs `sums: array<Added>`.
alias Added = atomic<u32>;

// Whoever finds another sum than it has read tries again with that: of those who try at once one always gets through.
fn add(at: u32, x: f32) {
    var before = atomicLoad(&sums[at]);
    loop {
        let exchange = atomicCompareExchangeWeak(&sums[at], before, bitcast<u32>(bitcast<f32>(before) + x));
        if (exchange.exchanged) { break; }
        before = exchange.old_value;
    }
}
