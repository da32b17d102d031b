#include "shared/row_shuffled.wgsl"
