// Adds a float to a sum while other invocations add to the same sum, in any order; for devices with float atomics.
// Needs `sums: array<Added>`.
alias Added = atomic<f32>;

fn add(at: u32, x: f32) {
    atomicAdd(&sums[at], x);
}
