// Adds a float to a sum, in any order, while other invocations add to the same sum; for any device.
// Needs `sums: array<Added>`.
alias Added = atomic<u32>;

// If another invocation changed the sum since it was read, try again with the new sum. One of the competing invocations
// always succeeds.
fn add(at: u32, x: f32) {
    var before = atomicLoad(&sums[at]);
    loop {
        let exchange = atomicCompareExchangeWeak(&sums[at], before, bitcast<u32>(bitcast<f32>(before) + x));
        if (exchange.exchanged) { break; }
        before = exchange.old_value;
    }
}
