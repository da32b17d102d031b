//! One row packed: the definition (`codec`), the same at speed (`rows`), and the first values (`init`).

pub mod codec;
pub(crate) mod init;
pub(crate) mod of_params;
pub mod rows;
