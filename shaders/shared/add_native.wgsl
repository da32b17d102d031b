// Adding to floats to which others add at the same time, in any order: where the device can. Needs `sums: array<Added>`.
alias Added = atomic<f32>;

fn add(at: u32, x: f32) {
    atomicAdd(&sums[at], x);
}
