// The rows that a caller's shaders want: a head of counts, the list, then the filter, a bit a row.
const FEEDBACK_HEAD: u32 = 8u;
const FEEDBACK_LISTED: u32 = 0u; // rows that this frame wants, those without room in the list too
const FEEDBACK_FRAME: u32 = 1u;  // frames so far; seed of a hashed filter
const FEEDBACK_WANTED: u32 = 2u; // rows that earlier frames have listed
const FEEDBACK_LOST: u32 = 3u;   // rows that earlier frames had no room for
const FEEDBACK_BEYOND: u32 = 4u; // calls with a row beyond the tables, so far
