//! The state that a forward keeps for its backward.

use crate::{error::Error, host::alloc::zeroed, table::abi::Step};

/// The lists that a forward leaves for its backward.
#[derive(Debug)]
pub(crate) struct Space {
    pub(super) step: Step,
    pub(super) hashes: Vec<u32>,
    pub(super) access: Vec<[u32; 2]>,
}

impl Space {
    pub(super) fn new(indices: u32) -> Result<Self, Error> {
        let n = indices as usize;
        Ok(Self { step: Step::default(), hashes: zeroed("hashes", n)?, access: zeroed("access", n)? })
    }
}
