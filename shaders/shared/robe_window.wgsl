// Reads a word of the shared array. An array larger than a binding is cut into windows: `window`, then window1, window2
// ... (src/wgsl.rs). Needs `robe`.

fn array_word(at: u32) -> u32 {
    #window if (at >= $u * robe.window_words) { return window$[at - $u * robe.window_words]; }
    return window[at];
}
