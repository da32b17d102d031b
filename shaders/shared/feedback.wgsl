// The rows that a caller's shaders want: a head of counts; a list of those that are not in the cache; a list, of equal
// length, of those that are; then the filter, a bit a row.
const FEEDBACK_HEAD: u32 = 8u;
const FEEDBACK_MISSING: u32 = 0u; // rows that this frame wants and the cache lacks, those without room in the list too
const FEEDBACK_PRESENT: u32 = 1u; // rows that this frame wants and the cache has, likewise
const FEEDBACK_FRAME: u32 = 2u;   // frames so far; seed of a hashed filter
const FEEDBACK_WANTED: u32 = 3u;  // rows that earlier frames have taken
const FEEDBACK_LOST: u32 = 4u;    // rows that earlier frames had no room for
const FEEDBACK_BEYOND: u32 = 5u;  // calls with a row beyond the tables, so far
