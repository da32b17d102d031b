#include "shared/lanes_subgroups.wgsl"
