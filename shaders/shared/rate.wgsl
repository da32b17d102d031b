// The numbers of an optimiser's step that may change without a new `Params`.
struct Rate {
    lr: f32, // learning rate
    pad0: u32,
    pad1: u32,
    pad2: u32,
}
