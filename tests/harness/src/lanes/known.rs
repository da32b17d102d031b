//! Findings that are expected, each with its reason. The list is as short as the shaders allow.

use super::findings::{Fault, Finding};

/// An expected finding.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub fault: Fault,
    pub kernel: &'static str,
    /// A part of the line at which it is found, which stays when other lines move.
    pub text: &'static str,
    pub reason: &'static str,
}

/// Every expected finding.
pub const KNOWN: &[Known] = &[];

/// The entry for a finding, if it is expected.
pub fn known(finding: &Finding) -> Option<&'static Known> {
    KNOWN.iter().find(|known| {
        known.fault == finding.fault && known.kernel == finding.kernel && finding.detail.contains(known.text)
    })
}
