// The rows that a backward updates. Needs `targets: array<Target>`, a list that begins with a header: targets[0] is the
// header, targets[u + 1] is distinct row u.
struct Target {
    row: u32,   // linear row; header: number of distinct rows
    place: u32, // slot, or slots + u for row u of scratch; header: number of accesses
    start: u32, // first sorted access of the row; header: step number
    end: u32,   // end of the row's accesses; header: bits of the factor of all gradients, 1 / scale
}
