// robe_gather for a packed array: reads the rows of each bag from halves or blocks of codes, in bag order, and pools
// them.
//
// Bytes moved per access: 4 (hash), dim bits / 8 (row), 8 for each of its blocks (integers), 4 (weight); per output
// row: 8 (offsets), 4 dim.
#include "shared/robe_pool.wgsl"
#include "shared/half.wgsl"
#include "shared/robe_array.wgsl"
