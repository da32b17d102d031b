use hotrow::Precision;

use super::robe_gather::matches;

#[test]
fn matches_the_mirror() {
    // Coprime to the cases of a shape: each precision meets each of them.
    let [_, half, int8, int4, int2] = Precision::ALL;
    matches(&[half, int8, int4, int8, int2]);
}
