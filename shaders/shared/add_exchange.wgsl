// Adds to floats to which other invocations add at the same time, in any order, on any device. Needs
// `sums: array<Added>`.
alias Added = atomic<u32>;

// If another invocation changed the sum since it was read, try again with the new sum. One of those that compete always
// succeeds.
fn add(at: u32, x: f32) {
    var before = atomicLoad(&sums[at]);
    loop {
        let exchange = atomicCompareExchangeWeak(&sums[at], before, bitcast<u32>(bitcast<f32>(before) + x));
        if (exchange.exchanged) { break; }
        before = exchange.old_value;
    }
}
