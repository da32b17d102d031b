// The rows that a backward updates. Needs `targets: array<Target>`, a list that begins with its length: targets[0] is a header, and
// distinct row u is targets[u + 1].
struct Target {
    row: u32,   // linear row; in the header the number of distinct rows
    place: u32, // slot, or slots + u for scratch row u; in the header the number of accesses
    start: u32, // its first sorted access; in the header the step number
    end: u32,   // behind its last; in the header the bits of what gradients are multiplied with
}
