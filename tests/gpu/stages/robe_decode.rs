use hotrow::Precision;

use super::robe_gather::matches;

#[test]
pub(super) fn matches_the_mirror() {
    // Their number is coprime to the number of cases of a shape, so each precision takes part in each case.
    let [_, half, int8, int4, int2] = Precision::ALL;
    matches(&[half, int8, int4, int8, int2]);
}
