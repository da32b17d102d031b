// Adds to floats to which other invocations add at the same time, in any order, on devices with float atomics. Needs
// `sums: array<Added>`.
alias Added = atomic<f32>;

fn add(at: u32, x: f32) {
    atomicAdd(&sums[at], x);
}
