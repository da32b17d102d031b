// The function of readers that asks for a row. Needs `params`, `slot_of`, `feedback: array<atomic<u32>>`, the constants
// WANTED_ROWS and WANTED_BITS, shared/hash.wgsl.
#include "shared/feedback.wgsl"

// Asks for a row, in a fragment or compute stage. The first invocation of a frame that wants the row lists it.
#feedback fn want(row: u32) {
#feedback     if (row >= params.total_rows) {
#feedback         atomicAdd(&feedback[FEEDBACK_BEYOND], 1u);
#feedback         return;
#feedback     }
#feedback     #exact let bit = row;
#feedback     #hashed let bit = fmix32(row ^ fmix32(atomicLoad(&feedback[FEEDBACK_FRAME]))) & (WANTED_BITS - 1u);
#feedback     let word = FEEDBACK_HEAD + 2u * WANTED_ROWS + bit / 32u;
#feedback     let mask = 1u << (bit & 31u);
#feedback     // A load first: most invocations come late and need no atomic change.
#feedback     if ((atomicLoad(&feedback[word]) & mask) != 0u) { return; }
#feedback     if ((atomicOr(&feedback[word], mask) & mask) != 0u) { return; }
#feedback     var list = FEEDBACK_PRESENT;
#feedback     if (slot_of(row) == NONE) { list = FEEDBACK_MISSING; }
#feedback     let nth = atomicAdd(&feedback[list], 1u);
#feedback     if (nth < WANTED_ROWS) { atomicStore(&feedback[FEEDBACK_HEAD + list * WANTED_ROWS + nth], row); }
#feedback }
