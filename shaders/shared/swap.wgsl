// A change at a place. A place is a slot, or slots + u for row u of scratch.
struct Swap {
    place: u32,  // NONE: nothing happens
    row: u32,    // linear row whose record is unpacked into `place`; NONE: nothing comes
    victim: u32, // linear row that leaves, if a flag says so; NONE: nothing leaves. Of a row that has not been admitted, the order
                 // of admission: its count in the batch, or by its counter (shared/freqs.wgsl)
    flags: u32,
}

const WRITE: u32 = 1u; // first pack the FP32 row at `place` into the victim's record; a slot only if it is dirty, which makes it clean
const KEEP: u32 = 2u;  // this batch uses the victim (LFU): unpack its record into row u of scratch, where u is this swap's index
