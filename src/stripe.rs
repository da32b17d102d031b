//! The rows of a table that a group stores: all of them, or the rows of one virtual shard.

use crate::error::Error;

/// The share of a distributed table that this group stores (SPEC 11): every 2^shift-th row, from `first` on. A group that is not distributed has all.
///
/// ```
/// # #[cfg(feature = "ranks")] {
/// use hotrow::ranks::Stripe;
///
/// let odd = Stripe { shift: 1, first: 1 };
/// assert_eq!([0, 1, 2].map(|row| odd.whole(row)), [1, 3, 5]);
/// assert_eq!(odd.below(8), 4); // 1, 3, 5 and 7
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "[u32; 2]", try_from = "[u32; 2]"))]
pub struct Stripe {
    /// The base-2 logarithm of the distance between two rows.
    pub shift: u32,
    /// The first row, below 2^shift.
    pub first: u32,
}

impl Stripe {
    /// All rows.
    pub const ALL: Self = Self { shift: 0, first: 0 };

    /// The linear row, in the whole group, of a linear row of this one.
    #[inline(always)]
    #[must_use]
    pub const fn whole(self, row: u32) -> u32 {
        row << self.shift | self.first
    }

    /// Number of rows of this stripe below the linear row `end` of the whole group.
    #[must_use]
    pub const fn below(self, end: u64) -> u32 {
        let step = 1 << self.shift;
        ((end + step - 1 - self.first as u64) >> self.shift) as u32
    }
}

impl From<Stripe> for [u32; 2] {
    fn from(Stripe { shift, first }: Stripe) -> Self {
        [shift, first]
    }
}

impl TryFrom<[u32; 2]> for Stripe {
    type Error = Error;

    /// # Errors
    /// [`Error::Config`] unless `first` is below 2^shift, and `shift` below 32.
    fn try_from([shift, first]: [u32; 2]) -> Result<Self, Error> {
        if shift < 32 && first < 1 << shift {
            return Ok(Self { shift, first });
        }
        let wanted = "a shift below 32, and a first row below 2^shift".into();
        Err(Error::Config { field: "stripe", wanted, found: format!("{shift} and {first}") })
    }
}
