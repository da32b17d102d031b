const SCAN_BLOCK: u32 = 1024u;

struct ScanInfo {
    n: u32, // elements
    pad0: u32,
    pad1: u32,
    pad2: u32,
}
