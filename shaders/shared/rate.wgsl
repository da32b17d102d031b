// What a step of the optimiser changes without a new `Params`.
struct Rate {
    lr: f32, // learning rate
    pad0: u32,
    pad1: u32,
    pad2: u32,
}
