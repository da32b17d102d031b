//! CPU mirrors of the stages of a cached table.

pub(crate) mod admit;
pub(crate) mod arrange;
pub(crate) mod assign;
pub(crate) mod bags;
pub(crate) mod begin;
pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod combine;
pub(crate) mod exchange;
pub(crate) mod gather;
pub(crate) mod linearize;
pub(crate) mod locate;
pub(crate) mod merge;
pub(crate) mod probe;
pub(crate) mod reset;
pub(crate) mod space;
pub(crate) mod tables;
pub(crate) mod touch;
pub(crate) mod update;

pub(crate) use admit::admit;
pub(crate) use arrange::arrange;
pub(crate) use assign::assign;
pub(crate) use begin::begin;
pub(crate) use claim::claim;
pub(crate) use collect::collect;
pub(crate) use combine::combine;
pub(crate) use exchange::exchange;
pub(crate) use gather::gather;
pub(crate) use linearize::linearize;
pub(crate) use locate::locate;
pub(crate) use merge::merge;
pub(crate) use probe::probe;
pub(crate) use reset::reset;
pub(crate) use touch::touch;
pub(crate) use update::update;
