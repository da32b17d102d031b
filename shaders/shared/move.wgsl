// What happens at a place: a slot, or slots + u for scratch row u.
struct Move {
    place: u32,  // NONE: nothing happens
    row: u32,    // linear row whose record is up-converted into `place`; NONE: nothing comes
    victim: u32, // linear row that leaves, or NONE
    flags: u32,
}

const WRITE: u32 = 1u; // `place`'s FP32 row is packed into the victim's record first; a slot's only if it is dirty, and then it is clean
const KEEP: u32 = 2u;  // the victim is used by this batch (LFU): its record is then up-converted into scratch row u, u this Move's index
