// A feature reads one table. The numbers of that table stand beside it, because they never change: reading them from
// `tables`, whose counters do, would take atomic loads.
struct Feature {
    table: u32,
    base: u32, // linear row of the table's first row
    rows: u32,
    padding: u32, // the id that is no access, if `padded` is 1
    padded: u32,
}
